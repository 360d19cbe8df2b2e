#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention_wgmma.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "random.hpp"
#include "wgmma_attention.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Half;
using device::TreeAttentionCapacity;
using device::TreeAttentionPlan;

namespace {

template <class Element, int kHead>
AttentionErrors check(const AttentionCase& c, WgmmaCut cut = {}) {
  CAPTURE(c.seed);
  CAPTURE(cut.rows);
  CAPTURE(cut.splits);
  CAPTURE(cut.cluster);
  const AttentionScene<Element, kHead> scene(c);
  const AttentionErrors errors =
      compare_attention(scene, run_wgmma_attention(scene, wgmma_plan(scene, cut), c.seed));
  CHECK(errors.wrong == 0);
  // What the rounding of the weights leaves: about 2e-3 of bf16, 2e-4 of f16, twice that where few keys
  // weigh.
  CHECK(errors.relative < (std::is_same_v<Element, BFloat16> ? 5e-3 : 6e-4));
  CHECK(errors.lse < 1e-4);
  return errors;
}

AttentionCase random_case(std::uint64_t seed) {
  Random random(seed);
  AttentionCase c;
  c.seed = seed;
  const int groups[] = {1, 2, 3, 4, 7, 8}, pages[] = {1, 3, 16, 32, 7, 64, 100, 5};
  c.kv_heads = 1 + random.below(2);
  c.query_heads = c.kv_heads * groups[random.below(6)];
  for (int b = 1 + random.below(2); b > 0; --b) {
    const int edges[] = {0, 1, 15, 16, 17, 63, 64, 65, 128, 200};
    c.lengths.push_back(random.chance(0.5) ? edges[random.below(10)] : random.below(500));
    c.nodes.push_back(random.chance(0.1) ? 0 : 1 + random.below(random.chance(0.3) ? 40 : 16));
  }
  c.page_size = pages[random.below(8)];
  c.layout = static_cast<KvLayout>(random.below(5));
  c.table = static_cast<KvTable>(random.below(2));
  c.two_tables = random.chance(0.4);
  c.cross = random.chance(0.2);
  if (random.chance(0.4)) c.window = 1 + random.below(random.chance(0.5) ? 20 : 200);
  c.by_depth = random.chance(0.5);
  if (random.chance(0.3)) c.softcap = random.chance(0.5) ? 2.0f : 30.0f;
  if (random.chance(0.4)) c.scale = random.chance(0.5) ? 0.5f : -0.2f;
  return c;
}
WgmmaCut random_cut(Random& random) {
  const int rows[] = {0, 64, 128};
  return {rows[random.below(3)], 1 + random.below(5), 1 << random.below(3)};
}

/// The bits of one sequence's results.
template <class Element, int kHead>
std::vector<std::uint32_t> bits_of(const AttentionScene<Element, kHead>& scene,
                                   const AttentionOutput<Element>& got, std::size_t b) {
  std::vector<std::uint32_t> out;
  for (std::int64_t n = scene.begin[b]; n < scene.begin[b + 1]; ++n) {
    for (int i = 0; i < scene.c.query_heads * kHead; ++i)
      out.push_back(got.out[static_cast<std::size_t>(n * got.stride + i)].bits);
    for (int h = 0; h < scene.c.query_heads; ++h)
      out.push_back(device::detail::bits_of(got.lse[static_cast<std::size_t>(n * scene.c.query_heads + h)]));
  }
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("random ragged batches get what they should", Element, BFloat16, Half) {
  double worst = 0, sum = 0;
  for (std::uint64_t seed = 1; seed <= 28; ++seed) {
    Random random(1000 + seed);
    const AttentionCase c = random_case(seed);
    const double error = random.chance(0.5) ? check<Element, 128>(c, random_cut(random)).relative
                                            : check<Element, 64>(c, random_cut(random)).relative;
    worst = std::max(worst, error);
    sum += error;
  }
  MESSAGE("relative error: mean ", sum / 28, ", worst ", worst);
}

TEST_CASE("from 17 to 300 packed rows, all groups of query heads") {
  for (const auto& [nodes, group] : std::vector<std::pair<int, int>>{
           {17, 1}, {9, 2}, {21, 3}, {16, 4}, {17, 4}, {13, 5}, {20, 6}, {9, 7}, {8, 8}, {64, 4}, {43, 7}}) {
    const AttentionCase c{.query_heads = 2 * group,
                          .kv_heads = 2,
                          .lengths = {70},
                          .nodes = {nodes},
                          .page_size = 16,
                          .seed = static_cast<std::uint64_t>(100 * nodes + group)};
    check<BFloat16, 64>(c, {0, 2});
    check<Half, 128>(c);
  }
  check<BFloat16, 128>({.query_heads = 3, .lengths = {150, 20}, .nodes = {100, 9}, .seed = 5}, {0, 3});
}

TEST_CASE("prefixes about the edges of tiles and pages, every variant") {
  std::uint64_t seed = 100;
  for (const int length : {0, 1, 15, 16, 17, 63, 64, 65, 127, 129, 300})
    for (const int rows : {64, 128}) {
      AttentionCase c{.query_heads = 4, .lengths = {length}, .nodes = {5}, .page_size = 16, .seed = ++seed};
      c.window = length % 2 == 0 ? 0 : 40;
      check<BFloat16, 64>(c, {rows, 1 + length % 3});
      c.layout = KvLayout::joint_hnd;
      check<Half, 128>(c, {rows, 1 + length % 4, 1 + length % 2});
    }
}

TEST_CASE("long contexts go around the ring of stages") {
  AttentionCase c{.query_heads = 4, .lengths = {1500}, .nodes = {20}, .page_size = 16, .seed = 71};
  check<BFloat16, 128>(c);
  check<BFloat16, 64>(c);
  c.nodes = {12};
  check<Half, 128>(c);
  check<Half, 128>(c, {128});  // of which one group has no rows
  c.window = 900;
  check<Half, 64>(c, {128, 2, 2});
}

TEST_CASE("trees of more than a word, more than a tile of rows and of keys") {
  for (const int nodes : {63, 65, 129, 130}) {
    AttentionCase c{.query_heads = 3,
                    .lengths = {50},
                    .nodes = {nodes},
                    .page_size = 7,
                    .seed = static_cast<std::uint64_t>(nodes)};
    check<BFloat16, 64>(c, {0, 2});
    c.window = 3;
    check<Half, 64>(c, {64, 3, 2});
  }
}

TEST_CASE("cross attention: all committed tokens and no tail") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    AttentionCase c{.query_heads = 4,
                    .kv_heads = 2,
                    .lengths = {90, 0, 65},
                    .nodes = {6, 2, 17},
                    .cross = true,
                    .seed = seed};
    check<BFloat16, 64>(c, {0, static_cast<int>(seed)});
    c.window = 30;
    check<Half, 128>(c, {128, 2, 2});
  }
}

