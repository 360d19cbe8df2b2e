// SPDX-License-Identifier: MIT
// labels: optimised
// Edge cases of the verification kernels' arithmetic: extreme uniform draws and masses, unusual truncation,
// almost empty residuals.
#include <doctest/doctest.h>
#include <specula/accept/exact_rules.hpp>
#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/detail/verify/rules.cuh>
#include "device_agreement.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"
using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;
using device::Status;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
const auto logits = [](const auto& batch) { return batch.logits_draft(); };
const auto dense_rejects = [](const Case& it, DenseUniforms& c) {
  dense_rejection(it.dense, it.distributions, c);
};
const auto dense_traverses = [](const Case& it, DenseUniforms& c) {
  dense_traversal(it.dense, it.distributions, c);
};

/// f(warp) by one warp; what lane 0 returns, all lanes having to agree.
template <class F>
double by_warp(F f) {
  std::vector<double> lanes(32);
  emulate({}, [&](EmulatedCluster c, int, unsigned char*) {
    lanes[static_cast<std::size_t>(c.block().rank())] = static_cast<double>(f(c.block().warp()));
  });
  for (const double x : lanes) CHECK(x == lanes[0]);
  return lanes[0];
}

struct Drawn {
  Token token;
  device::RowStats stats;
  float prob;
};
template <class Element>
Drawn draw_one(const std::vector<float>& row, const SamplingParams& p, std::uint64_t seed, int blocks = 1) {
  std::vector<Element> data(row.size());
  for (std::size_t x = 0; x < row.size(); ++x) store(row[x], data[x]);
  const device::SamplingParams params{p.temperature, p.top_k, p.top_p, p.min_p};
  const std::int32_t position = 3;
  Drawn out{};
  device::SampleArgs<Element> args{};
  args.logits = data.data();
  args.stride = static_cast<std::int64_t>(row.size());
  args.seed = &seed;
  args.position = &position;
  args.params = &params;
  args.token = &out.token;
  args.stats = &out.stats;
  args.prob = &out.prob;
  const int vocab = static_cast<int>(row.size());
  emulate({.clusters = 1,
           .blocks = blocks,
           .threads = 64,
           .shared_bytes = sample_bytes<EmulatedCluster>({vocab, 1, 8192}, 2, 1),
           .seed = seed},
          [&](EmulatedCluster c, int r, unsigned char* shared) {
            sample_row(c, r, shared, args, {vocab, 1, 8192}, 1);
          });
  return out;
}
template <class Element>
void check_distribution(const std::vector<float>& row, const SamplingParams& p, std::uint64_t seed,
                        int blocks = 1, double log_z_error = 1e-7) {
  const Drawn got = draw_one<Element>(row, p, seed, blocks);
  detail::RowScan scan(static_cast<std::int32_t>(row.size()));
  const Distribution distribution = scan.distribution(row, p);
  REQUIRE(got.stats.status == Status::ok);
  CHECK(got.stats.shift == distribution.shift);
  CHECK(got.stats.log_z == doctest::Approx(distribution.log_z).epsilon(log_z_error));
  CHECK(static_cast<double>(got.prob) / distribution(got.token) == doctest::Approx(1).epsilon(1e-5));
  PhiloxRandom rng(seed);
  CHECK(got.token == rng.draw(scan.weights(distribution), {3}));
}
}  // namespace

