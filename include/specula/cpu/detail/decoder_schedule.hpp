// SPDX-License-Identifier: MIT
// Lazy scheduling of a decoder's passes: tokens run through layers when a call needs them, in one batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/decoder_pass.hpp"
#include "specula/cpu/detail/decoder_stages.hpp"
#include "specula/cpu/detail/decoder_text.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula::cpu::detail {

/// Owns a model's passes and its texts. Allocates nothing after the constructor, but for the memory of a text
/// that is not the only one. Does not check arguments; Decoder does.
template <class Real>
class DecoderSchedule {
 public:
  using Text = DecoderText<Real>;

  DecoderSchedule(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options)
      : pass(std::move(weights), options), chunk_(options.prefill_chunk), most_(pass_columns(options)) {
    for (std::int32_t slot = 0; slot < options.slots; ++slot)
      texts.push_back(std::make_unique<Text>(pass.config(), options));
    wanted_.reserve(static_cast<std::size_t>(options.max_nodes));
    needed_.resize(static_cast<std::size_t>(options.max_nodes));
    columns_.reserve(static_cast<std::size_t>(most_));
    rows_.reserve(static_cast<std::size_t>(most_));
    segments_.reserve(texts.size());
    group_.reserve(texts.size());
  }

  DecoderPass<Real> pass;
  std::vector<std::unique_ptr<Text>> texts;  // by slot

  /// Commits tokens. Fewer than kLazyTokens wait for the next pass.
  void append(Text& text, Tokens tokens) {
    DecoderStages& stages = text.stages;
    while (!tokens.empty()) {
      const auto count = std::min(static_cast<std::size_t>(chunk_ - stages.pending()), tokens.size());
      stages.append(tokens.first(count));
      tokens = tokens.subspan(count);
      const bool full = stages.pending() == chunk_;
      if (full || stages.pending() >= kLazyTokens) flush(text);
    }
  }

  /// Runs all stages that committed tokens lack.
  void flush(Text& text) {
    for (std::int32_t stage = 0; stage < text.stages.count(); ++stage) catch_up(text, stage);
  }
  /// The same for a view of them. Throws std::logic_error if the model needs a view and has none.
  void calculate_pending(Text& text) {
    if (text.stages.pending() > 0) pass.input().require_view(text.target);
    flush(text);
  }

  /// Runs the nodes `first` + rows[i] to an exit, with their ancestors and the committed tokens that have not
  /// reached it. Writes logits of these nodes only, to pass.exit_logits() if `to_exit_logits`.
  void run_to_exit(Text& text, NodeId first, std::span<const std::int32_t> rows, std::int32_t exit,
                   bool to_exit_logits) {
    if (rows.empty()) return;
    wanted_.clear();
    for (const std::int32_t row : rows) wanted_.push_back(first + row);
    run_to_exit(text, exit, to_exit_logits, 0);
  }
  /// The same for all nodes from `first` on, with logits from row `to` on.
  void run_from(Text& text, NodeId first, std::int32_t exit, std::int32_t to = 0) {
    wanted_.clear();
    for (NodeId node = first; node < text.stages.node_count(); ++node) wanted_.push_back(node);
    if (!wanted_.empty()) run_to_exit(text, exit, false, to);
  }

  /// Runs the nodes from `first` on without some blocks. Requires that no committed token waits.
  void skip(Text& text, NodeId first, const SkippedBlocks& skipped) {
    DecoderStages& stages = text.stages;
    if (first == stages.node_count()) return;
    stages.start_columns(0, 0);
    for (NodeId node = first; node < stages.node_count(); ++node) stages.push_node(node, 0);
    pass.run(stages.columns(), text.segment(stages.size(), stages.size() + stages.node_count()), 0,
             {.skipped = &skipped});
  }

  /// One pass over several texts: the last own.tokens.size() nodes of each text, which its stages have, with
  /// the committed tokens that wait; of a text without nodes at most a chunk of those. Texts with too many
  /// columns for one pass run in several, and so do those of a model with exits.
  void run(std::span<const SlotNodes> nodes) {
    std::int32_t row = 0;
    bool more = pass.config().exits.size() < 2;
    while (more) {  // texts that have nodes, as long as any has more waiting tokens than ride along
      more = false;
      for (const SlotNodes& own : nodes) {
        Text& text = *texts[static_cast<std::size_t>(own.slot)];
        if (own.tokens.empty() || text.stages.pending() <= kLazyTokens) continue;
        add(text, 0, row);
        more = true;
      }
      run_group(row);
    }
    for (const SlotNodes& own : nodes) {
      Text& text = *texts[static_cast<std::size_t>(own.slot)];
      add(text, static_cast<std::int32_t>(own.tokens.size()), row);
    }
    run_group(row);
  }

 private:
  /// A text's part of a group, which runs in one pass.
  struct Member {
    Text* text;
    std::int32_t waiting;
  };

