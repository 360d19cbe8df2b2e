// SPDX-License-Identifier: MIT
// Tree attention over a KV cache: a query attends to its sequence's committed tokens, its ancestors and
// itself.
#pragma once

#include "specula/cuda/api/tree_attention_mma.cuh"
#include "specula/cuda/api/tree_attention_wgmma.cuh"

namespace specula {
namespace cuda {

#ifdef __CUDACC__

/// A plan for tree_attention(): by wgmma where the device has it and a KV head has more than 32 packed rows
/// (max_nodes * Hq / Hkv), else by mma.sync. Arguments and errors as make_tree_attention_mma_plan().
template <class Element, int kHead, class Stored = Element>
cudaError_t make_tree_attention_plan(TreeAttentionPlan<Element, kHead, Stored>* plan,
                                     const TreeAttentionCapacity& capacity, int device) {
  cudaError_t error = cudaErrorNotSupported;
  if (detail::wants_wgmma(capacity)) error = make_tree_attention_wgmma_plan(plan, capacity, device);
  return error == cudaErrorNotSupported ? make_tree_attention_mma_plan(plan, capacity, device) : error;
}

/// tree_attention_mma() or tree_attention_wgmma(), whichever the plan is for: the same function up to
/// rounding.
/// @code
/// TreeAttentionPlan<BFloat16, 128> plan;  // once; for a cache of 8 bits <BFloat16, 128, Float8E4M3>
/// make_tree_attention_plan(&plan, attention_capacity, device);
/// const Workspace workspace{parts, part_bytes(plan), counters, counter_bytes(plan)};
/// zero_counters(workspace, stream);
/// TreeAttentionArgs<BFloat16> args{};
/// args.q = q, args.out = out, args.q_stride = args.out_stride = query_heads * 128;
/// args.kv = cache, args.begin = begin, args.mask = mask, args.words = mask_words(max_nodes);
/// args.scale = 0.08838835f;  // 1 / sqrt(128)
/// tree_attention(plan, args, workspace, stream);
/// @endcode
template <class Element, int kHead, class Stored>
cudaError_t tree_attention(const TreeAttentionPlan<Element, kHead, Stored>& plan,
                           const TreeAttentionArgs<Element, Stored>& args, const Workspace& workspace,
                           cudaStream_t stream) {
  return plan.wgmma ? tree_attention_wgmma(plan, args, workspace, stream)
                    : tree_attention_mma(plan, args, workspace, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
