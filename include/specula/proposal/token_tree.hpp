// SPDX-License-Identifier: MIT
// Token tree: the draft tokens of a round under the root, and the record of how each was drawn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/random_source.hpp"

namespace specula {

/// A token tree in topological order, node 0 the root: a proposal as rules and verifiers read it. Every
/// TokenTree is a ProposalBuilder, which alone adds nodes, so that the record matches the draws. Functions of
/// a node require that it exists. Allocates in the constructor only.
class TokenTree {
 public:
  std::int32_t size() const {
    return static_cast<std::int32_t>(tokens_.size());
  }                                                      ///< number of nodes, root included
  std::int32_t room() const { return limit_ - size(); }  ///< nodes that may be added
  /// Nodes, root included, that memory was allocated for.
  std::int32_t capacity() const { return capacity_; }
  std::int32_t vocab() const { return vocab_; }  ///< size V of the vocabulary
  Tokens tokens() const { return tokens_; }      ///< (size)
  Nodes parents() const { return parents_; }     ///< (size), parents()[0] == kNoParent
  /// The root's token. Throws std::invalid_argument if reset() has not been called.
  Token root() const {
    expect_node(0);
    return tokens_[0];
  }
  Token token(NodeId node) const { return tokens_[index(node)]; }              ///< of `node`
  NodeId parent(NodeId node) const { return parents_[index(node)]; }           ///< kNoParent for the root
  std::int32_t depth(NodeId node) const { return nodes_[index(node)].depth; }  ///< edges from the root
  /// Position of the node's token in the text.
  std::int32_t position(NodeId node) const { return origin_ + depth(node); }
  std::int32_t origin() const { return origin_; }  ///< the root's position in the text
  /// The child that was drawn first; kNoParent if there is none.
  NodeId first_child(NodeId node) const { return nodes_[index(node)].first_child; }
  /// The next child of the same parent in drawing order; kNoParent after the last.
  NodeId next_sibling(NodeId node) const { return nodes_[index(node)].next_sibling; }
  float confidence(NodeId node) const { return nodes_[index(node)].confidence; }  ///< the draft's, in [0, 1]
  bool is_chain() const { return chain_; }  ///< whether no node has two children

  /// Calls visit(child) for the children of `node` in drawing order, until it returns false.
  template <class Visit>
  void children(NodeId node, Visit visit) const {
    for (NodeId c = first_child(node); c != kNoParent; c = next_sibling(c))
      if (!visit(c)) return;
  }

  /// Whether a child of `node` has this token.
  bool has_child(NodeId node, Token token) const {
    bool found = false;
    children(node, [&](NodeId c) { return !(found = this->token(c) == token); });
    return found;
  }

  /// How this proposal was drawn, by its nodes; the kind that its shape declares may be wider.
  ProposalKind kind() const {
    if (shared_ > 0) return ProposalKind::shared;
    if (drawn_ + distinct_ == 0) return ProposalKind::deterministic;
    if (chain_) return ProposalKind::sampled;
    if (chosen_ + distinct_ == 0 && one_distribution_) return ProposalKind::sampled_iid;
    return chosen_ + drawn_ == 0 && one_distribution_ ? ProposalKind::sampled_distinct : ProposalKind::mixed;
  }

  /// The distribution that `node` was drawn from, before its earlier siblings are excluded.
  const Distribution& draft_distribution(NodeId node) const { return nodes_[index(node)].distribution; }

  /// q: the draft's probability of `token` at `node`, given its parent and its earlier siblings.
  double draft_prob(NodeId node, Token token) const {
    const Node& n = nodes_[index(node)];
    if (n.kind == Kind::distinct && is_earlier_sibling(node, token)) return 0.0;
    return n.scale * n.distribution(token);
  }
  /// The factor on draft_distribution(node): 1 over the mass that earlier siblings left.
  double draft_scale(NodeId node) const { return nodes_[index(node)].scale; }
  /// True if earlier siblings are excluded from draft_distribution(node).
  bool excludes_siblings(NodeId node) const { return nodes_[index(node)].kind == Kind::distinct; }

  /// The key of the uniform draw that accepts `node`.
  RandomKey accept_key(NodeId node) const { return detail::accept_key(origin_, depth(node), node); }
  /// The key of the token after `node` where it is drawn from the target's own distribution.
  RandomKey sample_key(NodeId node) const { return detail::sample_key(origin_, depth(node)); }
  /// The key of the token after `node` where it is drawn from the residual after rejections.
  RandomKey residual_key(NodeId node) const { return detail::residual_key(origin_, depth(node)); }
  /// The i-th further key of `node`, for a rule that needs more uniform draws than the library's. Throws
  /// std::invalid_argument unless i is in [0, 2^24 / capacity() - 1].
  RandomKey own_key(NodeId node, std::int32_t i) const {
    detail::expect_in("TokenTree::own_key: i", i, 0, detail::kMaxNodes / capacity_ - 1);
    return {position(node), origin_, RandomStream::own, static_cast<std::uint32_t>(i * capacity_ + node)};
  }
  /// The key of the noise of the token after `node`; index: token / 4.
  RandomKey noise_key(NodeId node) const { return {position(node) + 1, 0, RandomStream::noise, 0}; }

 protected:
  /// @cond
  enum class Kind : std::uint8_t { root, chosen, copied, drawn, distinct, shared };
  struct Node {
    Distribution distribution = {};
    double scale = 1;
    float confidence = 1;
    std::int32_t depth = 0;
    NodeId first_child = kNoParent, last_child = kNoParent, next_sibling = kNoParent;
    Kind kind = Kind::root;
  };

