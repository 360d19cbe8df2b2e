// SPDX-License-Identifier: MIT
// Tree attention in libllama: assigns cells of the KV cache to sequences, so that each node attends only to
// its ancestors.
#pragma once

#include <llama.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"

namespace specula::llama_cpp::detail {

/// Maximum number of sequences of a context (LLAMA_MAX_SEQ, which is not public).
inline constexpr std::int32_t kMaxSequences = 256;

/// A query of libllama attends to the cells of its first sequence at or before its position. So a tree has
/// one sequence per leaf, and a node belongs to those of the leaves below it. Sequence 0 holds the whole
/// context and the first branch: a chain needs no other. An unused sequence keeps its part of the context,
/// since copying a long prefix costs far more than the few tokens added since. Cells are never copied to a
/// sequence that has them: libllama would count them twice.
///
/// Allocates in the constructor only, and in gather(), for the largest copy so far. Each copy or removal
/// reads every cell of the cache.
class TreeSequences {
 public:
  /// `waiting`: maximum number of committed tokens in a plan.
  TreeSequences(llama_memory_t memory, std::int32_t max_nodes, std::int32_t max_leaves, std::int32_t waiting)
      : memory_(memory), max_leaves_(max_leaves) {
    const auto nodes = static_cast<std::size_t>(max_nodes), first = static_cast<std::size_t>(waiting);
    const auto leaves = static_cast<std::size_t>(max_leaves);
    nodes_.reserve(nodes);
    positions_.reserve(first + nodes);
    begins_.reserve(first + nodes + 1);
    ids_.reserve((first + nodes) * leaves);
  }

  /// Tokens of the context in the cache.
  std::int32_t cached() const { return now_.end[0] - tip_depth(0); }
  std::int32_t node_count() const { return static_cast<std::int32_t>(nodes_.size()); }
  NodeId parent(NodeId node) const { return at(node).parent; }

  /// Throws std::runtime_error if the cache does not hold the positions of the context: other code has
  /// changed it, or libllama has reused cells outside every attention window. O(1).
  void expect_own() const {
    const std::int32_t first = llama_memory_seq_pos_min(memory_, 0),
                       last = llama_memory_seq_pos_max(memory_, 0), end = now_.end[0];
    if (first != (end > 0 ? 0 : -1) || last != end - 1)
      throw std::runtime_error("libllama's cache holds positions " + std::to_string(first) + " to " +
                               std::to_string(last) + " of the context, not 0 to " + std::to_string(end - 1));
  }

  /// Prepares a batch: `waiting` tokens of the context that are not in the cache, then a node under each of
  /// `parents`: earlier nodes, also of this call, or kNoParent. Requires that tokens wait only if there are
  /// no nodes. Throws std::invalid_argument, and changes nothing, if the tree gets too many leaves.
  /// mark_decoded() or take_back() must follow.
  void plan(std::int32_t waiting, Nodes parents) {
    before_ = now_;
    nodes_before_ = node_count();
    waiting_ = waiting;
    context_ = cached();
    for (const NodeId parent : parents) add(parent);
    for (std::int32_t s = before_.leaves; s < now_.leaves; ++s) fetch(s);
    list();
  }

