// SPDX-License-Identifier: MIT
// labels: optimised
// top_k_distillation(): HASS's loss and its gradient on the device, against the CPU's in doubles.
#include <doctest/doctest.h>
#include <specula/cuda/api/top_k_distillation.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <losses/top_k_distillation.hpp>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Launch {
  int blocks = 2, threads = 64;
  std::uint64_t seed = 1;
};

/// Rows of one width, and the kernel's results. The memory around the rows is poisoned.
template <class Target, class Draft, class Gradient>
struct Rows {
  int rows, vocab;
  TopKDistillation loss;
  int offset, pad;
  bool in_place = false, wants_gradient = true;
  std::vector<Target> target;
  std::vector<Draft> draft;
  std::vector<Gradient> gradient;
  std::vector<float> scale, losses;
  std::vector<Status> status;

  Rows(int row_count, int width, const TopKDistillation& what, int shift = 0, int between = 5)
      : rows(row_count), vocab(width), loss(what), offset(shift), pad(between) {
    target.resize(size());
    draft.resize(size());
    gradient.resize(size());
    std::memset(target.data(), 0xFF, target.size() * sizeof(Target));
    std::memset(draft.data(), 0xFF, draft.size() * sizeof(Draft));
    std::memset(gradient.data(), 0xFF, gradient.size() * sizeof(Gradient));
  }
  std::size_t stride() const { return static_cast<std::size_t>(vocab + pad); }
  std::size_t size() const {
    return static_cast<std::size_t>(offset) + static_cast<std::size_t>(rows) * stride();
  }
  std::size_t at(int row, int token = 0) const {
    return static_cast<std::size_t>(offset) + static_cast<std::size_t>(row) * stride() +
           static_cast<std::size_t>(token);
  }
  void set(int row, const std::vector<float>& p, const std::vector<float>& q) {
    for (int x = 0; x < vocab; ++x) {
      store(p[static_cast<std::size_t>(x)], target[at(row, x)]);
      store(q[static_cast<std::size_t>(x)], draft[at(row, x)]);
    }
  }
  detail::DistillationArgs<Target, Draft, Gradient> args() {
    losses.assign(2 * static_cast<std::size_t>(rows), kNan);
    status.assign(static_cast<std::size_t>(rows), Status::bad_tree);
    Gradient* to = nullptr;
    if (wants_gradient) to = gradient.data() + offset;
    if constexpr (std::is_same_v<Draft, Gradient>)
      if (in_place) to = draft.data() + offset;
    const auto apart = static_cast<std::int64_t>(stride());
    return {{target.data() + offset, apart, draft.data() + offset, apart, to, apart,
             scale.empty() ? nullptr : scale.data(), losses.data(), status.data()},
            loss,
            vocab};
  }
  void run(Launch launch = {}) {
    const auto all = args();
    emulate(
        {.clusters = rows,
         .blocks = launch.blocks,
         .threads = launch.threads,
         .shared_bytes =
             detail::Distillation<EmulatedCluster, Target, Draft, Gradient>::shared_bytes(vocab, loss.k),
         .seed = launch.seed},
        [&](EmulatedCluster cluster, int index, unsigned char* shared) {
          detail::Distillation<EmulatedCluster, Target, Draft, Gradient>(cluster, all, index, shared).run();
        });
  }
  const Gradient& gradient_of(int row, int token) const {
    if constexpr (std::is_same_v<Draft, Gradient>)
      if (in_place) return draft[at(row, token)];
    return gradient[at(row, token)];
  }
  /// Whether the memory between the rows is unchanged.
  bool padding_is_untouched() const {
    std::vector<bool> inside(size());
    for (int r = 0; r < rows && wants_gradient; ++r)
      for (int x = 0; x < vocab; ++x) inside[at(r, x)] = true;
    const auto* bytes = reinterpret_cast<const unsigned char*>(gradient.data());
    if constexpr (std::is_same_v<Draft, Gradient>)
      if (in_place) bytes = reinterpret_cast<const unsigned char*>(draft.data());
    for (std::size_t i = 0; i < size() * sizeof(Gradient); ++i)
      if (!inside[i / sizeof(Gradient)] && bytes[i] != 0xFF) return false;
    return true;
  }
};

