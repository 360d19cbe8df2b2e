// SPDX-License-Identifier: MIT
// What the host knows of the texts of a model on a device: tokens that wait, nodes, paths to be moved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cuda/model/model_options.hpp"
#include "specula/model/batched_language_model.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cuda::detail {

/// A text: committed tokens in the cache, then those that wait, or nodes.
struct DeviceText {
  struct Node {
    Token token;
    NodeId parent;
    std::int32_t depth;
  };
  std::int32_t ran = 0;      // committed tokens in the cache; those of `queue` follow
  std::vector<Token> queue;  // from queue_begin on
  std::size_t queue_begin = 0;
  std::vector<Node> nodes;    // in the slots after `ran`, if the queue is empty
  std::int32_t in_cache = 0;  // of the nodes
  bool chunk_ran = false;     // of its prompt, in this call
  std::vector<NodeId> path;   // committed, to be moved to the slots from path_after on
  std::int32_t path_after = 0;
  std::int32_t target_size = 0;       // of a draft that reads its target: tokens in the view
  specula::detail::ViewGuard target;  // and whether it is valid
  specula::detail::ChangeCount changes;

  std::int32_t waiting() const { return static_cast<std::int32_t>(queue.size() - queue_begin); }
  std::int32_t size() const { return ran + waiting(); }
  std::int32_t node_count() const { return static_cast<std::int32_t>(nodes.size()); }
  bool moves() const { return !path.empty(); }

  void add_nodes(Tokens tokens, Nodes parents) {
    if (nodes.empty()) in_cache = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId parent = parents[i];
      nodes.push_back(
          {tokens[i], parent, parent == kNoParent ? 0 : nodes[static_cast<std::size_t>(parent)].depth + 1});
    }
  }
  void drop_nodes() {
    changes.next();
    nodes.clear();
  }
  /// So many of the waiting tokens are in the cache now.
  void take(std::int32_t n) {
    ran += n;
    queue_begin += static_cast<std::size_t>(n);
    if (waiting() == 0) queue.clear(), queue_begin = 0;
  }
};

/// The texts, by slot. Every member throws std::invalid_argument, and changes nothing, for bad input. Of what
/// the device does only the numbers change here.
class DeviceTexts {
 public:
  DeviceTexts(const ModelOptions& options, std::int32_t vocab)
      : options_(options), vocab_(vocab), texts_(static_cast<std::size_t>(options.slots)) {
    for (DeviceText& text : texts_) {
      text.queue.reserve(static_cast<std::size_t>(options.capacity));
      text.nodes.reserve(static_cast<std::size_t>(options.max_nodes));
      text.path.reserve(static_cast<std::size_t>(options.max_nodes));
    }
  }

  DeviceText& operator[](std::int32_t slot) {
    if (slot < 0 || slot >= options_.slots)
      fail("slot " + std::to_string(slot) + ", must be 0 to " + std::to_string(options_.slots - 1));
    return texts_[static_cast<std::size_t>(slot)];
  }
  const DeviceText& operator[](std::int32_t slot) const { return const_cast<DeviceTexts&>(*this)[slot]; }
  std::span<DeviceText> all() { return texts_; }

  void append(std::int32_t slot, Tokens tokens) {
    DeviceText& text = (*this)[slot];
    check_tokens("append", tokens);
    check_room("append", text.size(), tokens.size());
    text.drop_nodes();
    text.queue.insert(text.queue.end(), tokens.begin(), tokens.end());
  }
  void commit(std::int32_t slot, Nodes path) {
    DeviceText& text = (*this)[slot];
    check_path(text, path);
    bool moves = false;
    for (std::size_t i = 0; i < path.size(); ++i) moves = moves || path[i] != static_cast<NodeId>(i);
    if (moves) {
      text.path.assign(path.begin(), path.end());
      text.path_after = text.ran;
    }
    text.ran += static_cast<std::int32_t>(path.size());
    text.drop_nodes();
  }
  void truncate(std::int32_t slot, std::int32_t n) {
    DeviceText& text = (*this)[slot];
    if (n < 0 || n > text.size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(text.size()));
    text.drop_nodes();
    text.queue.resize(text.queue_begin + static_cast<std::size_t>(std::max(0, n - text.ran)));
    text.ran = std::min(text.ran, n);
  }
  void check_nodes(std::span<const SlotNodes> nodes) const {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const auto& [slot, tokens, parents] = nodes[n];
      const DeviceText& text = (*this)[slot];
      for (std::size_t other = 0; other < n; ++other)
        if (nodes[other].slot == slot) fail("extend: slot " + std::to_string(slot) + " is named twice");
      check_tokens("extend", tokens);
      if (parents.size() != tokens.size())
        fail("extend: " + std::to_string(tokens.size()) + " tokens and " + std::to_string(parents.size()) +
             " parents");
      const NodeId before = text.node_count();
      if (tokens.size() > static_cast<std::size_t>(options_.max_nodes - before))
        fail("extend: " + std::to_string(before) + " nodes and " + std::to_string(tokens.size()) +
             " more, but max_nodes is " + std::to_string(options_.max_nodes));
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (parents[i] != kNoParent && (parents[i] < 0 || parents[i] >= before + static_cast<NodeId>(i)))
          fail("extend: parent " + std::to_string(parents[i]) + " of node " +
               std::to_string(before + static_cast<NodeId>(i)) + ", must be an earlier node or kNoParent");
      check_room("extend", text.size() + before, tokens.size());
    }
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    throw std::invalid_argument("cuda::Model::" + what);
  }
  void check_tokens(const char* call, Tokens tokens) const {
    for (const Token token : tokens)
      if (token < 0 || token >= vocab_)
        fail(std::string(call) + ": token " + std::to_string(token) + ", must be 0 to " +
             std::to_string(vocab_ - 1));
  }
  void check_room(const char* call, std::int32_t used, std::size_t wanted) const {
    if (wanted > static_cast<std::size_t>(options_.capacity - used))
      fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
           std::to_string(options_.capacity) + " tokens in use, " + std::to_string(wanted) +
           " more asked for");
  }
  void check_path(const DeviceText& text, Nodes path) const {
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= text.node_count())
        fail("commit: node " + std::to_string(node) + ", must be 0 to " +
             std::to_string(text.node_count() - 1));
      if (text.nodes[static_cast<std::size_t>(node)].parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
  }

  ModelOptions options_;
  std::int32_t vocab_;
  std::vector<DeviceText> texts_;
};

}  // namespace specula::cuda::detail