  /// The nodes in wanted_.
  void run_to_exit(Text& text, std::int32_t exit, bool to_exit_logits, std::int32_t to) {
    DecoderStages& stages = text.stages;
    std::fill_n(needed_.begin(), stages.node_count(), false);
    for (const NodeId node : wanted_)
      for (NodeId up = node; up != kNoParent && !needed_[static_cast<std::size_t>(up)];
           up = stages.node(up).parent)
        needed_[static_cast<std::size_t>(up)] = true;
    for (const NodeId node : wanted_) needed_[static_cast<std::size_t>(node)] = false;
    for (std::int32_t stage = 0, last; stage <= exit; stage = last + 1) {
      if (stages.waiting(stage) > kLazyTokens) catch_up(text, stage);
      last = last_alike(stages, stage, exit);
      const std::int32_t waiting = stages.waiting(stage);
      stages.start_columns(stage, waiting);
      const auto push = [&](NodeId node) {
        if (stages.node(node).stages != stage) return;
        stages.push_node(node, stage);
        stages.pass_stages(node, last + 1);
      };
      for (NodeId node = 0; node < stages.node_count(); ++node)
        if (needed_[static_cast<std::size_t>(node)]) push(node);
      const auto first_row = static_cast<std::int32_t>(stages.columns().size());
      for (const NodeId node : wanted_) push(node);
      const auto all = static_cast<std::int32_t>(stages.columns().size());
      PassPart part = stages.part(stage, last);
      part.to_exit_logits = to_exit_logits;
      pass.run(stages.columns(), text.segment(stages.computed(stage), stages.size() + stages.node_count()),
               last == exit ? first_row : all, part, to);
      for (; stage <= last; ++stage) stages.mark_computed(stage, waiting);
    }
  }

  /// The last stage, at most `exit`, up to which all run the tokens that `stage` runs: one pass runs them
  /// all.
  std::int32_t last_alike(const DecoderStages& stages, std::int32_t stage, std::int32_t exit) const {
    std::int32_t last = exit;
    while (stages.computed(last) != stages.computed(stage)) --last;
    const auto see = [&](NodeId node) {  // one that has gone further begins later
      if (const std::int32_t gone = stages.node(node).stages; gone > stage) last = std::min(last, gone - 1);
    };
    for (NodeId node = 0; node < stages.node_count(); ++node)
      if (needed_[static_cast<std::size_t>(node)]) see(node);
    for (const NodeId node : wanted_) see(node);
    return last;
  }

  void catch_up(Text& text, std::int32_t stage) {
    DecoderStages& stages = text.stages;
    while (stages.waiting(stage) > 0) {
      const std::int32_t count = std::min(stages.waiting(stage), chunk_), base = stages.computed(stage);
      stages.start_columns(stage, count);
      pass.run(stages.columns(), text.segment(base, base + count), count, stages.part(stage));
      stages.mark_computed(stage, count);
    }
  }

  /// Adds the last `nodes` nodes of a text and its waiting tokens, or without nodes a chunk of these, to the
  /// group; runs the group before if it would get too large, and the text alone if its nodes cannot run at
  /// once. `row`: that of the group's first logits.
  void add(Text& text, std::int32_t nodes, std::int32_t& row) {
    DecoderStages& stages = text.stages;
    const NodeId first = stages.node_count() - nodes;
    if (stages.count() > 1) {
      if (nodes > 0)
        run_from(text, first, stages.count() - 1, row);
      else
        flush(text);
      row += nodes;
      return;
    }
    const std::int32_t waiting = nodes > 0 ? stages.pending() : std::min(stages.pending(), chunk_);
    if (waiting + nodes == 0) return;
    if (static_cast<std::int32_t>(columns_.size()) + waiting + nodes > most_) run_group(row);
    const std::int32_t base = stages.computed(0);
    stages.start_columns(0, waiting);
    for (NodeId node = first; node < stages.node_count(); ++node) stages.push_node(node, 0);
    if (pass.input().batch_end(text.target, stages.columns(), 0) < waiting + nodes) {
      run_group(row);
      if (nodes > 0)
        run_from(text, first, 0, row);
      else
        catch_up(text, 0);
      row += nodes;
      return;
    }
    for (NodeId node = first; node < stages.node_count(); ++node) stages.pass_stages(node, 1);
    Segment<Real> segment =
        text.segment(base, base + (nodes > 0 ? stages.size() - base + stages.node_count() : waiting));
    segment.first = static_cast<std::int32_t>(columns_.size());
    columns_.insert(columns_.end(), stages.columns().begin(), stages.columns().end());
    segment.last = static_cast<std::int32_t>(columns_.size());
    for (std::int32_t i = segment.first + waiting; i < segment.last; ++i) rows_.push_back(i);
    segments_.push_back(segment);
    group_.push_back({&text, waiting});
  }
  /// Runs the group; `row` becomes that after its logits.
  void run_group(std::int32_t& row) {
    if (columns_.empty()) return;
    pass.run(columns_, segments_, rows_, row);
    for (const Member& member : group_) member.text->stages.mark_computed(0, member.waiting);
    row += static_cast<std::int32_t>(rows_.size());
    columns_.clear(), rows_.clear(), segments_.clear(), group_.clear();
  }

  std::int32_t chunk_, most_;         // tokens of a pass that catches up; columns of any pass
  std::vector<NodeId> wanted_;        // nodes whose rows the call returns
  std::vector<std::uint8_t> needed_;  // (max_nodes), their ancestors
  std::vector<BatchToken> columns_;   // of a group of texts
  std::vector<std::int32_t> rows_;    // those of them with logits
  std::vector<Segment<Real>> segments_;
  std::vector<Member> group_;
};

}  // namespace specula::cpu::detail