TEST_CASE("exponents, uniform draws and weights") {
  for (int n = 0; n >= -1022; n -= 7) CHECK(power_of_two(n) == std::ldexp(1.0, n));
  CHECK(power_of_two(-1023) == 0);
  CHECK(power_of_two(-kInf) == 0);
  double worst = 0;
  for (float x = -126; x < 128; x += 0.00097f)
    worst = worse(worst, std::abs(static_cast<double>(exp2_fast(x)) / std::exp2(static_cast<double>(x)) - 1));
  CHECK(worst < 0x1p-22);  // at most two units in the last place
  CHECK(exp2_fast(-126) == 0x1p-126f);
  CHECK(exp2_fast(-126.01f) == 0);
  CHECK(exp2_fast(-kInf) == 0);
  CHECK(std::isnan(exp2_fast(std::numeric_limits<float>::quiet_NaN())));
  CHECK(uniform(1) == 0x1p-32);
  CHECK(uniform(0xFFFFFFFFu) == 1 - 0x1p-32);
  for (const double base : {0.0, 300.0, 20000.0})
    for (const double t : {0.3, 1.0, 2.5})
      for (double l = -20; l <= 0; l += 0.37) {
        const float logit = static_cast<float>(base + l);
        const auto temperature = static_cast<float>(t), shift = static_cast<float>(base);
        const double inv_t = inverse(temperature);
        for (const device::RowStats& distribution :  // log_z relative to the base, and to 0
             {device::RowStats{1.234 * inv_t, shift, temperature, -kInf, device::kNoToken, Status::ok},
              device::RowStats{(base + 1.234) * inv_t, 0, temperature, -kInf, device::kNoToken,
                               Status::ok}}) {
          const double y = (static_cast<double>(logit) - base - 1.234) * inv_t;
          CHECK(std::abs(static_cast<double>(Exponent(distribution).weight(logit)) / std::exp(y) - 1) <
                4e-7 + 2.4e-7 * std::abs(y));
        }
      }
}

TEST_CASE(
    "tiles are picked by mass: ties of a uniform draw, tiles without mass, uniform draws at both ends") {
  using Masses = std::vector<std::uint64_t>;
  const auto pick = [](const Masses& m, double c) {
    return by_warp([&](auto w) {
      return pick_tile(
          w, static_cast<int>(m.size()), [&](int t) { return m[static_cast<std::size_t>(t)]; },
          static_cast<std::uint32_t>(c * 0x1p32));
    });
  };
  constexpr double kLast = 1 - 0x1p-32;
  CHECK(pick({1, 1}, 0.5) == 1);
  CHECK(pick({1, 1}, 0.499) == 0);
  CHECK(pick({0, 1, 0, 1, 0}, 0.0) == 1);
  CHECK(pick({0, 1, 0, 1, 0}, 0.5) == 3);
  CHECK(pick({0, 1, 0, 1, 0}, kLast) == 3);
  CHECK(pick({0, 0}, 0.3) == -1);
  Masses many(40);
  many[3] = many[20] = 1;
  CHECK(pick(many, kLast) == 20);
  CHECK(pick(many, 0.5) == 20);
  // Masses of 63 bits: no product overflows.
  const std::uint64_t half = std::uint64_t{1} << 61;
  CHECK(pick({half, half, half}, 0.3333) == 0);
  CHECK(pick({half, half, half}, 0.3334) == 1);
  CHECK(pick({half, half, half}, kLast) == 2);
  const auto inside = [](const std::vector<float>& weights, double c) {
    return by_warp([&](auto w) {
      return draw_inside(w, 0, c, [&](int first, float(&x)[4]) {
        for (int e = 0; e < 4; ++e)
          x[e] = first + e < static_cast<int>(weights.size()) ? weights[static_cast<std::size_t>(first + e)]
                                                              : 0.0f;
      });
    });
  };
  CHECK(inside({0, 1, 0, 1, 0}, 0.0) == 1);
  CHECK(inside({0, 1, 0, 1, 0}, 0.5) == 3);
  CHECK(inside({0, 1, 0, 1, 0}, 1.0) == 3);
  CHECK(inside({0, 0}, 0.3) == -1);
  for (const int at : {0, 15, 16, 31, 100, 511}) {  // every lane, first and last of its tokens
    std::vector<float> one(512);
    one[static_cast<std::size_t>(at)] = 1e-30f;
    CHECK(inside(one, 0.999) == at);
  }
  // More tiles than 8 for each lane: vocabularies above 131,072.
  for (const int tiles : {1, 8, 9, 255, 256, 257, 297, 600}) {
    const auto one = [](int) { return std::uint64_t{1}; };
    CHECK(by_warp([&](auto w) { return static_cast<double>(total_mass(w, tiles, one)); }) == tiles);
    CHECK(by_warp([&](auto w) {
            return pick_tile(w, tiles, one, static_cast<std::uint32_t>((tiles - 0.5) / tiles * 0x1p32));
          }) == tiles - 1);
  }
}

