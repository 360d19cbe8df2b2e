// SPDX-License-Identifier: MIT
// Types shared by device code and its callers: 16-bit and 8-bit elements, statuses, row statistics.
#pragma once

#include <cstdint>

#include "specula/base/random_key.hpp"
#include "specula/base/sampling_params.hpp"
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
using specula::Token;

/// Elements of rows, of the layout of __half and __nv_bfloat16 (and of any other library's types of these
/// formats: pass a reinterpret_cast pointer).
struct Half {
  std::uint16_t bits;  ///< as stored
};
/// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits;  ///< as stored
};
/// A byte of a cache: 4 bits of exponent, 3 of mantissa, no infinity (E4M3 of the OCP's 8-bit formats, as
/// __nv_fp8_e4m3 and torch.float8_e4m3fn).
struct Float8E4M3 {
  std::uint8_t bits;  ///< as stored
};

/// Status of a row or a sequence. For any status but `ok` nothing is emitted.
enum class Status : std::int32_t {
  ok = 0,
  not_a_number = 1,    ///< a row holds NaN or +infinity
  empty_row = 2,       ///< a row has no finite logit
  overflow = 3,        ///< the largest logit is above 1e38 times the temperature
  bad_parameters = 4,  ///< SamplingParams out of range
  /// A parent that is no earlier node, a token outside the vocabulary, or more nodes than the plan.
  bad_tree = 5,
  /// Parameters truncate (top-k, top-p, min-p) under an Untruncated plan or a sharded vocabulary.
  truncation_is_not_planned = 6,
  infinite_loss = 7,  ///< the draft rules out a token that the target may choose
  bad_draft_row = 8   ///< a draft token's row of the draft is out of range
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

}  // namespace detail

/// Sampling parameters of B sequences: an array of SamplingParams, or an array of each, where a null one has
/// no effect. A pointer to the former converts.
struct ParamArrays {
  const SamplingParams* all = nullptr;  ///< (B); null: the arrays below
  const float* temperature = nullptr;   ///< (B); null: 1
  const std::int32_t* top_k = nullptr;  ///< (B); null: 0
  const float* top_p = nullptr;         ///< (B); null: 1
  const float* min_p = nullptr;         ///< (B); null: 0

  /// None: the distribution of the softmax itself.
  SPECULA_HD ParamArrays(const SamplingParams* params = nullptr) : all(params) {}
  /// Of one sequence.
  SPECULA_HD SamplingParams operator[](int sequence) const {
    if (all) return all[sequence];
    return {temperature ? temperature[sequence] : 1.0f, top_k ? top_k[sequence] : 0,
            top_p ? top_p[sequence] : 1.0f, min_p ? min_p[sequence] : 0.0f};
  }
};

/// The distribution of a row in scalars: distribution(x) = 0 where logits[x] < cut, else exp((logits[x] -
/// shift) / temperature - log_z). `shift` is the row's largest logit, so log_z is in [0, log V], whatever the
/// logits' size. At temperature 0 it is the point mass on `point`.
struct RowStats {
  double log_z;       ///< logarithm of the normaliser of what truncation kept, relative to `shift`
  float shift;        ///< the row's largest logit
  float temperature;  ///< 0: a point mass
  float min_logit;    ///< the cut
  Token point;        ///< kNoToken above temperature 0
  Status status;      ///< the row's
};

namespace detail {

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
