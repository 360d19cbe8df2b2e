// SPDX-License-Identifier: MIT
// All functions that users of the CUDA headers call, with the arguments that they take: cuda/api/ and cuda/args/.
// C++17.
#pragma once

#include "specula/cuda/api/compact_kv.cuh"
#include "specula/cuda/api/grow.cuh"
#include "specula/cuda/api/grow_cape.cuh"
#include "specula/cuda/api/grow_dynamic_tree.cuh"
#include "specula/cuda/api/layer_similarity.cuh"
#include "specula/cuda/api/max_gram.cuh"
#include "specula/cuda/api/sample.cuh"
#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/api/top_k_distillation.cuh"
#include "specula/cuda/api/tree_attention.cuh"
#include "specula/cuda/api/tree_attention_mma.cuh"
#include "specula/cuda/api/tree_attention_plan.cuh"
#include "specula/cuda/api/tree_attention_wgmma.cuh"
#include "specula/cuda/api/tree_links.cuh"
#include "specula/cuda/api/verify.cuh"
#include "specula/cuda/api/verify_matching.cuh"
#include "specula/cuda/api/verify_sharded.cuh"
