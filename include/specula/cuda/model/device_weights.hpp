// SPDX-License-Identifier: MIT
// Weights of a Llama-family decoder in a device's memory, made of those that the CPU's loaders give.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"
#include "specula/cuda/model/device.hpp"

namespace specula::cuda {

/// A layer, all arrays on the device.
struct DeviceLayer {
  const float* attention_norm = nullptr;  ///< (hidden)
  const float* mlp_norm = nullptr;        ///< (hidden)
  const float* qkv_bias = nullptr;        ///< (rows of qkv); null: none
  const float* output_bias = nullptr;     ///< (hidden); null: none
  const float* query_norm = nullptr;      ///< (head_size); null: none
  const float* key_norm = nullptr;        ///< (head_size); null: none
  DeviceMatrix qkv,                       ///< all queries, then keys, then values
      output,                             ///< of attention
      gate_up,                            ///< gate, then up
      down;                               ///< of the MLP
  DeviceMatrix cross_query,               ///< of a GLIDE draft: (target's heads, hidden); else empty
      cross_output;                       ///< (hidden, target's heads)
  int reads = 0;                          ///< the target's layer whose keys and values it attends to
};

/// A model, all arrays on the device. A head has 64 or 128 numbers here: halves of smaller ones are padded
/// with zeros, in rows of `qkv` and columns of `output`, so no kernel knows.
struct DeviceWeights {
  int hidden = 0,                     ///< width of the residual stream
      intermediate = 0,               ///< width of the MLP
      heads = 0,                      ///< query heads
      kv_heads = 0,                   ///< key-value heads
      vocab = 0,                      ///< tokens
      head_size = 0,                  ///< numbers of a head in memory
      head_dim = 0,                   ///< of which so many are the model's
      positions = 0;                  ///< rows of `cosine` and `sine`
  float eps = 0;                      ///< of the norms
  DeviceMatrix embedding,             ///< (vocab, hidden), or its target's
      head,                           ///< the LM head, which may be the embedding
      projection,                     ///< (hidden, target's hidden) of a draft that projects it; else empty
      fusion;                         ///< (hidden, 2 hidden) of a feature head; else empty
  const float *final_norm = nullptr,  ///< (hidden); null: a feature head's, which has none
      *fusion_bias = nullptr,         ///< (hidden); null: none
          *cosine = nullptr,          ///< (positions, head_size / 2)
              *sine = nullptr;        ///< the same
  /// (head.rows) the tokens that the LM head predicts; null: all.
  const std::int32_t* draft_tokens = nullptr;
  Conditioning conditioned_on = Conditioning::nothing;  ///< what a draft reads of its target
  int target_heads = 0,                                 ///< of a GLIDE draft: query heads of its target
      target_kv_heads = 0,                              ///< its key-value heads
      target_head_dim = 0,                              ///< numbers of one
      target_layers = 0;                                ///< and its layers
  std::vector<DeviceLayer> layers;                      ///< in their order
  /// Relative error, in the 2-norm, of all matrices by rounding to bfloat16. 0 for bfloat16 and int8 groups.
  double distance = 0;
  std::size_t bytes = 0;  ///< of all arrays
};

namespace detail {

/// Numbers of a head in memory, of which `head_dim` are the model's.
inline int padded_head(std::int32_t head_dim) { return head_dim <= 64 ? 64 : 128; }

/// The same of a model. Throws std::invalid_argument for one that is not built for a device.
inline int device_head_size(const cpu::DecoderConfig& config) {
  const auto expect = [](bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument("cuda: " + what);
  };
  expect(!config.eagle3, "an EAGLE-3 head does not run on a device yet; cpu::Decoder runs it");
  expect(config.feature_layers.empty(),
         "a head that reads hidden states after layers of its target does not run on a device yet; "
         "cpu::Decoder runs it");
  for (const std::int32_t head_dim : {config.head_dim, config.target.head_dim})
    expect(head_dim <= 128, "head_dim is " + std::to_string(head_dim) + ", attention is built for up to 128");
  const auto aligned = [&](const char* what, std::int32_t n) {
    expect(n % 8 == 0, std::string(what) + " is " + std::to_string(n) + ", expected a multiple of 8");
  };
  aligned("hidden_size", config.hidden_size);
  aligned("intermediate_size", config.intermediate_size);
  aligned("target_hidden_size", config.target_hidden_size);
  return padded_head(config.head_dim);
}

/// Bytes of the weights of a model on a device, for positions below `positions`.
inline std::size_t device_bytes(const cpu::DecoderConfig& config, std::int32_t positions) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::size_t head = size(device_head_size(config)), hidden = size(config.hidden_size),
                    heads = size(config.heads), both = size(config.kv_heads) * 2;
  const std::size_t matrices =
      (heads + both) * head * hidden + hidden * heads * head + 3 * hidden * size(config.intermediate_size);
  const std::size_t vectors = 3 * hidden + (heads + both) * head + 2 * head;
  const std::size_t projected = size(config.target_hidden_size), width = projected > 0 ? projected : hidden,
                    cross =
                        2 * hidden * size(config.target.heads) * size(padded_head(config.target.head_dim)),
                    fused = config.conditioned_on == Conditioning::features ? 2 * hidden * hidden : 0;
  return size(config.layers) * (2 * matrices + 4 * vectors + 2 * cross) +
         2 * (size(config.vocab_size) * width + projected * hidden + fused) +
         (config.tied_head ? 0 : 2 * size(config.head_rows()) * hidden) + 4 * size(config.draft_vocab_size) +
         4 * (hidden + size(positions) * head);
}

/// Copies matrices and vectors to `device`, in places of their own: place(i) is where row, column or number i
/// lies among those of a padded head.
template <class Device>
class WeightUpload {
 public:
  explicit WeightUpload(Device& device) : device_(device) {}

