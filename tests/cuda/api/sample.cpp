// SPDX-License-Identifier: MIT
// labels: optimised
// sample(): tokens and distributions sampled on the device, against the CPU's.
#include <doctest/doctest.h>
#include <specula/cuda/api/sample.cuh>
#include <specula/proposal/proposal_builder.hpp>

#include <algorithm>
#include <map>

#include "device_agreement.hpp"
#include "plain_distribution.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Device rows of floats, and the tokens drawn from them.
template <class Element>
struct Draws {
  int vocab, draws = 1;
  std::ptrdiff_t stride, offset;
  std::vector<Element> logits;
  std::vector<std::vector<float>> rows;
  std::vector<device::SamplingParams> params;
  std::vector<std::uint64_t> seed;
  std::vector<std::uint32_t> sequence, index;
  std::vector<std::int32_t> position, origin;
  std::vector<Token> token;
  std::vector<device::RowStats> stats;
  std::vector<float> prob;
  std::vector<double> scale;
  std::vector<std::int32_t> sequence_of_row;  // empty: identity
  std::int32_t count = -1;                    // number of rows on the device; -1: all

  explicit Draws(int v, std::ptrdiff_t row_stride = 0, std::ptrdiff_t first = 0)
      : vocab(v),
        stride(row_stride ? row_stride : v),
        offset(first),
        logits(static_cast<std::size_t>(first)) {}

  void add(std::vector<float> row, const SamplingParams& p, std::uint64_t uniforms, std::int32_t at,
           std::int32_t root = 0, std::uint32_t slot = 0, std::uint32_t of = 0) {
    if (const auto round = rounding(Element{}))
      for (float& l : row) l = round(l);
    const std::size_t begin = logits.size();
    logits.resize(begin + static_cast<std::size_t>(stride));
    for (std::size_t x = 0; x < static_cast<std::size_t>(stride); ++x)
      store(x < row.size() ? row[x] : kNan, logits[begin + x]);
    rows.push_back(row);
    params.push_back({p.temperature, p.top_k, p.top_p, p.min_p});
    seed.push_back(uniforms);
    sequence.push_back(of);
    position.push_back(at);
    origin.push_back(root);
    index.push_back(slot);
  }

  template <bool kTakesCuts = true>
  void run(device::RandomStream stream = device::RandomStream::sample, bool distinct = false, int blocks = 1,
           int threads = 64, std::uint64_t order = 1, Engine engine = Engine::fibers) {
    const std::size_t n = rows.size(), outputs = n * static_cast<std::size_t>(draws);
    token.assign(outputs, -77);
    prob.assign(outputs, -77);
    scale.assign(outputs, -77);
    stats.assign(n, {-77, -77, -77, -77, -77, device::Status::bad_tree});
    device::SampleArgs<Element> args{};
    args.logits = logits.data() + offset;
    args.stride = stride;
    args.seed = seed.data();
    args.position = position.data();
    args.params = params.data();
    args.sequence = sequence.data();
    args.stream = stream;
    args.origin = origin.data();
    args.index = index.data();
    args.distinct = distinct;
    args.token = token.data();
    args.stats = stats.data();
    args.prob = prob.data();
    args.scale = scale.data();
    if (!sequence_of_row.empty()) args.sequence_of_row = sequence_of_row.data();
    if (count >= 0) args.row_count = &count;
    const device::detail::ScanSize size{vocab, 1, order % 2 ? 8192 : 4096};
    emulate({.clusters = static_cast<int>(n),
             .blocks = blocks,
             .threads = threads,
             .shared_bytes = device::detail::sample_bytes<EmulatedCluster>(size, threads / 32, draws),
             .seed = order,
             .engine = engine},
            [&](EmulatedCluster cluster, int r, unsigned char* shared) {
              device::detail::sample_row<kTakesCuts>(cluster, r, shared, args, size, draws);
            });
  }
};

/// Whether two thresholds by mass differ only because rounding decides whether the lower one is needed.
bool differ_by_rounding(const std::vector<float>& row, const SamplingParams& p, float a, float b) {
  if (p.top_k != 0 || p.top_p >= 1) return false;
  const double top = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double all = 0, above = 0;
  for (const float l : row) {
    const double w = std::exp((static_cast<double>(l) - top) / static_cast<double>(p.temperature));
    all += w;
    if (l >= std::max(a, b)) above += w;
  }
  return std::abs(above / all - static_cast<double>(p.top_p)) < 1e-6;
}