struct Want {
  specula::TopKDistillation::Loss loss;
  std::vector<double> gradient;
};
/// The library's own, in doubles.
template <class Target, class Draft, class Gradient>
Want on_cpu(const Rows<Target, Draft, Gradient>& it, int row) {
  std::vector<double> p, q;
  for (int x = 0; x < it.vocab; ++x) {
    p.push_back(static_cast<double>(detail::to_float(it.target[it.at(row, x)])));
    q.push_back(static_cast<double>(detail::to_float(it.draft[it.at(row, x)])));
  }
  const specula::TopKDistillation loss{
      .k = it.loss.k, .weight = it.loss.weight, .cross_entropy_weight = it.loss.cross_entropy_weight};
  Want out;
  out.gradient.resize(p.size());
  out.loss = loss.row(std::span<const double>(p), std::span<const double>(q), std::span<double>(out.gradient),
                      it.scale.empty() ? 1.0 : static_cast<double>(it.scale[static_cast<std::size_t>(row)]));
  return out;
}

double bound_of(float, double) { return 0; }
double bound_of(BFloat16, double x) { return std::abs(x) * 0x1p-8 + 1e-38; }
double bound_of(Half, double x) { return std::abs(x) * 0x1p-11 + 0x1p-25; }

/// In units of the allowed error.
template <class Target, class Draft, class Gradient>
double worst_error(const Rows<Target, Draft, Gradient>& it, const std::vector<Want>& want) {
  double worst = 0;
  const auto take = [&](double got, double wanted, double allowed) {
    const double error = std::abs(got - wanted) / allowed;
    worst = std::max(worst, std::isnan(error) ? 1e9 : error);
  };
  for (int r = 0; r < it.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const Want& w = want[row];
    CHECK(it.status[row] == Status::ok);
    take(static_cast<double>(it.losses[2 * row]), w.loss.cross_entropy, 2e-6 * w.loss.cross_entropy + 5e-7);
    take(static_cast<double>(it.losses[2 * row + 1]), w.loss.top_k, 2e-6 * w.loss.top_k + 5e-7);
    const double scale = it.scale.empty() ? 1 : std::abs(static_cast<double>(it.scale[row]));
    for (int x = 0; it.wants_gradient && x < it.vocab; ++x) {
      const double wanted = w.gradient[static_cast<std::size_t>(x)];
      take(static_cast<double>(detail::to_float(it.gradient_of(r, x))), wanted,
           1e-6 * scale * (it.loss.cross_entropy_weight + it.loss.weight) + bound_of(Gradient{}, wanted) +
               1e-30);
    }
  }
  return worst;
}
template <class Target, class Draft, class Gradient>
std::vector<Want> all_on_cpu(const Rows<Target, Draft, Gradient>& it) {
  std::vector<Want> out;
  for (int r = 0; r < it.rows; ++r) out.push_back(on_cpu(it, r));
  return out;
}

template <class Target, class Draft, class Gradient>
void compare(std::uint64_t seed, const std::vector<int>& sizes, bool in_place = false) {
  Random random(seed);
  double worst = 0;
  for (const int vocab : sizes)
    for (const int k : {0, 1, 5, 10, 64}) {
      const TopKDistillation loss{k, random.bernoulli(0.2) ? 0 : random.between(0, 2),
                                  random.bernoulli(0.2) ? 0 : random.between(0, 1)};
      Rows<Target, Draft, Gradient> it(3, vocab, loss, random.below(5),
                                       random.bernoulli(0.5) ? 8 - vocab % 8 : 5);
      it.in_place = in_place;
      it.wants_gradient = in_place || !random.bernoulli(0.1);
      for (int r = 0; r < it.rows; ++r)
        it.set(r, mixed_row(random, vocab, r == 0 ? 3 : 20, 0.3, r == 1 ? 0.2 : 0, false),
               random.row(vocab, r == 1 ? 15 : 6));
      if (random.bernoulli(0.5)) it.scale = {0.25f, -3.0f, 0.0f};
      const std::vector<Want> want = all_on_cpu(it);  // before a gradient takes the draft's place
      it.run({.blocks = 1 << random.below(3), .threads = 32 << random.below(3), .seed = random.bits()});
      worst = std::max(worst, worst_error(it, want));
      CHECK(it.padding_is_untouched());
    }
  CHECK(worst < 1);
}

}  // namespace

