// SPDX-License-Identifier: MIT
// A Llama-family decoder as a sequence of launches over a Device (device.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

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
  /// (n) of a feature head: where the feature before each token lies, as detail::Gather has it.
  const std::int32_t* feature = nullptr;
  const std::int32_t* feature_base = nullptr;  ///< (B) slots that are added to its own ones; null: none
  /// (height, V) for the logits, in memory of allocate_logits(); null: the decoder's own.
  float* logits = nullptr;
};

/// What a draft reads of its target in a pass. Arrays on the device.
template <class Decoder>
struct TargetInput {
  const Decoder* decoder = nullptr;  ///< the target's; null: the model reads none
  /// Of a GLIDE draft: the plan of plan_cross(), the target's tokens that all of a sequence's see (B), and
  /// those that each sees in the slots after them, as DevicePass::mask. Without words: none of these.
  const typename Decoder::Attention* attention = nullptr;
  const std::int32_t* length = nullptr;  ///< see attention
  const std::uint64_t* mask = nullptr;   ///< see attention
  int words = 0;                         ///< see attention
};

/// The layers of B sequences over a contiguous cache, with memory for passes of up to `most` tokens. A pass
/// is a fixed sequence of launches, whatever the texts are. References the device.
template <class Device>
class DeviceDecoder {
 public:
  using Attention = typename Device::Attention;  ///< a plan of it

  /// Allocates. Passes have up to `most` rows, of which `most_rows` have logits. Features are kept if
  /// `keeps_features`, and by a feature head. Throws what the device throws.
  DeviceDecoder(Device& device, const DeviceWeights& weights, int sequences, int capacity, int most,
                int most_rows, bool keeps_features)
      : device_(device), w_(weights), sequences_(sequences), capacity_(capacity) {
    const auto n = static_cast<std::size_t>(most), size = static_cast<std::size_t>(w_.hidden),
               queries = static_cast<std::size_t>(std::max(w_.heads * w_.head_size, cross_queries()));
    hidden_ = device.template allocate<float>(n * size);
    wide_ = device.template allocate<float>(n * static_cast<std::size_t>(widest()));
    normed_ = device.template allocate<BFloat16>(n * size);
    q_ = device.template allocate<BFloat16>(n * queries);
    mixed_ = device.template allocate<BFloat16>(n * queries);
    active_ = device.template allocate<BFloat16>(n * static_cast<std::size_t>(w_.intermediate));
    last_ = device.template allocate<BFloat16>(static_cast<std::size_t>(most_rows) * size);
    logits_ = allocate_logits(most_rows);
    if (gathers())
      gathered_ = device.template allocate<BFloat16>(n * static_cast<std::size_t>(gathered_width()));
    if (w_.draft_tokens)
      outputs_ = device.template allocate<float>(static_cast<std::size_t>(most_rows) *
                                                 static_cast<std::size_t>(w_.head.rows));
    if (keeps_features || w_.fusion.data)
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
    const bool fuses = c.conditioned_on == Conditioning::features;
    const std::size_t queries = static_cast<std::size_t>(c.heads) * head,
                      both = static_cast<std::size_t>(2 * c.kv_heads) * head,
                      cross =
                          static_cast<std::size_t>(c.target.heads * detail::padded_head(c.target.head_dim)),
                      gathered = fuses ? 2 * size : static_cast<std::size_t>(c.target_hidden_size);
    return n * (6 * size + 4 * std::max({queries + both, cross, 2 * mlp}) + 4 * std::max(queries, cross) +
                2 * mlp + 2 * gathered) +
           rows * (2 * size + 4 * static_cast<std::size_t>(c.vocab_size + c.draft_vocab_size)) +
           2 * slots * ((keeps_features || fuses ? size : 0) + static_cast<std::size_t>(c.layers) * both);
  }

