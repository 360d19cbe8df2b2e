// SPDX-License-Identifier: MIT
// A Llama-family decoder for reading, and the oracle that others are compared with: the equations of
// transformers' modeling_llama.py, with the biases of modeling_qwen2.py and the norms of modeling_qwen3.py,
// one line each, in double, with Eigen's matrices.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cpu/int8_groups.hpp"
#include "specula/cpu/read_model_config.hpp"
#include "specula/cpu/tensor_files.hpp"

namespace specula::cpu {

/// A specula::LanguageModel that shares nothing with Decoder but the reading of files: no panels, no fused
/// matrices, no scheduling. Its logits are those of a Decoder<double> up to 2e-10 (tested). Column t of every
/// matrix is token t of a pass. Slow: some ten times a Decoder<float>'s time, and every call allocates. This
/// header includes Eigen, which a program that uses it must find.
class ReferenceDecoder {
 public:
  using Matrix = ::Eigen::MatrixXd;  ///< of weights and activations
  using Vector = ::Eigen::VectorXd;  ///< of a norm's weights, or a bias

  /// Loads a Hugging Face directory or a GGUF file; exits are ignored. Throws std::runtime_error for a bad
  /// file, a draft that reads its target, and a tensor that this architecture does not have.
  explicit ReferenceDecoder(const std::filesystem::path& directory, std::int32_t capacity = 2048)
      : c_(read_model_config(directory)), capacity_(capacity) {
    if (c_.is_draft())
      throw std::runtime_error(directory.string() + ": a draft that reads its target, or its embedding");
    TensorFiles files(directory);
    std::set<std::string, std::less<>> used;
    const auto read = [&](const std::string& name, std::int64_t rows, std::int64_t cols,
                          std::size_t rank = 2) {
      const std::int64_t shape[] = {rows, cols};
      const files::TensorInfo& tensor = files.weight(name, std::span(shape).last(rank));
      Matrix out(rows, cols);
      files.rows(tensor, [&](std::int64_t r, std::span<const float> row) {
        out.row(r) = ::Eigen::Map<const ::Eigen::RowVectorXf>(row.data(), cols).cast<double>();
      });
      used.insert({name, name + Int8Groups::kSuffix});
      return out;
    };
    const auto read_vector = [&](const std::string& name, std::int64_t size) {
      return Vector(read(name, 1, size, 1).transpose());
    };
    const auto read_norm = [&](const std::string& name) { return read_vector(name, c_.hidden_size); };
    const auto read_bias = [&](bool has, const std::string& name, std::int64_t size) {
      return has ? read_vector(name, size) : Vector(Vector::Zero(size));
    };
    const std::int64_t hidden = c_.hidden_size, mlp = c_.intermediate_size, queries = c_.heads * c_.head_dim,
                       keys = c_.kv_heads * c_.head_dim;
    embedding_ = read("model.embed_tokens.weight", c_.vocab_size, hidden).transpose();
    head_ = c_.tied_head ? Matrix(embedding_.transpose()) : read("lm_head.weight", c_.vocab_size, hidden);
    norm_ = read_norm("model.norm.weight");
    for (std::int32_t l = 0; l < c_.layers; ++l) {
      const std::string at = "model.layers." + std::to_string(l) + ".", attention = at + "self_attn.";
      layers_.push_back(
          {read(attention + "q_proj.weight", queries, hidden),
           read(attention + "k_proj.weight", keys, hidden), read(attention + "v_proj.weight", keys, hidden),
           read(attention + "o_proj.weight", hidden, queries), read(at + "mlp.gate_proj.weight", mlp, hidden),
           read(at + "mlp.up_proj.weight", mlp, hidden), read(at + "mlp.down_proj.weight", hidden, mlp),
           read_norm(at + "input_layernorm.weight"), read_norm(at + "post_attention_layernorm.weight"),
           read_bias(c_.qkv_bias, attention + "q_proj.bias", queries),
           read_bias(c_.qkv_bias, attention + "k_proj.bias", keys),
           read_bias(c_.qkv_bias, attention + "v_proj.bias", keys),
           read_bias(c_.output_bias, attention + "o_proj.bias", hidden), Vector(), Vector(),
           Matrix::Zero(keys, capacity), Matrix::Zero(keys, capacity)});
      if (!c_.query_key_norms) continue;
      layers_.back().q_norm = read_vector(attention + "q_norm.weight", c_.head_dim);
      layers_.back().k_norm = read_vector(attention + "k_norm.weight", c_.head_dim);
    }
    for (const auto& [name, file] : files.names())
      if ((name.starts_with("model.") || name.ends_with(".bias")) && !name.ends_with(".inv_freq") &&
          !used.contains(name))
        throw std::runtime_error(directory.string() + ": tensor '" + name +
                                 "' is no part of this architecture");
  }

