#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "attention_scene.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Half;
using device::TreeAttentionCapacity;
using device::TreeAttentionPlan;

namespace {

/// How a scene is cut into blocks.
struct Cut {
  int rows = 0;  // 0: as the plan wants it
  int splits = 1, cluster = 1;
};

template <class Element, int kHead>
TreeAttentionPlan plan_for(const AttentionScene<Element, kHead>& scene, Cut cut = {}) {
  TreeAttentionCapacity c;
  c.sequences = static_cast<int>(scene.c.lengths.size());
  c.max_nodes = std::max(1, *std::max_element(scene.c.nodes.begin(), scene.c.nodes.end()));
  c.query_heads = scene.c.query_heads;
  c.kv_heads = scene.c.kv_heads;
  c.max_tokens = *std::max_element(scene.c.lengths.begin(), scene.c.lengths.end());
  TreeAttentionPlan plan;
  REQUIRE(device::detail::fill_plan(&plan, c, kHead, 1, false));
  if (cut.rows > 0) {
    plan.rows = cut.rows;
    plan.row_tiles = (c.max_nodes * (c.query_heads / c.kv_heads) + cut.rows - 1) / cut.rows;
  }
  plan.cluster = cut.cluster;
  plan.splits = (cut.splits + cut.cluster - 1) / cut.cluster * cut.cluster;
  plan.least_tiles = 1;
  return plan;
}

template <class Element, int kHead>
AttentionErrors check(const AttentionCase& c, Cut cut = {}) {
  CAPTURE(c.seed);
  CAPTURE(cut.rows);
  CAPTURE(cut.splits);
  CAPTURE(cut.cluster);
  const AttentionScene<Element, kHead> scene(c);
  const AttentionErrors errors = compare_attention(scene, run_attention(scene, plan_for(scene, cut), c.seed));
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
  for (int b = 1 + random.below(3); b > 0; --b) {
    const int edges[] = {0, 1, 15, 16, 17, 63, 64, 65, 128, 200};
    c.lengths.push_back(random.chance(0.5) ? edges[random.below(10)] : random.below(400));
    c.nodes.push_back(random.chance(0.15) ? 0 : 1 + random.below(random.chance(0.3) ? 40 : 10));
  }
  c.page_size = pages[random.below(8)];
  c.layout = static_cast<KvLayout>(random.below(5));
  c.table = static_cast<KvTable>(random.below(2));
  c.two_tables = random.chance(0.4);
  c.cross = random.chance(0.2);
  if (random.chance(0.4)) c.window = 1 + random.below(random.chance(0.5) ? 20 : 200);
  c.by_depth = random.chance(0.5);
  if (random.chance(0.3)) c.softcap = random.chance(0.5) ? 2.0f : 30.0f;
  if (random.chance(0.3)) c.scale = random.chance(0.5) ? 0.5f : -0.2f;
  return c;
}
Cut random_cut(Random& random) {
  const int rows[] = {0, 16, 32, 64, 128};
  return {rows[random.below(5)], 1 + random.below(9), 1 << random.below(4)};
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
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(1000 + seed);
    const AttentionCase c = random_case(seed);
    const double error = random.chance(0.5) ? check<Element, 128>(c, random_cut(random)).relative
                                            : check<Element, 64>(c, random_cut(random)).relative;
    worst = std::max(worst, error);
    sum += error;
  }
  MESSAGE("relative error: mean ", sum / 60, ", worst ", worst);
}

TEST_CASE("prefixes about the edges of tiles and pages, every variant") {
  std::uint64_t seed = 100;
  for (const int length : {0, 1, 15, 16, 17, 63, 64, 65, 127, 129, 300})
    for (const int rows : {16, 32, 64, 128}) {
      AttentionCase c{.query_heads = 4, .lengths = {length}, .nodes = {5}, .page_size = 16, .seed = ++seed};
      c.window = length % 2 == 0 ? 0 : 40;
      check<BFloat16, 64>(c, {rows, 1 + length % 3});
      c.layout = KvLayout::joint_hnd;
      check<Half, 128>(c, {rows, 1 + length % 4, 1 + length % 2});
    }
}

