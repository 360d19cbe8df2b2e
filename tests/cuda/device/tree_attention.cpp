// labels: optimised cuda-only
#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention.cuh>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_cases.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::TreeAttentionCapacity;
using device::TreeAttentionPlan;
using Variant = MmaAttention<AsElements>;

ATTENTION_CASES(Variant);

TEST_CASE("every group of query heads, rows of a node in two tiles") {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int rows : {16, 32}) {
      const AttentionCase c{.query_heads = 2 * group,
                            .kv_heads = 2,
                            .lengths = {33, 70},
                            .nodes = {7, 3},
                            .seed = static_cast<std::uint64_t>(10 * group)};
      check_attention<Variant, BFloat16, 64>(c, {rows});
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
  TreeAttentionPlan plan = plan_for<Variant>(scene, {16, 4, 1});
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
