// SPDX-License-Identifier: MIT
// Verification over a split vocabulary, its kernels compiled apart.
#pragma once

#include <cuda_runtime.h>

#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/args/trees.cuh>

#include "cases.hpp"

namespace specula_bench {

/// Verification results of greedy, sample-and-match or rejection on one device that plays all of `shards` in
/// turn. `tiles_of_shard` tiles of 512 tokens each but the last. `partials` and `child_logits` are scratch.
template <class Element>
cudaError_t verify_sharded(Rule rule, const specula::cuda::VerifyCapacity& capacity, int nodes, int shards,
                           int tiles_of_shard, const specula::cuda::Trees& trees,
                           const specula::cuda::TargetRows<Element>& target,
                           const specula::cuda::VerifyResults& out, void* partials, float* child_logits,
                           cudaStream_t stream);
/// Of `partials`.
std::size_t sharded_bytes(int nodes, int shards, int tiles_of_shard);

}  // namespace specula_bench