  TokenTree(std::int32_t vocab, std::int32_t max_nodes) : vocab_(vocab), capacity_(max_nodes) {
    detail::expect_in("ProposalBuilder: the vocabulary", vocab, 1, std::numeric_limits<std::int32_t>::max());
    detail::expect_in("ProposalBuilder: max_nodes", max_nodes, 1, detail::kMaxNodes);
    nodes_.reserve(static_cast<std::size_t>(max_nodes));
    tokens_.reserve(static_cast<std::size_t>(max_nodes));
    parents_.reserve(static_cast<std::size_t>(max_nodes));
    moved_.reserve(static_cast<std::size_t>(max_nodes));
  }
  TokenTree(const TokenTree&) = delete;
  TokenTree& operator=(const TokenTree&) = delete;
  TokenTree(TokenTree&&) = default;
  TokenTree& operator=(TokenTree&&) = delete;
  ~TokenTree() = default;

  void expect_node(NodeId node) const {
    if (node < 0 || node >= size())
      throw std::invalid_argument("ProposalBuilder: node " + std::to_string(node) + " of " +
                                  std::to_string(size()) + (size() == 0 ? "; call reset() first" : ""));
  }
  void expect_room(NodeId parent) const {
    expect_node(parent);
    if (room() <= 0)
      throw std::invalid_argument("ProposalBuilder: full, " + std::to_string(limit_) + " nodes");
  }
  void expect_token(const char* what, Token token) const {
    if (token < 0 || token >= vocab_)
      throw std::invalid_argument(std::string("ProposalBuilder: ") + what + ' ' + std::to_string(token) +
                                  " is outside the vocabulary of " + std::to_string(vocab_));
  }

  /// Starts with the root alone, at a position of a text; `limit` is clamped to the capacity.
  void begin(Token root, std::int32_t position, std::int32_t limit) {
    origin_ = position;
    limit_ = std::clamp(limit, 1, capacity_);
    chosen_ = drawn_ = distinct_ = shared_ = 0;
    chain_ = one_distribution_ = true;
    nodes_.clear();
    tokens_.clear();
    parents_.clear();
    push(root, kNoParent, {});
  }
  NodeId push(Token token, NodeId parent, Node node) {
    const NodeId id = size();
    if (parent != kNoParent) {
      const Node& p = nodes_[index(parent)];
      node.depth = p.depth + 1;
      one_distribution_ = one_distribution_ && (p.last_child == kNoParent ||
                                                draft_distribution(p.last_child) == node.distribution);
    }
    nodes_.push_back(node);
    tokens_.push_back(token);
    parents_.push_back(parent);
    if (parent != kNoParent) link(id, parent);
    return id;
  }
  /// Removes all nodes but the root and those with kept[node] != 0, whose parents must be kept, too.
  void keep_only(std::span<const std::uint8_t> kept) {
    NodeId to = 1;
    moved_.assign(tokens_.size(), 0);
    nodes_[0].first_child = nodes_[0].last_child = kNoParent;
    chain_ = true;
    for (NodeId n = 1; n < size(); ++n) {
      Node node = nodes_[index(n)];
      if (kept[index(n)] == 0) {
        count(node.kind, -1);
        continue;
      }
      const NodeId parent = moved_[index(parents_[index(n)])], id = moved_[index(n)] = to++;
      node.first_child = node.last_child = node.next_sibling = kNoParent;
      nodes_[index(id)] = node;
      tokens_[index(id)] = tokens_[index(n)];
      parents_[index(id)] = parent;
      link(id, parent);
    }
    nodes_.resize(index(to));
    tokens_.resize(index(to));
    parents_.resize(index(to));
  }
  /// Removes `node` of a chain and all nodes after it.
  void cut(NodeId node) {
    for (NodeId n = node; n < size(); ++n) count(nodes_[index(n)].kind, -1);
    nodes_.resize(index(node));
    tokens_.resize(index(node));
    parents_.resize(index(node));
    nodes_.back().first_child = nodes_.back().last_child = kNoParent;
  }
  void count(Kind kind, std::int32_t by) {
    (kind == Kind::drawn      ? drawn_
     : kind == Kind::distinct ? distinct_
     : kind == Kind::shared   ? shared_
                              : chosen_) += by;
  }
  bool shares_noise() const { return shared_ > 0; }
  Node& node_at(NodeId node) { return nodes_[index(node)]; }
  const Node& node_at(NodeId node) const { return nodes_[index(node)]; }
  void limit_to(std::int32_t nodes) { limit_ = std::clamp(nodes, size(), std::max(size(), limit_)); }
  /// @endcond

 private:
  static std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }
  /// Makes `node` the last child of `parent`.
  void link(NodeId node, NodeId parent) {
    Node& p = nodes_[index(parent)];
    chain_ = chain_ && parent == node - 1;
    (p.first_child == kNoParent ? p.first_child : nodes_[index(p.last_child)].next_sibling) = node;
    p.last_child = node;
  }
  bool is_earlier_sibling(NodeId node, Token token) const {
    for (NodeId c = first_child(parent(node)); c != node; c = next_sibling(c))
      if (this->token(c) == token) return true;
    return false;
  }

  std::int32_t vocab_, capacity_, limit_ = 0, origin_ = 0;
  std::int32_t chosen_ = 0, drawn_ = 0, distinct_ = 0, shared_ = 0;
  // chain_: no node has two children; one_distribution_: siblings share their distribution
  bool chain_ = true, one_distribution_ = true;
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::vector<NodeId> parents_;
  std::vector<NodeId> moved_;  // the new numbers of nodes while others are removed
};

}  // namespace specula
