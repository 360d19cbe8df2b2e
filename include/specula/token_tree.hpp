// A proposal: guessed tokens under the root, and how each of them was drawn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "chance.hpp"
#include "detail/distinct_weights.hpp"
#include "detail/law_difference.hpp"
#include "detail/lenient_row.hpp"
#include "detail/row_scan.hpp"
#include "rows.hpp"
#include "sampling_params.hpp"

namespace specula {

/// How the children of a proposal's nodes were drawn. A rule keeps the target's law only for the laws it
/// knows.
enum class DraftLaw : std::uint8_t {
  deterministic,     // chosen: the same tokens whatever the coins
  sampled,           // one path, each token drawn from the law recorded for it
  sampled_iid,       // siblings drawn independently from one law
  sampled_distinct,  // siblings drawn without replacement
  mixed,             // anything else whose laws are recorded
  shared,            // drawn with the noise that the target's own token is drawn with
};

/// Whether a shape that declares `declared` may give a proposal that was drawn as `drawn`: one path of a tree
/// of siblings, point masses (n-grams, temperature 0) anywhere, and under `mixed` whatever is recorded and
/// has coins of its own.
constexpr bool covers(DraftLaw declared, DraftLaw drawn) {
  const bool siblings = declared == DraftLaw::sampled_iid || declared == DraftLaw::sampled_distinct;
  return declared == drawn || drawn == DraftLaw::deterministic ||
         (declared == DraftLaw::mixed && drawn != DraftLaw::shared) ||
         (siblings && drawn == DraftLaw::sampled);
}

/// Tokens in topological order, node 0 the root. Nodes enter through draw(), draw_distinct(), draw_shared(),
/// choose() and copy() only, so what is recorded is what was drawn; nothing drawn is ever removed but by a
/// review(). Allocates in the constructor only.
class TokenTree {
 public:
  /// `max_nodes` counts the root. `stored_rows`: how many nodes may keep a draft row (V floats each) that
  /// children are drawn from; 0 for deterministic proposals. Throws std::invalid_argument on sizes out of
  /// range.
  TokenTree(std::int32_t vocab, std::int32_t max_nodes, std::int32_t stored_rows)
      : vocab_(vocab),
        scan_(checked(vocab, max_nodes, stored_rows)),
        distinct_masses_(static_cast<std::size_t>(detail::tile_count(vocab))),
        arena_(static_cast<std::size_t>(vocab) * static_cast<std::size_t>(stored_rows)),
        lenient_(stored_rows > 0 ? static_cast<std::size_t>(vocab) : 0) {
    nodes_.reserve(static_cast<std::size_t>(max_nodes));
    tokens_.reserve(static_cast<std::size_t>(max_nodes));
    parents_.reserve(static_cast<std::size_t>(max_nodes));
    capacity_ = limit_ = max_nodes;
    stored_rows_ = stored_rows;
  }
  TokenTree(const TokenTree&) = delete;  // its laws point into its rows
  TokenTree& operator=(const TokenTree&) = delete;
  TokenTree(TokenTree&&) = default;
  TokenTree& operator=(TokenTree&&) = default;

  /// Starts a proposal of at most `limit` nodes under `root`, which stands at `position` of the text.
  void reset(Token root, std::int32_t position, std::int32_t limit) {
    origin_ = position;
    limit_ = std::clamp(limit, 1, capacity_);
    serial_ = 0;
    chosen_ = drawn_ = distinct_ = shared_ = 0;
    chain_ = one_law_ = true;
    scan_.forget();  // rows are about to be overwritten
    nodes_.clear();
    tokens_.clear();
    parents_.clear();
    push(root, kNoParent, {});
  }
  void reset(Token root, std::int32_t position) { reset(root, position, capacity_); }
  /// Leaves this proposal no more room than for `nodes` in all.
  void narrow(std::int32_t nodes) { limit_ = std::clamp(nodes, size(), limit_); }

  // ---- growth

