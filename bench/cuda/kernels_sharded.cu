// SPDX-License-Identifier: MIT
// Verification over a split vocabulary.
#include <specula/cuda/api/verify_sharded.cuh>

#include <algorithm>

#include "sharded.cuh"

namespace specula_bench {

namespace device = specula::cuda;

std::size_t sharded_bytes(int nodes, int shards, int tiles_of_shard) {
  return sizeof(device::TilePartial) * static_cast<std::size_t>(nodes) * static_cast<std::size_t>(shards) *
         static_cast<std::size_t>(tiles_of_shard);
}

template <class Element>
cudaError_t verify_sharded(Rule rule, const device::VerifyCapacity& capacity, int nodes, int shards,
                           int tiles_of_shard, const device::Trees& trees,
                           const device::TargetRows<Element>& target, const device::VerifyResults& out,
                           void* partials, float* child_logits, cudaStream_t stream) {
  auto* tiles = static_cast<device::TilePartial*>(partials);
  for (int s = 0; s < shards; ++s) {
    const int first = s * tiles_of_shard * device::detail::kTile,
              tokens = std::min(tiles_of_shard * device::detail::kTile, capacity.vocab - first);
    const device::ShardRows<Element> rows{target.logits + first, target.stride, first, tokens,
                                          rule == Rule::greedy ? nullptr : target.params};
    const std::int64_t part = static_cast<std::int64_t>(s) * nodes;
    const cudaError_t error =
        device::shard_partials(trees, rows, capacity.sequences, nodes, tiles_of_shard,
                               tiles + part * tiles_of_shard, child_logits + part, stream);
    if (error != cudaSuccess) return error;
  }
  const device::GatheredPartials gathered{tiles, child_logits, shards, tiles_of_shard};
  const auto sharded = rule == Rule::greedy             ? device::ShardedRule::greedy
                       : rule == Rule::sample_and_match ? device::ShardedRule::sample_and_match
                                                        : device::ShardedRule::rejection;
  return device::decide(sharded, capacity, nodes, trees, target.params, gathered, out, stream);
}

template cudaError_t verify_sharded(Rule, const device::VerifyCapacity&, int, int, int, const device::Trees&,
                                    const device::TargetRows<device::BFloat16>&, const device::VerifyResults&,
                                    void*, float*, cudaStream_t);

}  // namespace specula_bench