  std::int32_t vocab_size() const { return c_.vocab_size; }  ///< V
  std::int32_t size() const { return size_; }                ///< committed tokens
  std::int32_t capacity() const { return capacity_; }        ///< tokens, committed and speculative together

  /// Commits `tokens` after the context, and drops all nodes. Throws as extend() does.
  void append(Tokens tokens) {
    // Of a chain: without the last its parents, without the first its nodes.
    std::vector<NodeId> numbers(tokens.size() + 1);
    std::iota(numbers.begin(), numbers.end(), kNoParent);
    const Nodes parents = Nodes(numbers).first(tokens.size());
    expect_valid(tokens, parents, 0);
    parents_.clear();
    run(tokens, parents);
    commit(Nodes(numbers).last(tokens.size()));
  }

  /// Adds nodes; logits (n, V) of each, valid until the next call. Throws std::invalid_argument, and changes
  /// nothing, for a token, parent or context out of range.
  LogitsView extend(Tokens tokens, Nodes parents) {
    expect_valid(tokens, parents, static_cast<std::int32_t>(parents_.size()));
    exact_ = head_ * norm(run(tokens, parents), norm_);
    rounded_ = exact_.cast<float>();
    return {rounded_.data(), static_cast<std::int32_t>(tokens.size()), c_.vocab_size, c_.vocab_size};
  }

  /// The nodes of `path` join the context, all others are dropped: their columns of the cache move to its
  /// end. Throws std::invalid_argument, and changes nothing, if it is no path from the context.
  void commit(Nodes path) {
    for (std::size_t i = 0; i < path.size(); ++i)
      expect(path[i] >= 0 && path[i] < std::ssize(parents_) &&
                 parents_[static_cast<std::size_t>(path[i])] == (i == 0 ? kNoParent : path[i - 1]),
             "commit: no path: node ", path[i]);
    for (const NodeId node : path) {
      for (Layer& layer : layers_)
        for (Matrix* cache : {&layer.keys, &layer.values})
          cache->col(size_) = cache->col(first_node_ + node).eval();
      ++size_;
    }
    truncate(size_);
  }

  /// Drops all nodes, and committed tokens from `n` on. Throws std::invalid_argument unless 0 <= n <= size().
  void truncate(std::int32_t n) {
    expect(n >= 0 && n <= size_, "truncate: no such size: ", n);
    parents_.clear();
    size_ = first_node_ = n;
  }

  /// (V, n): the logits of the last extend(), a column each, before they are rounded to floats.
  const Matrix& logits() const { return exact_; }

 private:
  struct Layer {
    Matrix q, k, v, o, gate, up, down;
    Vector attention_norm, mlp_norm;
    Vector q_bias, k_bias, v_bias, o_bias;  // zeros, if the model has none
    Vector q_norm, k_norm;                  // of each head, if the model has these
    Matrix keys, values;  // (kv_heads * head_dim, capacity), the cache: node i is in column first_node_ + i
  };

  static void expect(bool ok, const char* what, std::int64_t value) {
    if (!ok) throw std::invalid_argument("ReferenceDecoder::" + (what + std::to_string(value)));
  }
  void expect_valid(Tokens tokens, Nodes parents, std::int32_t nodes) const {
    expect(tokens.size() == parents.size(), "extend: parents, one a token: ", std::ssize(parents));
    expect(size_ + nodes + std::ssize(tokens) <= capacity_, "extend: the context is full at ", capacity_);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      expect(tokens[i] >= 0 && tokens[i] < c_.vocab_size, "extend: no such token: ", tokens[i]);
      expect(parents[i] >= kNoParent && parents[i] < nodes + static_cast<NodeId>(i),
             "extend: no such parent: ", parents[i]);
    }
  }

  /// x / rms(x), times a weight for each feature.
  Matrix norm(const Matrix& x, const Vector& weight) const {
    const ::Eigen::RowVectorXd mean = x.colwise().squaredNorm() / static_cast<double>(x.rows());
    return weight.asDiagonal() * x * (mean.array() + c_.rms_norm_eps).rsqrt().matrix().asDiagonal();
  }

