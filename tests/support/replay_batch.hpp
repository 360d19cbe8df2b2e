// SPDX-License-Identifier: MIT
// Replays of recorded acceptance over many texts at once, in simulated time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <specula/model/batched.hpp>

#include "recorded_acceptance.hpp"

namespace specula_test {

/// Target or draft of recorded texts, of which a prompt names one, as its only token. A draft's row after `d`
/// draft tokens has the recorded confidence in kDrafted; the target's next token is kDrafted where the record
/// says so, and kOther elsewhere. A pass takes `cost(rows, queued tokens included)`.
class ReplayBatch {
 public:
  static constexpr bool kBatchInvariant = true;
  static constexpr specula::Token kDrafted = kRecordedTexts, kOther = kRecordedTexts + 1;
  static constexpr std::int32_t kVocab = 32;
  using Cost = std::function<double(std::int32_t rows)>;

  ReplayBatch(std::int32_t slots, bool drafts, Cost cost, bool never_right = false)
      : slots_(static_cast<std::size_t>(slots)),
        drafts_(drafts),
        cost_(std::move(cost)),
        never_right_(never_right) {
    constexpr std::size_t kNodes = 64;  // of a text, for tests of allocations
    rows_.reserve(slots_.size() * kNodes * kVocab);
    for (Slot& slot : slots_) slot.depths.reserve(kNodes);
  }

  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t slots() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t size(std::int32_t slot) const { return at(slot).size; }
  std::int32_t capacity(std::int32_t) const { return 1 << 20; }
  std::int32_t queued(std::int32_t slot) const { return at(slot).queued; }
  std::int32_t chunk() const { return 1 << 20; }
  double pass_seconds(std::int32_t slot) const { return at(slot).seconds; }
  void append(std::int32_t slot, specula::Tokens tokens) {
    Slot& text = at(slot);
    if (text.size == 0 && !tokens.empty()) text.text = tokens[0];
    text.size += static_cast<std::int32_t>(tokens.size()),
        text.queued += static_cast<std::int32_t>(tokens.size());
    text.depths.clear();
  }
  specula::LogitsView extend(std::span<const specula::SlotNodes> nodes) {
    std::int32_t rows = 0, ran = 0;
    for (const specula::SlotNodes& slot_nodes : nodes) {
      rows += static_cast<std::int32_t>(slot_nodes.tokens.size()), ran += at(slot_nodes.slot).queued;
      at(slot_nodes.slot).queued = 0;
    }
    const double took = cost_(rows + ran), shown = clock ? clock(took) : took;
    rows_.assign(static_cast<std::size_t>(rows) * kVocab, 0.0f);
    float* row = rows_.data();
    for (const specula::SlotNodes& slot_nodes : nodes) {
      Slot& text = at(slot_nodes.slot);
      for (std::size_t i = 0; i < slot_nodes.tokens.size(); ++i, row += kVocab) {
        if (text.size == 0 && slot_nodes.parents[i] == specula::kNoParent) text.text = slot_nodes.tokens[i];
        const std::int32_t depth = slot_nodes.parents[i] == specula::kNoParent
                                       ? 0
                                       : text.depths[static_cast<std::size_t>(slot_nodes.parents[i])] + 1;
        text.depths.push_back(depth);
        write(text, depth, row);
      }
      text.seconds += shown / static_cast<double>(nodes.size());
    }
    spent += took;
    return {rows_.data(), rows, kVocab, kVocab};
  }
  void commit(std::int32_t slot, specula::Nodes path) {
    at(slot).size += static_cast<std::int32_t>(path.size());
    at(slot).depths.clear();
  }
  void truncate(std::int32_t slot, std::int32_t n) {
    at(slot).size = n, at(slot).queued = std::min(at(slot).queued, n);
    at(slot).depths.clear();
  }

  double spent = 0;
  std::function<double(double seconds)> clock;  // what it shows of them; all of them unless set

 private:
  struct Slot {
    specula::Token text = 0;
    std::int32_t size = 0, queued = 0;
    std::vector<std::int32_t> depths;  // of the nodes
    double seconds = 0;
  };
  Slot& at(std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(std::int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }

  void write(const Slot& text, std::int32_t depth, float* row) const {
    const std::int32_t position = std::min(text.size, kRecordedTokens - 1);
    const auto& record =
        kRecorded[static_cast<std::size_t>(text.text % kRecordedTexts * kRecordedTokens + position)];
    if (!drafts_) {
      row[depth < record[8] && !never_right_ ? kDrafted : kOther] = 60;
    } else {
      const double sure = record[static_cast<std::size_t>(std::min(depth, 7))] / 100.0;
      row[kDrafted] = static_cast<float>(std::log(sure / (1 - sure) * (kVocab - 1)));
    }
  }

  std::vector<Slot> slots_;
  bool drafts_;
  Cost cost_;
  bool never_right_;
  std::vector<float> rows_;
};

}  // namespace specula_test
