// SPDX-License-Identifier: MIT
// The blocks of a decoder, the batch of tokens that they run over, and the part of them that a pass runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/elementwise.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula::cpu::detail {

template <class Real>
class SlotMemory;
template <class Real>
struct TargetState;

/// The tokens [first, last) of a pass, which are of one text, and what is kept of that.
template <class Real>
struct Segment {
  std::int32_t first = 0, last = 0;
  std::int32_t base = 0, end = 0;  // slots that each of the tokens sees, and slots in use
  SlotMemory<Real>* memory = nullptr;
  TargetState<Real>* target = nullptr;  // for a model that reads it

  std::int32_t count() const { return last - first; }
  std::span<const BatchToken> of(std::span<const BatchToken> tokens) const {
    return tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count()));
  }
};

/// The tokens of a pass, their residual stream, and what all blocks use. Each thread of the team calls the
/// members that take a Worker, in the same order. Nothing is allocated after the constructor (see
/// TeamProduct).
template <class Real>
class Batch {
 public:
  /// See TeamProduct.
  Batch(const DecoderConfig& config, const DecoderOptions& options, std::int32_t most_cols,
        std::size_t bytes = 0, std::int32_t block_cols = 0)
      : isa(options.isa),
        elementwise(isa),
        product(options, most_cols, bytes, block_cols),
        hidden(pass_columns(options), config.hidden_size),
        normed(pass_columns(options), config.hidden_size),
        added(pass_columns(options), config.hidden_size),
        size_(config.hidden_size),
        eps_(static_cast<Real>(config.rms_norm_eps)) {}

  std::int32_t count() const { return static_cast<std::int32_t>(tokens.size()); }
  /// Calls f(i, segment) for the worker's tokens.
  template <class F>
  void for_own(const Worker& worker, F f) const {
    for (const Segment<Real>& segment : segments)
      for (std::int32_t i = std::max(worker.first, segment.first); i < std::min(worker.last, segment.last);
           ++i)
        f(i, segment);
  }
  const BatchToken& token(std::int32_t i) const { return tokens[static_cast<std::size_t>(i)]; }
  std::int32_t hidden_size() const { return size_; }

  /// RMS norm of hidden: writes normed. Where a model lacks the norm, copies its input.
  void norm(const Worker& worker, const AlignedVector<Real>& weight) {
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      if (weight.empty())
        std::copy_n(hidden.at(i), hidden.stride, normed.at(i));
      else
        elementwise.rms_norm(hidden.at(i), weight.data(), size_, eps_, normed.at(i));
    }
  }

  /// RMS norm of `x` (size) in place. Writes zeros after it, to a multiple of 16.
  void norm(Real* x, const AlignedVector<Real>& weight, std::int32_t size) const {
    std::fill(x + size, x + round_up(size, kPanel), Real(0));
    elementwise.rms_norm(x, weight.data(), size, eps_, x);
  }

  /// Adds a bias (size) to what a product wrote, and clears what follows it.
  void add_bias(const Worker& worker, const AlignedVector<Real>& bias, std::int32_t size,
                Activations<Real>& to) {
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      for (std::ptrdiff_t k = 0; k < to.stride; ++k)
        to.at(i)[k] = k < size ? to.at(i)[k] + bias[static_cast<std::size_t>(k)] : Real(0);
  }

  /// hidden += added
  void add(const Worker& worker) {
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      Real *to = hidden.at(i), *from = added.at(i);
      for (std::ptrdiff_t k = 0; k < hidden.stride; ++k) to[k] += from[k];
    }
  }

  Isa isa;
  Elementwise<Real> elementwise;
  TeamProduct<Real> product;
  std::span<const BatchToken> tokens;
  std::span<const Segment<Real>> segments;  // all tokens, text by text
  // (batch, hidden): the residual stream, a block's input and output
  Activations<Real> hidden, normed, added;

 private:
  std::int32_t size_;
  Real eps_;
};

enum class BlockKind { attention, mlp, other };

/// A block of a layer: reads the residual stream, and writes what the pass adds to it. Its weights are its
/// own, its activations may be shared with those of other layers.
template <class Real>
class Block {
 public:
  Block(BlockKind kind, std::int32_t layer) : kind_(kind), layer_(layer) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  BlockKind kind() const { return kind_; }
  std::int32_t layer() const { return layer_; }
  /// Whether it has anything to add for this batch; all threads get the same answer.
  virtual bool active() const { return true; }
  /// Reads batch.hidden, writes batch.added.
  virtual void run(const Worker& worker, Batch<Real>& batch) = 0;

 private:
  BlockKind kind_;
  std::int32_t layer_;
};

/// The layers and blocks that a pass runs.
struct PassPart {
  std::int32_t first_layer = 0;                     // an earlier pass ran those before it
  std::int32_t last_layer = 0;                      // one after the last; 0: all
  const specula::SkippedBlocks* skipped = nullptr;  // if any
  bool to_exit_logits = false;                      // writes logits to exit_logits() instead

  bool skips(BlockKind kind, std::int32_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return skipped && ((kind == BlockKind::attention && skipped->attention[at]) ||
                       (kind == BlockKind::mlp && skipped->mlp[at]));
  }
};

}  // namespace specula::cpu::detail
