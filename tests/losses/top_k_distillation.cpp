// SPDX-License-Identifier: MIT
// labels: optimised
// top_k_distillation(): HASS's loss and its gradient, against full softmaxes.
#include <losses/top_k_distillation.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "count_allocations.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;
using specula::Isa;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The loss and its gradient from full softmaxes and a sort, independent of the library.
struct Dense {
  double cross_entropy = 0, top_k = 0;
  std::vector<double> gradient;
};
std::vector<double> softmax(const std::vector<double>& logits) {
  std::vector<double> out;
  double z = 0;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (const double l : logits) out.push_back(std::exp(l - top));
  for (const double w : out) z += w;
  for (double& w : out) w /= z;
  return out;
}
Dense dense(const std::vector<double>& target, const std::vector<double>& draft, std::int32_t k,
            double weight, double cross_entropy_weight) {
  const std::size_t v = target.size();
  const std::vector<double> p = softmax(target), q = softmax(draft);
  std::vector<std::size_t> order(v);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return target[a] != target[b] ? target[a] > target[b] : a < b;
  });
  order.resize(std::min(v, static_cast<std::size_t>(k)));
  Dense out;
  // The weight of every log q; the gradient follows by the chain rule.
  std::vector<double> share(v);
  double all = 0;
  for (std::size_t x = 0; x < v; ++x) {
    share[x] = cross_entropy_weight * p[x];
    if (p[x] > 0) out.cross_entropy -= p[x] * std::log(q[x]);
  }
  for (const std::size_t x : order) {
    share[x] += weight * p[x];
    if (p[x] > 0) out.top_k -= p[x] * std::log(q[x]);
  }
  for (const double s : share) all += s;
  for (std::size_t x = 0; x < v; ++x) out.gradient.push_back(all * q[x] - share[x]);
  return out;
}

std::vector<double> doubles(const std::vector<float>& row) { return {row.begin(), row.end()}; }
std::vector<float> floats(const std::vector<double>& row) {
  std::vector<float> out;
  for (const double l : row) out.push_back(static_cast<float>(l));
  return out;
}

constexpr std::size_t kSizes[] = {1, 2, 7, 511, 512, 513, 1300, 4096, 5000};

}  // namespace

TEST_CASE("an example by hand") {
  const std::vector<double> target{std::log(.5), std::log(.3), std::log(.2)},
      draft{std::log(.25) + 7, std::log(.5) + 7, std::log(.25) + 7};
  std::vector<double> gradient(3);
  const TopKDistillation loss{.k = 2};
  CHECK(loss.weight == 1);
  CHECK(loss.cross_entropy_weight == 0.1);
  CHECK(TopKDistillation{}.k == 10);
  const auto got = loss.row(target, draft, gradient);
  // .5 log 4 + .3 log 2 (+ .2 log 4)
  CHECK(got.top_k == doctest::Approx(1.3 * std::log(2.0)).epsilon(1e-14));
  CHECK(got.cross_entropy == doctest::Approx(1.7 * std::log(2.0)).epsilon(1e-14));
  CHECK(loss.total(got) == doctest::Approx(1.47 * std::log(2.0)).epsilon(1e-14));
  // (.1 + .8) q - .1 p - p of the first two
  CHECK(gradient[0] == doctest::Approx(.225 - .05 - .5).epsilon(1e-13));
  CHECK(gradient[1] == doctest::Approx(.45 - .03 - .3).epsilon(1e-13));
  CHECK(gradient[2] == doctest::Approx(.225 - .02).epsilon(1e-13));
}

TEST_CASE("doubles: values and gradients are those of full softmaxes") {
  Random random(1);
  double worst = 0;
  for (const std::size_t v : kSizes)
    for (const std::int32_t k : {0, 1, 5, 10, 64})
      for (const double weight : {0.0, 0.5, 1.0})
        for (const double plain : {0.0, 0.1, 2.0}) {
          const auto n = static_cast<std::int32_t>(v);
          const std::vector<double> target = doubles(random.row(n, 6, 0.2)),
                                    draft = doubles(random.row(n, 8));
          const TopKDistillation loss{.k = k, .weight = weight, .cross_entropy_weight = plain};
          std::vector<double> gradient(v, kNan);
          const auto got = loss.row(target, draft, gradient);
          const Dense want = dense(target, draft, k, weight, plain);
          worst = worse(worst, std::abs(got.cross_entropy - want.cross_entropy) / (1 + want.cross_entropy));
          worst = worse(worst, std::abs(got.top_k - want.top_k) / (1 + want.top_k));
          for (std::size_t x = 0; x < v; ++x) {
            const double error = std::abs(gradient[x] - want.gradient[x]);
            worst = worse(worst, std::isnan(error) ? 1 : error);
          }
          // A constant added to all of the draft's logits has no effect.
          CHECK(std::accumulate(gradient.begin(), gradient.end(), 0.0) == doctest::Approx(0).epsilon(1e-12));
        }
  CHECK(worst < 1e-13);
}