TEST_CASE("every group of query heads, rows of a node in two tiles") {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int rows : {16, 32}) {
      const AttentionCase c{.query_heads = 2 * group,
                            .kv_heads = 2,
                            .lengths = {33, 70},
                            .nodes = {7, 3},
                            .seed = static_cast<std::uint64_t>(10 * group)};
      check<BFloat16, 64>(c, {rows});
    }
}

TEST_CASE("trees of more than a word, more than a tile of rows and of keys") {
  for (const int nodes : {63, 64, 65, 100, 129, 130}) {
    AttentionCase c{.query_heads = 3,
                    .lengths = {50},
                    .nodes = {nodes},
                    .page_size = 7,
                    .seed = static_cast<std::uint64_t>(nodes)};
    check<BFloat16, 64>(c, {0, 2});
    c.window = 3;
    check<Half, 64>(c, {64, 3, 2});
  }
  check<BFloat16, 128>({.query_heads = 2, .lengths = {20, 0}, .nodes = {130, 70}, .seed = 5});
}

TEST_CASE("cross attention: all committed tokens and no tail") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    AttentionCase c{.query_heads = 4,
                    .kv_heads = 2,
                    .lengths = {90, 0, 65},
                    .nodes = {6, 2, 1},
                    .cross = true,
                    .seed = seed};
    check<BFloat16, 64>(c, {0, static_cast<int>(seed)});
    c.window = 30;
    check<Half, 128>(c, {16, 2, 2});
  }
}

TEST_CASE("who sees nothing gets zeros and -infinity") {
  // No token at all, and a window that ended before the query.
  AttentionCase c{.query_heads = 2, .lengths = {0, 40}, .nodes = {3, 2}, .cross = true, .seed = 3};
  c.window = 5;
  AttentionScene<BFloat16, 64> scene(c);
  for (std::int32_t& p : scene.position) p += 100;
  for (const Cut cut : {Cut{}, Cut{16, 4, 1}, Cut{32, 8, 8}, Cut{128, 3, 1}}) {
    const auto got = run_attention(scene, plan_for(scene, cut));
    CHECK(compare_attention(scene, got).wrong == 0);
    for (const std::uint32_t bits : bits_of(scene, got, 0)) CHECK((bits == 0 || bits == 0xFF800000u));
    for (const std::uint32_t bits : bits_of(scene, got, 1)) CHECK((bits == 0 || bits == 0xFF800000u));
  }
  // Nor does a node whose mask forgets itself, among others that see.
  AttentionCase d{.query_heads = 2, .lengths = {0}, .nodes = {5}, .seed = 4};
  AttentionScene<BFloat16, 64> bare(d);
  for (int w = 0; w < bare.words; ++w) bare.mask[static_cast<std::size_t>(2 * bare.words + w)] = 0;
  const auto got = run_attention(bare, plan_for(bare));
  for (int i = 0; i < 128; ++i) CHECK(got.out[static_cast<std::size_t>(2 * got.stride + i)].bits == 0);
  CHECK(got.lse[4] == -INFINITY);
  CHECK(std::isfinite(got.lse[3]));
}

TEST_CASE("positions need not be slots: windows go by position") {
  AttentionCase c{.query_heads = 2, .lengths = {100}, .nodes = {6}, .window = 25, .forget = false, .seed = 9};
  AttentionScene<Half, 64> scene(c);
  Random random(7);
  for (std::int32_t& p : scene.position) p = 60 + random.below(70);
  for (const Cut cut : {Cut{}, Cut{64, 2, 1}})
    CHECK(compare_attention(scene, run_attention(scene, plan_for(scene, cut))).relative < 6e-4);
  for (std::int32_t& p : scene.position)
    p = static_cast<std::int32_t>(4LL * random.below(1000000000) - 2000000000);  // no overflow
  const auto errors = compare_attention(scene, run_attention(scene, plan_for(scene)));
  CHECK(errors.wrong == 0);
  CHECK(errors.relative < 6e-4);
}

TEST_CASE("maxima that rise by much, and flat rows") {
  for (const double spread : {0.0, 1e-3, 4.0, 12.0}) {
    AttentionCase c{
        .query_heads = 4, .lengths = {250}, .nodes = {4}, .scale = 1.0f, .spread = spread, .seed = 11};
    const AttentionScene<BFloat16, 64> scene(c);
    const auto errors = compare_attention(scene, run_attention(scene, plan_for(scene, {16, 3, 1})));
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 6e-3);
    CHECK(errors.lse < 1e-3);
  }
}

