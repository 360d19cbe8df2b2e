// SPDX-License-Identifier: MIT
// Definitions of the attention kernels' tables, for the files that instantiate them.
#pragma once

#include <specula/cuda/api/tree_attention.cuh>

#include "attention.cuh"

namespace specula_bench {

template <class Element, int kHead, class Stored>
AttentionKernels<Element, kHead, Stored> mma_kernels() {
  return {"mma.sync",
          false,
          {16, 32, 64, 128},
          device::make_tree_attention_mma_plan<Element, kHead, Stored>,
          device::tree_attention_mma<Element, kHead, Stored>};
}
template <class Element, int kHead, class Stored>
AttentionKernels<Element, kHead, Stored> wgmma_kernels() {
  return {"wgmma",
          true,
          {64, 128},
          device::make_tree_attention_wgmma_plan<Element, kHead, Stored>,
          device::tree_attention_wgmma<Element, kHead, Stored>};
}

}  // namespace specula_bench
