// Drafting of many texts whose passes are merged, from one budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/policy/optional_members.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/proposal/waiters.hpp"
#include "specula/run/speculator.hpp"

namespace specula {

namespace detail {

// The settings of a text, of a Speculator or a Pipeline.
template <class V, class D, class S>
V& settings_of(Speculator<V, D, S>& run) {
  return run.verifier();
}
template <class Run>
Run& settings_of(Run& run) {
  return run;
}
// A Speculator that draws its draft tokens has no keep() that compiles, and needs none.
template <class V, class D, class S>
void keep_nodes([[maybe_unused]] Speculator<V, D, S>& run,
                [[maybe_unused]] std::span<const std::uint8_t> kept) {
  if constexpr (S::kind == ProposalKind::deterministic && MergesRounds<V>) run.keep(kept);
}
template <class Run>
void keep_nodes(Run& run, std::span<const std::uint8_t> kept) {
  run.keep(kept);
}

}  // namespace detail

/// Decides for many texts together what is drafted and verified, for whoever drives their rounds:
/// BatchSpeculator, or an engine's own loop. Level by level those draft calls are granted that are expected
/// to gain more than they cost in one pass, and of chosen draft tokens those are kept that pay, over all
/// texts: the ones of largest path probability. None at all where plain decoding is faster. Drawn tokens are
/// all verified: whether to draw them is decided before, from what is above them, since a choice among drawn
/// tokens biases the text. `Run` is a Speculator or a Pipeline, over slots of models (SlotOf). A round:
///
///   shared.begin(texts, count);
///   for (auto* text : texts) text->run->begin(rng, stop, shared.cost_model(), shared.max_nodes());
///   while (shared.grant() || a pass of a draft over those that want one)
///     ++text->calls of each of these; shared.drafted(rows, queued, seconds);
///   shared.choose();
///   a pass of the target; shared.verified(count, rows, queued, seconds);
///   for (auto* text : texts) shared.ended(*text, number of text->run->end());
///   shared.end();
///
/// **Cost.** O(nodes log nodes) per level, in all some microseconds; no allocation in a steady round.
template <class Run>
class SharedDraft {
 public:
  /// A text of the batch.
  struct Text {
    Run* run = nullptr;                   ///< its rounds
    DraftState draft = {};                ///< anew for each text
    std::int64_t calls = 0;               ///< of its draft in this round
    std::vector<std::uint8_t> kept = {};  ///< workspace
    std::size_t place = 0;                ///< likewise: among the texts of the round, which settles ties
    bool granted = false;                 ///< likewise: a draft call in this round
    Usage before = {};                    ///< likewise: of its draft before the round
  };

  /// For at most `texts` texts with `nodes` nodes each. A round with draft tokens takes at most `max_stretch`
  /// times as long as a plain one, by what is known of the costs, so that texts that gain nothing wait no
  /// longer. Throws std::invalid_argument unless max_stretch >= 1.
  SharedDraft(BatchBudget budget, std::int32_t texts, NodeCounts nodes, double max_stretch = 1e300)
      : budget_(std::move(budget)), max_stretch_(max_stretch) {
    if (!(max_stretch >= 1))
      throw std::invalid_argument("SharedDraft: max_stretch is " + std::to_string(max_stretch) +
                                  ", must be at least 1");
    budget_.reserve(texts * nodes.most, texts * nodes.held(), texts);
    const auto all = static_cast<std::size_t>(texts) * static_cast<std::size_t>(nodes.most);
    ranked_.reserve(all), probabilities_.reserve(all);
    path_.reserve(static_cast<std::size_t>(nodes.most));
    texts_.reserve(static_cast<std::size_t>(texts));
    bidders_.reserve(static_cast<std::size_t>(texts)), bids_.reserve(static_cast<std::size_t>(texts));
  }
  SharedDraft(const SharedDraft&) = delete;  // rounds refer to its cost model
  SharedDraft& operator=(const SharedDraft&) = delete;

  /// Plans a round of `texts`, which may be waiting since an earlier one. Of these `count` get rows of the
  /// target, if some still read their prompts.
  void begin(std::span<Text* const> texts, std::int32_t count) {
    texts_.assign(texts.begin(), texts.end());
    round_ = {.texts = 0, .nodes = 0, .tokens = 0};
    RoundPrice price{.catch_up = texts.empty() ? 0 : kNever, .texts = std::max(1, count), .shared = true};
    std::int32_t least = kNoLimit, most = 1;
    std::size_t place = 0;
    for (Text* text : texts_) {
      text->place = place++;
      text->draft.context = static_cast<double>(text->run->text().size()) - 1;
      text->calls = 0, text->granted = false, text->before = text->run->stats().draft;
      price.chosen = chooses(*text);
      price.catch_up = std::min(price.catch_up, budget_.catch_up(text->draft));
      const NodeCounts nodes = text->run->nodes();
      least = std::min(least, std::max(2, nodes.least)), most = std::max(most, nodes.most);
    }
    price.most_lost = (max_stretch_ - 1) * budget_.target_costs()(price.texts);
    cost_model_.emplace(budget_.begin(least, most, price));
    drafts_ = cost_model_->limit() > price.texts;
  }
  CostModel* cost_model() { return &*cost_model_; }                  ///< for Speculator::begin()
  std::int32_t max_nodes() const { return drafts_ ? kNoLimit : 1; }  ///< likewise