Distribution distribution_of(const std::vector<float>& row, const SamplingParams& params,
                             detail::RowScan& scan) {
  return scan.distribution(row, params);
}

/// Tokens of some mass from a threshold on; tokens of -infinity have none, whatever the threshold.
std::ptrdiff_t kept(const std::vector<float>& row, float min_logit) {
  return std::count_if(row.begin(), row.end(), [&](float l) { return l >= min_logit && std::isfinite(l); });
}

}  // namespace

TEST_CASE_TEMPLATE("plain sampling: the CPU's uniform draws, truncation and distributions", Element, float,
                   device::Half, device::BFloat16) {
  Random random(7);
  const auto settings = device_settings();
  int rows = 0, differ = 0, on_boundaries = 0;
  for (const int vocab : {1, 2, 37, 511, 512, 513, 1024, 5000, 20000}) {
    for (int round = 0; round < 6; ++round) {
      Draws<Element> d(vocab, vocab + random.below(9), random.below(3));
      for (int r = 0; r < 12; ++r) {
        const SamplingParams& p = settings[static_cast<std::size_t>(random.below(7))];
        std::vector<float> row = mixed_row(random, vocab, random.between(0.5, 9), 0.3, 0.2, false);
        if (random.bernoulli(0.5)) random.move_tiles(row);
        d.add(row, p, random.bits(), random.below(5000), 0, 0, static_cast<std::uint32_t>(random.below(3)));
      }
      d.run(device::RandomStream::sample, false, 1 + random.below(5), 32 * (1 + random.below(3)),
            random.bits());
      detail::RowScan scan(vocab);
      for (std::size_t r = 0; r < d.rows.size(); ++r, ++rows) {
        const SamplingParams p{d.params[r].temperature, d.params[r].top_k, d.params[r].top_p,
                               d.params[r].min_p};
        const Distribution distribution = distribution_of(d.rows[r], p, scan);
        PhiloxRandom rng(d.seed[r], d.sequence[r]);
        const Token want = distribution.is_point() ? distribution.point
                                                   : rng.draw(scan.weights(distribution), {d.position[r]});
        CAPTURE(vocab);
        REQUIRE(d.stats[r].status == device::Status::ok);
        CHECK(d.stats[r].point == distribution.point);
        if (kept(d.rows[r], d.stats[r].min_logit) != kept(d.rows[r], distribution.min_logit) &&
            differ_by_rounding(d.rows[r], p, d.stats[r].min_logit, distribution.min_logit)) {
          ++on_boundaries;
          continue;
        }
        if (!distribution.is_point()) {
          CHECK(d.stats[r].temperature == p.temperature);
          CHECK(kept(d.rows[r], d.stats[r].min_logit) == kept(d.rows[r], distribution.min_logit));
          CHECK(d.stats[r].shift == distribution.shift);
          CHECK(d.stats[r].log_z == doctest::Approx(distribution.log_z).epsilon(1e-6));
        }
        REQUIRE((d.token[r] >= 0 && d.token[r] < vocab));
        CHECK(static_cast<double>(d.prob[r]) == doctest::Approx(distribution(d.token[r])).epsilon(1e-5));
        CHECK(d.prob[r] > 0);
        CHECK(d.scale[r] == 1);
        differ += d.token[r] != want;
      }
    }
  }
  CHECK(rows == 9 * 6 * 12);
  CHECK(differ == 0);
  CHECK(on_boundaries <= 1);
}

