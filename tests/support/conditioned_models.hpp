// SPDX-License-Identifier: MIT
// Toy target that exposes its state, and a toy draft conditioned on it. The draft's rows depend on every
// token that it was fed and on how much of the target it saw then, so a stale cache changes its rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <specula/model/features.hpp>
#include <specula/model/language_model.hpp>
#include <specula/policy/concepts.hpp>

#include "toy_model.hpp"

namespace specula_test {

using specula::FeaturesView;

/// A number below 2^24, so that a float holds it.
inline std::uint32_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0, std::uint64_t d = 0) {
  std::uint64_t h = a * 0x9E3779B97F4A7C15ull + b * 0xC2B2AE3D27D4EB4Full + c * 0x165667B19E3779F9ull +
                    d * 0xD6E8FEB86659FD93ull + 1;
  h ^= h >> 31, h *= 0xBF58476D1CE4E5B9ull, h ^= h >> 27, h *= 0x94D049BB133111EBull, h ^= h >> 31;
  return static_cast<std::uint32_t>(h >> 40);
}
/// The target's state at a token, a hash of it and all tokens before it.
inline float memory(float before, Token token) {
  return static_cast<float>(mixed(static_cast<std::uint64_t>(before), static_cast<std::uint64_t>(token)));
}

/// The toy's keys: one number per committed token.
class ToyKeyValues {
 public:
  ToyKeyValues() = default;
  ToyKeyValues(std::span<const float> keys, specula::detail::ViewGuard guard) : keys_(keys), guard_(guard) {}
  std::int32_t size() const {
    guard_.expect_valid("ToyKeyValues");
    return static_cast<std::int32_t>(keys_.size());
  }
  float key(std::int32_t i) const {
    guard_.expect_valid("ToyKeyValues");
    return keys_[static_cast<std::size_t>(i)];
  }

 private:
  std::span<const float> keys_;
  specula::detail::ViewGuard guard_;
};

/// A ToyModel that exposes its state as keys or as features. Every call that may
/// change it makes views stale.
class SeenModel : public ToyModel {
 public:
  explicit SeenModel(std::int32_t vocab, std::uint64_t seed, float scale = 2.0f, std::int32_t capacity = 64)
      : ToyModel(vocab, seed, scale, capacity) {
    memory_.reserve(kWidth * static_cast<std::size_t>(capacity));
    keys_.reserve(static_cast<std::size_t>(capacity));
  }
  void truncate(std::int32_t n) {
    ToyModel::truncate(n);
    keys_.resize(std::min(keys_.size(), static_cast<std::size_t>(n)));
  }
  ToyKeyValues key_values() {
    remember();
    return {keys_, specula::detail::ViewGuard(change_count_)};
  }
  /// Rows of 2, at stride 3: the state and the position.
  FeaturesView<float> features() {
    remember();
    memory_.assign(kWidth * keys_.size(), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < keys_.size(); ++i)
      memory_[kWidth * i] = keys_[i], memory_[kWidth * i + 1] = static_cast<float>(i);
    return {memory_.data(), size(), 2, kWidth, specula::detail::ViewGuard(change_count_)};
  }

  std::int64_t view_calls = 0;   // views given out
  std::int64_t throw_view = -1;  // the view, counted from 1, in whose place it throws

 private:
  static constexpr std::size_t kWidth = 3;
  void remember() {
    if (++view_calls == throw_view) throw std::runtime_error("look failed");
    for (std::size_t i = keys_.size(); i < cache().size(); ++i)
      keys_.push_back(memory(i ? keys_[i - 1] : 0.0f, cache()[i]));
  }
  std::vector<float> keys_, memory_;
};

