// SPDX-License-Identifier: MIT
// Keys of uniform draws, and the Philox4x32-10 words that each stands for. C++17.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"
#include "specula/base/philox.hpp"
#include "specula/base/tokens.hpp"

namespace specula {

/// The purpose of a uniform draw. `draft` and the review streams belong to the proposal; `noise` is
/// deliberately shared between proposal and verification (see accept/gumbel_coupling.hpp); `own` is for rules
/// of your own; the others belong to verification.
enum class RandomStream : std::uint32_t {
  sample,
  residual,
  accept,
  draft,
  review_accept,
  review_residual,
  noise,
  own
};

/// Names one uniform draw. `origin` increases in every round: without it, a uniform draw of the draft would
/// recur in the next round's verification of the same position and bias the distribution.
struct RandomKey {
  std::int32_t position = 0;  ///< of the token in question, in the whole text
  std::int32_t origin = 0;    ///< the root's position; 0 for RandomStream::sample and RandomStream::noise
  RandomStream stream = RandomStream::sample;  ///< the purpose of the draw
  /// Accept: node id; draft, reviews: a counter of the round; noise: token / 4; own: any below 2^24; else 0.
  std::uint32_t index = 0;

  /// Equal in all fields.
  friend SPECULA_HD bool operator==(const RandomKey& a, const RandomKey& b) {
    return a.position == b.position && a.origin == b.origin && a.stream == b.stream && a.index == b.index;
  }
};

namespace detail {

// The keys of verification, in a tree whose root is at `origin` in its text; `depth` is that of the node.

/// Key of the uniform draw that accepts `node`.
SPECULA_HD RandomKey accept_key(std::int32_t origin, std::int32_t depth, NodeId node) {
  return {origin + depth, origin, RandomStream::accept, static_cast<std::uint32_t>(node)};
}
/// Keys of the token after a node: drawn from the target's own distribution, or from the residual.
SPECULA_HD RandomKey sample_key(std::int32_t origin, std::int32_t depth) {
  return {origin + depth + 1, 0, RandomStream::sample, 0};
}
SPECULA_HD RandomKey residual_key(std::int32_t origin, std::int32_t depth) {
  return {origin + depth + 1, origin, RandomStream::residual, 0};
}

/// The Philox counter of a key: position, origin, stream and index, sequence.
SPECULA_HD Words counter_of(const RandomKey& key, std::uint32_t sequence) {
  return {static_cast<std::uint32_t>(key.position), static_cast<std::uint32_t>(key.origin),
          static_cast<std::uint32_t>(key.stream) << 24 | (key.index & 0xFFFFFFu), sequence};
}
/// The four Philox words of a key.
SPECULA_HD Words words_of(const RandomKey& key, std::uint64_t seed, std::uint32_t sequence) {
  return philox(counter_of(key, sequence), seed);
}
/// Maps a word to [0, 1), all 32 bits.
SPECULA_HD double uniform(std::uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

}  // namespace detail
}  // namespace specula