TEST_CASE("doubles: the gradient agrees with finite differences of the loss") {
  Random random(2);
  double worst = 0;
  for (const std::size_t v : {2u, 5u, 13u, 40u})
    for (const std::int32_t k : {1, 5, 10})
      for (const double weight : {0.0, 0.5, 1.0})
        for (const double plain : {0.0, 0.1, 1.0}) {
          const auto n = static_cast<std::int32_t>(v);
          const std::vector<double> target = doubles(random.row(n, 3));
          std::vector<double> draft = doubles(random.row(n, 3)), gradient(v);
          const TopKDistillation loss{.k = k, .weight = weight, .cross_entropy_weight = plain};
          const double scale = 0.25;
          loss.row(target, draft, gradient, scale);
          for (std::size_t x = 0; x < v; ++x) {
            const double at = draft[x], h = 1e-5;
            draft[x] = at + h;
            const double above = loss.total(loss.row(target, draft));
            draft[x] = at - h;
            const double below = loss.total(loss.row(target, draft));
            draft[x] = at;
            worst = worse(worst, std::abs(gradient[x] - scale * (above - below) / (2 * h)));
          }
        }
  CHECK(worst < 1e-9);
}

TEST_CASE("ties go to the lower token") {
  // The fourth of five equal logits, and a flat row.
  std::vector<double> target{1, 3, 1, 1, 0, 1, 1}, draft{1, 2, 3, 4, 5, 6, 7};
  const std::vector<double> p = softmax(target), q = softmax(draft);
  const auto sum = [&](std::initializer_list<std::size_t> tokens) {
    double out = 0;
    for (const std::size_t x : tokens) out -= p[x] * std::log(q[x]);
    return out;
  };
  const auto top_k = [&](std::int32_t k) { return TopKDistillation{.k = k}.row(target, draft).top_k; };
  CHECK(top_k(1) == doctest::Approx(sum({1})));
  CHECK(top_k(2) == doctest::Approx(sum({1, 0})));
  CHECK(top_k(3) == doctest::Approx(sum({1, 0, 2})));
  CHECK(top_k(5) == doctest::Approx(sum({1, 0, 2, 3, 5})));
  CHECK(top_k(7) == doctest::Approx(sum({0, 1, 2, 3, 4, 5, 6})));
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    const std::size_t v = 1700;
    const std::vector<float> flat(v, 2.5f);
    std::vector<float> rising(v), gradient(v);
    for (std::size_t x = 0; x < v; ++x) rising[x] = static_cast<float>(x) / 1000;
    TopKDistillation{.k = 10, .weight = 1, .cross_entropy_weight = 0}.row(flat, rising, gradient);
    for (std::size_t x = 0; x < v; ++x) CHECK((gradient[x] < 0) == (x < 10));
    // The largest in the last tile, runners-up tied over the tiles before.
    std::vector<float> peaked(v, 0.0f);
    peaked[1699] = 3;
    peaked[600] = peaked[601] = peaked[1200] = 2;
    TopKDistillation{.k = 3, .weight = 1, .cross_entropy_weight = 0}.row(peaked, rising, gradient);
    for (std::size_t x = 0; x < v; ++x) CHECK((gradient[x] < 0) == (x == 600 || x == 601 || x == 1699));
  }
}

TEST_CASE("k of at least all tokens gives the cross entropy; k = 0 or weight 0, plain distillation") {
  Random random(3);
  for (const std::size_t v : {1u, 10u, 64u}) {
    const auto n = static_cast<std::int32_t>(v);
    const std::vector<double> target = doubles(random.row(n, 4)), draft = doubles(random.row(n, 4));
    std::vector<double> all(v), none(v), weightless(v), plain(v);
    const TopKDistillation whole{.k = 64, .weight = 0.7, .cross_entropy_weight = 0};
    const auto got = whole.row(target, draft, all);
    CHECK(got.top_k == doctest::Approx(got.cross_entropy).epsilon(1e-14));
    CHECK(whole.total(got) == doctest::Approx(0.7 * got.cross_entropy).epsilon(1e-14));
    const auto without =
        TopKDistillation{.k = 0, .weight = 9, .cross_entropy_weight = 0.7}.row(target, draft, none);
    CHECK(without.top_k == 0);
    CHECK(without.cross_entropy == got.cross_entropy);
    TopKDistillation{.k = 5, .weight = 0, .cross_entropy_weight = 0.7}.row(target, draft, weightless);
    const std::vector<double> p = softmax(target), q = softmax(draft);
    for (std::size_t x = 0; x < v; ++x) {
      CHECK(std::abs(all[x] - 0.7 * (q[x] - p[x])) < 1e-14);
      CHECK(std::abs(none[x] - 0.7 * (q[x] - p[x])) < 1e-14);
      CHECK(weightless[x] == none[x]);
    }
  }
}

