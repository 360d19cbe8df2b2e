// SPDX-License-Identifier: MIT
// What many texts draft and verify in a round, decided for all of them by one BatchBudget.
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

// A Speculator, or what a pointer to a Pipeline points to.
template <class Run>
Run& made_rounds(Run& run) {
  return run;
}
template <class Run>
Run& made_rounds(std::unique_ptr<Run>& run) {
  return *run;
}

/// Decides for the texts of a round what is drafted and verified, from one BatchBudget. `Text` has `run`, a
/// Speculator or a Pipeline over slots of models, and `draft`, a DraftState. In all members a text is named
/// by its place among those that begin() was given. A round: begin(), then each text's run.begin() with
/// cost_model() and max_nodes(); until no text waits for a draft, grant(), or a draft pass and drafted(),
/// with called() of each text that got rows; choose(); the target's pass and verified(); ended() of each
/// text; end().
/// **Cost.** O(nodes log nodes) per level, in all some microseconds; no allocation in a steady round.
template <class Text>
class SharedDraft {
 public:
  /// For at most `texts` texts with `nodes` nodes each. A round with draft tokens takes at most `max_stretch`
  /// times as long as a plain one. Throws std::invalid_argument unless max_stretch >= 1, and if all texts'
  /// nodes are more than an int32 counts.
  SharedDraft(BatchBudget budget, std::int32_t texts, NodeCounts nodes, double max_stretch)
      : budget_(std::move(budget)), max_stretch_(max_stretch), work_(static_cast<std::size_t>(texts)) {
    if (!(max_stretch >= 1))
      throw std::invalid_argument("BatchBudget: max_stretch is " + std::to_string(max_stretch) +
                                  ", must be at least 1");
    if (const std::int64_t all = std::int64_t{texts} * nodes.held(); all > kNoLimit)
      throw std::invalid_argument("BatchBudget: " + std::to_string(texts) + " texts of " +
                                  std::to_string(nodes.held()) + " nodes are " + std::to_string(all) +
                                  " nodes in a pass, at most " + std::to_string(kNoLimit) +
                                  " can be counted");
    budget_.reserve(texts * nodes.most, texts * nodes.held(), texts);
    const auto all = static_cast<std::size_t>(texts) * static_cast<std::size_t>(nodes.most);
    ranked_.reserve(all), probabilities_.reserve(all);
    path_.reserve(static_cast<std::size_t>(nodes.most));
    texts_.reserve(work_.size()), bidders_.reserve(work_.size()), bids_.reserve(work_.size());
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
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      Text& text = *texts_[i];
      Work& work = work_[i];
      text.draft.context = static_cast<double>(text.run->text().size()) - 1;
      work.calls = 0, work.granted = false, work.before = text.run->stats().draft;
      work.catch_up = budget_.catch_up(text.draft);
      price.chosen =
          price.chosen && chooses(text);  // one price for all: of tokens that stay, if any text's do
      price.catch_up = std::min(price.catch_up, work.catch_up);
      const NodeCounts nodes = text.run->nodes();
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
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (texts_[i]->run->bid()) bidders_.push_back(i);
    if (bidders_.empty()) return false;
    // As likely ones: first those whose drafts have the least to catch up, then the first texts.
    const auto better = [&](std::size_t a, std::size_t b) {
      const double x = texts_[a]->run->bid()->reach, y = texts_[b]->run->bid()->reach;
      if (x != y) return x > y;
      const double late_a = work_[a].catch_up, late_b = work_[b].catch_up;
      return late_a != late_b ? late_a < late_b : a < b;
    };
    std::sort(bidders_.begin(), bidders_.end(), better);
    std::int32_t others = rank();
    for (const std::size_t i : bidders_) {
      Text& text = *texts_[i];
      const DraftCall& call = *text.run->bid();
      others += call.nodes - text.run->proposal().size();  // which a shape adds at its end
      bids_.push_back({call, chooses(text), work_[i].calls > 0 ? 0.0 : budget_.catch_up(text.draft)});
    }
    const std::size_t granted = cost_model_->grants(bids_, probabilities_, others);
    for (std::size_t i = 0; i < bidders_.size(); ++i) {
      const std::size_t text = bidders_[i];
      work_[text].granted |= i < granted, texts_[text]->run->grant(i < granted);
    }
    return true;
  }
  /// Records that a draft pass gave a text rows.
  void called(std::size_t text) { ++work_[text].calls; }
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
    const auto pruned = [&](const Text& text) { return text.run->proposed() && prunes(text); };
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (pruned(*texts_[i]))
        work_[i].kept.assign(static_cast<std::size_t>(texts_[i]->run->proposal().size()), 0);
    for (const Ranked& r : std::span(ranked_).first(static_cast<std::size_t>(count)))
      work_[r.text].kept[static_cast<std::size_t>(r.node)] = 1;
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (pruned(*texts_[i])) keep_nodes(*texts_[i]->run, work_[i].kept);
  }
  /// Records the target's pass: the texts that got rows, their rows, the queued tokens that ran in it, its
  /// time.
  void verified(std::int32_t texts, std::int32_t rows, std::int32_t queued, double seconds) {
    round_.texts += texts, round_.nodes += rows, round_.settled = round_.settled && queued == 0;
    round_.timing.target += {.calls = 1, .nodes = rows, .seconds = seconds};
  }
  /// Records a text's round, which emitted `tokens` tokens.
  void ended(std::size_t i, std::int32_t tokens) {
    Text& text = *texts_[i];
    budget_.see(text.run->proposal(), text.run->result());
    round_.tokens += tokens;
    Work& work = work_[i];
    if (work.granted && work.calls == 0) {  // it drafted without a pass that others share
      const Usage alone = text.run->stats().draft - work.before;
      if (alone.calls > 0) unmerged_ += alone, ++unmerged_texts_;
      work.calls = alone.calls;
    }
    text.draft.add_round(tokens, work.calls);
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
  /// What the round keeps of a text.
  struct Work {
    std::int64_t calls = 0;          // of its draft
    bool granted = false;            // a draft call
    Usage before;                    // of its draft before the round
    double catch_up = 0;             // what its first call costs besides
    std::vector<std::uint8_t> kept;  // (nodes) whether they are verified
  };
  /// A draft token that may be left out.
  struct Ranked {
    double probability;
    std::size_t text;
    NodeId node;
    bool operator<(const Ranked& other) const {
      if (probability != other.probability) return probability > other.probability;
      return text != other.text ? text < other.text : node < other.node;
    }
  };
  static constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max();
  static constexpr double kNever = 1e300;

  /// Whether draft tokens may be left out after they were drafted.
  static bool prunes(const Text& text) { return text.run->kind() == ProposalKind::deterministic; }
  static bool chooses(Text& text) { return prunes(text) || settings_of(*text.run).params().greedy(); }

  /// Sorts the draft tokens that may be left out, the likeliest first, ancestors before their descendants,
  /// and returns the other nodes of the target's pass.
  std::int32_t rank() {
    ranked_.clear(), probabilities_.clear();
    std::int32_t others = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      Text& text = *texts_[i];
      if (!text.run->bid() && !text.run->proposed()) continue;
      const TokenTree& tree = text.run->proposal();
      others += prunes(text) ? 1 : tree.size();
      if (!prunes(text)) continue;
      path_.assign(1, 1.0);
      for (NodeId n = 1; n < tree.size(); ++n) {
        path_.push_back(path_[static_cast<std::size_t>(tree.parent(n))] *
                        cost_model_->accept_probability(static_cast<double>(tree.confidence(n))));
        ranked_.push_back({path_.back(), i, n});
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
  Usage unmerged_;                    // of drafts whose calls are not merged
  std::int32_t unmerged_texts_ = 0;   // theirs
  std::vector<Work> work_;            // (texts)
  std::vector<Text*> texts_;          // of the round
  std::vector<std::size_t> bidders_;  // of them
  std::vector<DraftBid> bids_;        // (bidders_)
  std::vector<Ranked> ranked_;
  std::vector<double> probabilities_;  // (ranked_)
  std::vector<double> path_;           // (nodes) of one text
};

}  // namespace detail

}  // namespace specula