/// `text` and its `count` likeliest next tokens.
inline std::vector<Token> greedily(const SeenModel& target, std::vector<Token> text, std::size_t count) {
  std::vector<float> row(static_cast<std::size_t>(target.vocab_size()));
  for (; count > 0; --count) {
    target.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
    text.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  return text;
}

/// What the column of a token saw when it was computed.
struct Observation {
  Token token;
  std::int32_t position, view_size;
  bool node;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// State of a ToyConditioned after one more token, which sees `visible` tokens of the target, the
/// last one with state `seen`.
inline std::uint32_t conditioned_state(std::uint32_t before, Token token, std::int32_t visible, float seen) {
  return mixed(before, static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(visible),
               static_cast<std::uint64_t>(seen));
}

/// Its row is that of a ToyModel of `seed`, plus noise of width `noise` from the column's state.
/// That state hashes the previous state, the token, and what the column sees: the number of earlier
/// tokens of the target and the target's state at the last of them. With `lazy`, appended tokens
/// wait for the next extend().
template <class View>
class ToyConditioned {
 public:
  explicit ToyConditioned(std::int32_t vocab, std::uint64_t seed, float noise = 1.0f, bool lazy = true,
                          std::int32_t capacity = 64)
      : model(vocab, seed, 2.0f, capacity), noise_(noise), lazy_(lazy) {
    columns_.reserve(static_cast<std::size_t>(capacity));
    nodes_.reserve(static_cast<std::size_t>(capacity));
    rows_.reserve(static_cast<std::size_t>(capacity) * static_cast<std::size_t>(vocab));
    seen.reserve(1 << 14);
  }
  std::int32_t vocab_size() const { return model.vocab_size(); }
  std::int32_t size() const { return model.size(); }
  std::int32_t capacity() const { return model.capacity(); }
  std::uint64_t change_count() const { return model.change_count(); }

  void set_target_state(const View& view) {
    if (++view_calls == throw_view) throw std::runtime_error("set_target_state failed");
    view_ = view;
  }
  void append(Tokens tokens) {
    model.append(tokens);
    nodes_.clear();
    for (const Token token : tokens) columns_.push_back({token, kNoParent, 0});
    if (!lazy_) settle();
  }
  LogitsView extend(Tokens tokens, Nodes parents) {
    settle();
    const LogitsView plain = model.extend(tokens, parents);
    rows_.assign(plain.data, plain.data + tokens.size() * static_cast<std::size_t>(vocab_size()));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId p = parents[i];
      std::int32_t depth = 0;
      for (NodeId n = p; n != kNoParent; n = at(n).parent) ++depth;
      const std::uint32_t before = p != kNoParent     ? at(p).state
                                   : columns_.empty() ? 0
                                                      : columns_.back().state;
      nodes_.push_back({tokens[i], p, state(before, tokens[i], size() + depth, true)});
      add_noise(nodes_.back().state, rows_.data() + i * static_cast<std::size_t>(vocab_size()));
    }
    return {rows_.data(), plain.rows, plain.vocab, plain.vocab};
  }
  void commit(Nodes path) {  // as a model does: these columns keep their states
    settle();
    model.commit(path);
    for (const NodeId n : path) columns_.push_back(at(n));
    settled_ = columns_.size();
    nodes_.clear();
  }
  void truncate(std::int32_t n) {
    model.truncate(n);
    columns_.resize(static_cast<std::size_t>(n));
    settled_ = std::min(settled_, columns_.size());
    nodes_.clear();
  }

  /// The first n tokens are those of `other`, as it has computed them.
  void fork_from(const ToyConditioned& other, std::int32_t n) {
    settle();
    for (std::size_t i = columns_.size(); i < static_cast<std::size_t>(n); ++i) {
      model.append({&other.columns_.at(i).token, 1});
      columns_.push_back(other.columns_[i]);
    }
    nodes_.clear();
    settled_ = columns_.size();
  }
  const std::vector<Token>& cache() const { return model.cache(); }

  /// The row after `text` when the target holds `view_size` of its tokens, computed without the caches.
  std::vector<float> row(Tokens text, std::int32_t view_size) const {
    std::vector<float> memories, out(static_cast<std::size_t>(vocab_size()));
    std::uint32_t now = 0;
    for (std::size_t c = 0; c < text.size(); ++c) {
      const std::int32_t visible = std::min(static_cast<std::int32_t>(c), view_size);
      now = conditioned_state(now, text[c], visible,
                              visible ? memories[static_cast<std::size_t>(visible) - 1] : 0.0f);
      memories.push_back(memory(c ? memories.back() : 0.0f, text[c]));
    }
    model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), out.data());
    add_noise(now, out.data());
    return out;
  }

  ToyModel model;                 // supplies this model's counters and injected errors
  std::vector<Observation> seen;  // columns in order of computation
  std::int64_t view_calls = 0, throw_view = -1;

 private:
  struct Column {
    Token token;
    NodeId parent;
    std::uint32_t state;
  };
  static float read_view(const ToyKeyValues& view, std::int32_t i) { return view.key(i); }
  static float read_view(const FeaturesView<float>& view, std::int32_t i) {
    return view.row(i)[1] == static_cast<float>(i) && view.row(i).size() == 2 ? view.row(i)[0] : 7.0f;
  }
  const Column& at(NodeId node) const { return nodes_[static_cast<std::size_t>(node)]; }
  std::uint32_t state(std::uint32_t before, Token token, std::int32_t position, bool node) {
    const std::int32_t visible = std::min(position, view_.size());
    seen.push_back({token, position, view_.size(), node});
    return conditioned_state(before, token, visible, visible ? read_view(view_, visible - 1) : 0.0f);
  }
  void settle() {
    for (; settled_ < columns_.size(); ++settled_)
      columns_[settled_].state = state(settled_ ? columns_[settled_ - 1].state : 0, columns_[settled_].token,
                                       static_cast<std::int32_t>(settled_), false);
  }
  void add_noise(std::uint32_t now, float* row) const {
    for (Token x = 0; x < vocab_size(); ++x)
      row[x] += noise_ * (static_cast<float>(mixed(now, static_cast<std::uint64_t>(x))) / 8388608.0f - 1.0f);
  }
  float noise_;
  bool lazy_;
  View view_;
  std::vector<Column> columns_, nodes_;
  std::size_t settled_ = 0;  // number of computed columns
  std::vector<float> rows_;
};

struct ToyGlide : ToyConditioned<ToyKeyValues> {
  using ToyConditioned::ToyConditioned;
  using TargetKeyValues = ToyKeyValues;
  specula::Conditioning conditioned_on() const { return specula::Conditioning::key_values; }
  bool keeps_speculation() const { return false; }
};
struct ToyHead : ToyConditioned<FeaturesView<float>> {
  using ToyConditioned::ToyConditioned;
  using TargetFeatures = FeaturesView<float>;
  specula::Conditioning conditioned_on() const { return specula::Conditioning::features; }
  bool keeps_speculation() const { return false; }
};

}  // namespace specula_test