TEST_CASE("integer masses: their resolution, and that sums fit") {
  for (const int tiles : {1, 2, 3, 251, 256, 297, 2048}) {
    CAPTURE(tiles);
    const int bits = mass_bits(tiles);
    CHECK(std::ldexp(1.0, 62 - bits) >= tiles);
    CHECK(std::ldexp(1.0, 61 - bits) < tiles);
    // A row whose tiles have the largest possible mass, 512 tokens of 2^(3/4).
    const RowMasses row(20.0f, 1.0f, tiles);
    CHECK(static_cast<double>(row(20.0f, 860.0f)) * tiles < 0x1p63);
    CHECK(row.value(row(20.0f, 860.0f)) == 860.0);
    // 2^-38 of the row is still nonzero for current vocabulary sizes.
    if (tiles <= 297) CHECK(row.value(row(20.0f - 38, 1.0f)) == doctest::Approx(0x1p-38).epsilon(0.01));
    CHECK(row(-1e30f, 1.0f) == 0);
    CHECK(row(-kInf, 0.0f) == 0);
    // Residuals: relative to the heaviest tile, so almost empty residuals are exact.
    for (const float heaviest : {1.0f, 1e-3f, 0x1p-40f, 0x1p-58f}) {
      const auto mass = [&](int t) { return t == tiles - 1 ? heaviest : heaviest * 0x1p-30f; };
      CHECK(by_warp([&](auto w) {
              const FloatMasses all(w, tiles, mass);
              CHECK_FALSE((all.none || all.nan));
              return all.value(total_mass(w, tiles, [&](int t) { return all.whole(mass(t)); }));
            }) ==
            doctest::Approx(static_cast<double>(heaviest) * (1 + (tiles - 1) * 0x1p-30)).epsilon(1e-12));
    }
  }
  const auto state = [](float mass) {
    return by_warp([&](auto w) {
      const FloatMasses all(w, 40, [&](int t) { return t == 33 ? mass : 0.0f; });
      return all.nan ? 2.0 : all.none ? 1.0 : 0.0;
    });
  };
  CHECK(state(0) == 1);
  CHECK(state(0x1p-126f) == 0);
  CHECK(state(std::numeric_limits<float>::quiet_NaN()) == 2);
}

TEST_CASE("vocabularies of realistic size") {
  Random random(41);
  for (const int vocab : {50257, 128256, 151936}) {
    check_distribution<float>(random.row(vocab, 5), {.temperature = 0.7f}, random.bits(), 2);
    check_distribution<float>(random.row(vocab, 5), {.top_k = 50, .top_p = 0.9f}, random.bits(), 3);
  }
}

TEST_CASE("distributions of rows with structure") {
  Random random(40);
  for (const RowKind kind : kRowKinds)
    for (const int vocab : {17, 513, 1537}) {
      CAPTURE(std::string(name_of(kind)));
      const std::vector<float> row = structured_row(kind, vocab, random);
      check_distribution<float>(row, {.temperature = 0.7f}, random.bits(), 1 + vocab % 3, 4e-7);
      check_distribution<float>(row, {.top_k = 5}, random.bits(), 2, 4e-7);
    }
}

