// SPDX-License-Identifier: MIT
// labels: optimised
// tree_attention_wgmma() on an emulated Hopper GPU, against a reference in doubles.
#include <doctest/doctest.h>
#include <specula/cuda/api/tree_attention_wgmma.cuh>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention_cases.hpp"
#include "wgmma_attention.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Half;
using device::TreeAttentionCapacity;
using device::TreeAttentionGeometry;
using Variant = WgmmaAttention<AsElements>;

ATTENTION_CASES(Variant);

TEST_CASE("from 17 to 300 packed rows, all groups of query heads") {
  for (const auto& [nodes, group] : std::vector<std::pair<int, int>>{
           {17, 1}, {9, 2}, {21, 3}, {16, 4}, {17, 4}, {13, 5}, {20, 6}, {9, 7}, {8, 8}, {64, 4}, {43, 7}}) {
    const AttentionCase c{.query_heads = 2 * group,
                          .kv_heads = 2,
                          .lengths = {70},
                          .nodes = {nodes},
                          .page_size = 16,
                          .seed = static_cast<std::uint64_t>(100 * nodes + group)};
    check_attention<Variant, BFloat16, 64>(c, {0, 2});
    check_attention<Variant, Half, 128>(c);
  }
  check_attention<Variant, BFloat16, 128>(
      {.query_heads = 3, .lengths = {150, 20}, .nodes = {100, 9}, .seed = 5}, {0, 3});
}

TEST_CASE("long contexts go around the ring of stages") {
  AttentionCase c{.query_heads = 4, .lengths = {1500}, .nodes = {20}, .page_size = 16, .seed = 71};
  check_attention<Variant, BFloat16, 128>(c);
  check_attention<Variant, BFloat16, 64>(c);
  c.nodes = {12};
  check_attention<Variant, Half, 128>(c);
  check_attention<Variant, Half, 128>(c, {128});  // one group has no rows
  c.window = 900;
  check_attention<Variant, Half, 64>(c, {128, 2, 2});
}

TEST_CASE("tree_attention_wgmma computes the same as tree_attention()") {
  for (std::uint64_t seed = 201; seed <= 206; ++seed) {
    const AttentionScene<Half, 128> scene(random_attention(seed));
    TreeAttentionGeometry plan;
    TreeAttentionCapacity capacity = plan_for<Variant>(scene).capacity;
    REQUIRE(device::detail::fill_plan(&plan, capacity, 128, {{132, 132, 124, 120}}));
    const auto one = MmaAttention<AsElements>::run(scene, plan),
               other = Variant::run(scene, plan_for<Variant>(scene));
    for (std::int64_t n = 0; n < scene.begin.back(); ++n)
      for (int h = 0; h < scene.c.query_heads; ++h) {
        double difference = 0, norm = 0;
        for (int i = 0; i < 128; ++i) {
          const auto at = static_cast<std::size_t>(n * one.stride + h * 128 + i);
          const double a = plain_value(one.out[at]), b = plain_value(other.out[at]);
          difference += (a - b) * (a - b), norm += a * a;
        }
        if (!(std::sqrt(difference) <= 6e-4 * std::sqrt(norm))) FAIL_CHECK("node ", n, ", head ", h);
      }
  }
}

TEST_CASE("plans: the variant, the splits, and blocks per multiprocessor") {
  using namespace device::detail;
  TreeAttentionCapacity c{
      .sequences = 1, .max_nodes = 64, .query_heads = 32, .kv_heads = 8, .max_tokens = 32768};
  const AttentionPlaces places{{132, 132, 124, 120}};
  const auto plan_of_now = [&] {
    TreeAttentionGeometry plan;
    REQUIRE(fill_wgmma_plan(&plan, c, 128, places));
    CHECK(plan.splits % plan.cluster == 0);
    return plan;
  };
  CHECK(plan_of_now().rows == 128);
  CHECK(plan_of_now().row_tiles == 2);
  CHECK(plan_of_now().splits == 8);   // 16 units, room for 132 blocks
  CHECK(plan_of_now().cluster == 2);  // all of them fit
  c.max_nodes = 16;
  CHECK(plan_of_now().rows == 64);
  CHECK(plan_of_now().row_tiles == 1);
  c.max_nodes = 17;
  CHECK(plan_of_now().rows == 128);
  c.max_nodes = 1;
  CHECK(plan_of_now().rows == 64);
  c.query_heads = 8;
  c.max_nodes = 64;
  CHECK(plan_of_now().rows == 64);
  c.max_nodes = 65;
  CHECK(plan_of_now().rows == 128);
  c.batch_invariant = true;
  CHECK(plan_of_now().fixed_tiles == kInvariantTiles);
  TreeAttentionGeometry plan;
  c.kv_heads = 0;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, places));
  c.kv_heads = 8;
  c.max_nodes = 0;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, places));
  c.max_nodes = 4;
  c.query_heads = 12;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, places));
  c.query_heads = 4;
  CHECK_FALSE(fill_wgmma_plan(&plan, c, 128, places));

  const auto fits = [](auto shape) {
    using Shape = decltype(shape);
    CHECK(Shape::kSharedBytes <= 227 * 1024);
    CHECK(Shape::kStages >= 3);  // one multiplied by K, one by V, one in flight
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
