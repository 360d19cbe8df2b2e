// SPDX-License-Identifier: MIT
// A language model of many texts, and one that copies what a text has computed.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "specula/base/rows.hpp"
#include "specula/model/language_model.hpp"

namespace specula {

/// New nodes of one text in a pass; parents in its own numbers, as in LanguageModel::extend().
struct SlotNodes {
  std::int32_t slot = 0;  ///< the text's
  Tokens tokens = {};     ///< (nodes); none: only what was appended runs, or a part of it
  Nodes parents = {};     ///< (nodes)
};

/// What extend() of a model of many texts may throw if there is no memory for the pass now, such as pages of
/// a cache that the texts have in common. truncate(slot, 0) of any text makes room: see run_round().
class NoRoom : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// clang-format off

/// A model that holds many texts, each in a slot, with a KV cache of its own. In every member but extend(), the
/// words of LanguageModel, for one slot; append() only queues. A pass is one extend(): it runs the queued tokens of
/// the slots that it names, and their nodes, and reads the weights once for all of them. It names a slot at most
/// once. The rows are those of the nodes, in this order, valid until the next extend(): the other members leave
/// them alone. If a pass throws, no slot has new nodes; it throws NoRoom if other texts are to make room for it.
///
/// A slot named without nodes runs at most `chunk()` queued tokens, so that a long prompt does not hold up others.
///
/// What a LanguageModel may have besides, it may have for each slot: the same members with the slot as their first
/// parameter, such as `change_count(slot)`, but conditioned_on() and keeps_speculation(), which all slots have in common.
/// SlotOf, a slot as a LanguageModel, has the concept then. `static constexpr bool kBatchInvariant`, true, promises that
/// rows do not depend on what else is in the pass, bit for bit: by it a text is bitwise what it is alone.
template <class M>
concept BatchedLanguageModel = requires(M& m, const M& c, std::int32_t slot, std::span<const SlotNodes> nodes,
                                        Tokens tokens, Nodes path, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.slots() } -> std::same_as<std::int32_t>;            // their number
  { c.size(slot) } -> std::same_as<std::int32_t>;         // committed tokens, queued ones included
  { c.capacity(slot) } -> std::same_as<std::int32_t>;
  { c.queued(slot) } -> std::same_as<std::int32_t>;       // tokens that were appended, but have not run
  { c.chunk() } -> std::same_as<std::int32_t>;            // queued tokens that a pass runs for a slot without nodes
  m.append(slot, tokens);
  { m.extend(nodes) } -> std::same_as<LogitsView>;
  m.commit(slot, path);
  m.truncate(slot, n);
};

/// A model of many texts that can copy what a text has computed: `fork(from, to, n)`. The first n tokens of slot `to` are
/// those of slot `from`, whose have run; what they gave is copied instead of running them again. Slot `to` has not changed
/// by it.
template <class M>
concept ForksTexts = BatchedLanguageModel<M> && requires(M& m, std::int32_t from, std::int32_t to, std::int32_t n) {
  { m.fork(from, to, n) } -> std::same_as<void>;
};

// clang-format on

}  // namespace specula