TEST_CASE("who sees nothing gets zeros and -infinity") {
  // No token at all, and a window that ended before the query.
  AttentionCase c{.query_heads = 2, .lengths = {0, 40}, .nodes = {3, 2}, .cross = true, .seed = 3};
  c.window = 5;
  AttentionScene<BFloat16, 64> scene(c);
  for (std::int32_t& p : scene.position) p += 100;
  for (const WgmmaCut cut : {WgmmaCut{}, WgmmaCut{64, 4, 1}, WgmmaCut{128, 8, 8}, WgmmaCut{128, 3, 1}}) {
    const auto got = run_wgmma_attention(scene, wgmma_plan(scene, cut));
    CHECK(compare_attention(scene, got).wrong == 0);
    for (const std::size_t b : {0u, 1u})
      for (const std::uint32_t bits : bits_of(scene, got, b)) CHECK((bits == 0 || bits == 0xFF800000u));
  }
  // Nor does a node whose mask forgets itself, among others that see.
  AttentionCase d{.query_heads = 2, .lengths = {0}, .nodes = {5}, .seed = 4};
  AttentionScene<BFloat16, 64> bare(d);
  for (int w = 0; w < bare.words; ++w) bare.mask[static_cast<std::size_t>(2 * bare.words + w)] = 0;
  for (const float scale : {0.1f, 0.0f}) {
    bare.args.scale = scale;
    const auto got = run_wgmma_attention(bare, wgmma_plan(bare));
    for (int i = 0; i < 128; ++i) CHECK(got.out[static_cast<std::size_t>(2 * got.stride + i)].bits == 0);
    CHECK(got.lse[4] == -INFINITY);
    CHECK(std::isfinite(got.lse[3]));
  }
}

