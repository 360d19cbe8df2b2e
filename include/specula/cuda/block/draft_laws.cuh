// q of a guess, whatever form the draft's rows have.
#pragma once

#include "../detail/host_device.cuh"
#include "../device/trees.cuh"
#include "../group.cuh"
#include "../thread/exponent.cuh"
#include "../types.cuh"
#include "../warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

// For each form: point_of(row) is the token of a row that is a point mass, else kNoToken; prob(row, token)
// its probability in double precision; fill<order>(lane, row, tile, vocab, q) a lane's part of a tile.

SPECULA_HD Token point_of(const ChosenDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const ChosenDraft&, std::int64_t, Token, int) { return 0; }
template <Order order>
SPECULA_HD void fill_from(const ChosenDraft&, int, std::int64_t, int, int, float (&q)[kPerLane]) {
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) q[i] = 0;
}

template <class Element>
SPECULA_HD Token point_of(const LogitsDraft<Element>& draft, std::int64_t row) {
  return draft.stats[row].point;
}
template <class Element>
SPECULA_HD double prob_in(const LogitsDraft<Element>& draft, std::int64_t row, Token token, int) {
  const RowStats s = draft.stats[row];
  return prob(to_float(draft.logits[row * draft.stride + token]), inverse(s.temperature), s.log_z, s.cut);
}
template <Order order, class Element>
SPECULA_HD void fill_from(const LogitsDraft<Element>& draft, int lane, std::int64_t row, int tile, int vocab,
                          float (&q)[kPerLane]) {
  const RowStats s = draft.stats[row];
  const Exponent exponent(inverse(s.temperature), s.log_z, s.cut);
  const Row<Element> at{draft.logits + row * draft.stride, vocab};
  unpack<order>(lane, load_tile<order>(lane, at, tile), at, tile, q);
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) q[i] = exponent.weight(q[i]);
}

SPECULA_HD Token point_of(const ProbsDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const ProbsDraft& draft, std::int64_t row, Token token, int) {
  return static_cast<double>(draft.probs[row * draft.stride + token]);
}
template <Order order>
SPECULA_HD void fill_from(const ProbsDraft& draft, int lane, std::int64_t row, int tile, int vocab,
                          float (&q)[kPerLane]) {
  const Row<float> at{draft.probs + row * draft.stride, vocab};
  unpack<order>(lane, load_tile<order>(lane, at, tile), at, tile, q);
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i)
    if (q[i] == -infinity()) q[i] = 0;  // beyond the row
}

SPECULA_HD Token point_of(const SparseDraft&, std::int64_t) { return kNoToken; }
SPECULA_HD double prob_in(const SparseDraft& draft, std::int64_t row, Token token, int) {
  for (int i = 0; i < draft.k; ++i)
    if (draft.token[row * draft.k + i] == token) return static_cast<double>(draft.prob[row * draft.k + i]);
  return 0;
}
template <Order order>
SPECULA_HD void fill_from(const SparseDraft& draft, int lane, std::int64_t row, int tile, int,
                          float (&q)[kPerLane]) {
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) q[i] = 0;
  for (int j = 0; j < draft.k; ++j) {
    const Token token = draft.token[row * draft.k + j];
    if (token < 0 || token / kTile != tile) continue;
    const float prob = draft.prob[row * draft.k + j];
    SPECULA_UNROLL
    for (int i = 0; i < kPerLane; ++i)
      if (place_of<order>(lane, i / 4) + i % 4 == token % kTile) q[i] = prob;
  }
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
