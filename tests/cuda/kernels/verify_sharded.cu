// SPDX-License-Identifier: MIT
#include <specula/cuda/api/verify_sharded.cuh>

using namespace specula::cuda;

cudaError_t use(const VerifyCapacity& capacity, const Trees& trees, const ShardRows<BFloat16>& rows,
                TilePartial* tiles, float* child_logits, const GatheredPartials& gathered,
                const VerifyResults& out) {
  cudaError_t error = shard_partials(trees, rows, 1, 1, 1, tiles, child_logits, nullptr);
  return error ? error : decide(ShardedRule::greedy, capacity, 1, trees, nullptr, gathered, out, nullptr);
}