TEST_CASE("scales of either sign and none, with and without a cap") {
  for (const float scale : {0.0f, -0.3f, 0.7f, 1e-6f, -1e-6f})
    for (const float softcap : {0.0f, 5.0f}) {
      const AttentionCase c{.query_heads = 4,
                            .lengths = {75, 130},
                            .nodes = {5, 9},
                            .softcap = softcap,
                            .scale = scale,
                            .seed = 13};
      check<Half, 64>(c, {0, 2});
    }
}

TEST_CASE("positions need not be slots: windows go by position") {
  AttentionCase c{
      .query_heads = 2, .lengths = {100}, .nodes = {16}, .window = 25, .forget = false, .seed = 9};
  AttentionScene<Half, 64> scene(c);
  Random random(7);
  for (std::int32_t& p : scene.position) p = 60 + random.below(70);
  for (const WgmmaCut cut : {WgmmaCut{}, WgmmaCut{64, 2, 1}})
    CHECK(compare_attention(scene, run_wgmma_attention(scene, wgmma_plan(scene, cut))).relative < 6e-4);
}

TEST_CASE("maxima that rise by much, and flat rows") {
  for (const double spread : {0.0, 1e-3, 4.0, 12.0}) {
    AttentionCase c{
        .query_heads = 4, .lengths = {250}, .nodes = {6}, .scale = 1.0f, .spread = spread, .seed = 11};
    const AttentionScene<BFloat16, 64> scene(c);
    const auto errors = compare_attention(scene, run_wgmma_attention(scene, wgmma_plan(scene, {64, 3, 1})));
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 6e-3);
    CHECK(errors.lse < 1e-3);
  }
}

TEST_CASE("the same bits whatever the order of threads and clusters, run after run, in either variant") {
  const AttentionScene<BFloat16, 64> scene(
      {.query_heads = 4, .kv_heads = 2, .lengths = {300, 500, 70}, .nodes = {20, 3, 0}, .seed = 21});
  for (const WgmmaCut cut : {WgmmaCut{128, 6, 1}, WgmmaCut{64, 7, 2}, WgmmaCut{128, 8, 4}}) {
    const auto plan = wgmma_plan(scene, cut);
    const auto first = run_wgmma_attention(scene, plan, 1);
    std::vector<unsigned char> workspace;
    for (std::uint64_t seed = 2; seed <= 3; ++seed)  // one workspace: its counters are as they were
      CHECK(run_wgmma_attention(scene, plan, seed, Engine::fibers, &workspace) == first);
  }
  for (const int splits : {1, 5})
    CHECK(run_wgmma_attention(scene, wgmma_plan(scene, {64, splits})) ==
          run_wgmma_attention(scene, wgmma_plan(scene, {128, splits})));
}

