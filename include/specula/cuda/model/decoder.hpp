// SPDX-License-Identifier: MIT
// A Llama-family decoder as a sequence of launches over a Device (device.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/attention.cuh"
#include "specula/cuda/args/slots.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"
#include "specula/cuda/model/device.hpp"
#include "specula/cuda/model/device_weights.hpp"

namespace specula::cuda {

/// Whether the products of a model's passes have one height. A product of another height is another kernel,
/// which adds in another order: so the logits of a token change with the number of tokens beside it.
struct PaddedProducts {
  static constexpr bool kPadded = true;  ///< always as many rows: a row's bits depend on that row alone
};
/// The products have as many rows as the pass.
struct FreeProducts {
  static constexpr bool kPadded = false;  ///< see PaddedProducts
};

/// A pass: its tokens, and which of the nodes that ran each sees. Arrays on the device.
struct DevicePass {
  detail::PassTokens tokens{};          ///< those of each sequence in a row
  const std::uint64_t* mask = nullptr;  ///< (n, words) as TreeAttentionArgs has it
  int words = 0;                        ///< of a token
  const std::int32_t* row = nullptr;    ///< (n) of the logits; negative: not asked for
  int height = 0;                       ///< rows of the products, at least n
};

/// The layers of B sequences over a contiguous cache, with memory for passes of up to `most` tokens. A pass
/// is a fixed sequence of launches, whatever the texts are. References the device.
template <class Device>
class DeviceDecoder {
 public:
  using Attention = typename Device::Attention;  ///< a plan of it

  /// Allocates. Passes have up to `most` rows, of which `most_rows` have logits. Features are kept if
  /// `keeps_features`. Throws what the device throws.
  DeviceDecoder(Device& device, const DeviceWeights& weights, int sequences, int capacity, int most,
                int most_rows, bool keeps_features)
      : device_(device), w_(weights), sequences_(sequences), capacity_(capacity) {
    const auto n = static_cast<std::size_t>(most), size = static_cast<std::size_t>(w_.hidden),
               queries = static_cast<std::size_t>(w_.heads * w_.head_size);
    hidden_ = device.template allocate<float>(n * size);
    wide_ = device.template allocate<float>(n * static_cast<std::size_t>(widest()));
    normed_ = device.template allocate<BFloat16>(n * size);
    q_ = device.template allocate<BFloat16>(n * queries);
    mixed_ = device.template allocate<BFloat16>(n * queries);
    active_ = device.template allocate<BFloat16>(n * static_cast<std::size_t>(w_.intermediate));
    last_ = device.template allocate<BFloat16>(static_cast<std::size_t>(most_rows) * size);
    logits_ = device.template allocate<float>(static_cast<std::size_t>(most_rows) *
                                              static_cast<std::size_t>(w_.vocab));
    if (keeps_features)
      features_ = device.template allocate<BFloat16>(static_cast<std::size_t>(sequences) *
                                                     static_cast<std::size_t>(capacity) * size);
    cache_ =
        device.template allocate<BFloat16>(2 * w_.layers.size() * static_cast<std::size_t>(layer_stride()));
  }

  /// Bytes that the constructor allocates.
  static std::size_t bytes(const cpu::DecoderConfig& c, int sequences, int capacity, int most, int most_rows,
                           bool keeps_features) {
    const auto n = static_cast<std::size_t>(most), rows = static_cast<std::size_t>(most_rows),
               slots = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(capacity),
               head = static_cast<std::size_t>(detail::device_head_size(c)),
               size = static_cast<std::size_t>(c.hidden_size),
               mlp = static_cast<std::size_t>(c.intermediate_size);
    const std::size_t queries = static_cast<std::size_t>(c.heads) * head,
                      both = static_cast<std::size_t>(2 * c.kv_heads) * head;
    return n * (6 * size + 4 * std::max(queries + both, 2 * mlp) + 4 * queries + 2 * mlp) +
           rows * (2 * size + 4 * static_cast<std::size_t>(c.vocab_size)) +
           2 * slots * ((keeps_features ? size : 0) + static_cast<std::size_t>(c.layers) * both);
  }

  /// The plan of attention for all passes of up to `most` tokens of a sequence. Splits have a fixed length if
  /// `exact`.
  Attention plan(int most, bool exact) {
    TreeAttentionCapacity c;
    c.sequences = sequences_, c.max_nodes = most, c.max_tokens = capacity_;
    c.query_heads = w_.heads, c.kv_heads = w_.kv_heads;
    c.batch_invariant = exact;
    return device_.make_attention(c, w_.head_size);
  }

  /// Prepares the products of passes of `height` rows, `exact` or not; the LM head's if `has_rows`.
  void prepare(int height, bool exact, bool has_rows) {
    for (const DeviceLayer& layer : w_.layers) {
      device_.prepare(layer.qkv, height, false, exact);
      device_.prepare(layer.output, height, true, exact);
      device_.prepare(layer.gate_up, height, false, exact);
      device_.prepare(layer.down, height, true, exact);
    }
    if (has_rows) device_.prepare(w_.head, height, false, exact);
  }