TEST_CASE_TEMPLATE("without truncation: the same draws, and a status for parameters that truncate", Element,
                   float, device::BFloat16) {
  Random random(8);
  auto settings = device_settings();
  settings.push_back({.temperature = 0, .top_p = 0.5f});  // nothing is cut from a point mass
  for (const bool distinct : {false, true}) {
    Draws<Element> d(1300);
    d.draws = distinct ? 3 : 1;
    for (int r = 0; r < 24; ++r) {
      std::vector<float> row = mixed_row(random, 1300, 4, 0.3, 0.2, false);
      random.move_tiles(row);
      d.add(row, settings[static_cast<std::size_t>(r) % settings.size()], random.bits(), r);
    }
    d.run(device::RandomStream::sample, distinct, 2);
    const std::vector<Token> want = d.token;
    const std::vector<device::RowStats> stats = d.stats;
    d.template run<false>(device::RandomStream::sample, distinct, 2);
    for (std::size_t r = 0; r < d.rows.size(); ++r) {
      const bool cut = device::detail::is_cut(d.params[r]);
      CHECK(cut == (r % settings.size() >= 2 && r % settings.size() < 6));
      CHECK(d.stats[r].status == (cut ? device::Status::truncation_is_not_planned : device::Status::ok));
      if (!cut) CHECK(d.stats[r].log_z == stats[r].log_z);
      for (int i = 0; i < d.draws; ++i) {
        const std::size_t at = r * static_cast<std::size_t>(d.draws) + static_cast<std::size_t>(i);
        CHECK(d.token[at] == (cut ? device::kNoToken : want[at]));
      }
    }
  }
}

TEST_CASE("truncation keeps the CPU's tokens, on flat, tied and peaked rows") {
  Random random(8);
  for (int round = 0; round < 60; ++round) {
    const int vocab = 600 + random.below(9000);
    std::vector<float> row(static_cast<std::size_t>(vocab));
    const int form = round % 4;
    for (float& l : row)
      l = form == 0   ? static_cast<float>(random.between(-1e-3, 1e-3))  // flat
          : form == 1 ? static_cast<float>(random.below(4))              // few values
          : form == 2
              ? static_cast<float>(-12 * std::log(random.uniform() + 1e-9))  // much mass above the threshold
              : static_cast<float>(random.between(-90, -80));                // negative
    if (round % 2 == 0)
      row = structured_row(kRowKinds[static_cast<std::size_t>(round / 2) % kRowKinds.size()], vocab, random);
    SamplingParams p{.temperature = static_cast<float>(random.between(0.3, 2))};
    if (random.bernoulli(0.6)) p.top_k = 1 + random.below(vocab + 10);
    if (random.bernoulli(0.7)) p.top_p = static_cast<float>(random.between(0.01, 1));
    if (random.bernoulli(0.3)) p.min_p = static_cast<float>(random.between(0, 0.5));
    Draws<float> d(vocab);
    d.add(row, p, 1, 1);
    d.run(device::RandomStream::sample, false, 1 + random.below(3), 64, random.bits());
    detail::RowScan scan(vocab);
    const Distribution distribution = distribution_of(row, p, scan);
    CAPTURE(round);
    CAPTURE(p.top_p);
    CAPTURE(p.top_k);
    if (kept(row, d.stats[0].min_logit) != kept(row, distribution.min_logit))
      CHECK(differ_by_rounding(row, p, d.stats[0].min_logit, distribution.min_logit));
  }
}

TEST_CASE("without replacement: the tokens and scales of ProposalBuilder") {
  Random random(9);
  int differ = 0, drawn = 0;
  for (int round = 0; round < 60; ++round) {
    const int vocab = round % 3 == 0 ? 1 + random.below(6) : 300 + random.below(1500);
    const SamplingParams p = device_settings()[static_cast<std::size_t>(random.below(7))];
    Draws<float> d(vocab, 0, 0);
    d.draws = 1 + random.below(8);
    const std::uint64_t seed = random.bits();
    const std::int32_t origin = random.below(900);
    d.add(mixed_row(random, vocab, 4, 0.2, 0.1), p, seed, origin + 1, origin);
    d.run(device::RandomStream::draft, true, 1 + random.below(3), 64, random.bits());
    ProposalBuilder tree(vocab, 20, 20);
    tree.reset(0, origin);
    PhiloxRandom rng(seed);
    const Distribution distribution = tree.store(0, d.rows[0], p);
    for (int i = 0; i < d.draws; ++i) {
      const NodeId node = tree.draw_distinct(0, distribution, rng);
      const auto at = static_cast<std::size_t>(i);
      const Token want = node == kNoParent ? kNoToken : tree.token(node);
      CAPTURE(round);
      CAPTURE(i);
      ++drawn;
      differ += d.token[at] != want;
      if (d.token[at] != want) break;
      if (node == kNoParent)
        CHECK(d.scale[at] == 0);
      else if (!distribution.is_point())
        CHECK(d.scale[at] == doctest::Approx(tree.draft_scale(node)).epsilon(1e-4));
    }
  }
  CHECK(drawn > 150);
  CHECK(differ == 0);
}