TEST_CASE("the same function as tree_attention()") {
  for (std::uint64_t seed = 201; seed <= 206; ++seed) {
    const AttentionScene<Half, 128> scene(random_case(seed));
    TreeAttentionPlan plan;
    TreeAttentionCapacity capacity = wgmma_plan(scene).capacity;
    REQUIRE(device::detail::fill_plan(&plan, capacity, 128, 132, true));
    const auto one = run_attention(scene, plan), other = run_wgmma_attention(scene, wgmma_plan(scene));
    double difference = 0, norm = 0;
    for (std::int64_t n = 0; n < scene.begin.back(); ++n)
      for (int i = 0; i < scene.c.query_heads * 128; ++i) {
        const auto at = static_cast<std::size_t>(n * one.stride + i);
        const double a = scene.as_double(one.out[at]), b = scene.as_double(other.out[at]);
        difference += (a - b) * (a - b), norm += a * a;
      }
    CHECK(std::sqrt(difference) <= 5e-4 * std::sqrt(norm));
  }
}

TEST_CASE("batch-invariant: bits depend on the sequence alone") {
  const AttentionCase wanted{.query_heads = 2,
                             .lengths = {1500, 260, 600, 64},
                             .nodes = {3, 40, 17, 1},
                             .page_size = 32,
                             .window = 1000,
                             .seed = 31};
  using Scene = AttentionScene<BFloat16, 64>;
  const Scene batch(wanted);
  // The real thing but for splits of 2 tiles in place of 32.
  const auto plan_of = [](TreeAttentionCapacity c, bool clusters, int slots) {
    c.query_heads = 2;
    c.kv_heads = 1;
    c.batch_invariant = true;
    TreeAttentionPlan plan;
    REQUIRE(device::detail::fill_wgmma_plan(&plan, c, 64, slots, clusters));
    CHECK(plan.fixed_tiles == 32);
    plan.fixed_tiles = 2;
    plan.splits = ((c.max_tokens + c.max_nodes + 63) / 64 + 2) / 2;
    plan.cluster = device::detail::choose_cluster(plan.splits, clusters);
    plan.splits = (plan.splits + plan.cluster - 1) / plan.cluster * plan.cluster;
    return plan;
  };
  for (const bool clusters : {false, true}) {
    const auto together = run_wgmma_attention(
        batch, plan_of({.sequences = 4, .max_nodes = 40, .max_tokens = 1500}, clusters, 132));
    CHECK(compare_attention(batch, together).relative < 5e-3);
    for (std::size_t b = 0; b < 4; ++b) {
      Scene alone = batch;
      alone.args.begin = batch.begin.data() + b;
      alone.args.kv.length = batch.length.data() + b;
      alone.args.kv.indptr = batch.indptr.data() + b;
      const TreeAttentionCapacity own{.sequences = 1,
                                      .max_nodes = wanted.nodes[b] + (b == 1 ? 60 : 0),
                                      .max_tokens = wanted.lengths[b] + (b == 3 ? 1500 : 0)};
      const auto got = run_wgmma_attention(alone, plan_of(own, clusters, 132), 7);
      CHECK(bits_of(batch, got, b) == bits_of(batch, together, b));
    }
  }
}