  /// The batch: number of entries, position of each, and its sequences, ascending.
  std::int32_t entries() const { return static_cast<std::int32_t>(positions_.size()); }
  std::int32_t position(std::int32_t entry) const { return positions_[static_cast<std::size_t>(entry)]; }
  std::span<llama_seq_id> ids(std::int32_t entry) {
    const auto i = static_cast<std::size_t>(entry);
    return std::span(ids_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }

  /// Requires that the batch was decoded.
  void mark_decoded() {
    for (std::int32_t s = 0; s < now_.leaves; ++s)
      if (touched(s)) end(s) = context_ + waiting_ + tip_depth(s);
  }

  /// The caller must call this if decoding failed: removes the batch from the cache.
  void take_back() {
    for (std::int32_t s = 0; s < now_.leaves; ++s)
      if (touched(s)) remove(s, before_.end[index(s)]);
    now_ = before_;
    nodes_.resize(static_cast<std::size_t>(nodes_before_));
  }

  /// Adds a path from the context down to the context; removes all other nodes from the cache.
  void commit(Nodes path) {
    const std::int32_t context = cached(), longer = context + static_cast<std::int32_t>(path.size());
    const std::int32_t winner = path.empty() ? 0 : at(path.back()).sequence;
    for (std::int32_t s = 0; s < now_.leaves; ++s) cut(s, context + shared(s, path));
    if (now_.end[0] < longer) copy(winner, 0, longer);
    nodes_.clear();
    now_.leaves = 1;
    now_.tip[0] = kNoParent;
  }

  /// Moves the cells of the context from position `from` on so that they follow those of the positions
  /// before it in their order, in which attention sums; `context` is that of the memory. Requires that there
  /// are no nodes, and two sequences or more. Throws std::runtime_error if libllama fails: the context then
  /// ends at `from`.
  void gather(llama_context* context, std::int32_t from) {
    const std::int32_t until = end(0), spare = max_leaves_ - 1;
    cut(spare, 0);
    llama_memory_seq_cp(memory_, 0, spare, from, until);
    end(spare) = until;  // for cut()
    try {
      state_.resize(llama_state_seq_get_size(context, spare));
    } catch (...) {
      cut(spare, 0);
      throw;
    }
    const std::size_t size = llama_state_seq_get_data(context, state_.data(), state_.size(), spare);
    for (std::int32_t s = 0; s < max_leaves_; ++s) cut(s, s == spare ? 0 : from);
    if (size == 0 || llama_state_seq_set_data(context, state_.data(), size, spare) == 0)
      throw std::runtime_error("llama_state_seq_set_data: libllama cannot move accepted tokens");
    llama_memory_seq_cp(memory_, spare, 0, from, until);
    remove(spare, 0);
    end(0) = until;
  }

  /// Removes all nodes, and the context from position `n` on.
  void truncate(std::int32_t n) {
    commit({});
    for (std::int32_t s = 0; s < kMaxSequences; ++s) cut(s, n);
  }

 private:
  struct Node {
    NodeId parent;
    std::int32_t depth;
    std::int32_t sequence;  // one that contains it
  };
  /// Sequences [0, leaves) belong to the tree; `tip` is the last node of each, kNoParent for the context.
  struct State {
    std::int32_t leaves = 1;
    std::array<NodeId, kMaxSequences> tip;
    std::array<std::int32_t, kMaxSequences> end;  // it contains the positions below this one
    State() { tip.fill(kNoParent), end.fill(0); }
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  const Node& at(NodeId node) const { return nodes_[index(node)]; }
  NodeId& tip(std::int32_t s) { return now_.tip[index(s)]; }
  std::int32_t& end(std::int32_t s) { return now_.end[index(s)]; }

  std::int32_t tip_depth(std::int32_t s) const {
    const NodeId node = now_.tip[index(s)];
    return node == kNoParent ? 0 : at(node).depth + 1;
  }
  /// Whether the batch adds to sequence `s`.
  bool touched(std::int32_t s) const {
    return now_.tip[index(s)] >= nodes_before_ || (s == 0 && waiting_ > 0);
  }

  void add(NodeId parent) {
    std::int32_t s = parent == kNoParent ? 0 : at(parent).sequence;
    if (tip(s) != parent) s = branch();
    tip(s) = node_count();
    nodes_.push_back({parent, parent == kNoParent ? 0 : at(parent).depth + 1, s});
  }
  std::int32_t branch() {
    if (now_.leaves == max_leaves_) {
      now_ = before_;
      nodes_.resize(index(nodes_before_));
      throw std::invalid_argument("llama_cpp::Model: extend: a tree of more than " +
                                  std::to_string(max_leaves_) + " leaves, see Options::max_leaves");
    }
    return now_.leaves++;
  }

  /// Copies the cached part of a new leaf's path to its sequence.
  void fetch(std::int32_t s) {
    NodeId known = tip(s);
    while (known >= nodes_before_) known = at(known).parent;
    if (end(s) < context_) copy(0, s, context_);
    if (known != kNoParent) copy(at(known).sequence, s, context_ + at(known).depth + 1);
  }

  /// Lists positions and sequences of the batch. A node's sequences are those of the leaves below it.
  void list() {
    const std::int32_t count = waiting_ + node_count() - nodes_before_;
    positions_.clear();
    for (std::int32_t i = 0; i < waiting_; ++i) positions_.push_back(context_ + i);
    for (NodeId n = nodes_before_; n < node_count(); ++n)
      positions_.push_back(context_ + waiting_ + at(n).depth);
    // Counting sort: count, sum up, and fill from the back; then begins_ has the start of each list.
    begins_.assign(index(count) + 1, 0);
    const auto visit = [&](auto each) {
      for (std::int32_t s = now_.leaves - 1; s >= 0; --s) {
        for (NodeId n = tip(s); n >= nodes_before_; n = at(n).parent) each(waiting_ + n - nodes_before_, s);
        for (std::int32_t i = 0; i < waiting_; ++i) each(i, s);
      }
    };
    visit([&](std::int32_t entry, std::int32_t) { ++begins_[index(entry)]; });
    std::size_t sum = 0;
    for (std::size_t& begin : begins_) begin = sum += begin;
    ids_.resize(sum);
    visit([&](std::int32_t entry, std::int32_t s) { ids_[--begins_[index(entry)]] = s; });
  }

  /// Number of nodes of `path` in sequence `s`.
  std::int32_t shared(std::int32_t s, Nodes path) const {
    NodeId node = now_.tip[index(s)];
    while (node != kNoParent && (index(at(node).depth) >= path.size() || path[index(at(node).depth)] != node))
      node = at(node).parent;
    return node == kNoParent ? 0 : at(node).depth + 1;
  }

  /// Copies the positions of `from` below `until` to sequence `to`. Requires that `to` ends before.
  void copy(std::int32_t from, std::int32_t to, std::int32_t until) {
    llama_memory_seq_cp(memory_, from, to, end(to), until);
    end(to) = until;
  }
  void cut(std::int32_t s, std::int32_t until) {
    if (end(s) <= until) return;
    remove(s, until);
    end(s) = until;
  }
  void remove(std::int32_t s, std::int32_t from) {
    if (!llama_memory_seq_rm(memory_, s, from, -1))
      throw std::runtime_error("llama_memory_seq_rm: the cache cannot drop positions from " +
                               std::to_string(from) + " on");
  }

  llama_memory_t memory_;
  std::int32_t max_leaves_;
  State now_, before_;  // before_: before the plan
  std::int32_t nodes_before_ = 0, waiting_ = 0, context_ = 0;
  std::vector<Node> nodes_;
  std::vector<llama_pos> positions_;  // (entries)
  std::vector<std::size_t> begins_;   // (entries + 1), into ids_
  std::vector<llama_seq_id> ids_;
  std::vector<std::uint8_t> state_;  // of moved cells
};

}  // namespace specula::llama_cpp::detail
