// SPDX-License-Identifier: MIT
// What the host tells a device before a pass, in one copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/cuda/model/decoder.hpp"

namespace specula::cuda::detail {

/// The arrays of passes of up to `most` tokens of `sequences` texts: the host's, which add() fills, and the
/// device's. A captured pass reads the latter.
template <class Device>
class PassInput {
 public:
  /// Allocates. `words` of mask for each token, for a draft that reads `of_target`.
  PassInput(Device& device, int most, int sequences, int words, Conditioning of_target)
      : most_(most),
        sequences_(sequences),
        words_(words),
        columns_(columns(of_target)),
        masks_(masks(of_target)),
        size_(bytes(most, sequences, words, of_target)),
        host_(device.template allocate_host<unsigned char>(size_)),
        there_(device.template allocate<unsigned char>(size_)) {}

  /// Bytes of the arrays on the device.
  static std::size_t bytes(int most, int sequences, int words, Conditioning of_target) {
    return numbers_bytes(most, sequences, columns(of_target)) +
           sizeof(std::uint64_t) * static_cast<std::size_t>(masks(of_target) * most) *
               static_cast<std::size_t>(words);
  }

  int most() const { return most_; }    ///< tokens of a pass
  int count() const { return count_; }  ///< tokens so far
  int rows() const { return rows_; }    ///< of these, with logits

  /// Begins a pass.
  void clear() { count_ = rows_ = next_ = 0; }
  /// Begins a text's part, which has `length` tokens in the cache and `earlier` nodes; texts rise.
  void begin(std::int32_t sequence, std::int32_t length, std::int32_t earlier) {
    end(sequence);
    numbers(length_at())[sequence] = length, numbers(earlier_at())[sequence] = earlier;
  }
  /// The text's next token, which sees the nodes in `mask`; words beyond a token's hold none. Of a feature
  /// head `feature` says where the feature before it lies (Gather); of a GLIDE draft `target` which of the
  /// target's tokens in the slots after the text's `length` it sees.
  void add(Token token, std::int32_t position, bool has_row, std::span<const std::uint64_t> mask,
           std::int32_t feature = 0, std::span<const std::uint64_t> target = {}) {
    numbers(0)[count_] = token;
    numbers(most_)[count_] = position;
    numbers(2 * most_)[count_] = has_row ? rows_++ : -1;
    if (columns_ > 3) numbers(3 * most_)[count_] = feature;
    write(mask, count_);
    if (masks_ > 1) write(target, most_ + count_);
    ++count_;
  }
  /// Ends the pass, and copies it to the device.
  void send(Device& device) {
    end(sequences_);
    device.send(there_, host_, size_);
  }

  /// The pass on the device; `count` tokens, rounded up, and products of `height` rows.
  DevicePass pass(int count, int height) const {
    const auto* const all = reinterpret_cast<const std::int32_t*>(there_);
    DevicePass out;
    out.tokens = {all,   all + begin_at(), all + length_at(), all + earlier_at(), all + most_,
                  count, sequences_};
    out.mask = mask_of(0), out.words = words_;
    out.row = all + 2 * most_;
    out.height = height;
    if (columns_ > 3) out.feature = all + 3 * most_;
    return out;
  }
  /// What add() was told of the target, for the same pass.
  template <class Decoder>
  TargetInput<Decoder> target(const Decoder* of, const typename Decoder::Attention* plan) const {
    const auto* const all = reinterpret_cast<const std::int32_t*>(there_);
    return {of, plan, all + length_at(), mask_of(most_), words_};
  }

 private:
  // Tokens, positions, rows, features; then of each text begin (one more), length, earlier; then masks.
  int begin_at() const { return columns_ * most_; }
  int length_at() const { return begin_at() + sequences_ + 1; }
  int earlier_at() const { return length_at() + sequences_; }
  static int columns(Conditioning of_target) { return of_target == Conditioning::features ? 4 : 3; }
  static int masks(Conditioning of_target) { return of_target == Conditioning::key_values ? 2 : 1; }
  static std::size_t numbers_bytes(int most, int sequences, int columns) {
    return static_cast<std::size_t>(columns * most + 3 * sequences + 2) / 2 * sizeof(std::uint64_t);
  }
  const std::uint64_t* mask_of(int token) const {
    return reinterpret_cast<const std::uint64_t*>(there_ + mask_at(token));
  }
  std::size_t mask_at(int token) const {
    return numbers_bytes(most_, sequences_, columns_) +
           sizeof(std::uint64_t) * static_cast<std::size_t>(token) * static_cast<std::size_t>(words_);
  }
  void write(std::span<const std::uint64_t> mask, int token) {
    std::uint64_t* const to = reinterpret_cast<std::uint64_t*>(host_ + mask_at(token));
    const std::size_t words = std::min(mask.size(), static_cast<std::size_t>(words_));
    std::fill(std::copy_n(mask.begin(), words, to), to + words_, 0);
  }
  std::int32_t* numbers(int at) { return reinterpret_cast<std::int32_t*>(host_) + at; }

  /// Texts before `sequence` that have not begun have no tokens.
  void end(std::int32_t sequence) {
    for (; next_ <= sequence; ++next_) {
      numbers(begin_at())[next_] = count_;
      if (next_ < sequences_) numbers(length_at())[next_] = numbers(earlier_at())[next_] = 0;
    }
  }

  int most_, sequences_, words_, columns_, masks_, count_ = 0, rows_ = 0;
  std::int32_t next_ = 0;  // text without a begin
  std::size_t size_;
  unsigned char *host_, *there_;
};

}  // namespace specula::cuda::detail
