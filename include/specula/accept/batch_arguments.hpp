// SPDX-License-Identifier: MIT
// The arguments of verify_batch(), and what is wrong with them as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "specula/arrays/verification.hpp"
#include "specula/base/fields.hpp"

namespace specula::detail {

/// The call of one batch; see verify_batch().
template <class Element, class Draft>
struct BatchArguments {
  const arrays::VerifyCapacity& capacity;
  const arrays::Trees& trees;
  const arrays::TargetRows<Element>& target;
  const Draft& draft;
  const arrays::VerifyResults& out;

  std::int32_t width() const { return capacity.max_depth + 1; }
  std::int32_t sequences() const { return trees.sequence_count ? *trees.sequence_count : capacity.sequences; }
};

/// Throws std::invalid_argument for a null or misaligned array; null is allowed if it is `optional`.
template <class T>
void expect_array(const char* name, const T* array, bool optional = false) {
  if (!array && !optional) throw std::invalid_argument(std::string("verify_batch: ") + name + " is null");
  if (reinterpret_cast<std::uintptr_t>(array) % alignof(T) != 0)
    throw std::invalid_argument(std::string("verify_batch: ") + name + " is not aligned to its elements of " +
                                std::to_string(sizeof(T)) + " bytes");
}
/// The same unless rows of `vocab` numbers do not overlap.
inline void expect_stride(const char* name, std::int64_t stride, std::int32_t vocab) {
  if (stride < vocab && stride > -std::int64_t{vocab})
    throw std::invalid_argument(std::string("verify_batch: ") + name + " is " + number(stride) +
                                ", rows of " + number(vocab) + " would overlap");
}
template <class Draft>
void expect_maps(const Draft& draft) {
  expect_array("draft.row_of_node", draft.row_of_node, true);
  expect_array("draft.scale", draft.scale, true);
  expect_in<std::int64_t>("verify_batch: draft.rows", draft.rows, 0,
                          std::numeric_limits<std::int64_t>::max());
}
inline void expect_draft(const arrays::ChosenDraft&, std::int32_t) {}
template <class Element>
void expect_draft(const arrays::LogitsDraft<Element>& draft, std::int32_t vocab) {
  expect_array("draft.logits", draft.logits);
  expect_array("draft.stats", draft.stats, true);
  expect_stride("draft.stride", draft.stride, vocab);
  expect_maps(draft);
}
inline void expect_draft(const arrays::ProbsDraft& draft, std::int32_t vocab) {
  expect_array("draft.probs", draft.probs);
  expect_stride("draft.stride", draft.stride, vocab);
  expect_maps(draft);
}
inline void expect_draft(const arrays::SparseDraft& draft, std::int32_t) {
  expect_array("draft.token", draft.token);
  expect_array("draft.prob", draft.prob);
  expect_in("verify_batch: draft.k", draft.k, 1, std::numeric_limits<int>::max());
  expect_maps(draft);
}

/// Throws std::invalid_argument for what no sequence can be verified with.
template <class Element, class Draft>
void expect_arguments(const BatchArguments<Element, Draft>& args) {
  const arrays::VerifyCapacity& capacity = args.capacity;
  const int most = std::numeric_limits<int>::max();
  expect_in("verify_batch: capacity.sequences", capacity.sequences, 1, most);
  expect_in("verify_batch: capacity.max_nodes", capacity.max_nodes, 1, kMaxNodes);
  expect_in("verify_batch: capacity.max_depth", capacity.max_depth, 0, kMaxNodes);
  expect_in("verify_batch: capacity.vocab", capacity.vocab, 1, most);
  const arrays::Trees& trees = args.trees;
  expect_array("trees.begin", trees.begin);
  expect_array("trees.token", trees.token);
  expect_array("trees.parent", trees.parent, true);
  expect_array("trees.position", trees.position);
  expect_array("trees.seed", trees.seed);
  expect_array("trees.sequence", trees.sequence, true);
  expect_array("trees.sequence_count", trees.sequence_count, true);
  if (trees.sequence_count)
    expect_in("verify_batch: *trees.sequence_count", *trees.sequence_count, 0, capacity.sequences);
  const arrays::ParamArrays& params = args.target.params;
  expect_array("target.params", params.all, true);
  expect_array("target.params.temperature", params.temperature, true);
  expect_array("target.params.top_k", params.top_k, true);
  expect_array("target.params.top_p", params.top_p, true);
  expect_array("target.params.min_p", params.min_p, true);
  expect_array("target.logits", args.target.logits);
  expect_array("target.row_of_node", args.target.row_of_node, true);
  if (args.sequences() > 0 && trees.begin[args.sequences()] > 1)
    expect_stride("target.stride", args.target.stride, capacity.vocab);
  expect_draft(args.draft, capacity.vocab);
  expect_array("results.token", args.out.token);
  expect_array("results.accepted", args.out.accepted);
  expect_array("results.count", args.out.count);
  expect_array("results.status", args.out.status);
  expect_array("results.log_prob", args.out.log_prob, true);
}

}  // namespace specula::detail
