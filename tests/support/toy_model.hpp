// SPDX-License-Identifier: MIT
// Toy language model of order 2 over a tiny vocabulary. Its rows are computed from its own cache, so a
// wrong cache changes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <specula/model/view_guard.hpp>
#include <specula/policy/concepts.hpp>

namespace specula_test {

using specula::kNoParent;
using specula::LogitsView;
using specula::NodeId;
using specula::Nodes;
using specula::Token;
using specula::Tokens;

/// While it lives, the vocabularies of toy models span three tiles: their few tokens lie apart, in the first
/// tile, in the last and, if there are three, in between; all others are impossible. The texts are the same
/// but for the names of the tokens.
class ThreeTiles {
 public:
  explicit ThreeTiles(bool on = true) : before_(std::exchange(on_, on)) {}
  ~ThreeTiles() { on_ = before_; }
  ThreeTiles(const ThreeTiles&) = delete;
  ThreeTiles& operator=(const ThreeTiles&) = delete;

  /// The distance between the tokens of a toy model that has `tokens`.
  static std::int32_t apart(std::int32_t tokens) {
    return on_ && tokens > 1 ? (1024 + tokens - 1) / (tokens - 1) : 1;
  }

 private:
  inline static bool on_ = false;
  bool before_;
};

/// Token i of a toy model that has `tokens`.
inline Token toy_token(std::int32_t i, std::int32_t tokens) { return i * ThreeTiles::apart(tokens); }

class ToyModel {
 public:
  /// A model of `tokens` tokens.
  explicit ToyModel(std::int32_t tokens, std::uint64_t seed, float scale = 2.0f, std::int32_t capacity = 64)
      : apart_(ThreeTiles::apart(tokens)),
        vocab_((tokens - 1) * apart_ + 1),
        capacity_(capacity),
        seed_(seed),
        scale_(scale) {
    cache_.reserve(static_cast<std::size_t>(capacity));
    nodes_.reserve(static_cast<std::size_t>(capacity));
    rows_.reserve(static_cast<std::size_t>(capacity) * static_cast<std::size_t>(vocab_));
  }
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t size() const { return static_cast<std::int32_t>(cache_.size()); }
  std::int32_t capacity() const { return capacity_; }
  std::uint64_t change_count() const { return change_count_.now(); }
  std::int32_t held_nodes() const { return static_cast<std::int32_t>(nodes_.size()); }

  void append(Tokens tokens) {
    change_count_.next();
    if (++appends == throw_append) throw std::runtime_error("append failed");
    require(cache_.size() + tokens.size() <= static_cast<std::size_t>(capacity_), "context full");
    appended += static_cast<std::int64_t>(tokens.size());
    nodes_.clear();
    cache_.insert(cache_.end(), tokens.begin(), tokens.end());
  }
  LogitsView extend(Tokens tokens, Nodes parents) {
    change_count_.next();
    ++calls;
    require(tokens.size() == parents.size(), "one parent per token");
    require(cache_.size() + nodes_.size() + tokens.size() <= static_cast<std::size_t>(capacity_),
            "context full");
    rows_.assign(tokens.size() * static_cast<std::size_t>(vocab_), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId p = parents[i];
      require(p >= kNoParent && p < static_cast<NodeId>(nodes_.size()), "bad parent");
      nodes_.push_back({tokens[i], p});
      const Token before = p != kNoParent   ? nodes_[static_cast<std::size_t>(p)].token
                           : cache_.empty() ? -1
                                            : cache_.back();
      row(before, tokens[i], rows_.data() + i * static_cast<std::size_t>(vocab_));
    }
    if (throw_call == calls) throw std::runtime_error("extend failed");
    if (poison_call == calls) rows_.back() = std::numeric_limits<float>::quiet_NaN();
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), vocab_, vocab_};
  }
  void commit(Nodes path) {
    change_count_.next();
    NodeId parent = kNoParent;
    for (const NodeId n : path) {
      require(n >= 0 && n < static_cast<NodeId>(nodes_.size()) &&
                  nodes_[static_cast<std::size_t>(n)].parent == parent,
              "not a path");
      cache_.push_back(nodes_[static_cast<std::size_t>(n)].token);
      parent = n;
    }
    nodes_.clear();
  }
  void truncate(std::int32_t n) {
    change_count_.next();
    require(n >= 0 && n <= size(), "truncate beyond the size");
    nodes_.clear();
    cache_.resize(static_cast<std::size_t>(n));
  }

  /// Logits after `... before, last`; `out` holds vocab floats.
  void row(Token before, Token last, float* out) const {
    if (apart_ > 1) std::fill_n(out, vocab_, -std::numeric_limits<float>::infinity());
    const std::int32_t first = before < 0 ? before : before / apart_, second = last / apart_;
    for (std::int32_t i = 0; i * apart_ < vocab_; ++i) {
      std::uint64_t h = seed_ * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(first + 1) * 1000003ull +
                        static_cast<std::uint64_t>(second + 1) * 7919ull +
                        static_cast<std::uint64_t>(i) * 104729ull;
      h ^= h >> 31, h *= 0xBF58476D1CE4E5B9ull, h ^= h >> 27, h *= 0x94D049BB133111EBull, h ^= h >> 31;
      out[i * apart_] = offset + scale_ * (static_cast<float>(h >> 40) / 8388608.0f - 1.0f);
    }
  }
  const std::vector<Token>& cache() const { return cache_; }

  std::int64_t calls = 0, appends = 0, appended = 0;  // calls of extend(), of append(), tokens of the latter
  std::int64_t poison_call = -1;                      // the extend(), counted from 1, whose last logit is NaN
  std::int64_t throw_call = -1;  // the extend(), counted from 1, that throws once its nodes are in the cache
  float offset = 0;              // added to every logit
  std::int64_t throw_append = -1;  // the append(), counted from 1, that throws and appends nothing

 protected:
  specula::detail::ChangeCount change_count_;

 private:
  struct Node {
    Token token;
    NodeId parent;
  };
  static void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(what);
  }
  std::int32_t apart_, vocab_, capacity_;
  std::uint64_t seed_;
  float scale_;
  std::vector<Token> cache_;
  std::vector<Node> nodes_;
  std::vector<float> rows_;
};

}  // namespace specula_test
