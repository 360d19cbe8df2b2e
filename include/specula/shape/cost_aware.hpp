// Proposals as large as they pay: any shape, bounded by what nodes cost and by how guesses have fared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../concepts.hpp"
#include "../detail/fields.hpp"
#include "../detail/running_mean.hpp"
#include "../stats.hpp"
#include "cost_curve.hpp"
#include "loss_budget.hpp"

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
    context_ = static_cast<double>(round.context.size());
    tries_ = wants_to_try();
    const std::int32_t size = tries_ ? size_to_try() : least_size();
    since_try_ = tries_ ? 0 : since_try_ + 1;
    if (measures_plain() || !may_lose(size)) {
      tries_ = false;
      return tree.narrow(1);
    }
    if (tries_ && idle_ > 0) guesses_.keep_at_most(kFew / 2);
    Worth worth(guesses_, target_, draft_, tries_ ? 0.0 : rate());
    Round bounded = round;
    bounded.worth = &worth;
    // A size not seen yet is tried when half of it was.
    bounded.max_nodes = std::min(round.max_nodes, tries_ ? size : std::max(size, 2 * target_.known()));
    tree.narrow(bounded.max_nodes);
    shape_.propose(drafter, bounded, tree, chance);
  }

  void learn(const TokenTree& tree, const Verdict& verdict, const Timing& timing) {
    const std::int32_t nodes = tree.size();
    const double tokens = static_cast<double>(verdict.path.size());
    learn_costs(nodes, timing);
    learn_guesses(tree, verdict);
    learn_rate(nodes, tokens, timing.draft);
    settle(nodes, tokens, timing.draft);
    if constexpr (requires { shape_.learn(tree, verdict); }) shape_.learn(tree, verdict);
    if constexpr (requires { shape_.learn(tree, verdict, timing); }) shape_.learn(tree, verdict, timing);
  }

  void reset() {
    first_round_ = first_call_ = true;
    paused_ = 0;
    last_nodes_ = 1;
    if (!carry_) {
      guesses_ = {};
      budget_ = {};
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
  const LossBudget& budget() const { return budget_; }
  /// Tokens per second (or per unit of the given curves) that the rounds so far came to, at least plain
  /// decoding's; 0 before the first.
  double rate() const {
    const double plain = target_(1);
    return passes_ > 0 && plain > 0 ? std::max(1.0, tokens_ / passes_) / plain : 0.0;
  }

 private:
  static constexpr double kFade = 1 - 1.0 / 256;  // of what earlier rounds weigh, each round
  static constexpr double kSlow = 1 - 1.0 / 512;  // of what measurements of plain decoding weigh
  static constexpr double kFew = 8;  // guesses that tell something; half of that is kept over a pause
  static constexpr std::int32_t kPatience = 4;    // rounds without a guess before one is tried
  static constexpr std::int32_t kMostPatience = 128;
  static constexpr std::int32_t kStale = 256;  // rounds after which plain decoding is measured again
  static constexpr double kFirstPasses = 2, kMostPasses = 48;
  static constexpr double kMargin = 1.05;  // a gain below that is not looked for
  static constexpr double kLongPause = 4;  // tokens: what fewer cost cannot be told from a call's own time
  static constexpr double kMemory = 0.75, kPrior = 0.1;  // of pauses, for each later one; tokens before the first
  static constexpr double kEnough = 0.1;  // (3 * 10%)^2: passes vary so much

  /// Nodes of the smallest proposal that holds a guess.
  std::int32_t least_size() const {
    if constexpr (requires { shape_.least_nodes(); }) return std::max(2, shape_.least_nodes());
    return 2;
  }
  bool learns_draft() const { return called_ == 1 && !draft_.given(); }
  /// Nothing is known yet of what a draft takes that has missed tokens: its first pause lasts some, and ends with one call.
  bool learns_pause() const { return called_ == 2 && late_tokens_ == 0 && !draft_.given(); }
  /// Where no guess is made for long nothing is learned of what it would be worth; and the first call of a
  /// draft does not tell what its calls cost, since it also runs the prompt.
  bool wants_to_try() {
    if (idle_ > 0) return idle_ >= patience_ || learns_pause();
    return learns_draft() || looks_for_step() || (guesses_.groups() < kFew && some_rate_pays() && !expects_gain());
  }
  /// By what was seen so far, however little.
  bool expects_gain() {
    return Worth(guesses_, target_, draft_, rate()).drafts_on(1.0, 1, std::min(max_nodes(), 2 * target_.known()));
  }
  bool looks_for_step() const { return since_try_ >= kPatience && target_.step() > 0; }
  /// Whether guesses would pay if they were all accepted.
  bool some_rate_pays() const {
    const double plain = target_(1), draft = draft_(1);
    for (std::int32_t n = 2; n <= std::min(max_nodes(), 2 * target_.known()); ++n)
      if (kMargin * (target_(n) + draft) < n * plain) return true;
    return false;
  }
  /// Where some acceptance rate would pay, guesses are tried; else the next larger pass of the target.
  std::int32_t size_to_try() const {
    if (idle_ == 0 && looks_for_step()) return std::max(least_size(), target_.step());
    if (target_.given() || target_.known() >= max_nodes() || learns_pause() || some_rate_pays())
      return least_size();
    return std::max(least_size(), std::min(max_nodes(), 2 * target_.known()));
  }
  /// Plain decoding is what guessing is compared with: its time is measured the more often the less there
  /// is between the two.
  bool measures_plain() const {
    if (target_.given() || learns_draft()) return false;
    if (plain_passes_ < kFirstPasses || since_plain_ >= kStale) return true;
    if (learns_pause() && idle_ > 0 && paused_ < kLongPause) return true;
    const double gain = budget_.gain();
    return gain > 0 && plain_passes_ < std::min({kEnough / (gain * gain), kMostPasses, budget_.rounds()});
  }
  /// What the draft has to read before it can guess, in seconds: per token no more than a call.
  double catch_up() const {
    if (draft_.given()) return paused_ > 0 ? draft_(static_cast<std::int32_t>(paused_)) : 0.0;
    const double call = draft_(1);
    const double token = std::min(call, (kPrior * call + late_seconds_) / (kPrior + late_tokens_));
    return token * paused_ + prompt_seconds();
  }
  double prompt_seconds() const {
    const double call = draft_(1);
    if (!first_call_ || prompt_.weight < 1) return 0;
    return std::max(0.0, std::min(prompt_.value, call) * (context_ - paused_) - call);
  }
  bool may_lose(std::int32_t nodes) const {
    const double plain = target_(1);
    if (!(plain > 0) || learns_draft() || (!asked_once_ && !draft_.given())) return true;
    return budget_.allows((target_(nodes) + draft_(1) * (nodes - 1) + catch_up()) / plain - 1);
  }

  /// The first round of a text is left out: it runs what the prompt left for it.
  void learn_costs(std::int32_t nodes, const Timing& timing) {
    const bool first = std::exchange(first_round_, false);
    const bool settled = nodes == 1 && last_nodes_ == 1;
    ++since_plain_;
    unforeseen_ = 0;
    if (!first && (nodes > 1 || settled)) {
      target_.learn(nodes, timing.target.seconds);
      // A size seen once is not on the curve yet; no pass takes much longer than one for each node.
      if (!target_.sure(nodes))
        unforeseen_ = std::max(0.0, std::min(timing.target.seconds, 1.5 * nodes * target_(1)) - target_(nodes));
      plain_passes_ *= kSlow;
      if (settled) ++plain_passes_, since_plain_ = 0;
    } else if (!first && target_(1) > 0 && !target_.given()) {
      change_.learn(timing.target.seconds / target_(1));
    }
    caught_up_ = 0;
    if (timing.draft.calls > 0) learn_draft(timing.draft);
  }
  void learn_draft(const Usage& draft) {
    const bool first = called_ == 0;
    called_ = std::min(called_ + 1, 2);
    const double calls = static_cast<double>(draft.calls), call = draft_(width(draft));
    // Beyond its calls, but no more than a call for each token: neither a spike nor a wrong guess is charged.
    const double extra = std::max(0.0, draft.seconds - calls * call);
    caught_up_ = draft_.given() ? catch_up() : std::min(extra, call * paused_ + prompt_seconds());
    if (draft_.given()) {
    } else if (paused_ >= kLongPause * std::min(calls, 2.0) && draft_.sure(width(draft))) {
      late_seconds_ = kMemory * late_seconds_ + std::clamp(extra - prompt_seconds(), 0.0, call * paused_);
      late_tokens_ = kMemory * late_tokens_ + paused_;
    } else if (first_call_) {
      prompt_.learn((draft.seconds - (calls - 1) * call) / std::max(1.0, context_));
      // No call takes longer than one that read something as well.
      if (first || !draft_.sure(width(draft))) draft_.learn(width(draft), draft.seconds / calls);
    } else if (paused_ == 0 || !draft_.sure(width(draft))) {
      draft_.learn(width(draft), draft.seconds / calls);
    }
  }
  void learn_guesses(const TokenTree& tree, const Verdict& verdict) {
    if (tree.size() > 1) guesses_.fade(kFade);
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
  double passes(std::int32_t nodes, const Usage& draft) const {
    double seconds = target_(nodes);
    if (draft.calls > 0) seconds += static_cast<double>(draft.calls) * draft_(width(draft));
    return seconds / target_(1);
  }
  void learn_rate(std::int32_t nodes, double tokens, const Usage& draft) {
    if (!(target_(1) > 0)) return;
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + passes(nodes, draft);
  }
  void settle(std::int32_t nodes, double tokens, const Usage& draft) {
    const double plain = target_(1);
    if (!(plain > 0)) return;
    if (nodes > 1 || draft.calls > 0) {
      budget_.saw_guesses(tokens, passes(nodes, draft) + (unforeseen_ + caught_up_) / plain);
      if (budget_.fell()) guesses_.keep_at_most(kFew);
      asked_once_ = true;
      paused_ = 0;
      first_call_ = first_call_ && draft.calls == 0;
      if (idle_ == 0 && budget_.gain() > 0) patience_ = kPatience;
      idle_ = 0;
    } else {
      // A pass over another number of nodes than the last may cost extra: an engine plans it anew.
      if (last_nodes_ > 1 && change_.known()) budget_.take(std::max(0.0, change_.value - 1));
      budget_.saw_plain(tokens);
      paused_ += tokens;
      if (++idle_ == 1) patience_ = std::min(2 * patience_, some_rate_pays() ? kMostPatience : 8 * kMostPatience);
    }
    last_nodes_ = nodes;
  }
  static std::int32_t width(const Usage& draft) {
    return static_cast<std::int32_t>(draft.nodes / draft.calls);
  }

  S shape_;
  CostCurve target_, draft_;
  GuessRecord guesses_;
  LossBudget budget_;
  detail::RunningMean prompt_;  // seconds per token of what the first call of a text reads
  detail::RunningMean change_;          // of a pass over one node after guesses, by one after another
  double tokens_ = 0, passes_ = 0, context_ = 0, paused_ = 0, caught_up_ = 0, unforeseen_ = 0, plain_passes_ = 0;
  double late_seconds_ = 0, late_tokens_ = 0;  // of tokens read after a pause
  std::int32_t idle_ = 0, patience_ = kPatience, last_nodes_ = 1, since_plain_ = 0, since_try_ = 0, called_ = 0;
  bool carry_ = true, first_round_ = true, first_call_ = true, asked_once_ = false, tries_ = false;
};

}  // namespace specula
