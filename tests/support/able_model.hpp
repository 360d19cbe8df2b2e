// SPDX-License-Identifier: MIT
// Toy model with a KV cache that matters, weights that can be switched, and every optional capability.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <specula/model/features.hpp>
#include <specula/model/view_guard.hpp>
#include <specula/policy/concepts.hpp>

#include "conditioned_models.hpp"

namespace specula_test {

/// Each committed token keeps a state, which hashes the weights, the states before it and the token, as keys
/// and values do, and rows depend on states. So tokens that were committed under other weights, or that are
/// another text's, change every later row. With `counts` it is CountsChanges; with `able` it has all other
/// capabilities of a target.
template <bool counts, bool able = true>
class AbleModel {
 public:
  explicit AbleModel(std::int32_t vocab, std::uint64_t weights = 1, std::int32_t capacity = 512)
      : vocab_(vocab), capacity_(capacity), weights_(weights) {
    for (auto* states : {&context_, &nodes_}) states->reserve(static_cast<std::size_t>(capacity));
    rows_.reserve(static_cast<std::size_t>(capacity) * static_cast<std::size_t>(vocab));
  }

  /// Later tokens are computed with these weights; it counts as a change if `told`.
  void set_weights(std::uint64_t weights, bool told = true) {
    weights_ = weights;
    if (told) change_count_.next();
  }
  std::uint64_t weights() const { return weights_; }
  std::int64_t appended = 0;  // tokens
  std::int64_t asked = 0;     // calls of attention_similarity()

  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t size() const { return static_cast<std::int32_t>(context_.size()); }
  std::int32_t capacity() const { return capacity_; }
  std::uint64_t change_count() const requires counts { return change_count_.now(); }
  void append(Tokens tokens) {
    change_count_.next();
    nodes_.clear();
    for (const Token token : tokens) context_.push_back(next(end(), token));
    appended += static_cast<std::int64_t>(tokens.size());
  }
  LogitsView extend(Tokens tokens, Nodes parents) { return add(tokens, parents, 0); }
  void commit(Nodes path) {
    change_count_.next();
    for (const NodeId node : path) context_.push_back(nodes_[at(node)]);
    nodes_.clear();
  }
  void truncate(std::int32_t n) {
    change_count_.next();
    nodes_.clear();
    context_.resize(at(n));
  }

  ToyKeyValues key_values() requires able { return {context_, specula::detail::ViewGuard(change_count_)}; }
  FeaturesView<float> features() requires able {  // as ToyConditioned reads them: the state and the position
    features_.clear();
    for (std::size_t i = 0; i < context_.size(); ++i)
      features_.push_back(context_[i]), features_.push_back(static_cast<float>(i));
    return {features_.data(), size(), 2, 2, specula::detail::ViewGuard(change_count_)};
  }
  double pass_seconds() const requires able { return 100.0 * static_cast<double>(change_count_.now()); }
  std::int32_t layers() const requires able { return 3; }
  std::int32_t node_count() const requires able { return static_cast<std::int32_t>(nodes_.size()); }
  LogitsView extend_skipping(Tokens tokens, Nodes parents,
                             const specula::SkippedBlocks& skipped) requires able {
    return add(tokens, parents, static_cast<std::uint64_t>(skipped.count()));
  }
  std::span<const double> attention_similarity() requires able {
    ++asked;
    return similarity_;
  }
  std::int32_t exits() const requires able { return 2; }
  std::int32_t layers_to(std::int32_t exit) const requires able { return exit + 2; }
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) requires able {
    return add(tokens, parents, exit == 0 ? 7 : 0);
  }
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t) requires able {
    change_count_.next();
    for (const std::int32_t row : rows) fill(row, 0);
    return view();
  }

 private:
  static std::size_t at(std::int32_t n) { return static_cast<std::size_t>(n); }
  float end() const { return context_.empty() ? 0.0f : context_.back(); }
  float next(float before, Token token) const {
    return static_cast<float>(
        mixed(static_cast<std::uint64_t>(before), static_cast<std::uint64_t>(token), weights_));
  }
  LogitsView add(Tokens tokens, Nodes parents, std::uint64_t cut) {
    change_count_.next();
    first_ = nodes_.size();
    for (std::size_t i = 0; i < tokens.size(); ++i)
      nodes_.push_back(next(parents[i] == kNoParent ? end() : nodes_[at(parents[i])], tokens[i]));
    rows_.resize(tokens.size() * at(vocab_));
    for (std::size_t i = 0; i < tokens.size(); ++i) fill(static_cast<std::int32_t>(i), cut);
    return view();
  }
  /// The row after a node; `cut` is of the layers that were left out, and changes it a little.
  void fill(std::int32_t row, std::uint64_t cut) {
    const auto state = static_cast<std::uint64_t>(nodes_[first_ + at(row)]);
    for (Token x = 0; x < vocab_; ++x) {
      const auto part = [&](std::uint64_t salt) {
        return static_cast<float>(mixed(state, static_cast<std::uint64_t>(x), salt)) / 8388608.0f - 1.0f;
      };
      rows_[at(row) * at(vocab_) + at(x)] = 3 * part(0) + (cut ? part(cut) : 0.0f);
    }
  }
  LogitsView view() const {
    return {rows_.data(), static_cast<std::int32_t>(nodes_.size() - first_), vocab_, vocab_};
  }

  std::int32_t vocab_, capacity_;
  std::uint64_t weights_;
  std::vector<float> context_, nodes_;  // states
  std::size_t first_ = 0;               // node of the first row
  std::vector<float> rows_, features_;
  std::vector<double> similarity_{0.99, 0.99, 0.99};
  specula::detail::ChangeCount change_count_;
};

}  // namespace specula_test