TEST_CASE("the same bits whatever the order of threads and clusters, run after run") {
  const AttentionScene<BFloat16, 64> scene(
      {.query_heads = 4, .kv_heads = 2, .lengths = {300, 500, 70}, .nodes = {9, 3, 0}, .seed = 21});
  for (const Cut cut : {Cut{32, 6, 1}, Cut{16, 7, 2}, Cut{128, 8, 4}, Cut{64, 16, 8}}) {
    const auto plan = plan_for(scene, cut);
    const auto first = run_attention(scene, plan, 1);
    std::vector<unsigned char> workspace;
    for (std::uint64_t seed = 2; seed <= 4; ++seed)  // one workspace: its counters are as they were
      CHECK(run_attention(scene, plan, seed, Engine::fibers, &workspace) == first);
  }
  // Tiles of 16 and of 32 rows give the same bits, too.
  for (const int splits : {1, 5})
    CHECK(run_attention(scene, plan_for(scene, {16, splits})) ==
          run_attention(scene, plan_for(scene, {32, splits})));
}

TEST_CASE("batch-invariant: bits depend on the sequence alone") {
  const AttentionCase wanted{.query_heads = 2,
                             .lengths = {2500, 260, 1000, 64},
                             .nodes = {3, 9, 17, 1},
                             .page_size = 32,
                             .window = 1500,
                             .seed = 31};
  using Scene = AttentionScene<BFloat16, 64>;
  const Scene batch(wanted);
  // The real thing but for splits of 2 tiles in place of 32.
  const auto plan_of = [](TreeAttentionCapacity c, bool clusters, int slots) {
    c.query_heads = 2;
    c.kv_heads = 1;
    c.batch_invariant = true;
    TreeAttentionPlan plan;
    REQUIRE(device::detail::fill_plan(&plan, c, 64, slots, clusters));
    CHECK(plan.fixed_tiles == 32);
    plan.fixed_tiles = 2;
    plan.splits = ((c.max_tokens + c.max_nodes + 63) / 64 + 2) / 2;
    plan.cluster = device::detail::choose_cluster(plan.splits, clusters);
    plan.splits = (plan.splits + plan.cluster - 1) / plan.cluster * plan.cluster;
    return plan;
  };
  for (const bool clusters : {false, true}) {
    const auto together =
        run_attention(batch, plan_of({.sequences = 4, .max_nodes = 17, .max_tokens = 2500}, clusters, 264));
    const auto errors = compare_attention(batch, together);
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 5e-3);
    for (std::size_t b = 0; b < 4; ++b) {
      Scene alone = batch;
      alone.args.begin = batch.begin.data() + b;
      alone.args.kv.length = batch.length.data() + b;
      alone.args.kv.indptr = batch.indptr.data() + b;
      const TreeAttentionCapacity own{.sequences = 1,
                                      .max_nodes = wanted.nodes[b] + (b == 1 ? 60 : 0),
                                      .max_tokens = wanted.lengths[b] + (b == 3 ? 1500 : 0)};
      const auto got = run_attention(alone, plan_of(own, clusters, 132), 7);
      CHECK(bits_of(batch, got, b) == bits_of(batch, together, b));
    }
  }
}

TEST_CASE("capacities larger and smaller than what comes") {
  const AttentionScene<BFloat16, 64> scene(
      {.query_heads = 2, .lengths = {700, 10}, .nodes = {3, 20}, .seed = 41});
  TreeAttentionCapacity c{
      .sequences = 2, .max_nodes = 100, .query_heads = 2, .kv_heads = 1, .max_tokens = 5000, .splits = 5};
  TreeAttentionPlan plan;
  REQUIRE(device::detail::fill_plan(&plan, c, 64, 100, true));
  CHECK(compare_attention(scene, run_attention(scene, plan)).relative < 5e-3);
  c.max_tokens = 64;  // more tokens than promised: right, but not split
  for (const bool invariant : {false, true}) {
    c.batch_invariant = invariant;
    REQUIRE(device::detail::fill_plan(&plan, c, 64, 100, true));
    CHECK(compare_attention(scene, run_attention(scene, plan)).relative < 5e-3);
  }
  c.max_nodes = 8;  // rows of further nodes are left alone
  REQUIRE(device::detail::fill_plan(&plan, c, 64, 100, true));
  const auto got = run_attention(scene, plan);
  const std::int64_t first = scene.begin[1];
  for (int n = 0; n < 20; ++n)
    CHECK((got.out[static_cast<std::size_t>((first + n) * got.stride)].bits == 0x7FFE) ==
          (2 * n >= plan.rows));
}

