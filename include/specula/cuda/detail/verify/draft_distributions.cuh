// SPDX-License-Identifier: MIT
// Draft distributions q for each form of draft rows: probability of a token, weights of four tokens.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Whether a form has rows of one weight per token, which can be streamed: then row_in(draft, row, vocab) is
/// the row, and weight_in(draft, exponent, x) the weight of its element x.
template <class Draft>
SPECULA_HD constexpr bool has_rows(const Draft*) {
  return false;
}
template <class Element>
SPECULA_HD constexpr bool has_rows(const LogitsDraft<Element>*) {
  return true;
}
SPECULA_HD constexpr bool has_rows(const ProbsDraft*) { return true; }

template <class Element>
SPECULA_HD Row<Element> row_in(const LogitsDraft<Element>& draft, std::int64_t row, int vocab) {
  return {draft.logits + row * draft.stride, vocab};
}
SPECULA_HD Row<float> row_in(const ProbsDraft& draft, std::int64_t row, int vocab) {
  return {draft.probs + row * draft.stride, vocab};
}
template <class Element>
SPECULA_HD float weight_in(const LogitsDraft<Element>&, const Exponent& exponent, float x) {
  return exponent.weight(x);
}
/// -infinity after the end of the row.
SPECULA_HD float weight_in(const ProbsDraft&, const Exponent&, float x) { return max_or_nan(x, 0.0f); }

// For each form: point_of(row) is the token of a row that is a point mass, else kNoToken; prob(row, token)
// its probability in double precision; fill_from(draft, row, vocab, first, q) those of four tokens from
// `first` on.

SPECULA_HD Token point_of(const ChosenDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const ChosenDraft&, std::int64_t, Token, int) { return 0; }
SPECULA_HD void fill_from(const ChosenDraft&, const Exponent&, std::int64_t, int, int, float (&q)[4]) {
  SPECULA_UNROLL
  for (int e = 0; e < 4; ++e) q[e] = 0;
}

template <class Element>
SPECULA_HD Token point_of(const LogitsDraft<Element>& draft, std::int64_t row) {
  return draft.stats[row].point;
}
template <class Element>
SPECULA_HD double prob_in(const LogitsDraft<Element>& draft, std::int64_t row, Token token, int) {
  return prob(to_float(draft.logits[row * draft.stride + token]), draft.stats[row]);
}
template <class Element>
SPECULA_HD void fill_from(const LogitsDraft<Element>& draft, const Exponent& exponent, std::int64_t row,
                          int vocab, int first, float (&q)[4]) {
  load_four(Row<Element>{draft.logits + row * draft.stride, vocab}, first, q);
  SPECULA_UNROLL
  for (int e = 0; e < 4; ++e) q[e] = exponent.weight(q[e]);
}

SPECULA_HD Token point_of(const ProbsDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const ProbsDraft& draft, std::int64_t row, Token token, int) {
  return static_cast<double>(draft.probs[row * draft.stride + token]);
}
SPECULA_HD void fill_from(const ProbsDraft& draft, const Exponent&, std::int64_t row, int vocab, int first,
                          float (&q)[4]) {
  load_four(Row<float>{draft.probs + row * draft.stride, vocab}, first, q);
  SPECULA_UNROLL
  for (int e = 0; e < 4; ++e)
    if (q[e] == -infinity()) q[e] = 0;  // after the end of the row
}

SPECULA_HD Token point_of(const SparseDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const SparseDraft& draft, std::int64_t row, Token token, int) {
  for (int i = 0; i < draft.k; ++i)
    if (draft.token[row * draft.k + i] == token) return static_cast<double>(draft.prob[row * draft.k + i]);
  return 0;
}
SPECULA_HD void fill_from(const SparseDraft& draft, const Exponent&, std::int64_t row, int, int first,
                          float (&q)[4]) {
  SPECULA_UNROLL
  for (int e = 0; e < 4; ++e) q[e] = 0;
  for (int j = 0; j < draft.k; ++j) {
    const Token at = draft.token[row * draft.k + j] - first;
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e)
      if (at == e) q[e] = draft.prob[row * draft.k + j];
  }
}

template <class Draft>
SPECULA_HD Exponent exponent_of(const Draft&, std::int64_t) {
  return {};
}
template <class Element>
SPECULA_HD Exponent exponent_of(const LogitsDraft<Element>& draft, std::int64_t row) {
  return Exponent(draft.stats[row]);
}

SPECULA_HD constexpr bool is_chosen(const ChosenDraft&) { return true; }
template <class Draft>
SPECULA_HD constexpr bool is_chosen(const Draft&) {
  return false;
}
SPECULA_HD std::int64_t row_count(const ChosenDraft&) { return 0; }
template <class Draft>
SPECULA_HD std::int64_t row_count(const Draft& draft) {
  return draft.rows;
}
SPECULA_HD const std::int32_t* rows_of(const ChosenDraft&) { return nullptr; }
SPECULA_HD const double* scales_of(const ChosenDraft&) { return nullptr; }
template <class Draft>
SPECULA_HD const std::int32_t* rows_of(const Draft& draft) {
  return draft.row_of_node;
}
template <class Draft>
SPECULA_HD const double* scales_of(const Draft& draft) {
  return draft.scale;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
