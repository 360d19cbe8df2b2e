// SPDX-License-Identifier: MIT
// Candidates of a deterministic proposal: top-k expansion, and pruning by path probability.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/policy/ask.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/propose_context.hpp"

namespace specula::detail {

struct Candidate {
  Token token;
  std::int32_t parent;         // index of a candidate or node of the tree, as the shape decides
  float confidence;            // the draft's probability of the token
  double reach;                // probability that the path up to it is accepted; at most its parent's
  NodeId drafted = kNoParent;  // its number among the drafter's nodes, if it was run
  NodeId node = kNoParent;     // its number in the tree, if it was added
};

/// Orders by reach, largest first, ties to the lower index.
struct Likelier {
  std::span<const Candidate> pool;
  bool operator()(std::int32_t a, std::int32_t b) const {
    const double x = pool[static_cast<std::size_t>(a)].reach, y = pool[static_cast<std::size_t>(b)].reach;
    return x > y || (x == y && a < b);
  }
};

/// A pool of candidates and a list of selected ones. Allocates in reserve(), and later only if that was too
/// small.
class Candidates {
 public:
  /// `pool` candidates, `row` tokens per row, `width` nodes per draft call.
  void reserve(std::int32_t pool, std::int32_t row, std::int32_t width) {
    pool_.reserve(static_cast<std::size_t>(pool));
    listed.reserve(static_cast<std::size_t>(pool));
    reaches_.reserve(static_cast<std::size_t>(pool));
    top_.resize(static_cast<std::size_t>(row));
    tokens.reserve(static_cast<std::size_t>(width));
    parents.reserve(static_cast<std::size_t>(width));
    frontier.reserve(static_cast<std::size_t>(width));
    ended.reserve(static_cast<std::size_t>(pool));
  }
  void clear() {
    pool_.clear();
    listed.clear();
    frontier.clear();
    ended.clear();
  }

  /// The `count` best tokens of a draft's row; see ProposalBuilder::top_k. Valid until the next call.
  std::span<const Top> top_k(ProposalBuilder& tree, NodeId node, std::span<const float> row,
                             std::int32_t count) {
    top_.resize(static_cast<std::size_t>(std::max(1, count)));
    const std::int32_t found = tree.top_k(node, row, top_);
    return std::span<const Top>(top_).first(static_cast<std::size_t>(found));
  }

  std::int32_t add(const Top& top, std::int32_t parent, double reach) {
    pool_.push_back({top.token, parent, static_cast<float>(top.prob), reach});
    return size() - 1;
  }
  std::int32_t size() const { return static_cast<std::int32_t>(pool_.size()); }
  Candidate& operator[](std::int32_t index) { return pool_[static_cast<std::size_t>(index)]; }

  /// Makes the listed candidates the nodes of the next draft call, but for those that end the text.
  void advance(const ProposeContext& round) {
    frontier.clear();
    for (const std::int32_t i : listed) (round.ends_text((*this)[i].token) ? ended : frontier).push_back(i);
  }
  /// Lists all.
  void list_all() {
    listed.resize(pool_.size());
    std::iota(listed.begin(), listed.end(), 0);
  }
  /// Adds the ancestors of the listed candidates to the list. Cost: quadratic in the length of the list.
  void list_ancestors() {
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const std::int32_t parent = (*this)[listed[i]].parent;
      if (parent != kNoParent && std::find(listed.begin(), listed.end(), parent) == listed.end())
        listed.push_back(parent);
    }
  }
  /// Keeps the `most` listed candidates of the largest reach, ties to the lower index. An ancestor has no
  /// smaller reach and a lower index than its descendants, so it is never removed before them.
  void keep_best(std::int32_t most) {
    const auto count = static_cast<std::size_t>(std::max(0, most));
    if (count >= listed.size()) return;
    std::nth_element(listed.begin(), listed.begin() + static_cast<std::ptrdiff_t>(count), listed.end(),
                     Likelier{pool_});
    listed.resize(count);
  }
  /// The same, and at most as many as pay in addition to the `nodes` of the tree. Sorts the list by index,
  /// which puts parents first.
  void prune(std::int32_t most, const ProposeContext& round, std::int32_t nodes) {
    keep_best(most);
    if (round.cost_model) {
      std::sort(listed.begin(), listed.end(), Likelier{pool_});
      reaches_.clear();
      for (const std::int32_t i : listed) reaches_.push_back((*this)[i].reach);
      listed.resize(static_cast<std::size_t>(round.cost_model->best_count(reaches_, nodes)));
    }
    std::sort(listed.begin(), listed.end());
  }

