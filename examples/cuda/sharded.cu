// SPDX-License-Identifier: MIT
#include <specula/cuda/api/verify_sharded.cuh>

#include <algorithm>
#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // One sequence: a root with two draft tokens after it, one in each shard's part of the vocabulary.
  // All shards but the last hold the same number of whole tiles of 512 tokens.
  constexpr int kNodes = 3, kVocab = 32000, kShards = 2, kTiles = 32, kMaxTokens = kTiles * 512;
  Trees trees{};
  trees.begin = on_device<std::int32_t>({0, kNodes});
  trees.token = on_device<Token>({7, 100, 20000});
  trees.parent = on_device<NodeId>({-1, 0, 0});
  trees.position = on_device<std::int32_t>({120});
  trees.seed = on_device<std::uint64_t>({11});
  const auto* const params = on_device<SamplingParams>({{0.8f, 0, 1, 0}});  // no truncation

  // The work of each GPU, here one after the other on one device. Each writes its partials after those of the
  // shards before it, which is where an all-gather puts them.
  TilePartial* const tiles = zeros<TilePartial>(kShards * kNodes * kTiles);
  float* const child_logits = zeros<float>(kShards * kNodes);
  for (int s = 0; s < kShards; ++s) {
    const int first = s * kMaxTokens, tokens = std::min(kMaxTokens, kVocab - first);
    // The shard's part of the rows, (N, tokens). Zeros stand for the logits.
    const BFloat16* const logits = zeros<BFloat16>(static_cast<std::size_t>(kNodes * tokens));
    const ShardRows<BFloat16> rows{logits, tokens, first, tokens, params};
    const cudaError_t error = shard_partials(trees, rows, /*sequences*/ 1, kNodes, kTiles,
                                             tiles + s * kNodes * kTiles, child_logits + s * kNodes, nullptr);
    if (error != cudaSuccess) return 1;
  }

  // An engine gathers here, in the same stream: kNodes * kTiles partials and kNodes logits of each shard.
  const GatheredPartials gathered{tiles, child_logits, kShards, kTiles};

  // Every GPU decides for itself, and all get the same result.
  VerifyCapacity capacity;
  capacity.sequences = 1;
  capacity.max_nodes = kNodes;
  capacity.max_depth = 1;
  capacity.vocab = kVocab;
  const VerifyResults out{zeros<Token>(2), zeros<NodeId>(2), zeros<std::int32_t>(1), zeros<Status>(1)};
  if (decide(ShardedRule::sample_and_match, capacity, kNodes, trees, params, gathered, out, nullptr) !=
      cudaSuccess)
    return 1;
  std::printf("%d tokens are emitted, the first is %d, status %d\n", to_host(out.count, 1)[0],
              to_host(out.token, 1)[0], static_cast<int>(to_host(out.status, 1)[0]));
}