TEST_CASE("floats meet the numeric contract on every instruction set") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(4);
    double loss_error = 0, gradient_error = 0;
    for (const std::size_t v : kSizes)
      for (const std::int32_t k : {0, 1, 10, 64})
        for (const double spread : {0.5, 8.0, 100.0})
          for (const double middle : {0.0, -60.0})
            for (const double masked : {0.0, 0.4}) {
              const auto n = static_cast<std::int32_t>(v);
              std::vector<float> target = mixed_row(random, n, spread, 0.1, masked, false),
                                 draft = random.row(n, spread);
              for (std::size_t x = 0; x < v; ++x) {
                target[x] += static_cast<float>(middle);
                // Tokens of target probability 0 may have draft probability 0.
                if (target[x] == -std::numeric_limits<float>::infinity() && x % 3 == 0) draft[x] = target[x];
              }
              if (masked > 0 && v > 1200)
                std::fill(target.begin() + 512, target.begin() + 1024,
                          -std::numeric_limits<float>::infinity());
              const TopKDistillation loss{.k = k, .weight = 0.8, .cross_entropy_weight = 0.3};
              std::vector<float> gradient(v, std::numeric_limits<float>::quiet_NaN());
              const double scale = 0.5;
              const auto got = loss.row(target, draft, gradient, scale);
              const auto exact = [&](std::vector<double> t, std::vector<double> d) {  // also of -infinity
                return dense(t, d, k, 0.8, 0.3);
              };
              const Dense want = exact(doubles(target), doubles(draft));
              loss_error = std::max(
                  {loss_error,
                   std::abs(got.cross_entropy - want.cross_entropy) / (2e-6 * want.cross_entropy + 5e-7),
                   std::abs(got.top_k - want.top_k) / (2e-6 * want.top_k + 5e-7)});
              for (std::size_t x = 0; x < v; ++x) {
                const double error = std::abs(static_cast<double>(gradient[x]) - scale * want.gradient[x]);
                gradient_error =
                    std::max(gradient_error, std::isnan(error) ? kInf : error / (1e-6 * scale * 1.1));
              }
            }
    MESSAGE("isa " << static_cast<int>(isa) << ": losses " << loss_error << ", gradients " << gradient_error
                   << " of what is allowed");
    CHECK(loss_error <= 1);
    CHECK(gradient_error <= 1);
  }
}

TEST_CASE("large logits: only differences matter") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(5);
    std::vector<float> target = random.row(900, 5), draft = random.row(900, 5), gradient(900);
    for (float& l : target) l = std::round(l * 16) / 16 + 3e4f;  // whole sixteenths: exact in floats
    for (float& l : draft) l = std::round(l * 16) / 16 - 3e4f;
    const auto got = TopKDistillation{}.row(target, draft, gradient);
    const Dense want = dense(doubles(target), doubles(draft), 10, 1, 0.1);
    CHECK(got.cross_entropy == doctest::Approx(want.cross_entropy).epsilon(4e-6));
    CHECK(got.top_k == doctest::Approx(want.top_k).epsilon(4e-6));
    for (std::size_t x = 0; x < 900; ++x)
      CHECK(std::abs(static_cast<double>(gradient[x]) - want.gradient[x]) < 4e-6);
  }
}