TEST_CASE("masks of every kind, with truncation that asks for more tokens than are left") {
  Random random(42);
  for (int i = 0; i < 60; ++i) {
    std::vector<float> row(1200, i % 3 == 0 ? -kInf : i % 3 == 1 ? bf16_rounded(-3.38e38f) : -3.4028234e38f);
    const float top = static_cast<float>(random.between(5, 45));
    for (int x = 0; x < 10; ++x) row[static_cast<std::size_t>(x * 110)] = top - static_cast<float>(x) * 0.25f;
    for (const SamplingParams& p : {SamplingParams{.top_k = 50, .top_p = 0.95f}, SamplingParams{.top_k = 50},
                                    SamplingParams{.top_p = 0.99999f}}) {
      check_distribution<float>(row, p, random.bits(), 1 + i % 2);
      std::vector<float> rounded = row;
      for (float& l : rounded)
        l = std::isinf(l) || l < -1e38f ? l < -3.39e38f && !std::isinf(l) ? bf16_rounded(-3.38e38f) : l
                                        : bf16_rounded(l);
      check_distribution<device::BFloat16>(rounded, p, random.bits(), 1 + i % 2);
    }
  }
}

TEST_CASE("large logits: the rounding of the scale is compensated, light tiles are never drawn from") {
  Random random(43);
  for (const float base : {500.0f, 20000.0f})
    for (int i = 0; i < 20; ++i) {
      std::vector<float> row = random.row(1500, 3);
      for (float& l : row) l += base;
      check_distribution<float>(row, {.temperature = static_cast<float>(random.between(0.4, 1.7))},
                                random.bits());
    }
}

TEST_CASE("siblings without replacement whose own children were rejected; siblings of both kinds") {
  require_agreement(compare_with_cpu<TraversalRule, float>(
      Traversal{}, dense_traverses, logits, 500, 7,
      {.nodes = 14, .draws = false, .chooses = false, .wide = 0.6, .spread = 1}, 51));
  require_agreement(compare_with_cpu<TraversalRule, float>(Traversal{}, dense_traverses, logits, 500, 5,
                                                           {.nodes = 14, .wide = 0.7, .spread = 1}, 52));
  require_agreement(compare_with_cpu<RejectionRule, float>(Rejection{}, dense_rejects, logits, 500, 5,
                                                           {.nodes = 14, .wide = 0.9, .spread = 1}, 53));
}

TEST_CASE("each sequence has its own random numbers") {
  Random random(54);
  DeviceBatch<float> batch(20);
  std::vector<DeviceResult> want;
  std::vector<std::uint32_t> sequence;
  for (int i = 0; i < 12; ++i) {
    const Case it = random_case(random, 20, {}, {.nodes = 8}, random.bits());
    batch.add(it, {}, 5);
    sequence.push_back(static_cast<std::uint32_t>(i * 3));
    VerifyWorkspace workspace(20, it.tree.size());
    PhiloxRandom rng(5, sequence.back());
    VerifyResult v;
    decide_checked(Traversal{}, it.tree, TargetDistributions(it.view(), {}, workspace), rng, v);
    want.push_back(as_device(v, it.tree));
  }
  auto args = batch.args(batch.logits_draft());
  args.trees.sequence = sequence.data();
  CHECK(emulate_verify<TraversalRule>(batch, args) == want);
}

TEST_CASE("every node is checked, and one node above the capacity is an error") {
  DeviceBatch<float> b(4);
  const std::vector<float> row{0, 3, 1, 2};
  const auto add = [&](int nodes, int bad) {
    for (int n = 0; n < nodes; ++n) {
      b.token.push_back(n == bad ? 4 : 0);
      b.parent.push_back(n == 0 ? -1 : 0);
      b.add_row(b.target, row.data());
    }
    b.begin.push_back(static_cast<std::int32_t>(b.token.size()));
    b.position.push_back(1), b.seed.push_back(1), b.params.push_back({});
  };
  for (const int bad : {-1, 1, 31, 32, 39}) add(40, bad);
  add(41, -1);
  b.max_nodes = 40;
  b.width = 3;
  const auto v = emulate_verify<RejectionRule>(b, b.args(device::ChosenDraft{}), 1);
  for (std::size_t i = 0; i < v.size(); ++i) CHECK(v[i].status == (i == 0 ? Status::ok : Status::bad_tree));
}