  /// Copies the draft's row after `node` (V logits) into the tree and returns the law that `params` make of
  /// it. Throws std::runtime_error naming the node if the row holds NaN or is empty.
  RowLaw store(NodeId node, std::span<const float> row, const SamplingParams& params) {
    const std::span<float> slot = slot_for(node, row);
    scan_.forget();  // it may be the row that was seen last
    std::copy(row.begin(), row.end(), slot.begin());
    return named(node, [&] { return scan_.law(slot, params); });
  }

  /// Adds a child of `parent` drawn from `law`, which must stay valid with its row until the next reset.
  /// Children drawn twice from one law are independent of each other (with replacement).
  template <class Chance>
  NodeId draw(NodeId parent, const RowLaw& law, Chance& chance) {
    check_room(parent);
    if (law.is_point()) return choose(parent, law.point, 1.0f);
    const Token token = chance.draw(scan_.weights(law), draft_site(parent));
    ++drawn_;
    return push(token, parent,
                {.law = law, .confidence = static_cast<float>(law(token)), .kind = Kind::drawn});
  }

  /// Adds a child of `parent` drawn from `law` given that it is none of the children that `parent` has.
  /// Returns kNoParent and adds nothing when no other token has mass.
  template <class Chance>
  NodeId draw_distinct(NodeId parent, const RowLaw& law, Chance& chance) {
    check_room(parent);
    if (law.is_point()) return has_child(parent, law.point) ? kNoParent : choose(parent, law.point, 1.0f);
    const detail::DistinctWeights weights(*this, parent, scan_.weights(law), distinct_masses_);
    if (!(weights.total() > 0)) return kNoParent;
    const Token token = chance.draw(weights, draft_site(parent));
    ++distinct_;
    const double scale = 1.0 / weights.total();
    return push(
        token, parent,
        {.law = law, .scale = scale, .confidence = static_cast<float>(law(token)), .kind = Kind::distinct});
  }

  /// Adds a child of `parent` drawn from `law` with the noise of its position, the same that SharedNoise
  /// draws the target's token with.
  template <class Chance>
  NodeId draw_shared(NodeId parent, const RowLaw& law, Chance& chance) {
    check_room(parent);
    if (law.is_point()) return choose(parent, law.point, 1.0f);
    const Token token = chance.draw_by_noise(scan_.weights(law), noise_site(parent));
    ++shared_;
    return push(token, parent,
                {.law = law, .confidence = static_cast<float>(law(token)), .kind = Kind::shared});
  }

  /// Adds `token` as a child of `parent` whatever the coins. `confidence` is the draft's probability of it,
  /// for shapes and for reading; no exact rule looks at it. Siblings may share a token: exact rules (but
  /// KSeq) stay with the first, so what is below the others is never reached.
  NodeId choose(NodeId parent, Token token, float confidence) {
    return add_point(parent, token, confidence, Kind::chosen);
  }
  /// The same for a guess of a drafter without rows, which a review never forgives.
  NodeId copy(NodeId parent, Token token, float confidence) {
    return add_point(parent, token, confidence, Kind::copied);
  }

