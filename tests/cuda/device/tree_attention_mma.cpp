// labels: optimised cuda-only
#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention_mma.cuh>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_cases.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::TreeAttentionCapacity;
using device::TreeAttentionGeometry;
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