TEST_CASE(
    "a draft token of almost no probability is rejected, even if its own draft tokens would be accepted") {
  for (const float gap : {80.0f, 95.0f, 110.0f, 400.0f})
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const std::vector<float> root{gap, 0, 1}, flat{0.3f, 0.1f, 0.2f}, q{0.1f, 0.2f, 0.3f};
      DeviceBatch<float> b(3);
      b.token = {0, 1, 2, 0};
      b.parent = {-1, 0, 1, 1};
      b.begin = {0, 4};
      b.position = {4};
      b.seed = {seed};
      b.params = {{}};
      b.max_nodes = 4, b.width = 3;
      b.add_row(b.target, root.data());
      for (int i = 0; i < 3; ++i) b.add_row(b.target, flat.data());
      b.add_row(b.draft, q.data());
      detail::RowScan scan(3);
      b.stats.push_back({scan.distribution(q, {}).log_z, scan.distribution(q, {}).shift, 1, -kInf,
                         device::kNoToken, Status::ok});
      b.draft_row = {-1, 0, 0, 0};
      b.scale = {0, 0, 0, 0};
      CHECK(emulate_verify<TraversalRule>(b, b.args(b.logits_draft()))[0].tokens == std::vector<Token>{0});
    }
}

TEST_CASE("two siblings from two rows, then a chosen one, over many tiles") {
  Random random(61);
  int differ = 0, unexplained = 0;
  for (int i = 0; i < 300; ++i) {
    const int vocab = i % 2 ? 5 : 1300;
    const std::vector<float> p = random.row(vocab, 6), q1 = random.row(vocab, 6), q2 = random.row(vocab, 6);
    DeviceBatch<float> b(vocab);
    b.token = {0, random.below(vocab), random.below(vocab), random.below(vocab)};
    if (i % 3 == 0) b.token[3] = static_cast<Token>(std::max_element(p.begin(), p.end()) - p.begin());
    b.parent = {-1, 0, 0, 0};
    b.begin = {0, 4}, b.position = {4}, b.seed = {random.bits()}, b.params = {{}};
    b.max_nodes = 4, b.width = 2;
    for (int n = 0; n < 4; ++n) b.add_row(b.target, p.data());
    detail::RowScan scan(vocab);
    for (const auto* q : {&q1, &q2}) {
      b.add_row(b.draft, q->data());
      b.stats.push_back({scan.distribution(*q, {}).log_z, scan.distribution(*q, {}).shift, 1, -kInf,
                         device::kNoToken, Status::ok});
    }
    b.draft_row = {-1, 0, 1, -1};
    b.scale = {0, 0, 0, 0};
    DenseTree tree;
    tree.token = b.token, tree.parent = b.parent, tree.origin = 4;
    Dense point(static_cast<std::size_t>(vocab));
    point[static_cast<std::size_t>(b.token[3])] = 1;
    tree.q = {{}, plain_distribution(q1, {}), plain_distribution(q2, {}), point};
    const std::vector<Dense> distributions(4, plain_distribution(p, {}));
    DenseUniforms uniforms(b.seed[0]);
    const VerifyResult want = dense_rejection(tree, distributions, uniforms);
    const DeviceResult got = emulate_verify<RejectionRule>(b, b.args(b.logits_draft()), 1 + i % 3)[0];
    REQUIRE(got.status == Status::ok);
    const bool same = got.accepted == want.accepted && got.tokens.back() == want.next_token;
    differ += !same, unexplained += !same && uniforms.margin > 1e-5;
  }
  CHECK(unexplained == 0);
  CHECK(differ <= 2);
}