  /// A reviewer judges `node` of a chain, `row` being its own logits after the node's parent. True if the
  /// node stays; else it and everything behind it make place for one token of the reviewer's. Either way the
  /// law that is recorded then is the one that the token now has, whatever the coins were: with lenience 1
  /// the reviewer's own, else q_eff of detail::lenient_row (where that is the draft's own law nothing is
  /// asked and nothing changes). So what judges the node next, another reviewer or the target, is exact at
  /// any lenience.
  ///
  /// At temperature 0 it stays if it is the reviewer's first largest logit, or if its confidence is at most
  /// lenience times the reviewer's probability of it; what replaces it is that largest logit. Copied nodes
  /// are judged with lenience 1 (as in the paper), and so are chosen ones above temperature 0.
  ///
  /// Coins: at most one `review_accept`, and a `review_residual` where it does not stay; none at temperature
  /// 0. Cost: a read of the row and of the one that the node was drawn from, and two more of both with
  /// lenience above 1. Source: Cascade Speculative Drafting, Algorithm 1. Throws as store(), and
  /// std::invalid_argument if the tree is no chain, holds what was drawn with shared noise, or lenience is
  /// below 1.
  template <class Chance>
  bool review(NodeId node, std::span<const float> row, const SamplingParams& params, double lenience,
              Chance& chance) {
    check_node(node);
    if (node == 0 || !chain_)
      throw std::invalid_argument("TokenTree::review: node " + std::to_string(node) +
                                  " is the root, or the tree is no chain");
    if (!(lenience >= 1))
      throw std::invalid_argument("TokenTree::review: lenience is " + std::to_string(lenience) +
                                  ", must be at least 1");
    if (shared_ > 0)
      throw std::invalid_argument("TokenTree::review: the proposal was drawn with the target's own noise");
    const NodeId parent = node - 1;
    const bool forgives = lenience > 1 && nodes_[index(node)].kind != Kind::copied;
    if (params.greedy()) return review_greedy(node, row, forgives ? lenience : 1.0);

    const std::span<float> slot = slot_for(parent, row);
    const RowLaw draft = row_law(node);
    RowLaw law = named(parent, [&] { return scan_.law(row, params); });
    if (forgives && !draft.is_point()) {
      if (!detail::lenient_row(draft, law, lenience, lenient_)) return true;
      scan_.forget();
      law = named(parent, [&] { return scan_.law(lenient_, SamplingParams{}); });
    }
    Token token = tokens_[index(node)];
    bool stays = chance.accept(law(token) / draft(token), review_site(parent, Stream::review_accept));
    if (!stays) {
      const detail::LawDifference rest(law, draft, vocab_, distinct_masses_);
      stays = !(rest.total() > 0);  // by rounding: the laws are one
      if (!stays) token = chance.draw(rest, review_site(parent, Stream::review_residual));
    }
    std::copy_n(law.logits, slot.size(), slot.begin());
    law.logits = slot.data();
    scan_.forget();
    if (!stays) cut(node), push(token, parent, {.kind = Kind::drawn}), count(Kind::drawn, 1);
    Node& reviewed = nodes_[index(node)];
    count(reviewed.kind, -1), count(Kind::drawn, 1);
    reviewed.kind = Kind::drawn;
    reviewed.scale = 1;
    reviewed.law = law;
    reviewed.confidence = static_cast<float>(law(token));
    return stays;
  }

  /// First of the largest logits of the draft's row after `node`, with its softmax probability: what a greedy
  /// shape chooses. Throws as store().
  Top top(NodeId node, std::span<const float> row) {
    return named(node, [&] { return scan_.top(row); });
  }
  /// The out.size() largest logits of the draft's row after `node`, best first, ties to the lower token, with
  /// their softmax probabilities. Returns how many there are: those at -infinity are left out. Cost: one read
  /// of the row. Throws as store().
  std::int32_t top_k(NodeId node, std::span<const float> row, std::span<Top> out) {
    return named(node, [&] { return scan_.top_k(row, out); });
  }

  // ---- reading

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::int32_t room() const { return limit_ - size(); }
  std::int32_t capacity() const { return capacity_; }
  std::int32_t vocab() const { return vocab_; }
  Tokens tokens() const { return tokens_; }   // (size)
  Nodes parents() const { return parents_; }  // (size), parents()[0] == kNoParent
  Token token(NodeId node) const { return tokens_[index(node)]; }
  NodeId parent(NodeId node) const { return parents_[index(node)]; }
  std::int32_t depth(NodeId node) const { return nodes_[index(node)].depth; }
  std::int32_t position(NodeId node) const { return origin_ + depth(node); }
  std::int32_t origin() const { return origin_; }
  NodeId first_child(NodeId node) const { return nodes_[index(node)].first_child; }
  NodeId next_sibling(NodeId node) const { return nodes_[index(node)].next_sibling; }
  float confidence(NodeId node) const { return nodes_[index(node)].confidence; }
  bool is_chain() const { return chain_; }

