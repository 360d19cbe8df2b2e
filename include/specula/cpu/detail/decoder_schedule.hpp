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
#include "specula/model/skipped_blocks.hpp"

namespace specula::cpu::detail {

/// Owns a model's passes and the record of its stages. Allocates nothing after the constructor. Does not
/// check arguments; Decoder does.
template <class Real>
class DecoderSchedule {
 public:
  DecoderSchedule(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options)
      : pass(std::move(weights), options),
        stages(exits_of(pass.config()), options),
        chunk_(options.prefill_chunk) {
    wanted_.reserve(static_cast<std::size_t>(options.max_nodes));
    needed_.resize(static_cast<std::size_t>(options.max_nodes));
  }

  DecoderPass<Real> pass;
  DecoderStages stages;

  /// Commits tokens. Fewer than kLazyTokens wait for the next pass.
  void append(Tokens tokens) {
    while (!tokens.empty()) {
      const auto count = std::min(static_cast<std::size_t>(chunk_ - stages.pending()), tokens.size());
      stages.append(tokens.first(count));
      tokens = tokens.subspan(count);
      const bool full = stages.pending() == chunk_;
      if (full || stages.pending() >= kLazyTokens) flush();
    }
  }

  /// Runs all stages that committed tokens lack.
  void flush() {
    for (std::int32_t stage = 0; stage < stages.count(); ++stage) catch_up(stage);
  }
  /// The same for a view of them. Throws std::logic_error if the model needs a view and has none.
  void calculate_pending() {
    if (stages.pending() > 0) pass.input().require_view();
    flush();
  }

  /// Runs the nodes `first` + rows[i] to an exit, with their ancestors and the committed tokens that have not
  /// reached it. Writes logits of these nodes only, to pass.exit_logits() if `to_exit_logits`.
  void run_to_exit(NodeId first, std::span<const std::int32_t> rows, std::int32_t exit, bool to_exit_logits) {
    if (rows.empty()) return;
    wanted_.clear();
    for (const std::int32_t row : rows) wanted_.push_back(first + row);
    run_to_exit(exit, to_exit_logits);
  }
  /// The same for all nodes from `first` on.
  void run_from(NodeId first, std::int32_t exit) {
    wanted_.clear();
    for (NodeId node = first; node < stages.node_count(); ++node) wanted_.push_back(node);
    if (!wanted_.empty()) run_to_exit(exit, false);
  }

  /// Runs the nodes from `first` on without some blocks. Requires that no committed token waits.
  void skip(NodeId first, const SkippedBlocks& skipped) {
    if (first == stages.node_count()) return;
    stages.start_columns(0, 0);
    for (NodeId node = first; node < stages.node_count(); ++node) stages.push_node(node, 0);
    pass.run(stages.columns(), stages.size(), stages.size() + stages.node_count(), 0, {.skipped = &skipped});
  }

 private:
  static std::vector<std::int32_t> exits_of(const DecoderConfig& config) {
    return config.exits.empty() ? std::vector{config.layers} : config.exits;
  }

  /// The nodes in wanted_.
  void run_to_exit(std::int32_t exit, bool to_exit_logits) {
    std::fill_n(needed_.begin(), stages.node_count(), false);
    for (const NodeId node : wanted_)
      for (NodeId up = node; up != kNoParent && !needed_[static_cast<std::size_t>(up)];
           up = stages.node(up).parent)
        needed_[static_cast<std::size_t>(up)] = true;
    for (const NodeId node : wanted_) needed_[static_cast<std::size_t>(node)] = false;
    for (std::int32_t stage = 0; stage <= exit; ++stage) {
      if (stages.waiting(stage) > kLazyTokens) catch_up(stage);
      const std::int32_t waiting = stages.waiting(stage);
      stages.start_columns(stage, waiting);
      const auto push = [&](NodeId node) {
        if (stages.node(node).stages != stage) return;
        stages.push_node(node, stage);
        stages.pass_stage(node);
      };
      for (NodeId node = 0; node < stages.node_count(); ++node)
        if (needed_[static_cast<std::size_t>(node)]) push(node);
      const auto first_row = static_cast<std::int32_t>(stages.columns().size());
      for (const NodeId node : wanted_) push(node);
      const auto all = static_cast<std::int32_t>(stages.columns().size());
      PassPart part = stages.part(stage);
      part.to_exit_logits = to_exit_logits;
      pass.run(stages.columns(), stages.computed(stage), stages.size() + stages.node_count(),
               stage == exit ? first_row : all, part);
      stages.mark_computed(stage, waiting);
    }
  }

  void catch_up(std::int32_t stage) {
    while (stages.waiting(stage) > 0) {
      const std::int32_t count = std::min(stages.waiting(stage), chunk_), base = stages.computed(stage);
      stages.start_columns(stage, count);
      pass.run(stages.columns(), base, base + count, count, stages.part(stage));
      stages.mark_computed(stage, count);
    }
  }

  std::int32_t chunk_;                // tokens of a pass that catches up
  std::vector<NodeId> wanted_;        // nodes whose rows the call returns
  std::vector<std::uint8_t> needed_;  // (max_nodes), their ancestors
};

}  // namespace specula::cpu::detail