TEST_CASE("draws from an almost empty residual over many tiles are exact") {
  // p and q agree on what is heavy; the draft token is light under both, and lighter under p. The residual
  // consists of other light tokens, whose total mass is below 2^-53.
  Random random(62);
  int rejected = 0, differ = 0;
  std::vector<int> tiles(3);
  for (int i = 0; i < 120; ++i) {
    const int vocab = 1300;
    std::vector<float> p = random.row(vocab, 2), q;
    std::vector<Token> light;
    for (Token x = 0; x < vocab; x += 40) light.push_back(x);
    for (const Token x : light) p[static_cast<std::size_t>(x)] = static_cast<float>(random.between(-52, -48));
    q = p;
    for (const Token x : light) q[static_cast<std::size_t>(x)] -= static_cast<float>(random.between(1, 20));
    const Token draft_token = 7;
    p[draft_token] = -70, q[draft_token] = -45;
    DeviceBatch<float> b(vocab);
    b.token = {0, draft_token}, b.parent = {-1, 0};
    b.begin = {0, 2}, b.position = {4}, b.seed = {random.bits()}, b.params = {{}};
    b.max_nodes = 2, b.width = 2;
    for (int n = 0; n < 2; ++n) b.add_row(b.target, p.data());
    b.add_row(b.draft, q.data());
    b.stats.push_back(draw_one<float>(q, {}, 1).stats);  // computed on the device, as p's will be
    b.draft_row = {-1, 0}, b.scale = {0, 0};
    DenseTree tree;
    tree.token = b.token, tree.parent = b.parent, tree.origin = 4;
    tree.q = {{}, plain_distribution(q, {})};
    DenseUniforms uniforms(b.seed[0]);
    const VerifyResult want =
        dense_rejection(tree, std::vector<Dense>(2, plain_distribution(p, {})), uniforms);
    for (const int blocks : {1, 3}) {
      const DeviceResult got = emulate_verify<RejectionRule>(b, b.args(b.logits_draft()), blocks)[0];
      REQUIRE(got.status == Status::ok);
      differ += got.accepted != want.accepted || got.tokens.back() != want.next_token;
      if (want.accepted.size() != 1) continue;
      ++rejected;
      CHECK(got.tokens.back() % 40 == 0);
      ++tiles[static_cast<std::size_t>(got.tokens.back() / 512)];
    }
  }
  CHECK(rejected > 230);
  CHECK(differ <= 2);
  for (const int n : tiles) CHECK(n > 20);
}

namespace {
/// A sequence verifier, called in an order that no rule uses.
struct Seen {
  double none = -1, kept = -1, nothing = -1, still = -1, third = -1, third_left = -1, others = -1;
  Token from_p = -1, drawn = -1, from_distribution = -1;
} seen_by_probe;
struct Probe : RuleNeeds {
  static constexpr bool kReadsDraft = true;
  template <class SequenceVerifier>
  static void decide(SequenceVerifier& verifier) {
    Seen seen;
    verifier.start_residual(0, verifier.distribution(0, 0), 0);
    seen.none = verifier.reject(0.01);  // (p / 100 - p)+
    seen.from_p = verifier.sample_residual(0);
    seen.kept = verifier.residual_prob(1);
    seen.nothing = verifier.reject(0);  // of the second child: weight 0
    seen.still = verifier.residual_prob(1);
    seen.third = verifier.reject(1);  // the third, chosen: p without token 3
    seen.third_left = verifier.residual_prob(3), seen.others = verifier.residual_prob(1);
    seen.drawn = verifier.sample_residual(0);
    const device::RowStats distribution = verifier.distribution(0, 0);
    seen.from_distribution =
        verifier.sample(0, distribution, 0);  // of p itself, although the tiles hold the masses of a residual
    verifier.finish(0);
    seen_by_probe = seen;
  }
};
}  // namespace

