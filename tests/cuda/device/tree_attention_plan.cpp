// labels: cuda-only
#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention_plan.cuh>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "attention_runs.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::TreeAttentionCapacity;
using device::TreeAttentionGeometry;

TEST_CASE("plans: the variant, the splits, the workspace") {
  using namespace device::detail;
  const auto plan_of = [](TreeAttentionCapacity c, int slots = 264, bool clusters = true) {
    TreeAttentionGeometry plan;
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
  CHECK(device::part_bytes(plan_of(c)) == 0);
  c.splits = 6;
  CHECK(plan_of(c).splits == 8);  // a cluster's
  CHECK(device::part_bytes(plan_of(c)) == 0);
  CHECK(device::part_bytes(plan_of(c, 264, false)) >= 64u * 8 * 6 * 32 * 130 * 4);
  c = {.sequences = 1, .max_nodes = 8, .query_heads = 8, .kv_heads = 8, .max_tokens = 100};
  CHECK(plan_of(c).splits == 1);  // too short
  c.splits = 6;
  CHECK(plan_of(c).splits == 1);

  TreeAttentionGeometry plan;
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

TEST_CASE("plans of other elements, heads or caches are other types") {
  using Plan = device::TreeAttentionPlan<BFloat16, 64>;
  const auto fits = [](auto other) { return std::is_convertible_v<decltype(other)*, const Plan*>; };
  CHECK(fits(Plan{}));
  CHECK_FALSE(fits(device::TreeAttentionPlan<BFloat16, 128>{}));
  CHECK_FALSE(fits(device::TreeAttentionPlan<device::Half, 64>{}));
  CHECK_FALSE(fits(device::TreeAttentionPlan<BFloat16, 64, device::Float8E4M3>{}));
}

TEST_CASE("plans of other variants are refused") {
  using namespace device::detail;
  using Shape = AttentionShapes<64, 2>::Rows32;
  TreeAttentionGeometry plan;
  plan.head_size = 64, plan.rows = 32, plan.threads = Shape::kThreads,
  plan.shared_bytes = Shape::kSharedBytes;
  CHECK(is_of_shape<Shape>(plan));
  const auto refused = [&](auto change) {
    auto it = plan;
    change(it);
    return !is_of_shape<Shape>(it);
  };
  CHECK(refused([](auto& it) { it.wgmma = true; }));
  CHECK(refused([](auto& it) { it.head_size = 128; }));
  CHECK(refused([](auto& it) { it.rows = 16; }));
  CHECK(refused([](auto& it) { it.threads = 128; }));
  CHECK(refused([](auto& it) { it.shared_bytes -= 1; }));
}

TEST_CASE("arguments that the host can see to be wrong") {
  using Scene = AttentionScene<BFloat16, 64>;
  const Scene scene(
      {.query_heads = 2, .kv_heads = 2, .lengths = {300}, .nodes = {3}, .window = 9, .seed = 1});
  TreeAttentionGeometry plan = plan_for<MmaAttention<AsElements>>(scene, {16, 4, 1});
  AttentionMemory memory;
  const device::TreeAttentionWorkspace workspace = memory.workspace(plan);
  std::vector<Four> out(100);
  auto args = scene.args;
  args.out = reinterpret_cast<BFloat16*>(out.data());
  args.out_stride = 128;
  const auto valid = [&](auto change) {
    auto it = args;
    change(it);
    return device::detail::valid_args(plan, it, workspace);
  };
  CHECK(valid([](auto&) {}));
  CHECK_FALSE(valid([](auto& it) { it.q = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.q += 2; }));
  CHECK_FALSE(valid([](auto& it) { it.q_stride += 4; }));
  CHECK_FALSE(valid([](auto& it) { it.q_stride = 120; }));
  CHECK_FALSE(valid([](auto& it) { it.q_stride = 0; }));
  CHECK_FALSE(valid([](auto& it) { it.out = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.out += 4; }));
  CHECK_FALSE(valid([](auto& it) { it.out_stride += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.out_stride = 64; }));
  CHECK_FALSE(valid([](auto& it) { it.begin = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.mask = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.words = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.window = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.position = it.depth = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.softcap = -1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.data += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.v.token_stride += 1; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.v.token_stride = 56; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.head_stride = 0; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.page_stride = 8; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.v.data = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.length = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.page_size = 0; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.k.pages = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.kv.page_count = 0; }));
  CHECK(valid([](auto& it) { it.mask = nullptr, it.words = 0; }));
  CHECK(valid([](auto& it) { it.kv.page_size = 1, it.kv.k.token_stride = 0; }));  // never used
  // Addresses between two elements.
  const auto shift = [](auto*& p) {
    using T = std::remove_reference_t<decltype(p)>;
    p = reinterpret_cast<T>(reinterpret_cast<std::uintptr_t>(p) + 2);
  };
  CHECK_FALSE(valid([&](auto& it) { shift(it.begin); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.mask); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.position); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.depth); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.lse); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.status); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.k_scale); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.v_scale); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.kv.length); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.kv.indptr); }));
  CHECK_FALSE(valid([&](auto& it) { shift(it.kv.v.pages); }));
  // Words for more nodes than the mask has.
  plan.capacity.max_nodes = 64 * args.words + 1;
  CHECK_FALSE(valid([](auto&) {}));
}

TEST_CASE("workspaces: what a plan needs, and no less") {
  TreeAttentionGeometry plan;
  plan.capacity = {.sequences = 3, .max_nodes = 4, .query_heads = 8, .kv_heads = 2, .max_tokens = 5000};
  plan.head_size = 128, plan.rows = 16, plan.row_tiles = 1, plan.splits = 12, plan.cluster = 4;
  CHECK(device::part_bytes(plan) == 3u * 2 * 3 * 16 * 132 * 4);
  CHECK(device::counter_bytes(plan) == 3u * 2 * 4 * 4);
  AttentionMemory memory;
  const device::TreeAttentionWorkspace good = memory.workspace(plan);
  CHECK(good.part_bytes == device::part_bytes(plan));
  const auto valid = [&](auto change) {
    auto it = good;
    change(it);
    return device::detail::valid_workspace(plan, it);
  };
  CHECK(valid([](auto&) {}));
  CHECK_FALSE(valid([](auto& it) { it.parts = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.parts = static_cast<unsigned char*>(it.parts) + 8; }));
  CHECK_FALSE(valid([](auto& it) { it.part_bytes -= 1; }));
  CHECK_FALSE(valid([](auto& it) { it.counters = nullptr; }));
  CHECK_FALSE(valid([](auto& it) { it.counter_bytes -= 1; }));
  CHECK_FALSE(valid([](auto& it) {
    it.counters = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::uintptr_t>(it.counters) + 2);
  }));
  CHECK_FALSE(valid([](auto& it) { it = {}; }));
  plan.splits = 4;  // all in one cluster
  CHECK(device::part_bytes(plan) == 0);
  CHECK(device::counter_bytes(plan) == 0);
  CHECK(valid([](auto& it) { it = {}; }));
}