TEST_CASE("losses and gradients agree with the CPU's in doubles") {
  const std::vector<int> sizes{1, 2, 7, 63, 65, 511, 512, 513, 1300, 4096, 5001};
  SUBCASE("float") { compare<float, float, float>(1, sizes); }
  SUBCASE("float, in place") { compare<float, float, float>(2, sizes, true); }
  SUBCASE("bfloat16") { compare<BFloat16, BFloat16, BFloat16>(3, sizes); }
  SUBCASE("bfloat16, in place") { compare<BFloat16, BFloat16, BFloat16>(4, {512, 1303}, true); }
  SUBCASE("half") { compare<Half, Half, Half>(5, {5, 512, 2000}); }
  SUBCASE("mixed") { compare<BFloat16, Half, float>(6, {7, 512, 2000}); }
  SUBCASE("mixed the other way") { compare<float, BFloat16, float>(7, {7, 512, 2000}); }
}

TEST_CASE("an example by hand") {
  Rows<float, float, float> it(1, 3, {.k = 2});
  CHECK(it.loss.weight == 1);
  CHECK(it.loss.cross_entropy_weight == 0.1);
  CHECK(TopKDistillation{}.k == 10);
  it.set(0, {std::log(.5f), std::log(.3f), std::log(.2f)},
         {std::log(.25f) + 7, std::log(.5f) + 7, std::log(.25f) + 7});
  it.run();
  CHECK(it.status[0] == Status::ok);
  CHECK(it.losses[0] == doctest::Approx(1.7 * std::log(2.0)).epsilon(2e-6));
  CHECK(it.losses[1] == doctest::Approx(1.3 * std::log(2.0)).epsilon(2e-6));
  CHECK(it.gradient[0] == doctest::Approx(.225 - .05 - .5).epsilon(2e-6));
  CHECK(it.gradient[1] == doctest::Approx(.45 - .03 - .3).epsilon(2e-6));
  CHECK(it.gradient[2] == doctest::Approx(.225 - .02).epsilon(2e-6));
}

TEST_CASE("ties among the likeliest K go to the lower tokens") {
  // Where ties lie: anywhere, in all of the row, across tiles, around a sign.
  Random random(8);
  double worst = 0;
  for (const int vocab : {40, 600, 3000, 40000})
    for (const int k : {1, 3, 26, 33, 64}) {
      Rows<float, float, float> it(5, vocab, {k, 1, 0.1});
      std::vector<float> level(static_cast<std::size_t>(vocab), 1.5f), zeros(level), top(level), few(level);
      for (std::size_t x = 0; x < level.size(); ++x) {
        zeros[x] = random.bernoulli(0.5) ? 0.0f : -0.0f;
        if (random.bernoulli(0.2)) zeros[x] = -1;
        top[x] = random.bernoulli(0.01) ? 4.0f : static_cast<float>(random.below(4));
        few[x] = random.bernoulli(0.7) ? -kInf : 0.25f * static_cast<float>(random.below(8));
      }
      few[static_cast<std::size_t>(vocab - 1)] = 2;
      std::vector<float> rising(level);
      std::iota(rising.begin(), rising.end(), 0.0f);
      for (float& l : rising) l = 8 * l / static_cast<float>(vocab);
      const std::vector<float> draft = random.row(vocab, 4);
      it.set(0, level, draft);
      it.set(1, zeros, draft);
      it.set(2, top, draft);
      it.set(3, few, draft);
      it.set(4, rising, draft);
      const std::vector<Want> want = all_on_cpu(it);
      it.run({.blocks = 2, .threads = vocab > 10000 ? 128 : 64, .seed = random.bits()});
      worst = std::max(worst, worst_error(it, want));
    }
  CHECK(worst < 1);
}

TEST_CASE("results have the same bits for any launch and batch") {
  Random random(10);
  Rows<BFloat16, float, float> it(3, 2900, {10, 1, 0.1});
  for (int r = 0; r < 3; ++r) it.set(r, random.row(2900, 9, 0.4), random.row(2900, 9));
  it.run({.blocks = 1, .threads = 32});
  const auto losses = it.losses;
  const auto gradient = it.gradient;
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  for (const int blocks : {1, 2, 4, 8})
    for (const int threads : {64, 256}) {
      std::memset(it.gradient.data(), 0xFF, it.gradient.size() * sizeof(float));
      it.run({.blocks = blocks, .threads = threads, .seed = random.bits()});
      CHECK(same(it.losses, losses));
      CHECK(same(it.gradient, gradient));
    }
  Rows<BFloat16, float, float> alone(1, 2900, {10, 1, 0.1}, 3);
  std::copy_n(it.target.begin() + static_cast<std::ptrdiff_t>(it.at(2)), 2900,
              alone.target.begin() + static_cast<std::ptrdiff_t>(alone.at(0)));
  std::copy_n(it.draft.begin() + static_cast<std::ptrdiff_t>(it.at(2)), 2900,
              alone.draft.begin() + static_cast<std::ptrdiff_t>(alone.at(0)));
  alone.run();
  CHECK(same(alone.losses, {losses.begin() + 4, losses.end()}));
  CHECK(std::equal(gradient.begin() + static_cast<std::ptrdiff_t>(it.at(2)),
                   gradient.begin() + static_cast<std::ptrdiff_t>(it.at(2)) + 2900,
                   alone.gradient.begin() + static_cast<std::ptrdiff_t>(alone.at(0))));
}

