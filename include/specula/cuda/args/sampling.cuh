// SPDX-License-Identifier: MIT
// Arguments of sampling from rows of logits.
#pragma once

#include <cstdint>

#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// Arguments of sampling. All arrays are on the device; B sequences, R rows. The uniform draw of draw d of
/// row r is that of the key (position[r], origin[r], stream, index[r] + d). No output may overlap an input.
template <class Element>
struct SampleArgs {
  const Element* logits;                          ///< (R, V), rows `stride` elements apart
  std::int64_t stride;                            ///< 64 bits: offsets never wrap
  const std::uint64_t* seed;                      ///< (B) of each sequence's uniform draws
  const std::int32_t* position;                   ///< (R) in its text, of the token that is drawn
  ParamArrays params = nullptr;                   ///< (B)
  const std::int32_t* sequence_of_row = nullptr;  ///< (R) in [0, B); null: row r is of sequence r
  const std::uint32_t* sequence = nullptr;        ///< (B) of specula::PhiloxRandom; null: 0
  RandomStream stream = RandomStream::sample;     ///< plain sampling has origin and index 0
  const std::int32_t* origin = nullptr;           ///< (R) the root's position; null: 0
  const std::uint32_t* index = nullptr;           ///< (R) a counter of the round, as the node's slot; null: 0
  const std::int32_t* row_count = nullptr;        ///< rows in this call, at most the plan's; null: all
  bool distinct = false;                          ///< draws of a row are without replacement

  Token* token;               ///< (R, draws); kNoToken where a row is bad, or nothing distinct is left
  RowStats* stats = nullptr;  ///< (R) the distribution that was drawn from, and the row's status
  float* prob = nullptr;      ///< (R, draws) the distribution's probability of the token
  /// (R, draws) what the distribution is multiplied by: 1 over the mass that earlier draws left.
  double* scale = nullptr;

  // Distance between the outputs of consecutive rows, in elements, of either sign, so that tokens can be
  // written into trees and the rest where verification reads it; 0: contiguous.
  std::int64_t token_stride = 0,  ///< of `token`
      stats_stride = 0,           ///< of `stats`
      prob_stride = 0,            ///< of `prob`
      scale_stride = 0;           ///< of `scale`
};

}  // namespace cuda
}  // namespace specula