TEST_CASE("bad input neither crashes nor writes elsewhere") {
  const AttentionCase c{
      .query_heads = 2, .lengths = {40, 70}, .nodes = {3, 5}, .table = KvTable::rectangle, .seed = 51};
  using Scene = AttentionScene<BFloat16, 64>;
  const auto other_is_right = [](const Scene& scene, const AttentionOutput<BFloat16>& got,
                                 const Scene& good) {
    CHECK(bits_of(scene, got, 1) == bits_of(good, run_attention(good, plan_for(good)), 1));
  };
  const Scene good(c);
  {
    Scene scene(c);
    scene.length[0] = -5;
    other_is_right(scene, run_attention(scene, plan_for(scene)), good);
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
    other_is_right(scene, run_attention(scene, plan_for(scene)), good);
  }
  {
    Scene scene(c);
    scene.begin = {3, 0, 5};  // fewer than none
    AttentionOutput<BFloat16> got = run_attention(scene, plan_for(good));
    CHECK(got.out[static_cast<std::size_t>(5 * got.stride)].bits == 0x7FFE);
  }
  {
    Scene scene(c);  // NaN in a query stays in its rows
    for (int i = 0; i < 2 * 64; ++i) scene.q[static_cast<std::size_t>(scene.q_stride + i)] = {0x7FC1};
    const auto got = run_attention(scene, plan_for(scene)), want = run_attention(good, plan_for(good));
    other_is_right(scene, got, good);
    for (const int n : {0, 2})
      for (int i = 0; i < 128; ++i)
        CHECK(got.out[static_cast<std::size_t>(n * got.stride + i)].bits ==
              want.out[static_cast<std::size_t>(n * got.stride + i)].bits);
    CHECK(std::isnan(got.lse[2]));
  }
}

TEST_CASE("plans: the variant, the splits, the workspace") {
  using namespace device::detail;
  const auto plan_of = [](TreeAttentionCapacity c, int slots = 264, bool clusters = true) {
    TreeAttentionPlan plan;
    REQUIRE(fill_plan(&plan, c, 128, slots, clusters));
    CHECK(plan.splits % plan.cluster == 0);
    CHECK(plan.row_tiles * plan.rows >= c.max_nodes * (c.query_heads / c.kv_heads));
    CHECK((plan.row_tiles - 1) * plan.rows < c.max_nodes * (c.query_heads / c.kv_heads));
    return plan;
  };
  TreeAttentionCapacity c{
      .sequences = 1, .max_nodes = 4, .query_heads = 32, .kv_heads = 8, .max_tokens = 131072};
  CHECK(plan_of(c).rows == 16);
  CHECK(plan_of(c).splits == 32);  // 8 heads in 264 places
  CHECK(plan_of(c).cluster == 8);
  CHECK(plan_of(c, 264, false).cluster == 1);
  CHECK(plan_of(c, 264, false).splits == 29);  // 33 fill all places, 29 are 85% of them
  c.max_nodes = 5;
  CHECK(plan_of(c).rows == 32);
  c.max_nodes = 16;
  CHECK(plan_of(c).rows == 64);
  c.max_nodes = 17;
  CHECK(plan_of(c).rows == 128);
  c.max_nodes = 64;
  CHECK(plan_of(c).row_tiles == 2);
  c.batch_invariant = true;
  CHECK(plan_of(c).rows == 32);
  CHECK(plan_of(c).row_tiles == 8);
  CHECK(plan_of(c).fixed_tiles == kInvariantTiles);
  CHECK(plan_of(c).splits * 2048 >= 131072 + 64);
  c = {.sequences = 64, .max_nodes = 8, .query_heads = 32, .kv_heads = 8, .max_tokens = 8192};
  CHECK(plan_of(c).splits == 1);
  CHECK(device::workspace_bytes(plan_of(c)) == 0);
  c.splits = 6;
  CHECK(plan_of(c).splits == 8);  // a cluster's
  CHECK(device::workspace_bytes(plan_of(c)) == 0);
  CHECK(device::workspace_bytes(plan_of(c, 264, false)) >= 64u * 8 * 6 * 32 * 130 * 4);
  c = {.sequences = 1, .max_nodes = 8, .query_heads = 8, .kv_heads = 8, .max_tokens = 100};
  CHECK(plan_of(c).splits == 1);  // too short
  c.splits = 6;
  CHECK(plan_of(c).splits == 1);

  TreeAttentionPlan plan;
  const TreeAttentionCapacity good = c;
  const auto bad = [&](auto change) {
    TreeAttentionCapacity it = good;
    change(it);
    CHECK_FALSE(fill_plan(&plan, it, 128, 264, true));
  };
  bad([](auto& it) { it.sequences = 0; });
  bad([](auto& it) { it.max_nodes = 0; });
  bad([](auto& it) { it.kv_heads = 0; });
  bad([](auto& it) { it.query_heads = 12; });
  bad([](auto& it) { it.query_heads = 4; });
  bad([](auto& it) { it.max_tokens = -1; });
  bad([](auto& it) { it.splits = -1; });
  bad([](auto& it) { it.max_nodes = 0x7FFFFFFF; });
  bad([](auto& it) { it.sequences = 0x7FFFFFFF; });
}

