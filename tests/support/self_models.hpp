// SPDX-License-Identifier: MIT
// Toy models for self-speculation: one with early exits, one that can skip layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/policy/concepts.hpp>

#include "toy_model.hpp"

namespace specula_test {

using specula::SkippedBlocks;

/// A ToyModel whose exits are ToyModels of other seeds: seed, seed + 1, ... Exit e is after e + 2 layers.
class ToyExits : public ToyModel {
 public:
  ToyExits(std::int32_t vocab, std::uint64_t seed, std::int32_t exits, float scale = 2.0f,
           std::int32_t capacity = 64)
      : ToyModel(vocab, seed, scale, capacity) {
    for (std::int32_t e = 0; e < exits; ++e)
      ends_.emplace_back(vocab, seed + static_cast<std::uint64_t>(e), scale, capacity);
    before_.reserve(static_cast<std::size_t>(capacity)), nodes_.reserve(before_.capacity());
    rows_.reserve(before_.capacity() * static_cast<std::size_t>(vocab));
  }
  std::int32_t exits() const { return static_cast<std::int32_t>(ends_.size()); }
  std::int32_t layers_to(std::int32_t exit) const { return exit + 2; }
  const ToyModel& end(std::int32_t exit) const { return ends_[static_cast<std::size_t>(exit)]; }

  void append(Tokens tokens) { ToyModel::append(tokens), nodes_.clear(); }
  void commit(Nodes path) { ToyModel::commit(path), nodes_.clear(); }
  void truncate(std::int32_t n) { ToyModel::truncate(n), nodes_.clear(); }
  LogitsView extend(Tokens tokens, Nodes parents) { return extend_to_exit(tokens, parents, exits() - 1); }
  LogitsView extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) {
    ToyModel::extend(tokens, parents);
    first_ = nodes_.size();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      before_.resize(first_ + i);
      before_.push_back(parents[i] != kNoParent ? nodes_[static_cast<std::size_t>(parents[i])]
                        : cache().empty()       ? -1
                                                : cache().back());
      nodes_.push_back(tokens[i]);
    }
    rows_.resize(tokens.size() * static_cast<std::size_t>(vocab_size()));
    for (std::size_t i = 0; i < tokens.size(); ++i) fill(i, exit);
    return view();
  }
  LogitsView resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit) {
    change_count_.next();
    ++goes;
    if (throw_go == goes) throw std::runtime_error("resume_to_exit failed");
    for (const std::int32_t row : rows) fill(static_cast<std::size_t>(row), exit);
    return view();
  }

  std::int64_t goes = 0, throw_go = -1;  // the resume_to_exit, counted from 1, that throws

 private:
  void fill(std::size_t row, std::int32_t exit) {
    end(exit).row(before_[first_ + row], nodes_[first_ + row],
                  rows_.data() + row * static_cast<std::size_t>(vocab_size()));
  }
  LogitsView view() const {
    return {rows_.data(), static_cast<std::int32_t>(nodes_.size() - first_), vocab_size(), vocab_size()};
  }
  std::vector<ToyModel> ends_;
  std::vector<Token> before_, nodes_;  // per node: the previous token, its own token
  std::size_t first_ = 0;
  std::vector<float> rows_;
};

/// A target whose rows with skipped blocks are those of another seed, which depends on the
/// number of skipped blocks.
class ToySkips : public ToyModel {
 public:
  ToySkips(std::int32_t vocab, std::uint64_t seed, std::int32_t layers, float scale = 2.0f,
           std::int32_t capacity = 64)
      : ToyModel(vocab, seed, scale, capacity), similar(static_cast<std::size_t>(layers), 0.9) {
    for (std::int32_t out = 0; out <= 2 * layers; ++out)
      drafts_.emplace_back(vocab, seed + static_cast<std::uint64_t>(out), scale, 0);
    nodes_.reserve(static_cast<std::size_t>(capacity));
    rows_.reserve(nodes_.capacity() * static_cast<std::size_t>(vocab));
  }
  std::int32_t layers() const { return static_cast<std::int32_t>(similar.size()); }
  std::int32_t node_count() const { return static_cast<std::int32_t>(nodes_.size()); }
  std::span<const double> attention_similarity() {
    ++asked;
    return similar;
  }

  void append(Tokens tokens) { ToyModel::append(tokens), nodes_.clear(); }
  void commit(Nodes path) {
    if (skips_ && !path.empty()) throw std::invalid_argument("skipping nodes do not commit");
    ToyModel::commit(path), nodes_.clear(), skips_ = false;
  }
  void truncate(std::int32_t n) { ToyModel::truncate(n), nodes_.clear(), skips_ = false; }
  LogitsView extend(Tokens tokens, Nodes parents) {
    if (skips_) throw std::invalid_argument("nodes of another kind");
    const LogitsView rows = ToyModel::extend(tokens, parents);
    nodes_.insert(nodes_.end(), tokens.begin(), tokens.end());
    return rows;
  }
  LogitsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& out) {
    if (!nodes_.empty() && !(skips_ && out == out_)) throw std::invalid_argument("nodes of another kind");
    if (static_cast<std::size_t>(size()) + nodes_.size() + tokens.size() >
        static_cast<std::size_t>(capacity()))
      throw std::invalid_argument("context full");
    change_count_.next();
    if (++skipping == throw_skipping) throw std::runtime_error("extend_skipping failed");
    most_nodes = std::max(most_nodes, node_count() + static_cast<std::int32_t>(tokens.size()));
    skips_ = true;
    out_ = out;
    const ToyModel& draft = drafts_[static_cast<std::size_t>(out.count())];
    rows_.resize(tokens.size() * static_cast<std::size_t>(vocab_size()));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId p = parents[i];
      if (p < kNoParent || p >= node_count()) throw std::invalid_argument("bad parent");
      draft.row(p != kNoParent    ? nodes_[static_cast<std::size_t>(p)]
                : cache().empty() ? -1
                                  : cache().back(),
                tokens[i], rows_.data() + i * static_cast<std::size_t>(vocab_size()));
      nodes_.push_back(tokens[i]);
    }
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), vocab_size(), vocab_size()};
  }

  std::vector<double> similar;  // (layers)
  std::int64_t asked = 0, skipping = 0, throw_skipping = -1;
  std::int32_t most_nodes = 0;  // of skipping calls

 private:
  std::vector<ToyModel> drafts_;  // by skipped blocks
  bool skips_ = false;
  SkippedBlocks out_;
  std::vector<Token> nodes_;
  std::vector<float> rows_;
};

}  // namespace specula_test