  /// Runs the layers: keys and values of the tokens are in the cache after it. With `has_rows` also the
  /// logits of the rows that were asked for.
  void pass(const Attention& how, const DevicePass& what, bool has_rows) {
    const detail::PassTokens& tokens = what.tokens;
    const int n = tokens.count;
    device_.run(detail::Embed{tokens, w_.embedding.data, w_.layers.front().attention_norm, hidden_, normed_,
                              w_.hidden, w_.vocab, w_.eps});
    for (std::size_t l = 0; l < w_.layers.size(); ++l) {
      const DeviceLayer& layer = w_.layers[l];
      if (l > 0) norm(layer.attention_norm, nullptr, n);
      device_.product(layer.qkv, normed_, n, what.height, wide_, false);
      const PagedKv<BFloat16> kv = cache(l, tokens.length);
      if (w_.head_size == 64)
        place_heads<64>(layer, tokens, kv);
      else
        place_heads<128>(layer, tokens, kv);
      TreeAttentionArgs<BFloat16> args{};
      args.q = q_, args.out = mixed_;
      args.q_stride = args.out_stride = w_.heads * w_.head_size;
      args.kv = kv;
      args.begin = tokens.begin, args.earlier = tokens.earlier;
      args.mask = what.mask, args.words = what.words;
      args.scale = 1.0f / std::sqrt(static_cast<float>(w_.head_dim));
      device_.attend(how, args);
      device_.product(layer.output, mixed_, n, what.height, hidden_, true);
      norm(layer.mlp_norm, layer.output_bias, n);
      device_.product(layer.gate_up, normed_, n, what.height, wide_, false);
      device_.run(detail::SiluProduct{wide_, active_, n, w_.intermediate});
      device_.product(layer.down, active_, n, what.height, hidden_, true);
    }
    if (!has_rows && !features_) return;
    device_.run(detail::FinalNorm{tokens, hidden_, w_.final_norm, what.row, last_, features_, w_.hidden,
                                  capacity_, w_.eps});
    if (has_rows) device_.product(w_.head, last_, n, what.height, logits_, false);
  }

  const float* logits() const { return logits_; }         ///< (rows, V), of the last pass
  const BFloat16* features() const { return features_; }  ///< (B, capacity, hidden); null: not kept
  const DeviceWeights& weights() const { return w_; }     ///< as given
  int capacity() const { return capacity_; }              ///< slots of a sequence

  /// A layer's keys and values. `length` (B) may be null.
  PagedKv<BFloat16> cache(std::size_t layer, const std::int32_t* length) const {
    const BFloat16* const k = cache_ + static_cast<std::int64_t>(2 * layer) * layer_stride();
    const std::int64_t head = static_cast<std::int64_t>(capacity_) * w_.head_size;  // its rows are one stream
    const auto rows = [&](const BFloat16* data) {
      return PagedRows<BFloat16>{data, w_.kv_heads * head, w_.head_size, head, nullptr};
    };
    PagedKv<BFloat16> out{rows(k), rows(k + layer_stride()), length, capacity_};
    out.page_count = static_cast<std::uint32_t>(sequences_);
    return out;
  }

  /// Moves what accepted nodes left in the cache, and their features, to the slots of their tokens.
  void compact(const AcceptedPaths& paths) {
    const PagedRows<BFloat16> kept{features_, static_cast<std::int64_t>(capacity_) * w_.hidden, w_.hidden,
                                   w_.hidden, nullptr};
    // Keys and values of a layer are apart as those of two layers.
    const SlotRows rows[2] = {slot_rows(cache(0, nullptr).k, w_.kv_heads, w_.head_size,
                                        2 * static_cast<int>(w_.layers.size()), layer_stride()),
                              slot_rows(kept, 1, w_.hidden)};
    device_.compact(paths, SlotPages{capacity_}, rows, features_ ? 2 : 1);
  }

  /// Launches of a pass.
  int launches(bool has_rows) const {
    return static_cast<int>(9 * w_.layers.size()) + (has_rows ? 2 : features_ ? 1 : 0);
  }

 private:
  std::int64_t layer_stride() const {
    return static_cast<std::int64_t>(sequences_) * capacity_ * w_.kv_heads * w_.head_size;
  }
  int widest() const { return std::max((w_.heads + 2 * w_.kv_heads) * w_.head_size, 2 * w_.intermediate); }
  void norm(const float* weight, const float* bias, int n) {
    device_.run(detail::Norm{hidden_, bias, weight, normed_, n, w_.hidden, w_.eps});
  }
  template <int kHead>
  void place_heads(const DeviceLayer& layer, const detail::PassTokens& tokens, const PagedKv<BFloat16>& kv) {
    device_.run(detail::PlaceHeads<kHead>{tokens, wide_, layer.qkv_bias, layer.query_norm, layer.key_norm,
                                          w_.cosine, w_.sine, q_, kv,
                                          detail::Divisor(static_cast<std::uint32_t>(capacity_)), w_.heads,
                                          w_.kv_heads, w_.positions, w_.head_dim, w_.eps});
  }

  Device& device_;
  DeviceWeights w_;
  int sequences_, capacity_;
  float *hidden_ = nullptr, *wide_ = nullptr, *logits_ = nullptr;
  BFloat16 *normed_ = nullptr, *q_ = nullptr, *mixed_ = nullptr, *active_ = nullptr, *last_ = nullptr,
           *features_ = nullptr, *cache_ = nullptr;
};

}  // namespace specula::cuda