TEST_CASE("splits: few, and the device busy") {
  using device::detail::choose_splits;
  for (const int slots : {108, 132, 264})
    for (std::int64_t units = 1; units < 600; ++units)
      for (const bool clusters : {false, true}) {
        const int s = choose_splits(units, slots, 64, clusters);
        const auto busy = [&](std::int64_t splits) {
          const std::int64_t waves = (units * splits + slots - 1) / slots;
          return static_cast<double>(units * splits) / static_cast<double>(waves * slots);
        };
        double best = 0;
        for (const std::int64_t t : {1, 2, 4, 8, 16, 32, 64}) best = std::max(best, busy(t));
        CHECK(s >= 1);
        CHECK(s <= 64);
        CHECK(busy(s) >= 0.85 * best);
        if (clusters) CHECK((s == 1 || s == 2 || s == 4 || s % 8 == 0));
      }
  CHECK(choose_splits(1, 132, 3, false) == 3);
}

TEST_CASE("arguments that the host can see to be wrong") {
  using Scene = AttentionScene<BFloat16, 64>;
  const Scene scene({.query_heads = 2, .lengths = {300}, .nodes = {3}, .window = 9, .seed = 1});
  TreeAttentionPlan plan = plan_for(scene, {16, 4, 1});
  alignas(256) static unsigned char workspace[256];
  std::vector<BFloat16> out(3 * 2 * 64 + 16);
  auto args = scene.args;
  args.out = out.data();
  args.out_stride = 128;
  const auto valid = [&](auto change) {
    auto it = args;
    change(it);
    return device::detail::valid_args(plan, it, workspace);
  };
  CHECK(valid([](auto&) {}));
  CHECK_FALSE(device::detail::valid_args(plan, args, nullptr));
  CHECK_FALSE(device::detail::valid_args(plan, args, workspace + 64));
  CHECK_FALSE(valid([](auto& it) { it.q = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.q += 2; }));
  CHECK_FALSE(valid([](auto& it) { it.q_stride += 4; }));
  CHECK_FALSE(valid([](auto& it) { it.out += 4; }));
  CHECK_FALSE(valid([](auto& it) { it.out_stride += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.begin = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.mask = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.words = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.window = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.position = it.depth = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.softcap = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.data += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.v.token_stride += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.v.data = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.length = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.page_size = 0; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.pages = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.page_count = 0; }));
  CHECK(valid([](auto& it) { it.mask = nullptr, it.words = 0; }));
}