  std::vector<std::int32_t> listed;    // indices
  std::vector<std::int32_t> frontier;  // indices: the nodes of the next draft call
  std::vector<std::int32_t> ended;     // indices: would have been among them, but end the text
  std::vector<Token> tokens;           // of a draft call
  std::vector<NodeId> parents;

 private:
  std::vector<Candidate> pool_;
  std::vector<Top> top_;
  std::vector<double> reaches_;
};

/// The draft call over the root (level 0) or the frontier; of width 0 if the drafter has no room for it. The
/// likeliest of its draft tokens is added, if any.
template <class D>
DraftCall expansion(const D& drafter, const ProposeContext& round, Candidates& work, std::int32_t level,
                    NodeId drafted) {
  const auto width = level == 0 ? 1 : static_cast<std::int32_t>(work.frontier.size());
  if (drafted + width > drafter.capacity() - static_cast<std::int32_t>(round.committed.size()))
    return {.width = 0};
  double reach = level == 0 ? 1 : 0;
  for (const std::int32_t f : work.frontier) reach += work[f].reach;
  return {reach, width, 1, level + 1};
}

/// The draft's rows, in one call over the root, after a sync(), if there are no candidates yet, otherwise
/// over the frontier.
template <class D>
Asked<D> ask_frontier(D& drafter, const ProposeContext& round, ProposalBuilder& tree, Candidates& work) {
  work.tokens.clear();
  work.parents.clear();
  if (work.size() == 0) {
    drafter.sync(round.committed, {});  // only here: an unused drafter must cost nothing
    work.tokens.push_back(tree.root());
    work.parents.push_back(kNoParent);
  }
  for (const std::int32_t f : work.frontier) {
    work.tokens.push_back(work[f].token);
    work.parents.push_back(work[f].parent == kNoParent ? 0 : work[work[f].parent].drafted);
  }
  return ask(drafter, tree, work.tokens, work.parents);
}

/// Clears the list and calls visit(parent, node, row) for each row of ask_frontier(): `parent` is a candidate
/// or kNoParent, `node` the number that errors name. `drafted` counts the drafter's nodes.
template <class Visit>
void each_row(Candidates& work, const LogitsView& rows, NodeId& drafted, Visit visit) {
  const bool at_root = work.size() == 0;
  work.listed.clear();
  for (std::int32_t i = 0; i < rows.rows; ++i) {
    const std::int32_t parent = at_root ? kNoParent : work.frontier[static_cast<std::size_t>(i)];
    if (!at_root) work[parent].drafted = drafted;
    visit(parent, drafted++, rows.row(i));
  }
}

/// The same, adding the `top_k` likeliest tokens after each node as candidates; the `top_k` of them with the
/// largest reach become the frontier, or are ended.
inline void expand(const ProposeContext& round, ProposalBuilder& tree, Candidates& work,
                   const LogitsView& rows, std::int32_t top_k, NodeId& drafted) {
  each_row(work, rows, drafted, [&](std::int32_t parent, NodeId node, auto row) {
    const double reach = parent == kNoParent ? 1.0 : work[parent].reach;
    for (const Top& top : work.top_k(tree, node, row, top_k))
      work.listed.push_back(work.add(top, parent, reach * round.accept_probability(top.prob)));
  });
  work.keep_best(top_k);
  std::sort(work.listed.begin(), work.listed.end());
  work.advance(round);
}

/// Adds the listed candidates to the tree. Requires that parents come first.
inline void build_tree(ProposalBuilder& tree, Candidates& work) {
  for (const std::int32_t i : work.listed) {
    Candidate& c = work[i];
    c.node = tree.choose(c.parent == kNoParent ? 0 : work[c.parent].node, c.token, c.confidence);
  }
}

}  // namespace specula::detail
