// A language model of many texts, and one of its texts as a LanguageModel.
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
/// A model may have `fork(from, to, n)`: the first n tokens of slot `to` are those of slot `from`, whose have run; what
/// they gave is copied instead of running them again. Slot `to` has not changed by it.
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
concept BatchInvariant = BatchedLanguageModel<M> && M::kBatchInvariant;

// clang-format on

namespace detail {

SPECULA_HAS_MEMBER(change_count)
SPECULA_HAS_MEMBER(fork)
SPECULA_HAS_MEMBER(pass_seconds)
SPECULA_HAS_MEMBER(key_values)
SPECULA_HAS_MEMBER(features)

/// What a slot of a conditioned draft has besides; nothing for another model.
template <class Self, class M>
struct ConditionedSlot {};
template <class Self, class M>
  requires requires {
    typename M::TargetKeyValues;
    typename M::TargetFeatures;
  }
struct ConditionedSlot<Self, M> {
  using TargetKeyValues = typename M::TargetKeyValues;
  using TargetFeatures = typename M::TargetFeatures;

  /// See TargetConditioned.
  void set_target_state(const TargetKeyValues& view) { self().model_->set_target_state(self().slot_, view); }
  /// See TargetConditioned.
  void set_target_state(const TargetFeatures& view) { self().model_->set_target_state(self().slot_, view); }
  /// See TargetConditioned.
  Conditioning conditioned_on() const { return static_cast<const Self*>(this)->model_->conditioned_on(); }
  /// See TargetConditioned.
  bool keeps_speculation() const { return static_cast<const Self*>(this)->model_->keeps_speculation(); }

 private:
  Self& self() { return *static_cast<Self*>(this); }
};

}  // namespace detail

/// A slot of a model of many texts as a LanguageModel: all that works on one model works on it, one pass a
/// call, and whoever runs merged passes finds model and slot. References the model.
template <BatchedLanguageModel M>
class SlotOf : public detail::ConditionedSlot<SlotOf<M>, M> {
 public:
  SlotOf(M& model, std::int32_t slot) : model_(&model), slot_(slot) {}  ///< Slot `slot` of `model`.

  const void* batch() const { return model_; }   ///< the address of the model of many texts
  std::int32_t slot() const { return slot_; }    ///< the text's place in it
  const void* cache_id() const { return this; }  ///< see NamesItsCache

  std::int32_t vocab_size() const { return model_->vocab_size(); }   ///< size V of the vocabulary
  std::int32_t size() const { return model_->size(slot_); }          ///< committed tokens
  std::int32_t capacity() const { return model_->capacity(slot_); }  ///< tokens and nodes that it can hold
  void append(Tokens tokens) { model_->append(slot_, tokens); }      ///< queues them
  /// A pass over this text alone.
  LogitsView extend(Tokens tokens, Nodes parents) {
    const SlotNodes nodes{slot_, tokens, parents};
    return model_->extend(std::span(&nodes, 1));
  }
  void commit(Nodes path) { model_->commit(slot_, path); }       ///< see LanguageModel
  void truncate(std::int32_t n) { model_->truncate(slot_, n); }  ///< see LanguageModel
  /// See CountsChanges: the slot's own.
  std::uint64_t change_count() const requires(detail::has_change_count<M>()) {
    return model_->change_count(slot_);
  }
  /// See TimesItself: the text's share of the passes, by its part of their nodes.
  double pass_seconds() const requires(detail::has_pass_seconds<M>()) { return model_->pass_seconds(slot_); }
  /// See ExposesKeyValues.
  auto key_values() requires(detail::has_key_values<M>()) { return model_->key_values(slot_); }
  /// See ExposesFeatures.
  auto features() requires(detail::has_features<M>()) { return model_->features(slot_); }

 private:
  friend detail::ConditionedSlot<SlotOf<M>, M>;
  M* model_;
  std::int32_t slot_;
};

}  // namespace specula