  template <class T>
  const T* copied(const std::vector<T>& values) {
    T* const to = device_.template allocate<T>(values.size());
    device_.put(to, values.data(), values.size());
    bytes_ += values.size() * sizeof(T);
    return to;
  }
  template <class Real>
  DeviceMatrix matrix(const cpu::PanelMatrix<Real>& m, auto row, auto column) {
    const std::int32_t rows = row(m.rows()), cols = column(m.cols());
    std::vector<BFloat16> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
    std::vector<Real> exact(static_cast<std::size_t>(m.cols()));
    for (std::int32_t r = 0; r < m.rows(); ++r) {
      m.get_row(r, exact.data());
      BFloat16* const to = values.data() + static_cast<std::ptrdiff_t>(row(r)) * cols;
      for (std::int32_t k = 0; k < m.cols(); ++k) {
        const auto x = static_cast<double>(exact[static_cast<std::size_t>(k)]);
        const BFloat16 rounded = to_bfloat16(static_cast<float>(x));
        const double error = static_cast<double>(to_float(rounded)) - x;
        squares_ += x * x, errors_ += error * error;
        to[column(k)] = rounded;
      }
    }
    return {copied(values), rows, cols};
  }
  /// Null if there are none.
  const float* numbers(const auto& values, std::int32_t size, auto place) {
    if (values.empty()) return nullptr;
    std::vector<float> padded(static_cast<std::size_t>(place(size)));
    for (std::int32_t i = 0; i < size; ++i)
      padded[static_cast<std::size_t>(place(i))] = static_cast<float>(values[static_cast<std::size_t>(i)]);
    return copied(padded);
  }
  /// `row(p)`: the `half` numbers of position p.
  const float* angles(std::int32_t positions, std::int32_t half, std::int32_t padding, auto row) {
    std::vector<float> all(static_cast<std::size_t>(positions) * static_cast<std::size_t>(half + padding));
    for (std::int32_t p = 0; p < positions; ++p)
      std::copy_n(row(p), half, all.begin() + static_cast<std::ptrdiff_t>(p) * (half + padding));
    return copied(all);
  }
  std::size_t bytes() const { return bytes_; }
  double distance() const { return squares_ > 0 ? std::sqrt(errors_ / squares_) : 0; }

 private:
  Device& device_;
  std::size_t bytes_ = 0;
  double squares_ = 0, errors_ = 0;
};

}  // namespace detail