  /// (rows, V) for the logits of passes: minus infinity outside of a draft vocabulary.
  float* allocate_logits(int rows) {
    const auto vocab = static_cast<std::size_t>(w_.vocab);
    float* const out = device_.template allocate<float>(static_cast<std::size_t>(rows) * vocab);
    if (!w_.draft_tokens) return out;
    const std::vector<float> none(vocab, -std::numeric_limits<float>::infinity());
    for (int row = 0; row < rows; ++row)
      device_.put(out + static_cast<std::size_t>(row) * vocab, none.data(), vocab);
    return out;
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
  /// The same of a GLIDE draft's cross attention over `target`. Throws std::invalid_argument if the draft is
  /// not made for such a model.
  Attention plan_cross(const DeviceDecoder& target, int most, bool exact) {
    const auto same = [](const char* what, int made_for, int given) {
      if (made_for != given)
        throw std::invalid_argument("cuda: a draft made for a target with " + std::string(what) + " " +
                                    std::to_string(made_for) + ", given one with " + std::to_string(given));
    };
    same("num_hidden_layers", w_.target_layers, static_cast<int>(target.w_.layers.size()));
    same("num_attention_heads", w_.target_heads, target.w_.heads);
    same("num_key_value_heads", w_.target_kv_heads, target.w_.kv_heads);
    same("head_dim", w_.target_head_dim, target.w_.head_dim);
    TreeAttentionCapacity c;
    c.sequences = sequences_, c.max_nodes = most, c.max_tokens = capacity_;
    c.query_heads = w_.target_heads, c.kv_heads = w_.target_kv_heads;
    c.batch_invariant = exact;
    return device_.make_attention(c, target.w_.head_size);
  }

  /// Prepares the products of passes of `height` rows, `exact` or not; the LM head's if `has_rows`.
  void prepare(int height, bool exact, bool has_rows) {
    for (const DeviceLayer& layer : w_.layers) {
      device_.prepare(layer.qkv, height, false, exact);
      device_.prepare(layer.output, height, true, exact);
      device_.prepare(layer.gate_up, height, false, exact);
      device_.prepare(layer.down, height, true, exact);
      if (!layer.cross_query.data) continue;
      device_.prepare(layer.cross_query, height, false, exact);
      device_.prepare(layer.cross_output, height, true, exact);
    }
    if (gathers()) device_.prepare(gathering(), height, false, exact);
    if (has_rows) device_.prepare(w_.head, height, false, exact);
  }

  /// Runs the layers: keys and values of the tokens are in the cache after it. With `has_rows` also the
  /// logits of the rows that were asked for. A draft that reads its target has it in `target`.
  void pass(const Attention& how, const DevicePass& what, bool has_rows,
            const TargetInput<DeviceDecoder>& target = {}) {
    const detail::PassTokens& tokens = what.tokens;
    const int n = tokens.count;
    if (gathers()) {
      const detail::FeatureRows theirs =
          w_.fusion.data ? target.decoder->feature_rows() : detail::FeatureRows{};
      device_.run(detail::Gather{tokens, w_.embedding.data, w_.fusion.data ? what.feature : nullptr,
                                 what.feature_base, feature_rows(), theirs, gathered_, w_.embedding.cols,
                                 w_.vocab});
      device_.product(gathering(), gathered_, n, what.height, hidden_, false);
      norm(first_norm(), w_.fusion_bias, n);
    } else {
      device_.run(detail::Embed{tokens, w_.embedding.data, first_norm(), hidden_, normed_, w_.hidden,
                                w_.vocab, w_.eps});
    }
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
      if (layer.cross_query.data) see_target(layer, what, target);
      norm(layer.mlp_norm, layer.cross_query.data ? nullptr : layer.output_bias, n);
      device_.product(layer.gate_up, normed_, n, what.height, wide_, false);
      device_.run(detail::SiluProduct{wide_, active_, n, w_.intermediate});
      device_.product(layer.down, active_, n, what.height, hidden_, true);
    }
    if (!has_rows && !features_) return;
    device_.run(detail::FinalNorm{tokens, hidden_, w_.final_norm, what.row, last_, features_, w_.hidden,
                                  capacity_, w_.eps});
    if (!has_rows) return;
    float* const logits = what.logits ? what.logits : logits_;
    device_.product(w_.head, last_, n, what.height, w_.draft_tokens ? outputs_ : logits, false);
    if (w_.draft_tokens)
      device_.run(detail::Spread{outputs_, w_.draft_tokens, logits, n, w_.head.rows, w_.vocab});
  }

