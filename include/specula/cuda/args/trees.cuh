// SPDX-License-Identifier: MIT
// Arguments of verification: the arrays of arrays/verification.hpp in device memory, and checks of them.
#pragma once

#include "specula/arrays/verification.hpp"
#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

// All arrays are on the device. Arrays that a launch reads must not change while it runs, nor overlap its
// outputs: its blocks decide from reads of their own and then wait for each other, so they could deadlock.

using arrays::ChosenDraft;
using arrays::LogitsDraft;
using arrays::ProbsDraft;
using arrays::SparseDraft;
using arrays::TargetRows;
using arrays::Trees;
using arrays::VerifyCapacity;
using arrays::VerifyResults;

namespace detail {

inline bool valid_capacity(const VerifyCapacity& c) {
  return c.sequences >= 1 && c.max_nodes >= 1 && c.max_depth >= 0 && c.vocab >= 1;
}
inline bool valid_trees(const Trees& t) {
  return !any_null({t.begin, t.token, t.position, t.seed}) &&
         !any_misaligned(t.begin, t.token, t.parent, t.position, t.seed, t.sequence, t.sequence_count);
}
inline bool valid_results(const VerifyResults& v) {
  return !any_null({v.token, v.accepted, v.count, v.status}) &&
         !any_misaligned(v.token, v.accepted, v.count, v.status, v.log_prob);
}
template <class Element>
bool valid_rows(const TargetRows<Element>& rows) {
  return rows.logits && !any_misaligned(rows.logits, rows.row_of_node) && is_aligned(rows.params);
}
inline bool valid_draft(const ChosenDraft&) { return true; }
template <class Element>
bool valid_draft(const LogitsDraft<Element>& d) {
  return d.logits && d.stats && d.rows >= 0 && !any_misaligned(d.logits, d.stats, d.row_of_node, d.scale);
}
inline bool valid_draft(const ProbsDraft& d) {
  return d.probs && d.rows >= 0 && !any_misaligned(d.probs, d.row_of_node, d.scale);
}
inline bool valid_draft(const SparseDraft& d) {
  return d.token && d.prob && d.k >= 1 && d.rows >= 0 &&
         !any_misaligned(d.token, d.prob, d.row_of_node, d.scale);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