  /// Calls visit(child) for the children of `node` in the order of their drawing, until it returns false.
  template <class Visit>
  void children(NodeId node, Visit visit) const {
    for (NodeId c = first_child(node); c != kNoParent; c = next_sibling(c))
      if (!visit(c)) return;
  }

  /// Whether a child of `node` is `token`.
  bool has_child(NodeId node, Token token) const {
    bool found = false;
    children(node, [&](NodeId c) { return !(found = this->token(c) == token); });
    return found;
  }

  /// How this very proposal was drawn: what it holds decides, not what its shape may do.
  DraftLaw law() const {
    if (shared_ > 0) return DraftLaw::shared;
    if (drawn_ + distinct_ == 0) return DraftLaw::deterministic;
    if (chain_) return DraftLaw::sampled;
    if (chosen_ + distinct_ == 0 && one_law_) return DraftLaw::sampled_iid;
    return chosen_ + drawn_ == 0 && one_law_ ? DraftLaw::sampled_distinct : DraftLaw::mixed;
  }

  /// The law that `node` was drawn from, its earlier siblings not yet taken out.
  const RowLaw& row_law(NodeId node) const { return nodes_[index(node)].law; }

  /// q: the probability that `node`, given its parent and its earlier siblings, would have been `token`.
  double draft_prob(NodeId node, Token token) const {
    const Node& n = nodes_[index(node)];
    if (n.kind == Kind::distinct && is_earlier_sibling(node, token)) return 0.0;
    return n.scale * n.law(token);
  }
  /// What row_law(node) is multiplied by: 1 over the mass that earlier siblings left.
  double draft_scale(NodeId node) const { return nodes_[index(node)].scale; }
  /// True if earlier siblings are taken out of row_law(node).
  bool excludes_siblings(NodeId node) const { return nodes_[index(node)].kind == Kind::distinct; }

  /// The place of a coin about `node`.
  Site accept_site(NodeId node) const {
    return {position(node), origin_, Stream::accept, static_cast<std::uint32_t>(node)};
  }
  /// The places of the token after `node`: drawn from the target's own law, or from what rejections left of
  /// it.
  Site sample_site(NodeId node) const { return {position(node) + 1, 0, Stream::sample, 0}; }
  Site residual_site(NodeId node) const { return {position(node) + 1, origin_, Stream::residual, 0}; }
  /// The place of the noise of the token after `node`; index: token / 4.
  Site noise_site(NodeId node) const { return {position(node) + 1, 0, Stream::noise, 0}; }

 private:
  enum class Kind : std::uint8_t { root, chosen, copied, drawn, distinct, shared };
  struct Node {
    RowLaw law = {};
    double scale = 1;
    float confidence = 1;
    std::int32_t depth = 0;
    NodeId first_child = kNoParent, last_child = kNoParent, next_sibling = kNoParent;
    Kind kind = Kind::root;
  };