  /// The same of each head.
  void norm_heads(Matrix& x, const Vector& weight) const {
    for (::Eigen::Index h = 0; h < x.rows(); h += c_.head_dim)
      x.middleRows(h, c_.head_dim) = norm(x.middleRows(h, c_.head_dim), weight);
  }

  /// Turns each pair (i, half + i) of every head by its angle: x cos + rotate_half(x) sin.
  void rotate(Matrix& x, const std::vector<std::int32_t>& positions) const {
    const std::int32_t half = c_.head_dim / 2;
    ::Eigen::ArrayXd frequency(half);
    for (std::int32_t i = 0; i < half; ++i) frequency[i] = detail::rope_frequency(c_, i);
    for (::Eigen::Index t = 0; t < x.cols(); ++t) {
      const ::Eigen::ArrayXd angle = frequency * positions[static_cast<std::size_t>(t)],
                             cosine = angle.cos() * c_.rope_scaling.attention_factor,
                             sine = angle.sin() * c_.rope_scaling.attention_factor;
      for (::Eigen::Index h = 0; h < x.rows(); h += c_.head_dim) {
        const ::Eigen::ArrayXd a = x.col(t).segment(h, half), b = x.col(t).segment(h + half, half);
        x.col(t).segment(h, half) = a * cosine - b * sine;
        x.col(t).segment(h + half, half) = b * cosine + a * sine;
      }
    }
  }

  /// Adds nodes; the last layer's output (hidden, n).
  Matrix run(Tokens tokens, Nodes parents) {
    const ::Eigen::Index n = std::ssize(tokens), first = size_ + std::ssize(parents_), end = first + n;
    parents_.insert(parents_.end(), parents.begin(), parents.end());
    Matrix x(c_.hidden_size, n), mask(end, n);  // 0: is seen
    if (n == 0) return x;
    mask.topRows(size_).setZero();
    mask.bottomRows(end - size_).setConstant(-std::numeric_limits<double>::infinity());
    std::vector<std::int32_t> positions;
    for (::Eigen::Index t = 0; t < n; ++t) {
      x.col(t) = embedding_.col(tokens[static_cast<std::size_t>(t)]);
      std::int32_t depth = 0;
      for (auto node = static_cast<NodeId>(first - size_ + t); node != kNoParent; ++depth) {
        mask(size_ + node, t) = 0;
        node = parents_[static_cast<std::size_t>(node)];
      }
      positions.push_back(size_ + depth - 1);
    }
    for (Layer& layer : layers_) {
      const Matrix in = norm(x, layer.attention_norm);
      Matrix q = (layer.q * in).colwise() + layer.q_bias, k = (layer.k * in).colwise() + layer.k_bias,
             mixed(q.rows(), n);
      if (c_.query_key_norms) norm_heads(q, layer.q_norm), norm_heads(k, layer.k_norm);
      rotate(q, positions);
      rotate(k, positions);
      layer.keys.middleCols(first, n) = k;
      layer.values.middleCols(first, n) = (layer.v * in).colwise() + layer.v_bias;
      for (std::int32_t h = 0; h < c_.heads; ++h) {
        const std::int32_t size = c_.head_dim, kv = h / c_.group() * size;
        Matrix weight = layer.keys.block(kv, 0, size, end).transpose() * q.middleRows(h * size, size);
        weight = weight / std::sqrt(size) + mask;
        const ::Eigen::RowVectorXd largest = weight.colwise().maxCoeff();
        weight = (weight.rowwise() - largest).array().exp();
        const ::Eigen::RowVectorXd total = weight.colwise().sum();
        weight.array().rowwise() /= total.array();
        mixed.middleRows(h * size, size) = layer.values.block(kv, 0, size, end) * weight;
      }
      x += (layer.o * mixed).colwise() + layer.o_bias;
      const Matrix between = norm(x, layer.mlp_norm);
      const ::Eigen::ArrayXXd gate = layer.gate * between, up = layer.up * between;
      x += layer.down * (gate / (1 + (-gate).exp()) * up).matrix();
    }
    return x;
  }

  DecoderConfig c_;
  std::int32_t capacity_, size_ = 0, first_node_ = 0;
  std::vector<NodeId> parents_;  // of the nodes
  Matrix embedding_, head_;      // (hidden, V), (V, hidden)
  Vector norm_;
  std::vector<Layer> layers_;
  Matrix exact_;               // (V, n)
  ::Eigen::MatrixXf rounded_;  // the same: a row of LogitsView is a column
};

}  // namespace specula::cpu
