// SPDX-License-Identifier: MIT
// What the examples in the docblocks of cuda/api/ take as given: sizes, a stream, arrays on the device, and
// what other examples have made. Only declared: the examples are compiled, not linked.
#pragma once
#include <cmath>
#include <limits>
#include <memory>

#include <cuda_runtime.h>  // the fake one

#include <specula/cuda.cuh>

namespace specula {
namespace cuda {

extern cudaStream_t stream;
extern int device, sequences, max_nodes, max_depth, nodes, rows, tokens, first_token, vocab, layers, layer,
    hidden, query_heads, kv_heads, shards, tiles_of_shard, text_stride, page_stride, token_stride,
    head_stride, layer_stride;

extern BFloat16 *logits, *target_logits, *draft_logits, *hidden_states, *k_cache, *v_cache, *before, *after,
    *q, *out;
extern float *draft_probs, *means, *loss, *scale, *my_child_logits, *all_child_logits;
extern const BFloat16 **befores, **afters;
extern std::uint64_t *seed, *mask, *ancestors;
extern std::uint32_t* counters;
extern std::int32_t *position, *begin, *depth, *prefix, *page_table, *length, *count, *match, *ended,
    *budget, *row_of_node;
extern Token *token, *texts, *bigram, *draft_token;
extern NodeId* parent;
extern SamplingParams* params;
extern RowStats* row_stats;
extern Status* status;
extern SimilaritySum* sums;
extern TilePartial *my_tiles, *all_tiles;
extern void *parts, *memory;

extern Roots roots;
extern DraftLevels levels;
extern CapeSpine spine;
extern GrownTrees grown;
extern Trees trees, chains;
extern TargetRows<BFloat16> target_rows;
extern VerifyCapacity capacity;
extern VerifyResults results;
extern AcceptedPaths paths;
extern SlotPages pages;
extern PagedKv<BFloat16> cache;
extern TreeAttentionCapacity attention_capacity;
extern TreeAttentionArgs<BFloat16> attention_args;
extern Workspace workspace;

}  // namespace cuda
}  // namespace specula
