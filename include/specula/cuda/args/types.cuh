// SPDX-License-Identifier: MIT
// Types shared by device code and its callers: those of arrays/rows.hpp, and 8-bit elements.
#pragma once

#include <cstdint>

#include "specula/arrays/rows.hpp"
#include "specula/base/random_key.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/base/tokens.hpp"
#include "specula/cuda/args/integers.cuh"

namespace specula {
namespace cuda {

using specula::kNoParent;
using specula::kNoToken;
using specula::NodeId;
using specula::RandomKey;
using specula::RandomStream;
using specula::SamplingParams;
using specula::Status;
using specula::Token;

using arrays::BFloat16;
using arrays::Half;
using arrays::ParamArrays;
using arrays::RowStats;

/// A byte of a cache: 4 bits of exponent, 3 of mantissa, no infinity (E4M3 of the OCP's 8-bit formats, as
/// __nv_fp8_e4m3 and torch.float8_e4m3fn).
struct Float8E4M3 {
  std::uint8_t bits;  ///< as stored
};

namespace detail {

/// Whether element `i` of a batch is in the call, which has as many as `count` says on the device; null: all.
SPECULA_HD bool is_live(int i, const std::int32_t* count) { return !count || i < *count; }

/// The sequence that element i of a ragged batch belongs to, -1 if none does. Safe for any `begin`.
SPECULA_HD int sequence_of(const std::int32_t* begin, int sequences, int i) {
  int low = 0, high = sequences;  // the first sequence that begins after i is in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (begin[middle] <= i)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

/// Rows are worked on in tiles of so many tokens.
constexpr int kTile = 512;
SPECULA_HD int tile_count(int vocab) { return ceil_div(vocab, kTile); }

SPECULA_HD bool valid(const SamplingParams& s) {
  // Comparisons that NaN fails.
  return (s.temperature == 0.0f || (s.temperature >= 1e-4f && s.temperature <= 3.4e38f)) && s.top_k >= 0 &&
         s.top_p > 0.0f && s.top_p <= 1.0f && s.min_p >= 0.0f && s.min_p <= 1.0f;
}
/// Whether a cut changes the distribution: at temperature 0 none does.
SPECULA_HD bool is_cut(const SamplingParams& s) { return s.temperature != 0.0f && s.truncates(); }
/// Whether a kernel, which may have no code for cuts, can run under these parameters.
SPECULA_HD Status status_of(const SamplingParams& s, bool takes_cuts) {
  return !valid(s)                  ? Status::bad_parameters
         : is_cut(s) && !takes_cuts ? Status::truncation_is_not_planned
                                    : Status::ok;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
