// SPDX-License-Identifier: MIT
// Verification as plain arrays: a ragged batch of proposals, rows of target and draft, results. What
// verify_batch() takes in host memory, and the CUDA kernels on a device. C++17.
#pragma once

#include <cstdint>

#include "specula/arrays/rows.hpp"
#include "specula/base/tokens.hpp"

namespace specula::arrays {

/// Capacities of the batches. On a device they alone are known to the host, so that one captured graph serves
/// every round.
struct VerifyCapacity {
  int sequences = 1;   ///< B, at most
  int max_nodes = 64;  ///< of a tree, the root included
  int max_depth = 8;   ///< at most n draft tokens on a path
  int vocab = 0;       ///< V
};

/// Proposals of B sequences. Nodes of a tree are numbered from 0, its root, in an
/// order in which parents come before their children; siblings are tried in the order of their numbers. A
/// sequence without draft tokens has its root alone; a slot without nodes is empty, which is no error and
/// costs nothing.
struct Trees {
  const std::int32_t* begin;  ///< (B + 1) where a tree's nodes begin in the arrays below; begin[B] = N
  const Token* token;         ///< (N) negative: padding, and so are all nodes below it
  const NodeId* parent;       ///< (N) in the tree's own numbers, -1 for a root; null: every tree is a chain
  const std::int32_t* position;             ///< (B) of the root in its text
  const std::uint64_t* seed;                ///< (B) of each sequence's uniform draws
  const std::uint32_t* sequence = nullptr;  ///< (B) of specula::PhiloxRandom; null: 0
  /// Sequences in this call, at most B: one captured graph serves a batch that grows and shrinks. What
  /// belongs to others is neither read nor written. Null: B.
  const std::int32_t* sequence_count = nullptr;
};

/// Verification results. Rows of `width` = max_depth + 1.
struct VerifyResults {
  Token* token;      ///< (B, width) emitted tokens: the accepted draft tokens, then one more; -1 after them
  NodeId* accepted;  ///< (B, width) the accepted path, the root first: token[i] comes after node accepted[i];
                     ///< -1 after the path
  std::int32_t* count;  ///< (B) tokens emitted, accepted draft tokens + 1; 0 if the status is not ok, and of
                        ///< an empty slot
  Status* status;       ///< (B) ok, or why nothing was emitted
  /// (B, width) natural logarithms of the target's probabilities of the emitted tokens, after temperature and
  /// truncation: 0 with greedy verification and at temperature 0; 0 after the tokens. Cost: one logit each.
  /// Null: not written.
  float* log_prob = nullptr;
};

/// Logits of the target after every node.
template <class Element>
struct TargetRows {
  const Element* logits;                      ///< (R, V), rows `stride` elements apart
  std::int64_t stride;                        ///< 64 bits: offsets never wrap
  const std::int32_t* row_of_node = nullptr;  ///< (N); null: row i is that of node i of the whole batch
  ParamArrays params = nullptr;               ///< (B)
};

// ---- q: the draft's distributions. Draft rows are found by `row_of_node`, (N), where -1 means that the
// draft token was chosen (a point mass); null: draft token i of the whole batch, roots not counted, has row
// i. `scale`, (N): for a draft token that was drawn without replacement 1 over the mass that its earlier
// siblings left of the row, for others 0; null: 0. `rows`, R: a draft token whose row is R or above is
// Status::bad_draft_row; 0: not checked.

/// Every draft token was chosen, as by any greedy drafter, whatever its confidence.
struct ChosenDraft {};

/// Rows of logits, with their statistics.
template <class Element>
struct LogitsDraft {
  const Element* logits;                      ///< (R, V)
  std::int64_t stride;                        ///< from row to row
  const RowStats* stats;                      ///< (R) as cuda::sample() writes them; verify_batch(): or null
  const std::int32_t* row_of_node = nullptr;  ///< (N): see above; null: draft token i has row i
  const double* scale = nullptr;              ///< (N): see above; null: 0
  std::int64_t rows = 0;                      ///< R; 0: rows are not checked
};

/// Rows of probabilities.
struct ProbsDraft {
  const float* probs;                         ///< (R, V)
  std::int64_t stride;                        ///< from row to row
  const std::int32_t* row_of_node = nullptr;  ///< (N): see above; null: draft token i has row i
  const double* scale = nullptr;              ///< (N): see above; null: 0
  std::int64_t rows = 0;                      ///< R; 0: rows are not checked
};

/// A few tokens per row with their probabilities; all others have probability 0.
struct SparseDraft {
  const Token* token;  ///< (R, k), each at most once in a row, negative ones are padding
  const float* prob;   ///< (R, k)
  int k;               ///< tokens per row
  const std::int32_t* row_of_node = nullptr;  ///< (N): see above; null: draft token i has row i
  const double* scale = nullptr;              ///< (N): see above; null: 0
  std::int64_t rows = 0;                      ///< R; 0: rows are not checked
};

}  // namespace specula::arrays