  const float* logits() const { return logits_; }         ///< (rows, V), of the last pass that wrote here
  const BFloat16* features() const { return features_; }  ///< (B, capacity, hidden); null: not kept
  const DeviceWeights& weights() const { return w_; }     ///< as given
  int capacity() const { return capacity_; }              ///< slots of a sequence
  const Device& device() const { return device_; }        ///< what it runs on

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
    const auto layers = static_cast<int>(w_.layers.size());
    return 9 * layers + (gathers() ? 2 : 0) + (w_.target_heads > 0 ? 5 * layers : 0) +
           (has_rows    ? (w_.draft_tokens ? 3 : 2)
            : features_ ? 1
                        : 0);
  }

 private:
  /// Of the first layer; a model without layers is a table of bigrams.
  const float* first_norm() const { return w_.layers.empty() ? nullptr : w_.layers.front().attention_norm; }
  int cross_queries() const { return w_.target_heads * detail::padded_head(w_.target_head_dim); }
  /// Whether the first layer's input is a product, of gathered_ and this matrix.
  bool gathers() const { return w_.projection.data || w_.fusion.data; }
  const DeviceMatrix& gathering() const { return w_.fusion.data ? w_.fusion : w_.projection; }
  int gathered_width() const { return gathering().cols; }
  detail::FeatureRows feature_rows() const {
    return {features_, static_cast<std::int64_t>(capacity_) * w_.hidden};
  }
  /// Cross attention of a GLIDE draft: queries of the residual stream as it is, rotated as the target's.
  void see_target(const DeviceLayer& layer, const DevicePass& what,
                  const TargetInput<DeviceDecoder>& target) {
    const DeviceWeights& theirs = target.decoder->w_;
    const int n = what.tokens.count;
    norm(nullptr, layer.output_bias, n);
    device_.product(layer.cross_query, normed_, n, what.height, wide_, false);
    const auto place = [&]<int kHead>() {
      device_.run(detail::PlaceHeads<kHead>{what.tokens,
                                            wide_,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            theirs.cosine,
                                            theirs.sine,
                                            q_,
                                            {},
                                            {},
                                            w_.target_heads,
                                            0,
                                            theirs.positions,
                                            w_.target_head_dim,
                                            w_.eps});
    };
    if (theirs.head_size == 64)
      place.template operator()<64>();
    else
      place.template operator()<128>();
    TreeAttentionArgs<BFloat16> args{};
    args.q = q_, args.out = mixed_;
    args.q_stride = args.out_stride = cross_queries();
    args.kv = target.decoder->cache(static_cast<std::size_t>(layer.reads), target.length);
    args.begin = what.tokens.begin;
    args.mask = target.mask, args.words = target.words;
    args.scale = 1.0f / std::sqrt(static_cast<float>(w_.target_head_dim));
    device_.attend(*target.attention, args);
    device_.product(layer.cross_output, mixed_, n, what.height, hidden_, true);
  }
  std::int64_t layer_stride() const {
    return static_cast<std::int64_t>(sequences_) * capacity_ * w_.kv_heads * w_.head_size;
  }
  int widest() const {
    return std::max({(w_.heads + 2 * w_.kv_heads) * w_.head_size, cross_queries(), 2 * w_.intermediate});
  }
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
  float *hidden_ = nullptr, *wide_ = nullptr, *logits_ = nullptr, *outputs_ = nullptr;
  BFloat16 *normed_ = nullptr, *q_ = nullptr, *mixed_ = nullptr, *active_ = nullptr, *last_ = nullptr,
           *gathered_ = nullptr, *features_ = nullptr, *cache_ = nullptr;
};

}  // namespace specula::cuda