TEST_CASE("a rejection that leaves no mass keeps p") {
  // p flat over 4, three children drawn from flat rows: with a weight of 0.01 nothing is left, and p is kept.
  DeviceBatch<float> b(4);
  const std::vector<float> flat{0, 0, 0, 0}, peak{3, 0, 0, 0};
  b.token = {0, 1, 2, 3};
  b.parent = {-1, 0, 0, 0};
  b.begin = {0, 4}, b.position = {4}, b.seed = {1}, b.params = {{}};
  b.max_nodes = 4, b.width = 2;
  for (int n = 0; n < 4; ++n) b.add_row(b.target, n == 0 ? flat.data() : peak.data());
  detail::RowScan scan(4);
  for (const auto* q : {&flat, &peak}) {
    b.add_row(b.draft, q->data());
    b.stats.push_back({scan.distribution(*q, {}).log_z, scan.distribution(*q, {}).shift, 1, -kInf,
                       device::kNoToken, Status::ok});
  }
  b.draft_row = {-1, 0, 1, -1};
  b.scale = {0, 0, 0, 0};
  seen_by_probe = {};
  emulate_verify<Probe>(b, b.args(b.logits_draft()), 2);
  const Seen& seen = seen_by_probe;
  CHECK(seen.none == 0);
  CHECK((seen.from_p >= 0 && seen.from_p < 4));
  CHECK(seen.kept == doctest::Approx(0.25));
  CHECK(seen.nothing == 0);
  CHECK(seen.still == doctest::Approx(0.25));
  CHECK(seen.third == doctest::Approx(0.75));
  CHECK(seen.third_left == 0);
  CHECK(seen.others == doctest::Approx(1 / 3.0));
  CHECK((seen.drawn >= 0 && seen.drawn < 3));
  PhiloxRandom rng(1);
  detail::RowScan cpu(4);
  CHECK(seen.from_distribution == rng.draw(cpu.weights(cpu.distribution(flat, {})), {5}));
}

TEST_CASE("a draw from a distribution is right although its tiles hold the masses of a residual") {
  Random random(62);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DeviceBatch<float> b(1600);
    const std::vector<float> p = random.row(1600, 2), q = random.row(1600, 5);
    b.token = {0, 1, 2, 3};
    b.parent = {-1, 0, 0, 0};
    b.begin = {0, 4}, b.position = {4}, b.seed = {seed}, b.params = {{}};
    b.max_nodes = 4, b.width = 2;
    for (int n = 0; n < 4; ++n) b.add_row(b.target, p.data());
    detail::RowScan scan(1600);
    b.add_row(b.draft, q.data());
    b.stats.push_back({scan.distribution(q, {}).log_z, scan.distribution(q, {}).shift, 1, -kInf,
                       device::kNoToken, Status::ok});
    b.draft_row = {-1, 0, 0, -1};
    b.scale = {0, 0, 0, 0};
    emulate_verify<Probe>(b, b.args(b.logits_draft()), 2);
    PhiloxRandom rng(seed);
    CHECK(seen_by_probe.from_distribution == rng.draw(scan.weights(scan.distribution(p, {})), {5}));
  }
}

TEST_CASE("ties for the largest logit go to the first, with more tiles than lanes") {
  for (const int second : {101, 600, 100 + 32 * 512, 100 + 33 * 512}) {
    std::vector<float> row(34 * 512);
    row[100] = row[static_cast<std::size_t>(second)] = 2;
    CHECK(draw_one<float>(row, {.temperature = 0}, 1).token == 100);
    CHECK(draw_one<device::BFloat16>(row, {.temperature = 0}, 1, 3).token == 100);
  }
}

TEST_CASE("a uniform draw of 0 does not pick a tile without mass") {
  std::vector<float> row(1024, -90.0f);
  row[700] = 0;
  const ScanSize size{1024, 1, 4096};
  emulate({.threads = 32, .shared_bytes = RowScan<EmulatedCluster>::shared_bytes(size, 1)},
          [&](EmulatedCluster c, int, unsigned char* shared) {
            RowScan<EmulatedCluster> scan(c, size, shared);
            const Row<float> all{row.data(), 1024};
            const auto distribution = scan.distribution(all, device::SamplingParams{});
            CHECK(distribution.status == Status::ok);
            CHECK(scan.draw(false, 0, 0, all, Words{0, 0, 0, 0}) == 700);
          });
}