TEST_CASE("bad input neither crashes nor writes elsewhere") {
  const AttentionCase c{
      .query_heads = 2, .lengths = {40, 70}, .nodes = {9, 12}, .table = KvTable::rectangle, .seed = 51};
  using Scene = AttentionScene<BFloat16, 64>;
  const Scene good(c);
  const auto want = run_wgmma_attention(good, wgmma_plan(good));
  {
    Scene scene(c);
    scene.length[0] = -5;
    CHECK(bits_of(scene, run_wgmma_attention(scene, wgmma_plan(good)), 1) == bits_of(good, want, 1));
  }
  {
    Scene scene(c);  // beyond its pages: those that are there are read
    scene.length[0] = 0x7FFFFFF0;
    for (std::int32_t* p : {scene.pages_k.data(), scene.pages_v.data()})
      for (int i = 0; i < scene.max_pages; ++i) p[i] = -1 - i;
    scene.args.kv.page_count = 3;
    for (std::size_t i = static_cast<std::size_t>(scene.max_pages); i < scene.pages_k.size(); ++i)
      scene.args.kv.page_count =
          std::max(scene.args.kv.page_count,
                   scene.pages_k[i] < 1000 ? static_cast<std::uint32_t>(scene.pages_k[i]) + 1 : 0);
    CHECK(bits_of(scene, run_wgmma_attention(scene, wgmma_plan(good)), 1) == bits_of(good, want, 1));
  }
  {
    Scene scene(c);
    scene.begin = {12, 0, 21};  // fewer than none
    const auto got = run_wgmma_attention(scene, wgmma_plan(good));
    CHECK(got.out[static_cast<std::size_t>(21 * got.stride)].bits == 0x7FFE);
  }
  {
    Scene scene(c);  // NaN in a query stays in its rows
    for (int i = 0; i < 2 * 64; ++i) scene.q[static_cast<std::size_t>(scene.q_stride + i)] = {0x7FC1};
    const auto got = run_wgmma_attention(scene, wgmma_plan(scene));
    CHECK(bits_of(scene, got, 1) == bits_of(good, want, 1));
    for (const int n : {0, 2, 8})
      for (int i = 0; i < 128; ++i)
        CHECK(got.out[static_cast<std::size_t>(n * got.stride + i)].bits ==
              want.out[static_cast<std::size_t>(n * got.stride + i)].bits);
    CHECK(std::isnan(got.lse[2]));
  }
}

TEST_CASE("plans: the variant and the splits; what blocks take of a multiprocessor") {
  using namespace device::detail;
  TreeAttentionCapacity c{
      .sequences = 1, .max_nodes = 64, .query_heads = 32, .kv_heads = 8, .max_tokens = 32768};
  const auto plan_of = [&](int slots, bool clusters) {
    TreeAttentionPlan plan;
    REQUIRE(fill_wgmma_plan(&plan, c, 128, slots, clusters));
    CHECK(plan.splits % plan.cluster == 0);
    return plan;
  };
  CHECK(plan_of(132, true).rows == 128);
  CHECK(plan_of(132, true).row_tiles == 2);
  CHECK(plan_of(132, true).splits == 8);  // 16 units in 132 places
  CHECK(plan_of(132, true).cluster == 8);
  c.max_nodes = 16;
  CHECK(plan_of(132, true).rows == 64);
  CHECK(plan_of(132, true).row_tiles == 1);
  c.max_nodes = 17;
  CHECK(plan_of(132, true).rows == 128);
  c.max_nodes = 1;
  CHECK(plan_of(132, true).rows == 64);
  c.query_heads = 8;
  c.max_nodes = 64;
  CHECK(plan_of(132, true).rows == 64);
  c.max_nodes = 65;
  CHECK(plan_of(132, true).rows == 128);
  c.batch_invariant = true;
  CHECK(plan_of(132, true).fixed_tiles == kInvariantTiles);
  TreeAttentionPlan plan;
  c.kv_heads = 0;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, 132, true));
  c.kv_heads = 8;
  c.max_nodes = 0;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, 132, true));
  c.max_nodes = 4;
  c.query_heads = 12;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, 132, true));
  c.query_heads = 4;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, 132, true));

  const auto fits = [](auto shape) {
    using Shape = decltype(shape);
    CHECK(Shape::kSharedBytes <= 227 * 1024);
    CHECK(Shape::kStages >= 3);  // one multiplied by K, one by V, one that lands
    CHECK(Shape::kConsumers * Shape::kConsumerRegisters + Shape::kProducers * Shape::kProducerRegisters <=
          65536);
    CHECK(Shape::kTileBytes % 8 == 0);
    return 0;
  };
  for (const int rows : {64, 128}) {
    with_wgmma_shape<64>(rows, fits);
    with_wgmma_shape<128>(rows, fits);
  }
}
