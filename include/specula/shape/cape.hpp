// SPDX-License-Identifier: MIT
// CAPE (confidence-aware proposal expansion): a greedy chain with sibling tokens, more of them where the
// draft is less confident.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/fields.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

/// The number of extra siblings by confidence: counts[i] if it is in (thresholds[i - 1], thresholds[i]].
/// Requires ascending thresholds.
struct CapeExtras {
  std::array<float, 3> thresholds{0.3f, 0.6f, 0.8f};  ///< of the confidence, in [0, 1]
  std::array<std::int32_t, 4> counts{7, 5, 3, 1};     ///< siblings, from low to high confidence

  /// `count` for every confidence: the ablation of the paper.
  static constexpr CapeExtras fixed(std::int32_t count) { return {.counts = {count, count, count, count}}; }

  /// The number of siblings at this confidence.
  constexpr std::int32_t operator()(float confidence) const {
    std::size_t bin = 0;
    while (bin < thresholds.size() && confidence > thresholds[bin]) ++bin;
    return counts[bin];
  }
  /// Throws std::invalid_argument for thresholds that leave [0, 1] or descend, and counts out of range.
  void validate() const {
    detail::expect_all_in("CapeExtras::thresholds", thresholds, 0.0f, 1.0f);
    for (std::size_t i = 1; i < thresholds.size(); ++i)
      if (thresholds[i] < thresholds[i - 1])
        throw std::invalid_argument("CapeExtras::thresholds[" + detail::number(i) + "] is " +
                                    detail::number(thresholds[i]) + ", below the one before it, " +
                                    detail::number(thresholds[i - 1]));
    detail::expect_all_in("CapeExtras::counts", counts, 0, detail::kMaxDraftTokens);
  }
  /// The largest of the counts.
  constexpr std::int32_t most() const { return *std::max_element(counts.begin(), counts.end()); }
};

///   specula::Cape shape{.length = 8, .budget = 32};
///
/// A chain of `length` greedy draft tokens, the spine. Each has the next likeliest tokens of its row as
/// siblings, their number depending on the draft's confidence in it (softmax at temperature 1). These extras
/// are leaves and need no draft call. If `budget` nodes (without the root) do not suffice, the spine has
/// priority, then the extras with the likeliest paths. Deterministic.
/// **Draws.** Nothing. **Cost.** Per spine token one draft call and two reads of its row.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** GLIDE with a CAPE (Du et al. 2024), section 4.2.
struct Cape {
  static constexpr ProposalKind kind = ProposalKind::deterministic;  ///< how its draft tokens are drawn

  std::int32_t length = 4;       ///< draft tokens of the spine
  std::int32_t budget = 32;      ///< nodes of the proposal, root not counted
  CapeExtras extras = {};        ///< siblings by confidence
  detail::Candidates work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const {
    return {1 + std::min(budget, detail::node_count(length * (1 + std::int64_t{extras.most()})))};
  }
  /// Throws std::invalid_argument if a number is negative or too large, a threshold is not in [0, 1], or the
  /// thresholds descend.
  void validate() const {
    detail::expect_in("Cape::length", length, 0, detail::kMaxDraftTokens);
    detail::expect_in("Cape::budget", budget, 0, detail::kMaxDraftTokens);
    extras.validate();
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) {
    work.reserve(detail::node_count(std::int64_t{length} * extras.most()), 1 + extras.most(), 1);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    if (!can_draft(drafter, round)) co_return;
    work.clear();
    double reach = 1;  // probability that the whole spine is accepted
    NodeId spine = 0,
           parent = kNoParent;  // the last node, in the tree's numbers; the one before, in the drafter's
    for (NodeId i = 0; i < std::min(length, budget) && tree.room() > 0 && !round.ends_text(tree, spine);
         parent = i++) {
      const bool pays = co_await round.call_pays(tree, {.reach = reach, .nodes = tree.size()});
      if (!pays) break;
      if (i == 0) drafter.sync(round.committed, {});
      const Token token = tree.token(spine);
      const LogitsView rows = co_await ask(drafter, tree, {&token, 1}, {&parent, 1});
      const auto top = work.top_k(tree, spine, rows.row(0), 1 + extras.most());
      const double confidence = top[0].prob;
      if (!round.node_pays(reach, confidence, tree.size())) break;  // then its siblings would not pay either
      const auto others = static_cast<std::size_t>(extras(static_cast<float>(confidence)));
      for (const Top& other : top.subspan(1, std::min(others, top.size() - 1)))
        work.add(other, spine, reach * round.accept_probability(other.prob));
      spine = tree.choose(spine, top[0].token, static_cast<float>(confidence));
      reach *= round.accept_probability(confidence);
    }
    work.list_all();
    work.prune(std::min(tree.room(), budget + 1 - tree.size()), round, tree.size());
    for (const std::int32_t extra : work.listed)
      tree.choose(work[extra].parent, work[extra].token, work[extra].confidence);
  }
};

}  // namespace specula