TEST_CASE(
    "the loss is the same without a gradient; the gradient may overwrite the draft's row; scale multiplies "
    "only the gradient") {
  Random random(6);
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    for (const std::int32_t v : {3, 512, 1300}) {
      const std::vector<float> target = random.row(v, 5), draft = random.row(v, 5);
      const auto n = static_cast<std::size_t>(v);
      std::vector<float> gradient(n), half(n), in_place = draft;
      const TopKDistillation loss;
      const auto with = loss.row(target, draft, gradient), without = loss.row(target, draft);
      const auto halved = loss.row(target, draft, half, 0.5), same = loss.row(target, in_place, in_place);
      for (const auto& other : {without, halved, same}) {
        CHECK(other.cross_entropy == with.cross_entropy);
        CHECK(other.top_k == with.top_k);
      }
      CHECK(in_place == gradient);
      for (std::size_t x = 0; x < n; ++x)
        CHECK(half[x] == doctest::Approx(static_cast<double>(gradient[x]) / 2).epsilon(1e-5));
      std::vector<double> exact = doubles(draft), apart(n);
      loss.row(doubles(target), doubles(draft), apart);
      loss.row(doubles(target), exact, exact);
      CHECK(exact == apart);
    }
  }
}

TEST_CASE("minus infinity is allowed in the draft's row exactly where p is 0") {
  const std::vector<double> target{0, -kInf, 1, -kInf}, draft{1, 2, 1, -kInf};
  const auto check = [&](auto t, auto d) {
    auto gradient = d;
    const auto got = TopKDistillation{}.row(t, d, gradient);
    const Dense want = dense(target, draft, 10, 1, 0.1);
    CHECK(got.cross_entropy == doctest::Approx(want.cross_entropy).epsilon(2e-6));
    CHECK(got.top_k == doctest::Approx(want.top_k).epsilon(2e-6));
    for (std::size_t x = 0; x < 4; ++x)
      CHECK(static_cast<double>(gradient[x]) == doctest::Approx(want.gradient[x]).epsilon(1e-5));
    CHECK(gradient[3] == 0);
    CHECK(gradient[1] > 0);
    auto bad = d;
    bad[0] = d[3];
    for (const std::int32_t k : {0, 1, 10})
      CHECK_THROWS_WITH_AS((TopKDistillation{.k = k}.row(t, bad)),
                           "TopKDistillation: the loss is infinite: the draft's logit of token 0, which the "
                           "target may choose, is -inf",
                           std::runtime_error);
  };
  check(target, draft);
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    check(floats(target), floats(draft));
    // In any tile; target probabilities that underflow in float count as 0.
    std::vector<float> t(1300, 0.0f), d(1300, 0.0f);
    d[1299] = -std::numeric_limits<float>::infinity();
    CHECK_THROWS_WITH_AS((TopKDistillation{.k = 3}.row(t, d)),
                         "TopKDistillation: the loss is infinite: the draft's logit of token 1299, which the "
                         "target may choose, is -inf",
                         std::runtime_error);
    if (isa == Isa::reference) continue;
    for (std::size_t x = 1; x < 1300; ++x) t[x] = -200;
    for (std::size_t x = 5; x < 1300; ++x) d[x] = d[1299];
    const auto got = TopKDistillation{}.row(t, d);
    CHECK(got.cross_entropy == doctest::Approx(std::log(5.0)).epsilon(2e-6));
    CHECK(got.top_k == doctest::Approx(std::log(5.0)).epsilon(2e-6));
  }
  std::vector<double> faint{0, -720};  // below 2^-1022
  CHECK(TopKDistillation{}.row(faint, std::vector<double>{1, -kInf}).top_k == 0);
}

TEST_CASE("masks of the lowest float have no weight") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    std::vector<float> target(1500, std::numeric_limits<float>::lowest()), draft = target, gradient(1500);
    target[3] = target[700] = 1;
    draft[3] = draft[700] = draft[701] = draft[1499] = 2;
    const auto got = TopKDistillation{}.row(target, draft, gradient);
    CHECK(got.cross_entropy == doctest::Approx(std::log(4.0)).epsilon(2e-6));
    CHECK(got.top_k == doctest::Approx(std::log(4.0)).epsilon(2e-6));
    CHECK(static_cast<double>(gradient[701]) == doctest::Approx(1.1 / 4).epsilon(2e-6));
    CHECK(gradient[600] == 0);
    // A finite logit that is too low for a float loss.
    draft[700] = draft[0];
    if (isa != Isa::reference)
      CHECK_THROWS_AS(TopKDistillation{.k = 0}.row(target, draft), std::runtime_error);
  }
}

