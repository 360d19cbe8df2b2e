// SPDX-License-Identifier: MIT
// labels: threads
// Data races in tree attention by wgmma: every thread of a block is a std::thread.
#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/tree_attention_wgmma_block.cuh>

#include "wgmma_attention.hpp"

using namespace specula_test;
using specula::cuda::BFloat16;

TEST_CASE_TEMPLATE("concurrent threads: barriers order all conflicting accesses", Variant,
                   WgmmaAttention<AsElements>, WgmmaAttention<AsBytes>) {
  // More tiles than a ring has stages in one block; a cluster, and two of them that write parts.
  AttentionCase c{.query_heads = 2, .lengths = {600}, .nodes = {3}, .page_size = 16, .seed = 3};
  for (const AttentionCut cut : {AttentionCut{128, 1, 1}, AttentionCut{64, 4, 2}}) {
    if (cut.splits > 1) c.lengths = {200};
    const AttentionScene<BFloat16, 64, typename Variant::template Stored<BFloat16>> scene(c);
    const auto plan = plan_for<Variant>(scene, cut);
    const auto got = Variant::run(scene, plan, 1, Engine::threads);
    const AttentionErrors errors = compare_attention(scene, got);
    CHECK(errors.wrong == 0);
    CHECK(errors.relative < 5e-3);
    CHECK(got == Variant::run(scene, plan, 1));
  }
}
