// SPDX-License-Identifier: MIT
// llama.cpp adapter for many texts at once: a specula::BatchedLanguageModel over libllama.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/llama_cpp/detail/context.hpp"
#include "specula/llama_cpp/options.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::llama_cpp {

/// One libllama context with many texts, each a sequence in a stream of the cache of its own, so that a pass
/// reads the cells of a text for its own nodes only. Otherwise as Model, but:
///
/// - A sequence has one token at a position, so the nodes of a slot are a chain. Trees take the sequences of
///   one cache, as Model has them for one text.
/// - No features and no Options::same_bits; a row differs by rounding from that of another pass, so it
///   does not have kBatchInvariant.
/// - libllama runs equally many tokens of each sequence together, so a pass over chains of different lengths
///   is several of its own.
class BatchedModel {
 public:
  /// Texts of `options.capacity` tokens and nodes each. Throws as Model, and std::invalid_argument for a
  /// number of slots or an option that cannot be had.
  BatchedModel(std::shared_ptr<llama_model> weights, std::int32_t slots, const Options& options = {})
      : weights_(detail::checked(std::move(weights), options)),
        capacity_(detail::capacity(*weights_, options)),
        max_nodes_(options.max_nodes),
        texts_(static_cast<std::size_t>(checked_slots(slots, options))),
        row_size_(llama_vocab_n_tokens(llama_model_get_vocab(weights_.get()))),
        vocab_(options.vocab_size ? options.vocab_size : row_size_),
        context_(detail::make_context(weights_, options,
                                      {.tokens = capacity_,
                                       .pass = slots * most_of_a_text(),
                                       .outputs = slots * max_nodes_,
                                       .sequences = slots,
                                       .streams = true})),
        memory_(llama_get_memory(context_.get())) {
    const auto entries = static_cast<std::size_t>(slots) * static_cast<std::size_t>(most_of_a_text());
    tokens_.reserve(entries);
    positions_.reserve(entries);
    ids_.reserve(entries);
    id_places_.reserve(entries);
    id_counts_.resize(entries, 1);
    outputs_.reserve(entries);
    for (Text& text : texts_) text.waiting.reserve(static_cast<std::size_t>(capacity_));
  }

  BatchedModel(const BatchedModel&) = delete;  // slots hold its address
  BatchedModel& operator=(const BatchedModel&) = delete;

  std::int32_t vocab_size() const { return vocab_; }            ///< size V of the rows
  std::int32_t slots() const { return detail::count(texts_); }  ///< texts at once
  std::int32_t size(std::int32_t slot) const {
    return text(slot).size();
  }                                                 ///< committed tokens, queued ones included
  std::int32_t capacity(std::int32_t slot) const {  ///< of each text
    static_cast<void>(text(slot));
    return capacity_;
  }
  /// Committed tokens that have yet to run.
  std::int32_t queued(std::int32_t slot) const { return detail::count(text(slot).waiting); }
  std::int32_t chunk() const { return kChunk; }  ///< queued tokens that ride along
  std::uint64_t change_count(std::int32_t slot) const {
    return text(slot).changes.now();
  }                                                                            ///< see CountsChanges
  double pass_seconds(std::int32_t slot) const { return text(slot).seconds; }  ///< see TimesItself: its share
  /// See Model::context().
  llama_context* context() const { return context_.get(); }

  /// See Model::context_changed(), for all texts.
  void context_changed() {
    for (Text& text_state : texts_) text_state.changes.next();
  }

  /// Queues tokens and drops the slot's nodes. Throws std::invalid_argument for a token out of range or a
  /// full context, and changes nothing.
  void append(std::int32_t slot, Tokens tokens) {
    Text& text_state = text(slot);
    detail::check_tokens(tokens, vocab_);
    detail::check_room("append", text_state.size(), tokens.size(), capacity_);
    text_state.changes.next();
    drop_nodes(slot, text_state);
    text_state.waiting.insert(text_state.waiting.end(), tokens.begin(), tokens.end());
  }

