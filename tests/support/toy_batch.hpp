// SPDX-License-Identifier: MIT
// Toy models of many texts: one of a text for each slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/model/batched.hpp>

#include "toy_model.hpp"

namespace specula_test {

/// `Of` is a model of one text that computes what is appended at once; a `fork_from(other, n)` of it copies
/// what `other` has of its first n tokens.
template <class Of>
class ToyBatchOf {
 public:
  static constexpr bool kBatchInvariant = true;

  ToyBatchOf(std::int32_t slots, std::int32_t tokens, std::uint64_t seed, std::int32_t chunk = 1000,
             std::int32_t capacity = 64)
      : chunk_(chunk) {
    for (std::int32_t i = 0; i < slots; ++i) texts_.emplace_back(tokens, seed, 2.0f, capacity);
    queues_.resize(texts_.size());
    seconds_.resize(texts_.size());
    changes_.resize(texts_.size());
  }
  std::int32_t vocab_size() const { return texts_.front().vocab_size(); }
  std::int32_t slots() const { return static_cast<std::int32_t>(texts_.size()); }
  std::int32_t size(std::int32_t slot) const { return at(slot).size() + queued(slot); }
  std::int32_t capacity(std::int32_t slot) const { return at(slot).capacity(); }
  std::int32_t queued(std::int32_t slot) const { return static_cast<std::int32_t>(queue(slot).size()); }
  std::int32_t chunk() const { return chunk_; }
  std::uint64_t change_count(std::int32_t slot) const { return changes_.at(static_cast<std::size_t>(slot)); }
  double pass_seconds(std::int32_t slot) const { return seconds_[static_cast<std::size_t>(slot)]; }

  void append(std::int32_t slot, Tokens tokens) {
    change(slot);
    at(slot).truncate(at(slot).size());
    if (size(slot) + static_cast<std::int32_t>(tokens.size()) > capacity(slot))
      throw std::invalid_argument("context full");
    queue(slot).insert(queue(slot).end(), tokens.begin(), tokens.end());
  }
  LogitsView extend(std::span<const specula::SlotNodes> nodes) {
    ++passes;
    std::set<std::int32_t> named;
    std::vector<float> rows;
    std::int32_t count = 0, more = 0;
    for (const specula::SlotNodes& slot_nodes : nodes) {
      if (!named.insert(slot_nodes.slot).second) throw std::invalid_argument("a slot twice in a pass");
      change(slot_nodes.slot);
      more += run(slot_nodes);
      if (slot_nodes.tokens.empty()) continue;
      const LogitsView view = at(slot_nodes.slot).extend(slot_nodes.tokens, slot_nodes.parents);
      for (std::int32_t i = 0; i < view.rows; ++i)
        rows.insert(rows.end(), view.row(i).begin(), view.row(i).end());
      count += view.rows;
    }
    most_rows = std::max(most_rows, count + more);
    if (throw_pass == passes) {
      for (const specula::SlotNodes& slot_nodes : nodes)
        at(slot_nodes.slot).truncate(at(slot_nodes.slot).size());
      throw std::runtime_error("the pass failed");
    }
    if (poison_slot >= 0 && poison_pass == passes) poison(nodes, rows);
    for (const specula::SlotNodes& slot_nodes : nodes)
      seconds_[static_cast<std::size_t>(slot_nodes.slot)] += static_cast<double>(slot_nodes.tokens.size());
    rows_.swap(rows);
    return {rows_.data(), count, vocab_size(), vocab_size()};
  }
  void commit(std::int32_t slot, Nodes path) {
    change(slot);
    at(slot).commit(path);
  }
  void truncate(std::int32_t slot, std::int32_t n) {
    change(slot);
    if (n < at(slot).size()) {
      at(slot).truncate(n);
      queue(slot).clear();
    } else {
      at(slot).truncate(at(slot).size());
      queue(slot).resize(static_cast<std::size_t>(n - at(slot).size()));
    }
  }
  void fork(std::int32_t from, std::int32_t to, std::int32_t n) {
    const auto count = static_cast<std::size_t>(std::max(0, n - at(to).size()));
    const Tokens fresh = Tokens(queue(to)).first(std::min(count, queue(to).size())), given = at(from).cache();
    if (from == to || count == 0 || count > fresh.size() || given.size() < static_cast<std::size_t>(n) ||
        !std::equal(fresh.begin(), fresh.end(), given.begin() + at(to).size()))
      throw std::logic_error("a fork of other tokens, or of tokens that have run");
    if constexpr (requires(Of & text, const Of& other) { text.fork_from(other, n); })
      at(to).fork_from(at(from), n);
    else
      at(to).append(fresh);
    queue(to).erase(queue(to).begin(), queue(to).begin() + static_cast<std::ptrdiff_t>(count));
    forked += static_cast<std::int64_t>(count);
  }
  const Of& at(std::int32_t slot) const { return texts_.at(static_cast<std::size_t>(slot)); }

  std::int64_t forked = 0;                   // tokens
  std::int64_t ran = 0;                      // appended tokens that went through passes
  std::int64_t passes = 0, throw_pass = -1;  // extend() calls; the one, from 1, that throws
  std::int64_t poison_pass = -1;             // the one with a NaN in the last row
  std::int32_t poison_slot = -1;             // of this slot
  std::int32_t most_rows = 0;                // tokens and nodes in a pass

 protected:
  void change(std::int32_t slot) { ++changes_.at(static_cast<std::size_t>(slot)); }
  Of& at(std::int32_t slot) { return texts_.at(static_cast<std::size_t>(slot)); }
  /// Runs all queued tokens of a slot.
  void run_queued(std::int32_t slot) {
    if (queued(slot) == 0) return;
    change(slot);
    ran += queued(slot);
    at(slot).append(Tokens(queue(slot)));
    queue(slot).clear();
  }

 private:
  std::vector<Token>& queue(std::int32_t slot) { return queues_.at(static_cast<std::size_t>(slot)); }
  const std::vector<Token>& queue(std::int32_t slot) const {
    return queues_.at(static_cast<std::size_t>(slot));
  }

  /// The queued tokens of a slot, or a chunk of them.
  std::int32_t run(const specula::SlotNodes& slot_nodes) {
    std::vector<Token>& waiting = queue(slot_nodes.slot);
    const std::int32_t count =
        slot_nodes.tokens.empty() ? std::min(chunk_, queued(slot_nodes.slot)) : queued(slot_nodes.slot);
    if (count == 0) return 0;
    ran += count;
    at(slot_nodes.slot).append(Tokens(waiting).first(static_cast<std::size_t>(count)));
    waiting.erase(waiting.begin(), waiting.begin() + count);
    return count;
  }
  void poison(std::span<const specula::SlotNodes> nodes, std::vector<float>& rows) {
    std::size_t end = 0;
    for (const specula::SlotNodes& slot_nodes : nodes) {
      end += slot_nodes.tokens.size() * static_cast<std::size_t>(vocab_size());
      if (slot_nodes.slot == poison_slot && !slot_nodes.tokens.empty())
        rows[end - 1] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  std::vector<Of> texts_;
  std::vector<std::vector<Token>> queues_;
  std::vector<double> seconds_;
  std::vector<float> rows_;
  std::int32_t chunk_;
  std::vector<std::uint64_t> changes_;
};
using ToyBatch = ToyBatchOf<ToyModel>;
static_assert(specula::MergesPasses<specula::SlotOf<ToyBatch>>);

}  // namespace specula_test
