// SPDX-License-Identifier: MIT
// Copies or drafts: each round what promises more tokens per second.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/cost/acceptance_estimator.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/draft/stack.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"
#include "specula/shape/cost_aware.hpp"

namespace specula {

///   specula::Speculator run{verifier, specula::Stack{specula::ModelDrafter{draft}, specula::MaxGram{vocab}},
///                           specula::Either{specula::Chain<>{.length = 8}}};
///
/// A round is either a chain of copies by a Stack's second drafter, such as MaxGram, or what `shape` drafts
/// with the first one under CostAware. Copies cost next to nothing to find, so the chain is looked up first.
/// It is the proposal where its expected tokens over T(n) are more than the rate of drafting where chains
/// promised as much: text that can be copied is easier to draft, too. What was looked up is compared with the
/// text in every round, so what copies are worth is learned without proposing them. To know the rate of
/// drafting, some rounds draft all the same: until 6 did, where fewer than 3 tokens are promised, then 8
/// after 32 rounds of copies, after 64 and so on. If no draft call pays in such a round, it copies what it
/// may. So a text that repeats its prompt is copied, and any other is drafted. What copies lose is within the
/// balance of CostAware, too.
/// **Draws.** As `shape`; copies draw nothing, and whether there are any depends on no uniform draw of
/// theirs. Time is an input, as it is for CostAware.
/// **Cost.** That of CostAware, and a call of the second drafter per token that it has, at most `copies`.
/// **Throws.** validate(): std::invalid_argument for `copies` out of range, and what the shape's throws.
/// propose(): as the drafters and the tree. **Source.** Nothing of a paper's; Oliaro et al. 2025
/// (SuffixDecoding) choose by a threshold for the expected tokens.
template <class S>
class Either {
 public:
  static constexpr ProposalKind kind = S::kind;  ///< how its draft tokens are drawn: point masses go with all

  /// At most `copies` tokens are copied. A default-constructed CostCurve is learned: see CostAware.
  explicit Either(S shape, std::int32_t copies = 10, CostCurve target = {}, CostCurve draft = {})
      : drafts_(std::move(shape), std::move(target), std::move(draft)), copies_(copies) {
    forget();
  }

  /// See CostAware::carry(): of the copies' acceptance rates, too.
  Either& carry(bool on) {
    drafts_.carry(carry_ = on);
    return *this;
  }

  /// How large its proposals get.
  NodeCounts nodes() const {
    NodeCounts counts = drafts_.nodes();
    counts.most = std::max(counts.most, detail::node_count(std::int64_t{1} + copies_));
    return counts;
  }
  /// Throws std::invalid_argument unless `copies` is in [1, 2^24 - 2]; and what the shape's validate()
  /// throws.
  void validate() const {
    detail::expect_in("Either::copies", copies_, 1, detail::kMaxDraftTokens);
    drafts_.validate();
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& sizes = {}) {
    drafts_.reserve(sizes);
    chain_.reserve(static_cast<std::size_t>(copies_));
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <detail::StackOf<2> D, RandomSource C>
  SPECULA_STEPS propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    copied_ = look_up(stack.template get<1>(), round, tree);
    drafted_ = {};
    if (copied_ == 0 && can_draft(stack.template get<0>(), round)) {
      const Usage before = stack.usage(0);
      co_await drafts_.propose(stack.template get<0>(), round, tree, rng);
      drafted_ = stack.usage(0) - before;
      // Where drafting does not pay now, what can be copied costs no call. None has room in a plain round.
      if (drafted_.calls == 0 && tree.size() == 1 && (shared_ || !drafts_.budget().measures()))
        copied_ = std::min(best_, tree.room());
    }
    for (std::int32_t i = 0; i < copied_; ++i) {
      const Copy& copy = chain_[static_cast<std::size_t>(i)];
      tree.copy(i, copy.token, copy.confidence);
    }
  }

  /// Learns from a round's result.
  void learn(const TokenTree& tree, const VerifyResult& result, Timing timing) {
    timing.draft = drafted_;  // without the look-ups
    learn_copies(tree, result);
    if (trials_ > 0) --trials_;
    if (copied_ == 0) {
      double cost = drafts_.learn(tree, result, timing);
      // Of a pass that many texts share, only what the draft took beside it is this text's own.
      if (shared_ && timing.target.seconds > 0) cost += drafted_.seconds / timing.target.seconds;
      // Else it was plain decoding, or a draft that catches up.
      if (drafted_.calls > 0 && !std::exchange(resumes_, false)) {
        const auto tokens = static_cast<double>(result.accepted.size());
        drafting_[0].saw(tokens, cost);
        if (level_ > 0) drafting_[level_].saw(tokens, cost);
      }
      return;
    }
    if (shared_)
      copying_[level_].saw(static_cast<double>(result.accepted.size()), 1);
    else
      drafts_.learn_other(tree, result, timing);
    if (++waited_ >= patience_) {
      trials_ = kTrials, waited_ = 0, resumes_ = true;
      patience_ = std::min(2 * patience_, kMostPatience);
    }
  }

  /// Begins a text.
  void reset() {
    drafts_.reset();
    if (!carry_) forget();
    resumes_ = true;  // the draft reads the prompt
  }

  const CostAware<S>& drafts() const { return drafts_; }  ///< what drafts, and what it has learned

 private:
  static constexpr double kFade = 1 - 1.0 / 64;  // factor per round on earlier ones, as BatchBudget's

