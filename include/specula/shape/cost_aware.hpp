// Proposals as large as they pay: any shape, bounded by what nodes cost and by how guesses have fared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../concepts.hpp"
#include "../detail/fields.hpp"
#include "../stats.hpp"
#include "cost_curve.hpp"

namespace specula {

/// Hands `shape` a Worth with each round, which the shapes of this library ask before they draw or choose: a
/// chain ends, extras and branches are left out where they would cost more time than the tokens they promise
/// are worth. T(n) of the target, the draft's costs, how often guesses of a confidence stayed, and the
/// pipeline's rate are running estimates over the rounds so far. So on a machine where nodes cost time the
/// proposals are narrow, and where they come for free wide.
///
/// What is asked never depends on a coin of the token in question, so the wrapped shape keeps its law. But
/// time is an input: with learned costs the same seed gives the same text only under rules that give it for
/// any shape (sample-and-match, shared noise, greedy). With both curves given, nothing depends on the clock.
///
/// For a cascade it is a rough bound: all calls of a stack count as alike.
///
/// Cost: a few dozen additions a round. Needs usage() of verifier and drafter (TreeVerifier and ModelDrafter
/// have it) where a curve is to be learned.
template <class S>
class CostAware {
 public:
  static constexpr DraftLaw law = S::law;

  /// A default CostCurve is learned.
  explicit CostAware(S shape, CostCurve target = {}, CostCurve draft = {})
      : shape_(std::move(shape)), target_(std::move(target)), draft_(std::move(draft)) {}

  /// Whether what was learned of guesses and of the rate outlives a text. It does unless told otherwise; what
  /// was learned of costs always does.
  CostAware& carry(bool on) {
    carry_ = on;
    return *this;
  }

  std::int32_t max_nodes() const { return shape_.max_nodes(); }
  /// Throws what the shape's own validate() throws.
  void validate() const { detail::expect_valid(shape_); }
  /// Nodes that the drafter runs.
  std::int32_t draft_nodes() const {
    if constexpr (requires { shape_.draft_nodes(); })
      return std::max(shape_.max_nodes(), shape_.draft_nodes());
    return shape_.max_nodes();
  }
  void reserve() {
    target_.reserve(max_nodes());
    draft_.reserve(draft_nodes());
    if constexpr (requires { shape_.reserve(); }) shape_.reserve();
  }

  template <Drafter D, ChanceSource C>
    requires ProposalShape<S, D>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) {
    // Where nothing pays, nothing is learned of what would: after 16 empty rounds a small proposal is made
    // all the same; the wait doubles, up to 128 rounds, while that does not change the answer.
    const bool curious = idle_ >= patience_;
    Worth worth(guesses_, target_, draft_, curious ? 0.0 : rate());
    Round bounded = round;
    bounded.worth = &worth;
    // A size not seen yet is tried when half of it was.
    bounded.max_nodes =
        std::min(round.max_nodes, curious ? first_size() : std::max(first_size(), 2 * target_.known()));
    tree.narrow(bounded.max_nodes);
    shape_.propose(drafter, bounded, tree, chance);
  }

  void learn(const TokenTree& tree, const Verdict& verdict, const Timing& timing) {
    learn_costs(tree.size(), timing);
    learn_guesses(tree, verdict);
    learn_rate(tree.size(), static_cast<double>(verdict.path.size()), timing.draft);
    if (tree.size() > 1) {
      if (idle_ == 0) patience_ = kPatience;
      idle_ = 0;
    } else if (++idle_ == 1 && patience_ < kPatience << 4) {
      patience_ *= 2;
    }
    if constexpr (requires { shape_.learn(tree, verdict); }) shape_.learn(tree, verdict);
    if constexpr (requires { shape_.learn(tree, verdict, timing); }) shape_.learn(tree, verdict, timing);
  }

  void reset() {
    first_round_ = true;
    if (!carry_) {
      guesses_ = {};
      tokens_ = passes_ = 0;
      idle_ = 0, patience_ = kPatience;
    }
    if constexpr (requires { shape_.reset(); }) shape_.reset();
  }

  const S& shape() const { return shape_; }
  /// What a cascade's reviewers did.
  auto reviewed() const requires requires(const S& s) { s.reviewed(); }
  { return shape_.reviewed(); }
  const CostCurve& target_costs() const { return target_; }
  const CostCurve& draft_costs() const { return draft_; }
  const GuessRecord& guesses() const { return guesses_; }
  /// Tokens per second (or per unit of the given curves) that the rounds so far came to; 0 before the first.
  double rate() const { return passes_ > 0 ? tokens_ / passes_ / target_(1) : 0.0; }

 private:
  static constexpr double kFade = 1 - 1.0 / 512;  // of what earlier rounds weigh, each round
  static constexpr std::int32_t kPatience = 8;    // doubled: empty rounds before a small proposal is made

  /// Nodes of a proposal that is made to learn.
  std::int32_t first_size() const {
    if constexpr (requires { shape_.least_nodes(); }) return std::max(4, shape_.least_nodes());
    return 4;
  }
  /// The first round of a text is left out: it runs what the prompt left for it.
  void learn_costs(std::int32_t nodes, const Timing& timing) {
    if (!std::exchange(first_round_, false)) {
      target_.learn(nodes, timing.target.seconds);
      if (timing.draft.calls > 0)
        draft_.learn(width(timing.draft), timing.draft.seconds / static_cast<double>(timing.draft.calls));
    }
  }
  void learn_guesses(const TokenTree& tree, const Verdict& verdict) {
    guesses_.fade(kFade);
    for (std::size_t i = 0; i < verdict.path.size(); ++i) {
      const NodeId first = tree.first_child(verdict.path[i]);
      if (first == kNoParent) continue;
      const NodeId next = i + 1 < verdict.path.size() ? verdict.path[i + 1] : kNoParent;
      guesses_.saw_guesses(next == first, next != kNoParent);
      tree.children(verdict.path[i], [&](NodeId c) {
        guesses_.saw(static_cast<double>(tree.confidence(c)), c == next);
        return true;
      });
    }
  }
  /// In passes of the target over one node, by the curves: one slow round, or a slow minute, changes nothing.
  void learn_rate(std::int32_t nodes, double tokens, const Usage& draft) {
    double seconds = target_(nodes);
    if (draft.calls > 0) seconds += static_cast<double>(draft.calls) * draft_(width(draft));
    if (!(target_(1) > 0)) return;
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + seconds / target_(1);
  }
  static std::int32_t width(const Usage& draft) {
    return static_cast<std::int32_t>(draft.nodes / draft.calls);
  }

  S shape_;
  CostCurve target_, draft_;
  GuessRecord guesses_;
  double tokens_ = 0, passes_ = 0;
  std::int32_t idle_ = 0, patience_ = kPatience;
  bool carry_ = true, first_round_ = true;
};

}  // namespace specula
