// SPDX-License-Identifier: MIT
// One merged pass of a model over many texts, and which of their prompts are read in it (chunked prefill).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/language_model.hpp"

namespace specula {

/// A pass that texts of a round wait for, merged: what run_round() hands to the caller. The caller runs it,
/// and may have prompts wait: it erases entries of texts that are not being written, or empties their
/// `tokens` and `parents`, by which only a part of the prompt runs. Their rounds go on waiting. The order
/// stays.
struct MergedPass {
  const void* model = nullptr;    ///< the model of many texts, by its address: PassRequest::batch
  std::vector<SlotNodes>& nodes;  ///< one per slot: texts that are being written, then those that are read
  std::size_t written = 0;        ///< entries of texts that are being written
  /// Whether any text of the round is being written, in this pass or not, so that prompts hold it up.
  bool holds_up = false;
};

/// What a merged pass gave.
struct PassRows {
  LogitsView rows = {};     ///< of the nodes that ran, in their order
  double seconds = 0;       ///< that it took; 0: not known, and nothing is learned from it
  std::int32_t queued = 0;  ///< appended tokens that ran in it
};

/// Runs the pass with `model`. A text with more queued tokens than a chunk gets on with a chunk of them,
/// without rows. While any text is being written, the prompts of all others bring one chunk into the pass
/// together, in their order: those of which nothing more fits wait. While none is, each brings a chunk. Time
/// is the model's own (pass_seconds()) if it has one. **Cost.** O(texts); no allocation. **Throws.** What
/// extend() throws.
template <BatchedLanguageModel M>
PassRows run_pass(M& model, const MergedPass& pass) {
  constexpr bool timed = TimesItself<SlotOf<M>>;
  const auto seconds_of = [&](const SlotNodes& slot_nodes) -> double {
    if constexpr (timed) return std::optional(SlotOf<M>(model, slot_nodes.slot).pass_seconds()).value_or(0);
    return 0;
  };
  const std::int32_t chunk = model.chunk();
  std::int32_t left = chunk;
  PassRows out;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pass.nodes.size(); ++i) {
    SlotNodes& slot_nodes = pass.nodes[i];
    const std::int32_t queued = model.queued(slot_nodes.slot), runs = std::min(queued, chunk);
    if (slot_nodes.tokens.empty() && queued == 0) continue;
    if (i >= pass.written && pass.holds_up) {
      if (runs > left) continue;
      left -= runs;
    }
    if (queued > chunk) slot_nodes.tokens = {}, slot_nodes.parents = {};
    out.queued += runs;
    out.seconds -= seconds_of(slot_nodes);
    if (kept++ != i) pass.nodes[kept - 1] = slot_nodes;
  }
  if (kept < pass.nodes.size()) pass.nodes.resize(kept);
  if (kept == 0) return out;
  if constexpr (timed) {
    out.rows = model.extend(pass.nodes);
    for (const SlotNodes& slot_nodes : pass.nodes) out.seconds += seconds_of(slot_nodes);
  } else {
    const detail::Stopwatch watch(out.seconds);
    out.rows = model.extend(pass.nodes);
  }
  return out;
}

}  // namespace specula