/// Copies weights to a device, tensor by tensor: of the host it needs memory for one, beside `from`. bfloat16
/// weights and int8 groups arrive bit for bit; all others are rounded to bfloat16 (DeviceWeights::distance).
/// Positions are those below `positions`. A draft that takes its target's embedding or LM head shares those
/// of `target`, if given, which must be the upload of `from.target`; else it has a copy of its own. Throws
/// std::invalid_argument for a model that is not built for a device, and what the device throws. O(weights).
template <class Device, class Real>
DeviceWeights upload(Device& device, const cpu::DecoderWeights<Real>& from, std::int32_t positions,
                     const DeviceWeights* target = nullptr) {
  const cpu::DecoderConfig& c = from.config;
  DeviceWeights out;
  out.head_size = detail::device_head_size(c), out.head_dim = c.head_dim;
  out.hidden = c.hidden_size, out.intermediate = c.intermediate_size;
  out.heads = c.heads, out.kv_heads = c.kv_heads, out.vocab = c.vocab_size;
  out.positions = positions, out.eps = static_cast<float>(c.rms_norm_eps);
  const std::int32_t half = c.head_dim / 2, padding = (out.head_size - c.head_dim) / 2;
  const auto same = [](std::int32_t i) { return i; };
  const auto in_heads = [&](std::int32_t i) {
    return i + (i / half) * padding;
  };  // where halves of heads lie
  detail::WeightUpload<Device> to(device);
  const bool shares = target && from.target;
  out.embedding = shares ? target->embedding : to.matrix(from.tokens(), same, same);
  if (shares && &from.head() == &from.target->head())
    out.head = target->head;
  else
    out.head = &from.head() == &from.tokens() ? out.embedding : to.matrix(from.head(), same, same);
  out.final_norm = to.numbers(from.final_norm, c.hidden_size, same);
  if (from.embed_projection.rows() > 0) out.projection = to.matrix(from.embed_projection, same, same);
  if (from.feature_input) {
    out.fusion = to.matrix(from.feature_input->fusion, same, same);
    out.fusion_bias = to.numbers(from.feature_input->bias, c.hidden_size, same);
  }
  if (!from.draft_tokens.empty()) out.draft_tokens = to.copied(from.draft_tokens);
  out.conditioned_on = c.conditioned_on;
  out.target_heads = c.target.heads, out.target_kv_heads = c.target.kv_heads;
  out.target_head_dim = c.target.head_dim, out.target_layers = c.target.layers;
  const std::int32_t target_half = c.target.head_dim / 2,
                     target_padding = (detail::padded_head(c.target.head_dim) - c.target.head_dim) / 2;
  const auto in_target_heads = [&](std::int32_t i) { return i + (i / target_half) * target_padding; };
  const cpu::detail::RopeTable<float> table(c, positions);
  out.cosine = to.angles(positions, half, padding, [&](std::int32_t p) { return table.cosine(p); });
  out.sine = to.angles(positions, half, padding, [&](std::int32_t p) { return table.sine(p); });
  for (const cpu::LayerWeights<Real>& l : from.layers) {
    DeviceLayer& layer = out.layers.emplace_back();
    layer.attention_norm = to.numbers(l.attention.norm, c.hidden_size, same);
    layer.mlp_norm = to.numbers(l.mlp.norm, c.hidden_size, same);
    layer.qkv_bias = to.numbers(l.attention.qkv_bias, (c.heads + 2 * c.kv_heads) * c.head_dim, in_heads);
    layer.output_bias = to.numbers(l.attention.output_bias, c.hidden_size, same);
    layer.query_norm = to.numbers(l.attention.query_norm, c.head_dim, in_heads);
    layer.key_norm = to.numbers(l.attention.key_norm, c.head_dim, in_heads);
    layer.qkv = to.matrix(l.attention.qkv, in_heads, same);
    layer.output = to.matrix(l.attention.output, same, in_heads);
    layer.gate_up = to.matrix(l.mlp.gate_up, same, same);
    layer.down = to.matrix(l.mlp.down, same, same);
    if (!l.cross_attention) continue;
    layer.cross_query = to.matrix(l.cross_attention->query, in_target_heads, same);
    layer.cross_output = to.matrix(l.cross_attention->output, same, in_target_heads);
    layer.reads = c.target_layer(static_cast<std::int32_t>(out.layers.size()) - 1);
  }
  out.bytes = to.bytes(), out.distance = to.distance();
  return out;
}

}  // namespace specula::cuda
