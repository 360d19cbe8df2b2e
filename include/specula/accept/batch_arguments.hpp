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
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/distribution/row_scan.hpp"

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

/// Throws std::invalid_argument for an argument of `function`, which the message names.
struct ArgumentChecks {
  const char* function;

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(std::string(function) + ": " + what);
  }
  void in(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) const {
    if (value < least || value > most)
      refuse(std::string(name) + " is " + number(value) + ", must be in [" + number(least) + ", " +
             number(most) + "]");
  }
  void array(const char* name, const void* array, std::size_t alignment) const {
    if (!array) refuse(std::string(name) + " is null");
    if (reinterpret_cast<std::uintptr_t>(array) % alignment != 0)
      refuse(std::string(name) + " is not aligned to its elements of " + number(alignment) + " bytes");
  }
  template <class T>
  void array(const char* name, const T* given) const {
    array(name, given, alignof(T));
  }
  /// The same of one that may be null.
  template <class T>
  void optional(const char* name, const T* given) const {
    if (given) array(name, given);
  }
  /// Rows of `vocab` numbers must not overlap.
  void stride(const char* name, std::int64_t given, std::int32_t vocab) const {
    if (given < vocab && given > -std::int64_t{vocab})
      refuse(std::string(name) + " is " + number(given) + ", rows of " + number(vocab) + " would overlap");
  }
};

/// The parameters of a sequence. Throws StatusError if they are out of range.
inline SamplingParams valid_params(const arrays::ParamArrays& arrays, std::int32_t sequence) {
  const SamplingParams params = arrays[sequence];
  try {
    validate(params);
  } catch (const std::invalid_argument& e) {
    throw StatusError(Status::bad_parameters, e.what());
  }
  return params;
}

template <class Draft>
void expect_maps(const ArgumentChecks& check, const Draft& draft) {
  check.optional("draft.row_of_node", draft.row_of_node);
  check.optional("draft.scale", draft.scale);
  check.in("draft.rows", draft.rows, 0, std::numeric_limits<std::int64_t>::max());
}
inline void expect_draft(const ArgumentChecks&, const arrays::ChosenDraft&, std::int32_t) {}
template <class Element>
void expect_draft(const ArgumentChecks& check, const arrays::LogitsDraft<Element>& draft,
                  std::int32_t vocab) {
  check.array("draft.logits", draft.logits);
  check.optional("draft.stats", draft.stats);
  check.stride("draft.stride", draft.stride, vocab);
  expect_maps(check, draft);
}
inline void expect_draft(const ArgumentChecks& check, const arrays::ProbsDraft& draft, std::int32_t vocab) {
  check.array("draft.probs", draft.probs);
  check.stride("draft.stride", draft.stride, vocab);
  expect_maps(check, draft);
}
inline void expect_draft(const ArgumentChecks& check, const arrays::SparseDraft& draft, std::int32_t) {
  check.array("draft.token", draft.token);
  check.array("draft.prob", draft.prob);
  check.in("draft.k", draft.k, 1, std::numeric_limits<int>::max());
  expect_maps(check, draft);
}

/// Throws std::invalid_argument for what no sequence can be verified with.
template <class Element, class Draft>
void expect_arguments(const BatchArguments<Element, Draft>& args) {
  const ArgumentChecks check{"verify_batch"};
  const arrays::VerifyCapacity& capacity = args.capacity;
  const int most = std::numeric_limits<int>::max();
  check.in("capacity.sequences", capacity.sequences, 1, most);
  check.in("capacity.max_nodes", capacity.max_nodes, 1, kMaxNodes);
  check.in("capacity.max_depth", capacity.max_depth, 0, kMaxNodes);
  check.in("capacity.vocab", capacity.vocab, 1, most);
  const arrays::Trees& trees = args.trees;
  check.array("trees.begin", trees.begin);
  check.array("trees.token", trees.token);
  check.optional("trees.parent", trees.parent);
  check.array("trees.position", trees.position);
  check.array("trees.seed", trees.seed);
  check.optional("trees.sequence", trees.sequence);
  check.optional("trees.sequence_count", trees.sequence_count);
  if (trees.sequence_count) check.in("*trees.sequence_count", *trees.sequence_count, 0, capacity.sequences);
  const arrays::ParamArrays& params = args.target.params;
  check.optional("target.params", params.all);
  check.optional("target.params.temperature", params.temperature);
  check.optional("target.params.top_k", params.top_k);
  check.optional("target.params.top_p", params.top_p);
  check.optional("target.params.min_p", params.min_p);
  check.array("target.logits", args.target.logits);
  check.optional("target.row_of_node", args.target.row_of_node);
  if (args.sequences() > 0 && trees.begin[args.sequences()] > 1)
    check.stride("target.stride", args.target.stride, capacity.vocab);
  expect_draft(check, args.draft, capacity.vocab);
  check.array("results.token", args.out.token);
  check.array("results.accepted", args.out.accepted);
  check.array("results.count", args.out.count);
  check.array("results.status", args.out.status);
  check.optional("results.log_prob", args.out.log_prob);
}

}  // namespace specula::detail
