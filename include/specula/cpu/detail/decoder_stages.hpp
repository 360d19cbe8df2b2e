// SPDX-License-Identifier: MIT
// Records which committed tokens and nodes have run through which stage of a model, and builds the columns of
// a pass for the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/tree_attention.hpp"

namespace specula::cpu::detail {

/// Stages are the layers between two exits. A token runs through them in order, and never further than its
/// predecessor on the path. The context's first computed(stage) slots hold keys and values of that stage;
/// node i has slot size() + i. Nothing is allocated after the constructor.
class DecoderStages {
 public:
  struct Node {
    Token token;
    NodeId parent;
    std::int32_t depth;
    std::int32_t stages;  // number that it has run through
    bool skips;           // skips some blocks: then no stage counts
  };

  /// `exits`: the layers before each exit, ascending; the last one is the whole model's.
  DecoderStages(std::vector<std::int32_t> exits, const DecoderOptions& options)
      : exits_(std::move(exits)), computed_(exits_.size()) {
    const auto nodes = static_cast<std::size_t>(options.max_nodes),
               chunk = static_cast<std::size_t>(options.prefill_chunk),
               lazy = static_cast<std::size_t>(kLazyTokens);
    nodes_.reserve(nodes);
    pending_.reserve(options.slots > 1 ? static_cast<std::size_t>(options.capacity) : chunk);
    columns_.reserve(static_cast<std::size_t>(pass_columns(options)));
    in_order_.resize(std::max(chunk, lazy));
    stride_ = lazy + nodes;
    paths_.resize(nodes * stride_);
  }

  std::int32_t count() const { return static_cast<std::int32_t>(exits_.size()); }
  std::int32_t layers_to(std::int32_t exit) const { return exits_[static_cast<std::size_t>(exit)]; }
  PassPart part(std::int32_t stage) const { return part(stage, stage); }
  /// Of several stages at once.
  PassPart part(std::int32_t first, std::int32_t last) const {
    return {.first_layer = first ? layers_to(first - 1) : 0, .last_layer = layers_to(last)};
  }

  // ---- the context

  std::int32_t size() const { return computed_[0] + pending(); }
  std::int32_t computed(std::int32_t stage) const { return computed_[static_cast<std::size_t>(stage)]; }
  /// Committed tokens that have yet to go through a stage.
  std::int32_t waiting(std::int32_t stage) const { return size() - computed(stage); }
  /// Committed tokens that have yet to go through the first stage.
  std::int32_t pending() const { return static_cast<std::int32_t>(pending_.size()); }

  /// At most one chunk waits at a time, but of several texts.
  void append(Tokens tokens) { pending_.insert(pending_.end(), tokens.begin(), tokens.end()); }
  /// The first `count` tokens that wait for a stage have gone through it.
  void mark_computed(std::int32_t stage, std::int32_t count) {
    if (stage == 0) pending_.erase(pending_.begin(), pending_.begin() + count);
    computed_[static_cast<std::size_t>(stage)] += count;
  }
  /// The first `n` tokens have gone through all stages.
  void mark_first_computed(std::int32_t n) {
    pending_.erase(pending_.begin(), pending_.begin() + std::max(0, n - computed_[0]));
    for (std::int32_t& tokens : computed_) tokens = std::max(tokens, n);
  }
  /// Drops all nodes, and committed tokens from `n` on.
  void truncate(std::int32_t n) {
    nodes_.clear();
    pending_.resize(static_cast<std::size_t>(std::max(0, n - computed_[0])));
    for (std::int32_t& tokens : computed_) tokens = std::min(tokens, n);
  }
  /// Commits a path from the context down to the slots after it, and drops all nodes.
  void commit(Nodes path) {
    // A child went no further than its parent, and no node further than the context's end.
    for (const NodeId id : path)
      for (std::int32_t stage = 0; stage < node(id).stages; ++stage)
        ++computed_[static_cast<std::size_t>(stage)];
    nodes_.clear();
  }

  // ---- the nodes

  std::int32_t node_count() const { return static_cast<std::int32_t>(nodes_.size()); }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  bool skips() const { return !nodes_.empty() && nodes_.back().skips; }

  void clear_nodes() { nodes_.clear(); }
  void add_nodes(Tokens tokens, Nodes parents, bool skips) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      nodes_.push_back(
          {tokens[i], parents[i], parents[i] == kNoParent ? 0 : node(parents[i]).depth + 1, 0, skips});
  }
  /// The node has gone through the first `count` stages.
  void pass_stages(NodeId id, std::int32_t count) { nodes_[static_cast<std::size_t>(id)].stages = count; }

  // ---- the columns of a pass through one stage: tokens that wait for it, then nodes

  const std::vector<BatchToken>& columns() const { return columns_; }

  /// Begins with the first `count` tokens that wait for the stage, in the slots after the computed context:
  /// their paths are prefixes of one array.
  void start_columns(std::int32_t stage, std::int32_t count) {
    columns_.clear();
    const std::int32_t base = computed(stage);
    for (std::int32_t i = 0; i < count; ++i) in_order_[static_cast<std::size_t>(i)] = base + i;
    for (std::int32_t i = 0; i < count; ++i)
      push_column(stage == 0 ? pending_[static_cast<std::size_t>(i)] : kNoToken, base + i, base,
                  std::span(in_order_).first(static_cast<std::size_t>(i) + 1));
  }
  /// Adds a node's column, after those of all tokens that wait for the stage.
  void push_node(NodeId id, std::int32_t stage) {
    const auto waiting = static_cast<std::size_t>(this->waiting(stage));
    const Node& own = node(id);
    const auto path = std::span(paths_).subspan(static_cast<std::size_t>(id) * stride_,
                                                waiting + static_cast<std::size_t>(own.depth) + 1);
    std::copy_n(in_order_.begin(), waiting, path.begin());
    auto at = path.size();
    for (NodeId up = id; up != kNoParent; up = node(up).parent) path[--at] = size() + up;
    push_column(own.token, size() + own.depth, computed(stage), path);
  }

 private:
  /// Adds a column that sees `base` slots and then `path`, its own slot last.
  void push_column(Token token, std::int32_t position, std::int32_t base,
                   std::span<const std::int32_t> path) {
    std::int32_t in_order = 0;
    while (static_cast<std::size_t>(in_order) < path.size() &&
           path[static_cast<std::size_t>(in_order)] == base + in_order)
      ++in_order;
    columns_.push_back(
        {token, position, path.back(), path.data(), static_cast<std::int32_t>(path.size()), in_order});
  }

  std::vector<std::int32_t> exits_;
  std::vector<std::int32_t> computed_;  // (stages), committed tokens that went through it
  std::vector<Token> pending_;          // committed tokens that the first stage has not run
  std::vector<Node> nodes_;
  std::vector<BatchToken> columns_;
  std::vector<std::int32_t> in_order_;  // (prefill_chunk), the slots after the computed context
  std::size_t stride_ = 0;
  std::vector<std::int32_t> paths_;  // (max_nodes, stride), slots of the waiting tokens, then the ancestors'
};

}  // namespace specula::cpu::detail