TEST_CASE("zeros of both signs are equal logits") {
  for (const float first : {0.0f, -0.0f})
    for (const SamplingParams& p :
         {SamplingParams{.top_p = 0.4f}, SamplingParams{.top_k = 2}, SamplingParams{.top_k = 1}}) {
      std::vector<float> row(700, -first);
      for (std::size_t x = 0; x < 700; x += 3) row[x] = first;
      for (std::size_t x = 1; x < 700; x += 3) row[x] = -1;
      Draws<device::BFloat16> d(700);
      d.add(row, p, 1, 1);
      d.run(device::RandomStream::sample, false, 2);
      REQUIRE(d.stats[0].status == device::Status::ok);
      CHECK(d.stats[0].min_logit == 0);
      CHECK(d.stats[0].log_z == doctest::Approx(std::log(467.0)));
    }
}

TEST_CASE("independent draws use different uniform draws, and the draft's differ from the target's") {
  Random random(10);
  const std::vector<float> row = random.row(2000, 0.5);
  Draws<float> d(2000);
  d.draws = 40;
  d.add(row, {}, 5, 11, 10, 3);
  d.run(device::RandomStream::draft);
  detail::RowScan scan(2000);
  const Distribution distribution = distribution_of(row, {}, scan);
  PhiloxRandom rng(5);
  for (std::uint32_t i = 0; i < 40; ++i)
    CHECK(d.token[i] == rng.draw(scan.weights(distribution), {11, 10, RandomStream::draft, 3 + i}));
  CHECK(std::map<Token, int>([&] {
          std::map<Token, int> seen;
          for (const Token t : d.token) ++seen[t];
          return seen;
        }())
            .size() > 30);
}

TEST_CASE("results do not depend on the batch, the slot, the cluster size or the order of threads") {
  Random random(11);
  Draws<device::BFloat16> many(3000, 3001, 1);
  for (int r = 0; r < 7; ++r)
    many.add(random.row(3000, 3, 0.2, 0.1), device_settings()[static_cast<std::size_t>(r)], random.bits(), r);
  many.run();
  for (int blocks : {1, 2, 3, 16})
    for (int threads : {32, 64, 256}) {
      Draws<device::BFloat16> again = many;
      again.run(device::RandomStream::sample, false, blocks, threads, random.bits());
      CHECK(again.token == many.token);
      for (std::size_t r = 0; r < 7; ++r) {
        CHECK(again.stats[r].log_z == many.stats[r].log_z);  // bit for bit
        CHECK(again.stats[r].min_logit == many.stats[r].min_logit);
      }
    }
  for (std::size_t r = 0; r < 7; ++r) {
    Draws<device::BFloat16> single(3000, 3001, 1);
    const device::SamplingParams& p = many.params[r];
    single.add(many.rows[r], {p.temperature, p.top_k, p.top_p, p.min_p}, many.seed[r], many.position[r]);
    single.run();
    CHECK(single.token[0] == many.token[r]);
    CHECK(single.stats[0].log_z == many.stats[r].log_z);
  }
}