TEST_CASE("a row without a loss has a status and zeros; its neighbours are not touched") {
  struct Bad {
    bool target;
    std::vector<int> tokens;
    float logit;
    Status status;
  };
  std::vector<int> all(1100);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<Bad> cases{
      {true, {700}, kNan, Status::not_a_number},      {true, {0}, kInf, Status::not_a_number},
      {false, {1099}, kNan, Status::not_a_number},    {false, {3}, kInf, Status::not_a_number},
      {true, all, -kInf, Status::empty_row},          {false, all, -kInf, Status::empty_row},
      {true, all, -3.4e38f, Status::overflow},        {false, all, -3.4e38f, Status::overflow},
      {true, {5}, 3e38f, Status::overflow},           {false, {600}, -kInf, Status::infinite_loss},
      {false, {600}, -3.4e38f, Status::infinite_loss}};
  for (const bool in_place : {false, true})
    for (const bool likely : {false, true})  // whether the token is among the k
      for (const Bad& bad : cases) {
        Random random(11);
        Rows<float, float, float> it(3, 1100, {4, 1, 0.1});
        it.in_place = in_place;
        std::vector<std::vector<float>> p, q;
        for (int r = 0; r < 3; ++r) p.push_back(random.row(1100, 5)), q.push_back(random.row(1100, 5));
        p[1][600] = likely ? 6.0f : -4.0f;
        for (const int x : bad.tokens) (bad.target ? p : q)[1][static_cast<std::size_t>(x)] = bad.logit;
        for (int r = 0; r < 3; ++r) {
          const auto row = static_cast<std::size_t>(r);
          it.set(r, p[row], q[row]);
        }
        Rows<float, float, float> one(1, 1100, it.loss);
        one.set(0, p[0], q[0]);
        one.run();
        it.run({.blocks = 2, .threads = 64, .seed = random.bits()});
        CHECK(it.status[1] == bad.status);
        CHECK(it.losses[2] == 0);
        CHECK(it.losses[3] == 0);
        for (int x = 0; x < 1100; ++x) CHECK(it.gradient_of(1, x) == 0);
        CHECK(it.status[0] == Status::ok);
        CHECK(it.status[2] == Status::ok);
        CHECK(it.losses[0] == one.losses[0]);
        for (int x = 0; x < 1100; ++x) CHECK(it.gradient_of(0, x) == one.gradient_of(0, x));
        CHECK(it.padding_is_untouched());
      }
}

TEST_CASE("tokens of target probability 0 may have draft probability 0") {
  Random random(12);
  Rows<float, float, float> it(1, 900, {64, 1, 0.1});
  std::vector<float> p(900, -kInf), q = random.row(900, 3);
  for (int x = 0; x < 900; x += 31)
    p[static_cast<std::size_t>(x)] = static_cast<float>(random.between(-3, 3));
  for (int x = 1; x < 900; x += 31) q[static_cast<std::size_t>(x)] = -kInf;
  it.set(0, p, q);
  const std::vector<Want> want = all_on_cpu(it);
  it.run();
  CHECK(worst_error(it, want) < 1);
}

TEST_CASE("invalid scales") {
  Random random(13);
  Rows<float, float, float> it(4, 520, {4, 1, 0.1});
  for (int r = 0; r < 4; ++r) it.set(r, random.row(520, 5), random.row(520, 5));
  it.scale = {kNan, 1, -kInf, 3.3e38f};
  it.run();
  CHECK(it.status == std::vector<Status>{Status::bad_parameters, Status::ok, Status::bad_parameters,
                                         Status::bad_parameters});
  for (int x = 0; x < 520; ++x) {
    CHECK(it.gradient_of(0, x) == 0);
    CHECK(it.gradient_of(1, x) != 0);
    CHECK(it.gradient_of(3, x) == 0);
  }
}

