// SPDX-License-Identifier: MIT
// labels: threads
// Data races in tree attention by mma.sync: every thread of a block is a std::thread.
#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/tree_attention_block.cuh>

#include "attention_runs.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::TreeAttentionGeometry;

TEST_CASE_TEMPLATE("concurrent threads: barriers order all conflicting accesses", Variant,
                   MmaAttention<AsElements>, MmaAttention<AsBytes>) {
  // Warps that share tiles, warps that do not; a cluster, and two of them that write parts.
  const AttentionScene<BFloat16, 64, typename Variant::template Stored<BFloat16>> scene(
      {.query_heads = 2, .lengths = {300}, .nodes = {2}, .page_size = 16, .seed = 3});
  for (const int rows : {16, 64}) {
    TreeAttentionGeometry plan;
    REQUIRE(device::detail::fill_plan(
        &plan, {.sequences = 1, .max_nodes = 2, .query_heads = 2, .kv_heads = 1, .max_tokens = 300}, 64, {}));
    plan.rows = rows;
    plan.cluster = rows == 16 ? 2 : 1;
    plan.splits = rows == 16 ? 4 : 1;
    plan.least_tiles = 1;
    const auto got = Variant::run(scene, plan, 1, Engine::threads);
    const AttentionErrors errors = compare_attention(scene, got);
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 5e-3);
    CHECK(got == Variant::run(scene, plan, 1));
  }
}
