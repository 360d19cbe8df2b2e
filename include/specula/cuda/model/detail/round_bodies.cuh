// SPDX-License-Identifier: MIT
// Kernel bodies of a round's bookkeeping: what the draft reads of the text, the root, and the text's new
// tokens.
//
// Work: one block per call.
// Traffic: a few hundred bytes.
// Forms: body_kernel<Body>; launched by Round.
// Reference: run/speculator.hpp; tests/cuda/model/detail/round_bodies.cpp, tests/cuda/model/round.cpp.
// Example: examples/cuda/round.cpp; its head has the compile lines.
// Check: scripts/gpu --out FOLDER --sections rounds (program round_times).
#pragma once

#include <cstdint>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A text, all of it on the device. Its last token is the root of the next proposal, which no cache holds
/// yet.
struct RoundText {
  Token* token;               // (capacity)
  std::int32_t* length;       // tokens, the root included
  std::int32_t* finished;     // 0: it goes on
  const std::int32_t* limit;  // tokens at most
  const Token* stop;          // tokens that end it,
  const std::int32_t* stops;  // and how many of them
};

/// The arrays of a pass over tokens of the text, up to `most` of them; fewer where it has fewer, the rest
/// being padding.
struct TextPass {
  Token* token;            // (most)
  std::int32_t* position;  // (most)
  std::int32_t* row;       // (most) 0 of the last token: it alone has logits
  std::int32_t* feature;   // (most) where the target's feature before it lies; see Gather
  std::int32_t* begin;     // (2)
  std::int32_t* length;    // tokens before
  int most;

  /// Those before the last `skip` tokens of the text.
  template <class Block>
  SPECULA_HD void read(Block block, const RoundText& text, int skip) const {
    const int end = larger(0, *text.length - skip), first = larger(0, end - most), count = end - first;
    for (int i = block.rank(); i < most; i += block.size()) {
      token[i] = i < count ? text.token[first + i] : kNoToken;
      position[i] = first + i;
      row[i] = i == count - 1 ? 0 : -1;
      feature[i] = first + i == 0 ? Gather::kNoFeature : Gather::of_target(first + i - 1);
    }
    if (block.rank() == 0) begin[0] = 0, begin[1] = count, *length = first;
  }
};

/// A pass over tokens that a model has not read, or has to read again.
struct ReadText {
  static constexpr int kThreads = 256;
  RoundText text;
  TextPass pass;
  const std::int32_t* skip;  // tokens at the end that it leaves out

  SPECULA_HD int blocks() const { return 1; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int, float*) const {
    pass.read(block, text, *skip);
  }
};

/// Before a round: the draft's first pass, which reads the last tokens *again*, whatever of them it has read
/// before: so nothing counts what it knows, and nothing moves in its cache. Then what the passes after it and
/// the target's read: token number i of a chain, the root being 0, has position `place[i]`, which is its slot
/// and the number of tokens before it.
struct BeginRound {
  static constexpr int kThreads = 256;
  RoundText text;
  TextPass again;
  int width;                   // of the proposal
  Token* root;                 // the proposal's first token
  std::int32_t* place;         // (width + 1)
  std::int32_t* before_place;  // (width + 1) one less: where a head's own feature before a draft token lies

  SPECULA_HD int blocks() const { return 1; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int, float*) const {
    again.read(block, text, 0);
    const std::int32_t last = *text.length - 1;
    for (int i = block.rank(); i <= width; i += block.size())
      place[i] = last + i, before_place[i] = last + i - 1;
    if (block.rank() == 0) *root = text.token[last];
  }
};

/// What the host reads of a round: these numbers, and then the emitted tokens.
struct RoundRecord {
  std::int32_t count, finished, status, length;
};

/// After verification: the emitted tokens join the text, up to a stop token or the limit. A finished text
/// stays as it is: its further rounds are idle.
struct EndRound {
  static constexpr int kThreads = 32;
  RoundText text;
  const Token* token;         // emitted
  const std::int32_t* count;  // how many; none after a bad row
  const Status* status;       // of verification
  std::int32_t* record;       // a RoundRecord, then tokens

  SPECULA_HD int blocks() const { return 1; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int, float*) const {
    if (block.rank() != 0) return;
    const bool live = *text.finished == 0;
    std::int32_t length = *text.length, kept = 0;
    bool ends = !live || *status != Status::ok || *count == 0;
    for (; !ends && kept < *count; ++kept) {
      const Token next = token[kept];
      text.token[length++] = next;
      record[sizeof(RoundRecord) / sizeof(std::int32_t) + kept] = next;
      ends = length >= *text.limit;
      for (int s = 0; s < *text.stops; ++s) ends = ends || next == text.stop[s];
    }
    *text.length = length, *text.finished = ends ? 1 : 0;
    *reinterpret_cast<RoundRecord*>(record) = {
        kept, ends ? 1 : 0, static_cast<std::int32_t>(live ? *status : Status::ok), length};
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
