// SPDX-License-Identifier: MIT
// A language model of many texts, and what it may have besides: a concept for each capability.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>

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
/// What it may have besides, in a slot, is that slot's: the concepts below. SlotOf, a slot as a LanguageModel, has it then.
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

/// A model of many texts whose rows do not depend on what else is in the pass, bit for bit: `static constexpr bool
/// kBatchInvariant`, true. By it a text is bitwise what it is alone.
template <class M>
concept BatchInvariant = BatchedLanguageModel<M> && std::bool_constant<M::kBatchInvariant>::value;

/// A model of many texts that can copy what a text has computed: `fork(from, to, n)`. The first n tokens of slot `to` are
/// those of slot `from`, whose have run; what they gave is copied instead of running them again. Slot `to` has not changed
/// by it.
template <class M>
concept ForksTexts = BatchedLanguageModel<M> && requires(M& m, std::int32_t from, std::int32_t to, std::int32_t n) {
  { m.fork(from, to, n) } -> std::same_as<void>;
};

/// CountsChanges, of each slot.
template <class M>
concept CountsSlotChanges = BatchedLanguageModel<M> && requires(const M& c, std::int32_t slot) {
  { c.change_count(slot) } -> std::same_as<std::uint64_t>;
};

/// TimesItself, of each slot: the text's share of the passes, by its part of their nodes.
template <class M>
concept TimesSlots = BatchedLanguageModel<M> && requires(const M& c, std::int32_t slot) {
  { c.pass_seconds(slot) } -> std::same_as<double>;
};

/// ExposesKeyValues, of each slot.
template <class M>
concept ExposesSlotKeyValues = BatchedLanguageModel<M> && requires(M& m, std::int32_t slot) {
  { m.key_values(slot).size() } -> std::same_as<std::int32_t>;  // committed tokens
};

/// ExposesFeatures, of each slot.
template <class M>
concept ExposesSlotFeatures = BatchedLanguageModel<M> && requires(M& m, std::int32_t slot, std::int32_t i) {
  { m.features(slot).size() } -> std::same_as<std::int32_t>;   // committed tokens
  { m.features(slot).width() } -> std::same_as<std::int32_t>;  // numbers per token
  m.features(slot).row(i);                                     // (width): those of committed token i
};

namespace detail {
template <class D, class View>
concept TakesSlotView = requires(D& d, std::int32_t slot, const View& view) { d.set_target_state(slot, view); };
template <class D>
concept TakesSlotKeyValues = TakesSlotView<D, typename D::TargetKeyValues>;
template <class D>
concept TakesSlotFeatures = TakesSlotView<D, typename D::TargetFeatures>;
}  // namespace detail

/// TargetConditioned, of each slot: it names the type of a view, TargetKeyValues, TargetFeatures or both, and takes it by
/// `set_target_state(slot, view)`.
template <class D>
concept ConditionsSlots = BatchedLanguageModel<D> && requires(const D& c) {
  { c.conditioned_on() } -> std::same_as<Conditioning>;
  { c.keeps_speculation() } -> std::same_as<bool>;
} && (detail::TakesSlotKeyValues<D> || detail::TakesSlotFeatures<D>);

// clang-format on

}  // namespace specula