TEST_CASE(
    "large finite masks, and offsets up to 1e38 times the temperature: the CPU's distributions and uniform "
    "draws") {
  Random random(21);
  Draws<float> d(1100);
  for (const float temperature : {0.01f, 1.0f, 100.0f})
    for (const float large : {1e4f, 1e9f, 1e10f, 1e12f, 1e20f, 1e30f, 1e36f, 1e38f, 3.3895e38f}) {
      std::vector<float> row = random.row(1100, 5);
      for (float& l : row) l *= temperature;
      std::fill(row.begin() + 512, row.begin() + 1024, -large);
      d.add(row, {.temperature = temperature}, random.bits(), 1);
      if (large > 1e38f * temperature) continue;
      for (const float top : {large, -large}) {
        std::vector<float> ties(1100, -kInf);  // in two tiles, and next to them
        ties[3] = ties[600] = top;
        ties[4] = ties[700] = std::nextafter(top, -kInf);
        d.add(ties, {.temperature = temperature, .top_k = random.below(2)}, random.bits(), 1);
      }
    }
  d.run(device::RandomStream::sample, false, 2);
  detail::RowScan scan(1100);
  for (std::size_t r = 0; r < d.rows.size(); ++r) {
    CAPTURE(r);
    const SamplingParams p{.temperature = d.params[r].temperature, .top_k = d.params[r].top_k};
    const std::vector<double> want = plain_distribution(d.rows[r], p);
    REQUIRE(d.stats[r].status == device::Status::ok);
    PhiloxRandom rng(d.seed[r]);
    CHECK(d.token[r] == rng.draw(scan.weights(distribution_of(d.rows[r], p, scan)), {1}));
    REQUIRE(d.token[r] != kNoToken);
    CHECK(static_cast<double>(d.prob[r]) ==
          doctest::Approx(want[static_cast<std::size_t>(d.token[r])]).epsilon(1e-6));
    double worst = 0;
    for (std::size_t x = 0; x < 1100; ++x)
      worst = worse(worst, std::abs(device::detail::prob(d.rows[r][x], d.stats[r]) - want[x]));
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("bad rows and parameters have a status and no token") {
  Random random(12);
  Draws<float> d(1100);
  const std::vector<float> good = random.row(1100, 3);
  const auto with = [&](std::size_t at, float value) {
    std::vector<float> row = good;
    row[at] = value;
    return row;
  };
  d.add(with(700, kNan), {}, 1, 1);
  d.add(with(1099, kInf), {}, 1, 1);
  d.add(std::vector<float>(1100, -kInf), {}, 1, 1);
  std::vector<float> hidden(1100, -kInf);  // NaN in a tile of -infinity
  hidden[3] = 1, hidden[600] = kNan;
  d.add(hidden, {.top_k = 3}, 1, 1);
  d.add(with(5, 3e38f), {.temperature = 1e-3f}, 1, 1);
  d.add(good, {.temperature = kNan}, 1, 1);
  d.add(good, {.top_p = 0}, 1, 1);
  d.add(good, {.temperature = -1}, 1, 1);
  d.add(with(5, kNan), {.temperature = 0}, 1, 1);
  d.add(with(9, 3e38f), {.temperature = 0}, 1, 1);       // valid at temperature 0
  d.add(with(9, -3.4e38f), {.temperature = .5f}, 1, 1);  // a mask
  d.add(with(9, 1.01e38f), {}, 1, 1);                    // beyond 1e38 times the temperature
  d.run(device::RandomStream::sample, false, 2);
  using S = device::Status;
  const S want[] = {
      S::not_a_number,   S::not_a_number,   S::empty_row,    S::not_a_number, S::overflow, S::bad_parameters,
      S::bad_parameters, S::bad_parameters, S::not_a_number, S::ok,           S::ok,       S::overflow};
  for (std::size_t r = 0; r < 12; ++r) {
    CAPTURE(r);
    CHECK(d.stats[r].status == want[r]);
    CHECK((d.token[r] == kNoToken) == (want[r] != S::ok));
    CHECK((d.token[r] == kNoToken || (d.token[r] >= 0 && d.token[r] < 1100)));
    if (want[r] != S::ok) CHECK(d.prob[r] == 0);
  }
  CHECK(d.token[9] == 9);
}

TEST_CASE("strides: draws go into trees, and their distributions to where verification reads them") {
  // Draft token i of three sequences, into trees of a root and two draft tokens.
  Random random(14);
  Draws<device::Half> plain(700);
  for (int r = 0; r < 3; ++r) plain.add(random.row(700, 3), {}, random.bits(), r);
  plain.run();
  std::vector<Token> trees(9, -5);
  std::vector<device::RowStats> stats(6, device::RowStats{-5, 0, 0, 0, 0, device::Status::ok});
  std::vector<float> prob(12, -5);
  std::vector<double> scale(9, -5);
  device::SampleArgs<device::Half> args{};
  args.logits = plain.logits.data();
  args.stride = plain.stride;
  args.seed = plain.seed.data();
  args.position = plain.position.data();
  args.sequence = plain.sequence.data();
  args.token = trees.data() + 1, args.token_stride = 3;
  args.stats = stats.data() + 1, args.stats_stride = 2;
  args.prob = prob.data(), args.prob_stride = 4;
  args.scale = scale.data() + 2, args.scale_stride = 3;
  const device::detail::ScanSize size{700, 1, 8192};
  emulate({.clusters = 3,
           .threads = 64,
           .shared_bytes = device::detail::sample_bytes<EmulatedCluster>(size, 2, 1)},
          [&](EmulatedCluster cluster, int r, unsigned char* shared) {
            device::detail::sample_row(cluster, r, shared, args, size, 1);
          });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(trees[3 * r] == -5);
    CHECK(trees[3 * r + 1] == plain.token[r]);
    CHECK(trees[3 * r + 2] == -5);
    CHECK(stats[2 * r].log_z == -5);
    CHECK(stats[2 * r + 1].log_z == plain.stats[r].log_z);
    CHECK(prob[4 * r] == plain.prob[r]);
    CHECK(prob[4 * r + 1] == -5);
    CHECK(scale[3 * r + 1] == -5);
    CHECK(scale[3 * r + 2] == 1);
  }
  device::SamplePlan<device::Half> plan;
  plan.rows = 3, plan.draws = 2, plan.scan.shared_bytes = 100;
  CHECK(device::detail::valid_args(args, plan));
  CHECK_FALSE(
      device::detail::valid_args(args, device::SamplePlan<device::Half>{}));  // a plan that was not made
  for (std::int64_t* stride : {&args.prob_stride, &args.scale_stride}) {
    const std::int64_t was = *stride;
    *stride = 1;
    CHECK_FALSE(device::detail::valid_args(args, plan));  // smaller than a row's draws
    *stride = was;
  }
  args.token_stride = 1;
  CHECK_FALSE(device::detail::valid_args(args, plan));
  args.token_stride = -2;
  CHECK(device::detail::valid_args(args, plan));  // rows from the last to the first
  args.token_stride = 0, args.seed = nullptr;
  CHECK_FALSE(device::detail::valid_args(args, plan));
}

TEST_CASE("rows beyond the count on the device are not touched") {
  Random random(13);
  Draws<float> d(100);
  for (int r = 0; r < 4; ++r) d.add(random.row(100, 2), {}, 1, r);
  d.run();
  const auto all = d.token;
  d.count = 2;
  d.run();
  CHECK(d.token[0] == all[0]);
  CHECK(d.token[1] == all[1]);
  for (std::size_t r = 2; r < 4; ++r) {
    CHECK(d.token[r] == -77);
    CHECK(d.prob[r] == -77);
    CHECK(d.scale[r] == -77);
    CHECK(d.stats[r].log_z == -77);
  }
}

TEST_CASE("rows of many sequences") {
  Random random(14);
  Draws<float> d(50);
  for (int r = 0; r < 6; ++r) d.add(random.row(50, 2), {}, 1, r);
  d.sequence_of_row = {1, 0, 1, 1, 0, 1};
  d.seed = {42, 43};
  d.params = {{0.5f, 0, 1, 0}, {0, 0, 1, 0}};
  d.run();
  detail::RowScan scan(50);
  for (std::size_t r = 0; r < 6; ++r) {
    const auto b = static_cast<std::size_t>(d.sequence_of_row[r]);
    const Distribution distribution =
        distribution_of(d.rows[r], {.temperature = d.params[b].temperature}, scan);
    PhiloxRandom rng(d.seed[b]);
    CHECK(d.token[r] == (distribution.is_point() ? distribution.point
                                                 : rng.draw(scan.weights(distribution), {d.position[r]})));
  }
}

TEST_CASE("sampled tokens follow the distribution") {
  // 6 tokens, 20,000 draws, chi-square with 5 degrees of freedom: above 25.7 with probability 1e-4. The seed
  // is fixed.
  const std::vector<float> row{0.3f, -1, 1.2f, 0, -kInf, 0.9f};
  constexpr int kDraws = 20000;
  Draws<float> d(6);
  d.draws = kDraws;
  d.add(row, {.temperature = 0.8f}, 99, 1);
  d.run();
  const auto distribution = plain_distribution(row, {.temperature = 0.8f});
  std::map<Token, int> seen;
  for (const Token t : d.token) ++seen[t];
  CHECK(seen[4] == 0);
  double chi = 0;
  for (Token t = 0; t < 6; ++t) {
    if (t == 4) continue;
    const double want = kDraws * distribution[static_cast<std::size_t>(t)];
    chi += (seen[t] - want) * (seen[t] - want) / want;
  }
  CHECK(chi < 25.7);
}