  /// Answers all bids: lets those texts make a draft call for which that pays. False if there are none.
  bool grant() {
    bidders_.clear(), bids_.clear();
    for (Text* text : texts_)
      if (text->run->bid()) bidders_.push_back(text);
    if (bidders_.empty()) return false;
    const auto likelier = [](Text* a, Text* b) {
      const double x = a->run->bid()->reach, y = b->run->bid()->reach;
      return x > y || (x == y && a->place < b->place);
    };
    std::sort(bidders_.begin(), bidders_.end(), likelier);
    std::int32_t others = rank();
    for (Text* text : bidders_) {
      const DraftCall& call = *text->run->bid();
      others += call.nodes - text->run->proposal().size();  // which a shape adds at its end
      bids_.push_back({call, chooses(*text), text->calls > 0 ? 0.0 : budget_.catch_up(text->draft)});
    }
    const std::size_t granted = cost_model_->grants(bids_, probabilities_, others);
    for (std::size_t i = 0; i < bidders_.size(); ++i)
      bidders_[i]->granted |= i < granted, bidders_[i]->run->grant(i < granted);
    return true;
  }
  /// Records a draft pass: its rows, the queued tokens that ran in it, its time.
  void drafted(std::int32_t rows, std::int32_t queued, double seconds) {
    round_.timing.draft += {.calls = 1, .nodes = rows, .seconds = seconds};
    round_.draft_cost += budget_.learn_call(rows, queued, seconds);
  }
  /// Leaves out the chosen draft tokens that do not pay. To be called when all texts wait for the target.
  void choose() {
    if (!drafts_) return;
    const std::int32_t others = rank(), count = cost_model_->nodes_that_pay(probabilities_, others);
    if (count == static_cast<std::int32_t>(ranked_.size())) return;
    const auto pruned = [&](Text& text) { return text.run->proposed() && prunes(text); };
    for (Text* text : texts_)
      if (pruned(*text)) text->kept.assign(static_cast<std::size_t>(text->run->proposal().size()), 0);
    for (const Ranked& r : std::span(ranked_).first(static_cast<std::size_t>(count)))
      r.text->kept[static_cast<std::size_t>(r.node)] = 1;
    for (Text* text : texts_)
      if (pruned(*text)) detail::keep_nodes(*text->run, text->kept);
  }
  /// Records the target's pass: the texts that got rows, their rows, the queued tokens that ran in it, its
  /// time.
  void verified(std::int32_t texts, std::int32_t rows, std::int32_t queued, double seconds) {
    round_.texts = texts, round_.nodes = rows, round_.settled = queued == 0;
    round_.timing.target += {.calls = 1, .nodes = rows, .seconds = seconds};
  }
  /// Records a text's round, which emitted `tokens` tokens.
  void ended(Text& text, std::int32_t tokens) {
    budget_.see(text.run->proposal(), text.run->result());
    round_.tokens += tokens;
    if (text.granted && text.calls == 0) {  // it drafted without a pass that others share
      const Usage own = text.run->stats().draft - text.before;
      if (own.calls > 0) unmerged_ += own, ++unmerged_texts_;
      text.calls = own.calls;
    }
    text.draft.add_round(tokens, text.calls);
  }
  /// Learns from the round.
  void end() {
    if (unmerged_.calls > 0) {
      const double level = unmerged_.seconds * unmerged_texts_ / static_cast<double>(unmerged_.calls);
      round_.draft_cost += budget_.learn_call(unmerged_texts_, 0, level) *
                           static_cast<double>(unmerged_.calls) / unmerged_texts_;
      round_.timing.draft += unmerged_;
    }
    unmerged_ = {}, unmerged_texts_ = 0;
    if (round_.texts > 0 && round_.tokens > 0) budget_.learn(round_);
  }

  const BatchBudget& budget() const { return budget_; }  ///< what was learned

 private:
  /// A draft token that may be left out.
  struct Ranked {
    double probability;
    Text* text;
    NodeId node;
    bool operator<(const Ranked& other) const {
      if (probability != other.probability) return probability > other.probability;
      return text != other.text ? text->place < other.text->place : node < other.node;
    }
  };
  static constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max();
  static constexpr double kNever = 1e300;

  /// Whether draft tokens may be left out after they were drafted.
  static bool prunes(const Text& text) { return text.run->kind() == ProposalKind::deterministic; }
  static bool chooses(Text& text) { return prunes(text) || detail::settings_of(*text.run).params().greedy(); }

  /// Sorts the draft tokens that may be left out, the likeliest first, ancestors before their descendants,
  /// and returns the other nodes of the target's pass.
  std::int32_t rank() {
    ranked_.clear(), probabilities_.clear();
    std::int32_t others = 0;
    for (Text* text : texts_) {
      if (!text->run->bid() && !text->run->proposed()) continue;
      const TokenTree& tree = text->run->proposal();
      others += prunes(*text) ? 1 : tree.size();
      if (!prunes(*text)) continue;
      path_.assign(1, 1.0);
      for (NodeId n = 1; n < tree.size(); ++n) {
        path_.push_back(path_[static_cast<std::size_t>(tree.parent(n))] *
                        cost_model_->accept_probability(static_cast<double>(tree.confidence(n))));
        ranked_.push_back({path_.back(), text, n});
      }
    }
    std::sort(ranked_.begin(), ranked_.end());
    for (const Ranked& r : ranked_) probabilities_.push_back(r.probability);
    return others;
  }

  BatchBudget budget_;
  double max_stretch_;
  std::optional<CurveCostModel> cost_model_;  // of the round
  bool drafts_ = false;                       // whether any text may draft in it
  BudgetRound round_;
  Usage unmerged_;                   // of drafts whose calls are not merged
  std::int32_t unmerged_texts_ = 0;  // theirs
  std::vector<Text*> texts_, bidders_;
  std::vector<DraftBid> bids_;  // (bidders_)
  std::vector<Ranked> ranked_;
  std::vector<double> probabilities_;  // (ranked_)
  std::vector<double> path_;           // (nodes) of one text
};

}  // namespace specula