  static constexpr double kFew = 6;     // rounds for a usable rate
  static constexpr double kDoubt = 4;   // over the rounds that drafting's rate is known from: its advantage
  static constexpr double kPlenty = 3;  // expected tokens of copies that need no comparison at first
  /// Rounds of drafting in a row, since a draft that has paused must catch up; and of copies before them.
  static constexpr std::int32_t kTrials = 8, kPatience = 32, kMostPatience = 1024;
  static constexpr std::array kLevels = {1.5, 2.0, 3.0, 5.0};  // expected tokens of a round of copies

  struct Copy {
    Token token;
    float confidence;
  };
  /// The rounds of one kind where copies promised about as much.
  struct Rounds {
    double tokens = 0, cost = 0, rounds = 0;

    /// One that seems to have cost far more than those before was interrupted.
    void saw(double more_tokens, double more_cost) {
      if (rounds >= kFew) more_cost = std::min(more_cost, CostCurve::kOutlier * cost / rounds);
      tokens = kFade * tokens + more_tokens;
      cost = kFade * cost + more_cost;
      rounds = kFade * rounds + 1;
    }
  };

  /// Compares the text with what was looked up, whether or not it was proposed: copies teach without a cost.
  void learn_copies(const TokenTree& tree, const VerifyResult& result) {
    if (chain_.empty()) return;
    acceptance_.fade(kFade);
    for (std::size_t i = 0; i < std::min(chain_.size(), result.accepted.size()); ++i) {
      const bool last = i + 1 == result.accepted.size();
      const bool right = chain_[i].token == (last ? result.next_token : tree.token(result.accepted[i + 1]));
      acceptance_.saw(static_cast<double>(chain_[i].confidence), right);
      if (!right) break;
    }
  }

  void forget() {
    acceptance_ = {};
    drafting_ = copying_ = {};
    trials_ = waited_ = 0, patience_ = kPatience;
  }

  /// The number of copies to propose, which chain_ begins with; 0: to draft instead.
  template <class D>
  std::int32_t look_up(D& copier, const ProposeContext& round, ProposalBuilder& tree) {
    static_assert(std::is_same_v<decltype(copier.extend({}, {})), PointMasses>,
                  "Either: the stack's second drafter must copy, as MaxGram does");
    const CostCurve& costs = drafts_.budget().target_costs();
    chain_.clear();
    level_ = 0, best_ = 0;
    // With costs in common a budget decides how many are verified, and rounds are compared by their tokens.
    shared_ = round.cost_model && round.cost_model->is_shared();
    const auto cost = [&](std::int32_t nodes) {
      return shared_ ? 1.0 : nodes <= costs.largest() ? costs(nodes) : costs.at_most(nodes);
    };
    if ((!shared_ && !costs.knows(1)) || !can_draft(copier, round)) return 0;  // a plain pass comes first
    copier.sync(round.committed, {});
    std::int32_t most = std::min({copies_, round.max_nodes - 1, tree.room()});
    if (!shared_) most = drafts_.probed(most + 1) - 1;
    std::int32_t best = 0;
    double reach = 1, tokens = 1, promised = 1, highest = 1 / (shared_ ? 1.0 : costs(1));
    double low_reach = 1, low = 1;  // by low estimates
    Token token = tree.root();
    for (std::int32_t i = 0; i < most && !(i > 0 && round.ends_text(token)); ++i) {
      const NodeId parent = i - 1;
      const PointMasses rows = ask(copier, tree, {&token, 1}, {&parent, 1}).now();
      if ((token = rows.tokens[0]) == kNoToken) break;
      chain_.push_back({token, rows.confidence(0)});
      const auto confidence = static_cast<double>(rows.confidence(0));
      tokens += reach *= acceptance_.accept_probability(confidence);
      low += low_reach *= acceptance_.accept_at_least(confidence);
      const bool covered = shared_ || drafts_.budget().covers(i + 2, low);
      if (const double rate = tokens / cost(i + 2); covered && rate > highest)
        highest = rate, promised = tokens, best = i + 1;
    }
    best_ = best;
    if (best == 0) return 0;
    level_ = static_cast<std::size_t>(std::ranges::upper_bound(kLevels, promised) - kLevels.begin()) + 1;
    if (trials_ > 0) return 0;
    const Rounds& here = drafting_[level_];
    const Rounds& like = here.rounds < kFew ? drafting_[0] : here;
    if (!costs.given() && like.rounds < kFew) return promised >= kPlenty ? best : 0;
    // A budget in common leaves copies out, so what they give is what they gave.
    if (const Rounds& copies = copying_[level_]; copies.rounds >= kFew) highest = copies.tokens / copies.cost;
    // Drafting has the benefit of the doubt: of copies it is learned in every round what they are worth.
    return highest * like.cost * like.rounds >= like.tokens * (like.rounds + kDoubt) ? best : 0;
  }

  CostAware<S> drafts_;
  AcceptanceEstimator acceptance_;  // of copies, by their confidence
  // By level_, of drafting at 0 all; copying_ if costs are in common.
  std::array<Rounds, kLevels.size() + 2> drafting_, copying_;
  std::vector<Copy> chain_;
  std::size_t level_ = 0;  // of what copies promise in this round; 0: nothing
  std::int32_t trials_ = 0, waited_ = 0, patience_ = kPatience;
  std::int32_t copies_, copied_ = 0, best_ = 0;  // in this round; best_: copies that it could have
  Usage drafted_;                                // of the first drafter, likewise
  bool resumes_ = true, carry_ = true, shared_ = false;
};

}  // namespace specula