  /// One llama_decode() over the nodes of several texts, each a chain, with their queued tokens; of a slot
  /// without nodes at most a chunk of those. Throws std::invalid_argument for bad input, and
  /// std::runtime_error if libllama fails; no slot has new nodes then.
  LogitsView extend(std::span<const SlotNodes> nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      check_nodes(nodes[i]);
      for (std::size_t other = 0; other < i; ++other)
        if (nodes[other].slot == nodes[i].slot)
          detail::fail("extend: slot " + std::to_string(nodes[i].slot) + " is named twice");
    }
    for (bool long_ones = true; long_ones;) {  // first what does not ride along with nodes
      long_ones = false;
      begin_pass();
      for (const SlotNodes& slot_nodes : nodes)
        if (!slot_nodes.tokens.empty() && queued(slot_nodes.slot) > kChunk)
          add(slot_nodes.slot, {}), long_ones = true;
      if (long_ones) run();
    }
    begin_pass();
    std::int32_t rows = 0;
    for (const SlotNodes& slot_nodes : nodes)
      add(slot_nodes.slot, slot_nodes.tokens), rows += detail::count(slot_nodes.tokens);
    if (!tokens_.empty()) run();
    return {rows > 0 ? llama_get_logits(context_.get()) : nullptr, rows, vocab_, row_size_};
  }

  /// Commits the first nodes of the slot's chain, and drops the others. Throws std::invalid_argument, and
  /// changes nothing, if `path` is anything else.
  void commit(std::int32_t slot, Nodes path) {
    Text& text_state = text(slot);
    for (std::size_t i = 0; i < path.size(); ++i)
      if (path[i] != static_cast<NodeId>(i) || path[i] >= text_state.nodes)
        detail::fail("commit: node " + std::to_string(path[i]) + " at place " + std::to_string(i) +
                     ", must be the first of the slot's " + std::to_string(text_state.nodes) +
                     " nodes in their order");
    text_state.changes.next();
    text_state.cached += detail::count(path), text_state.nodes -= detail::count(path);
    drop_nodes(slot, text_state);
  }

  /// As Model::truncate(), of one text.
  void truncate(std::int32_t slot, std::int32_t n) {
    Text& text_state = text(slot);
    if (n < 0 || n > text_state.size())
      detail::fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " +
                   std::to_string(text_state.size()));
    text_state.changes.next();
    text_state.waiting.resize(static_cast<std::size_t>(std::max(0, n - text_state.cached)));
    text_state.cached = std::min(text_state.cached, n), text_state.nodes = 0;
    llama_memory_seq_rm(memory_, slot, text_state.cached, -1);
  }

 private:
  static constexpr std::int32_t kChunk = 128;

  struct Text {
    std::int32_t cached = 0;  // committed tokens in the cache; nodes follow them
    std::int32_t nodes = 0;
    std::vector<Token> waiting;  // committed tokens after those, of a text without nodes
    specula::detail::ChangeCount changes;
    double seconds = 0;
    std::int32_t size() const { return cached + detail::count(waiting); }
  };
  /// A text's part of a pass.
  struct Part {
    std::int32_t slot, waiting, nodes;
  };

  /// Tokens and nodes in a pass.
  std::int32_t most_of_a_text() const { return std::min(capacity_, kChunk + max_nodes_); }
  static std::int32_t checked_slots(std::int32_t slots, const Options& options) {
    detail::expect_in("slots", slots, 1, detail::kMaxSequences);
    if (options.features) detail::fail("features are kept of one text at a time, by Model");
    if (options.same_bits)
      detail::fail(
          "same_bits: passes over several texts run their rows in groups; Model has it, for one text");
    return slots;
  }
  Text& text(std::int32_t slot) {
    detail::expect_in("slot", slot, 0, slots() - 1);
    return texts_[static_cast<std::size_t>(slot)];
  }
  const Text& text(std::int32_t slot) const { return const_cast<BatchedModel*>(this)->text(slot); }

  void check_nodes(const SlotNodes& nodes) const {
    const Text& text_state = text(nodes.slot);
    detail::check_tokens(nodes.tokens, vocab_);
    const std::int32_t wanted = detail::count(nodes.tokens);
    if (nodes.parents.size() != nodes.tokens.size())
      detail::fail("extend: " + std::to_string(wanted) + " tokens and " +
                   std::to_string(nodes.parents.size()) + " parents");
    if (wanted > max_nodes_ - text_state.nodes)
      detail::fail("extend: " + std::to_string(text_state.nodes) + " nodes and " + std::to_string(wanted) +
                   " more, but max_nodes is " + std::to_string(max_nodes_));
    for (std::int32_t i = 0; i < wanted; ++i)
      if (const NodeId node = text_state.nodes + i, parent = nodes.parents[static_cast<std::size_t>(i)];
          parent != node - 1)
        detail::fail(
            "extend: parent " + std::to_string(parent) + " of node " + std::to_string(node) + " of slot " +
            std::to_string(nodes.slot) + ", must be " + std::to_string(node - 1) +
            ": with several texts a slot is one sequence, so its nodes are a chain; trees take a Model "
            "of one text");
    detail::check_room("extend", text_state.size() + text_state.nodes, nodes.tokens.size(), capacity_);
  }

  void drop_nodes(std::int32_t slot, Text& text_state) {
    if (text_state.nodes > 0) llama_memory_seq_rm(memory_, slot, text_state.cached, -1);
    text_state.nodes = 0;
  }

  void begin_pass() { tokens_.clear(), positions_.clear(), ids_.clear(), outputs_.clear(), parts_.clear(); }
  /// Adds a chunk of a slot's queued tokens to the pass, or all of them with `nodes`.
  void add(std::int32_t slot, Tokens nodes) {
    Text& text_state = text(slot);
    const std::int32_t waiting = std::min(detail::count(text_state.waiting), kChunk);
    std::int32_t position = text_state.cached + text_state.nodes;
    const auto push = [&](Token token, bool row) {
      tokens_.push_back(token), positions_.push_back(position++), ids_.push_back(slot),
          outputs_.push_back(row);
    };
    for (std::int32_t i = 0; i < waiting; ++i) push(text_state.waiting[static_cast<std::size_t>(i)], false);
    for (const Token token : nodes) push(token, true);
    if (waiting + detail::count(nodes) > 0) parts_.push_back({slot, waiting, detail::count(nodes)});
  }
  void run() {
    id_places_.clear();
    for (llama_seq_id& id : ids_) id_places_.push_back(&id);
    const double began = specula::detail::monotonic_seconds();
    int code = 0;
    try {
      code = llama_decode(context_.get(), {.n_tokens = detail::count(tokens_),
                                           .token = tokens_.data(),
                                           .embd = nullptr,
                                           .pos = positions_.data(),
                                           .n_seq_id = id_counts_.data(),
                                           .seq_id = id_places_.data(),
                                           .logits = outputs_.data()});
      llama_synchronize(context_.get());
    } catch (...) {  // libllama is C++ inside, and may throw std::bad_alloc
      take_back();
      throw;
    }
    if (code != 0) {
      take_back();
      throw std::runtime_error("llama_decode of " + std::to_string(tokens_.size()) + " tokens of " +
                               std::to_string(parts_.size()) + " texts: " + detail::meaning(code));
    }
    const double seconds = specula::detail::monotonic_seconds() - began;
    for (const Part& part : parts_) {
      Text& text_state = text(part.slot);
      text_state.changes.next();
      text_state.waiting.erase(text_state.waiting.begin(), text_state.waiting.begin() + part.waiting);
      text_state.cached += part.waiting, text_state.nodes += part.nodes;
      text_state.seconds += seconds * (part.waiting + part.nodes) / static_cast<double>(tokens_.size());
    }
  }
  /// Removes what a failed pass may have left.
  void take_back() {
    for (const Part& part : parts_) {
      const Text& text_state = text(part.slot);
      llama_memory_seq_rm(memory_, part.slot, text_state.cached + text_state.nodes, -1);
    }
  }

  std::shared_ptr<llama_model> weights_;
  std::int32_t capacity_, max_nodes_;
  std::vector<Text> texts_;  // by slot
  std::int32_t row_size_, vocab_;
  detail::Context context_;
  llama_memory_t memory_;

  // The batch.
  std::vector<Part> parts_;
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<llama_seq_id> ids_;
  std::vector<llama_seq_id*> id_places_;
  std::vector<std::int32_t> id_counts_;
  std::vector<std::int8_t> outputs_;
};

}  // namespace specula::llama_cpp