TEST_CASE("a gradient in the draft's element type is the float gradient, rounded to nearest") {
  Random random(14);
  Rows<BFloat16, BFloat16, float> whole(2, 1100, {10, 1, 0.1});
  Rows<BFloat16, BFloat16, BFloat16> rounded(2, 1100, whole.loss);
  Rows<BFloat16, BFloat16, Half> half(2, 1100, whole.loss);
  for (int r = 0; r < 2; ++r) {
    const auto p = random.row(1100, 7), q = random.row(1100, 7);
    whole.set(r, p, q), rounded.set(r, p, q), half.set(r, p, q);
  }
  whole.run();
  rounded.run();
  half.run();
  for (int r = 0; r < 2; ++r)
    for (int x = 0; x < 1100; ++x) {
      CHECK(rounded.gradient_of(r, x).bits == bf16_bits(whole.gradient_of(r, x)));
      CHECK(detail::to_float(half.gradient_of(r, x)) == half_rounded(whole.gradient_of(r, x)));
    }
}

TEST_CASE("a block uses at most the shared memory that make_distillation_plan() states") {
  for (const int vocab : {1, 512, 32000, 128256, 256000})
    for (const int k : {0, 1, 10, 64}) {
      const int most = 48 * ((vocab + 511) / 512) + 8 * (k + 3) * (k + 3) + 42000;
      CHECK(detail::Distillation<EmulatedCluster, float, float, float>::shared_bytes(vocab, k) <=
            static_cast<std::size_t>(most));
    }
}

TEST_CASE("invalid plans and arrays are refused") {
  CHECK(detail::is_distillation(DistillationCapacity{1, 1}, {0, 0, 0}));
  CHECK(!detail::is_distillation(DistillationCapacity{0, 1}, {}));
  CHECK(!detail::is_distillation(DistillationCapacity{1, 0}, {}));
  for (const TopKDistillation& bad : {TopKDistillation{-1},
                                      {65},
                                      {10, -1.0},
                                      {10, 1, -0.5},
                                      {10, 1e39},
                                      {10, static_cast<double>(kNan)},
                                      {10, 1, static_cast<double>(kInf)}})
    CHECK(!detail::is_distillation(DistillationCapacity{1, 1}, bad));

  Rows<BFloat16, float, Half> owner(3, 40, {});
  owner.scale.assign(3, 1.0f);
  const auto good = owner.args().rows;
  using Plan = DistillationPlan<BFloat16, float, Half>;
  Plan plan{{3, 40}, {}, 4, 256, 4096};
  CHECK(detail::is_distillation(plan, good));
  const auto refused = [&](auto change) {
    auto bad = good;
    change(bad);
    return !detail::is_distillation(plan, bad);
  };
  const auto odd = [](auto* array) {
    return reinterpret_cast<decltype(array)>(reinterpret_cast<std::uintptr_t>(array) + 1);
  };
  CHECK(refused([](auto& r) { r.target = nullptr; }));
  CHECK(refused([](auto& r) { r.draft = nullptr; }));
  CHECK(refused([](auto& r) { r.loss = nullptr; }));
  CHECK(refused([](auto& r) { r.status = nullptr; }));
  CHECK(!refused([](auto& r) { r.gradient = nullptr, r.gradient_stride = 0; }));
  CHECK(!refused([](auto& r) { r.scale = nullptr; }));
  CHECK(refused([&](auto& r) { r.target = odd(r.target); }));
  CHECK(refused([&](auto& r) { r.draft = odd(r.draft); }));
  CHECK(refused([&](auto& r) { r.gradient = odd(r.gradient); }));
  CHECK(refused([&](auto& r) { r.scale = odd(r.scale); }));
  CHECK(refused([&](auto& r) { r.loss = odd(r.loss); }));
  CHECK(refused([](auto& r) { r.target_stride = 39; }));
  CHECK(refused([](auto& r) { r.draft_stride = 39; }));
  CHECK(refused([](auto& r) { r.gradient_stride = 39; }));
  plan.cluster = 3;
  CHECK(!detail::is_distillation(plan, good));
  plan.cluster = 4, plan.threads = 255;
  CHECK(!detail::is_distillation(plan, good));
  CHECK(!detail::is_distillation(Plan{}, good));
}
