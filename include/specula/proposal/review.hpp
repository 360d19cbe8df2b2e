// SPDX-License-Identifier: MIT
// Review in a cascade: a draft model verifies the tokens of a cheaper one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/distribution/lenient_row.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/distribution/residual_weights.hpp"
#include "specula/proposal/proposal_builder.hpp"

namespace specula {

namespace detail {

/// review() at temperature 0, its arguments checked.
inline bool review_greedy(ProposalBuilder& tree, NodeId node, std::span<const float> row, double lenience) {
  using Kind = ProposalBuilder::Kind;
  ProposalBuilder::Node& judged = tree.node_at(node);
  if (judged.kind != Kind::chosen && judged.kind != Kind::copied)
    throw std::invalid_argument("review: node " + std::to_string(node) +
                                " was drawn; a review at temperature 0 requires a chosen node");
  const Top best = tree.top(node - 1, row);
  double prob = best.prob;
  bool accepted = tree.token(node) == best.token;
  if (!accepted && lenience > 1) {
    const Distribution reviewer =
        tree.named(node - 1, [&] { return tree.scan_.distribution(row, SamplingParams{}); });
    prob = reviewer(tree.token(node));
    accepted = static_cast<double>(judged.confidence) <= lenience * prob;
  }
  if (accepted) {
    judged.kind = Kind::chosen;
    judged.confidence = static_cast<float>(prob);
  } else {
    tree.drop(node);
    tree.choose(node - 1, best.token, static_cast<float>(best.prob));
  }
  return accepted;
}

}  // namespace detail

/// A reviewer verifies `node` of a chain, `row` (V) being the reviewer's logits after the node's parent.
/// Returns true if the node is accepted; otherwise the node and all after it are replaced by one token of
/// the reviewer. In both cases the recorded distribution becomes that of the token over all uniform draws:
/// with lenience 1 the reviewer's own, otherwise q_eff of detail::lenient_row (if that equals the draft's
/// distribution, the node is accepted without a test). So the next verification of the node, by another
/// reviewer or by the target, is exact at any lenience.
///
/// At temperature 0 the node is accepted if it is the reviewer's first largest logit, or if its confidence
/// is at most lenience times the reviewer's probability of it; its replacement is that largest logit.
/// Copied nodes are reviewed with lenience 1 (as in the paper), and so are chosen ones above temperature 0.
///
/// Uniform draws: at most one `review_accept`, and one `review_residual` after a rejection; none at
/// temperature 0. Cost: one read of the row and of the one that the node was drawn from, and two more of
/// both with lenience above 1. Source: Cascade Speculative Drafting, Algorithm 1. Throws as
/// ProposalBuilder::store(), and std::invalid_argument if the tree is no chain, holds tokens drawn with
/// shared noise, or lenience is not in [1, 1e30].
template <class Rng>
bool review(ProposalBuilder& tree, NodeId node, std::span<const float> row, const SamplingParams& params,
            double lenience, Rng& rng) {
  using Kind = ProposalBuilder::Kind;
  tree.expect_node(node);
  if (node == 0 || !tree.is_chain())
    throw std::invalid_argument("review: node " + std::to_string(node) +
                                " is the root, or the tree is no chain");
  detail::expect_in("review: lenience", lenience, 1.0, detail::kMaxLenience);
  validate(params);
  if (tree.shares_noise())
    throw std::invalid_argument("review: the proposal was drawn with the target's own noise");
  const NodeId parent = node - 1;
  const bool forgives = lenience > 1 && tree.node_at(node).kind != Kind::copied;
  if (params.greedy()) return detail::review_greedy(tree, node, row, forgives ? lenience : 1.0);

  const std::span<float> slot = tree.rows_.slot(parent, row);
  tree.expect_unused(slot, parent, node);
  const Distribution draft = tree.draft_distribution(node);
  tree.scanned_ = {};  // this review overwrites masses_: the slot's belong to the draft until the decision
  const auto scan = [&](std::span<const float> logits, const SamplingParams& by) {
    return tree.named(parent, [&] { return tree.scan_.weights(logits, by, tree.masses_).distribution; });
  };
  Distribution distribution = scan(row, params);
  if (forgives && !draft.is_point()) {
    if (!detail::lenient_row(draft, distribution, lenience, tree.lenient_)) return true;
    distribution = scan(tree.lenient_, SamplingParams{});
  }
  Token token = tree.token(node);
  bool accepted =
      rng.accept(distribution(token) / draft(token), tree.review_key(parent, RandomStream::review_accept));
  if (!accepted) {
    const detail::ResidualWeights rest(distribution, draft, tree.vocab(), tree.distinct_masses_);
    accepted = !(rest.total() > 0);  // equal distributions, rejected by rounding only
    if (!accepted) token = rng.draw(rest, tree.review_key(parent, RandomStream::review_residual));
  }
  std::copy_n(distribution.logits.floats(), slot.size(), slot.begin());
  std::copy(tree.masses_.begin(), tree.masses_.end(), tree.rows_.masses(parent).begin());
  distribution.logits = slot.data();
  tree.rows_.made(parent, distribution);
  if (!accepted) {
    tree.drop(node);
    tree.push(token, parent, {.kind = Kind::drawn});
    tree.count(Kind::drawn, 1);
  }
  ProposalBuilder::Node& reviewed = tree.node_at(node);
  tree.count(reviewed.kind, -1);
  tree.count(Kind::drawn, 1);
  reviewed.kind = Kind::drawn;
  reviewed.scale = 1;
  reviewed.distribution = distribution;
  reviewed.confidence = static_cast<float>(distribution(token));
  return accepted;
}

}  // namespace specula