  static std::int32_t checked(std::int32_t vocab, std::int32_t max_nodes, std::int32_t stored_rows) {
    if (vocab < 1)
      throw std::invalid_argument("TokenTree: a vocabulary of " + std::to_string(vocab) +
                                  " tokens, must be at least 1");
    if (max_nodes < 1 || max_nodes >= 1 << 24)
      throw std::invalid_argument("TokenTree: max_nodes is " + std::to_string(max_nodes) +
                                  ", must be in [1, 2^24)");
    if (stored_rows < 0 || stored_rows > max_nodes)
      throw std::invalid_argument("TokenTree: stored_rows is " + std::to_string(stored_rows) +
                                  ", must be in [0, max_nodes]");
    return vocab;
  }
  template <class F>
  static std::invoke_result_t<F> named(NodeId node, F f) {
    try {
      return f();
    } catch (const std::runtime_error& e) {
      throw std::runtime_error("the draft's row after node " + std::to_string(node) + ": " + e.what());
    }
  }
  static std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }
  void check_node(NodeId node) const {
    if (node < 0 || node >= size())
      throw std::invalid_argument("TokenTree: node " + std::to_string(node) + " of " +
                                  std::to_string(size()));
  }
  void check_room(NodeId parent) const {
    check_node(parent);
    if (room() <= 0) throw std::invalid_argument("TokenTree: full, " + std::to_string(limit_) + " nodes");
  }
  /// Where the row after `node` is kept.
  std::span<float> slot_for(NodeId node, std::span<const float> row) {
    check_node(node);
    if (node >= stored_rows_)
      throw std::invalid_argument("TokenTree: node " + std::to_string(node) + " has no row, " +
                                  std::to_string(stored_rows_) + " are kept");
    if (row.size() != static_cast<std::size_t>(vocab_))
      throw std::invalid_argument("TokenTree: a row has " + std::to_string(row.size()) +
                                  " logits, the vocabulary " + std::to_string(vocab_) + " tokens");
    return std::span<float>(arena_).subspan(static_cast<std::size_t>(node) * row.size(), row.size());
  }
  NodeId add_point(NodeId parent, Token token, float confidence, Kind kind) {
    check_room(parent);
    if (token < 0 || token >= vocab_)
      throw std::invalid_argument("TokenTree: token " + std::to_string(token) +
                                  " is outside the vocabulary of " + std::to_string(vocab_));
    count(kind, 1);
    return push(token, parent, {.law = RowLaw::at(token), .confidence = confidence, .kind = kind});
  }
  bool review_greedy(NodeId node, std::span<const float> row, double lenience) {
    Node& judged = nodes_[index(node)];
    if (judged.kind != Kind::chosen && judged.kind != Kind::copied)
      throw std::invalid_argument("TokenTree::review: node " + std::to_string(node) +
                                  " was drawn, a review at temperature 0 is of chosen ones");
    const Top best = top(node - 1, row);
    double prob = best.prob;
    bool stays = token(node) == best.token;
    if (!stays && lenience > 1) {
      prob = named(node - 1, [&] { return scan_.law(row, SamplingParams{}); })(token(node));
      stays = static_cast<double>(judged.confidence) <= lenience * prob;
    }
    if (stays) {
      judged.kind = Kind::chosen;
      judged.confidence = static_cast<float>(prob);
    } else {
      cut(node);
      choose(node - 1, best.token, static_cast<float>(best.prob));
    }
    return stays;
  }
  /// Removes `node` of a chain and all behind it.
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
  Site draft_site(NodeId parent) { return review_site(parent, Stream::draft); }
  Site review_site(NodeId parent, Stream stream) {
    return {position(parent) + 1, origin_, stream, serial_++};
  }
  bool is_earlier_sibling(NodeId node, Token token) const {
    for (NodeId c = first_child(parent(node)); c != node; c = next_sibling(c))
      if (this->token(c) == token) return true;
    return false;
  }
  NodeId push(Token token, NodeId parent, Node node) {
    const NodeId id = size();
    if (parent != kNoParent) {
      Node& p = nodes_[index(parent)];
      node.depth = p.depth + 1;
      chain_ = chain_ && parent == id - 1;
      one_law_ = one_law_ && (p.last_child == kNoParent || row_law(p.last_child) == node.law);
      (p.first_child == kNoParent ? p.first_child : nodes_[index(p.last_child)].next_sibling) = id;
      p.last_child = id;
    }
    nodes_.push_back(node);
    tokens_.push_back(token);
    parents_.push_back(parent);
    return id;
  }

  std::int32_t vocab_, capacity_ = 0, limit_ = 0, stored_rows_ = 0, origin_ = 0;
  std::uint32_t serial_ = 0;
  std::int32_t chosen_ = 0, drawn_ = 0, distinct_ = 0, shared_ = 0;
  bool chain_ = true, one_law_ = true;  // no node has two children; siblings share their law
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::vector<NodeId> parents_;
  detail::RowScan scan_;
  std::vector<double> distinct_masses_;  // (ceil(V / 512))
  std::vector<float> arena_;             // (stored_rows, V); slot = node whose children are drawn from it
  std::vector<float> lenient_;           // (V), if rows are stored: a row on its way into the arena
};

}  // namespace specula