TEST_CASE("invalid rows are refused, for any position of the bad value") {
  const auto check = [](auto zero, std::size_t v) {
    using Real = decltype(zero);
    using Row = std::vector<Real>;
    const Real inf = std::numeric_limits<Real>::infinity(), nan = std::numeric_limits<Real>::quiet_NaN();
    const TopKDistillation loss{.k = 2};
    const Row good(v, Real{1});
    for (std::size_t at = 0; at < v; at += v < 100 ? 1 : 37)
      for (const Real bad : {nan, inf, -nan})
        for (const Real others : {Real{1}, -inf, std::numeric_limits<Real>::lowest()}) {
          Row row(v, others);
          if (at % 2 == 0) row[(at + 600) % v] = 0;  // in another tile, if there is one
          row[at] = bad;
          const std::string message =
              "'s row of logits holds NaN or +infinity at token " + std::to_string(at);
          CHECK_THROWS_WITH_AS(loss.row(row, good), ("TopKDistillation: the target" + message).c_str(),
                               std::runtime_error);
          CHECK_THROWS_WITH_AS(loss.row(good, row), ("TopKDistillation: the draft" + message).c_str(),
                               std::runtime_error);
        }
    const Row empty(v, -inf);
    CHECK_THROWS_WITH_AS(loss.row(empty, good),
                         "TopKDistillation: the target's row of logits is empty: none is above -infinity",
                         std::runtime_error);
    CHECK_THROWS_WITH_AS(loss.row(good, empty),
                         doctest::Contains("TopKDistillation: the draft's row of logits is empty"),
                         std::runtime_error);
    Row gradient(v + 1);
    CHECK_THROWS_WITH_AS(loss.row(good, Row(v + 1)), doctest::Contains("TopKDistillation: the rows are "),
                         std::invalid_argument);
    CHECK_THROWS_AS(loss.row(Row(v + 1), good), std::invalid_argument);
    CHECK_THROWS_WITH_AS(loss.row(good, good, gradient), doctest::Contains("(gradient) wide, must be alike"),
                         std::invalid_argument);
    CHECK_THROWS_AS(loss.row(Row{}, Row{}), std::invalid_argument);
  };
  for (const std::size_t v : {1u, 3u, 512u, 5000u}) {
    check(0.0, v);
    for (const Isa isa : every_isa()) {
      const Arithmetic arithmetic(isa);
      check(0.0f, v);
    }
  }
  std::vector<float> huge{1, 3e38f};
  CHECK_THROWS_WITH_AS(
      TopKDistillation{}.row(huge, huge),
      "TopKDistillation: the target's row of logits is too large: its largest logit is beyond 1e38",
      std::runtime_error);
}

TEST_CASE("parameters out of range are refused") {
  const std::vector<float> row(3);
  std::vector<float> gradient(3);
  CHECK_THROWS_WITH_AS((TopKDistillation{.k = 65}.row(row, row)),
                       "TopKDistillation: k is 65, must be in [0, 64]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(TopKDistillation{.k = -1}.row(row, row),
                       doctest::Contains("TopKDistillation: k is -1, must be in [0, 64]"),
                       std::invalid_argument);
  for (const double bad : {-0.5, kNan, kInf}) {
    CHECK_THROWS_WITH_AS(TopKDistillation{.weight = bad}.row(row, row),
                         doctest::Contains("TopKDistillation: weight is "), std::invalid_argument);
    CHECK_THROWS_WITH_AS(TopKDistillation{.cross_entropy_weight = bad}.row(row, row),
                         doctest::Contains("TopKDistillation: cross_entropy_weight is "),
                         std::invalid_argument);
  }
  CHECK_THROWS_WITH_AS(TopKDistillation{.weight = -1}.validate(),
                       "TopKDistillation: weight is -1.000000, must be finite and >= 0",
                       std::invalid_argument);
  CHECK_THROWS_AS(TopKDistillation{}.row(row, row, gradient, kNan), std::invalid_argument);
  CHECK_THROWS_WITH_AS(TopKDistillation{}.row(row, row, gradient, kInf),
                       doctest::Contains("TopKDistillation: scale is inf"), std::invalid_argument);
  CHECK_NOTHROW(TopKDistillation{}.row(row, row, gradient, -1));
  CHECK_NOTHROW((TopKDistillation{.k = 64, .weight = 0, .cross_entropy_weight = 0}.validate()));
}

TEST_CASE("nothing is allocated") {
  Random random(7);
  const std::vector<float> target = random.row(3000, 5), draft = random.row(3000, 5);
  const std::vector<double> exact_target = doubles(target), exact_draft = doubles(draft);
  std::vector<float> gradient(3000);
  std::vector<double> exact_gradient(3000);
  const TopKDistillation loss{.k = 64};
  const AllocationCount allocated;
  loss.row(target, draft, gradient);
  loss.row(exact_target, exact_draft, exact_gradient);
  const auto n = allocated.count();
  CHECK(n == 0);
}
