// SPDX-License-Identifier: MIT
// One text of a language model of many texts, as a LanguageModel: SlotOf.
#pragma once

#include <cstdint>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/model/batched_language_model.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"

namespace specula {

namespace detail {

/// What a slot of a conditioned draft has besides; nothing for another model.
template <class Self, class M>
struct ConditionedSlot {};
template <class Self, ConditionsSlots M>
struct ConditionedSlot<Self, M> : KeyValuesOf<M, TakesSlotKeyValues<M>>, FeaturesOf<M, TakesSlotFeatures<M>> {
  /// See TargetConditioned.
  template <class View>
    requires TakesSlotView<M, View>
  void set_target_state(const View& view) {
    Self& self = *static_cast<Self*>(this);
    self.model_->set_target_state(self.slot_, view);
  }
  /// See TargetConditioned.
  Conditioning conditioned_on() const { return static_cast<const Self*>(this)->model_->conditioned_on(); }
  /// See TargetConditioned.
  bool keeps_speculation() const { return static_cast<const Self*>(this)->model_->keeps_speculation(); }
};

}  // namespace detail

/// A slot of a model of many texts as a LanguageModel: all that works on one model works on it, one pass a
/// call, or, as it MergesPasses, in passes that the caller merges with those of other slots. It has what the
/// model has for each slot. References the model.
template <BatchedLanguageModel M>
class SlotOf : public detail::ConditionedSlot<SlotOf<M>, M> {
  static_assert(detail::check_batched_members<M>());

 public:
  SlotOf(M& model, std::int32_t slot) : model_(&model), slot_(slot) {}  ///< Slot `slot` of `model`.

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
  /// extend() in halves: the nodes of this slot in a pass of the model; see MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) const { return {model_, slot_, tokens, parents}; }
  LogitsView end_pass(const LogitsView& rows) const { return rows; }  ///< the second half
  void commit(Nodes path) { model_->commit(slot_, path); }            ///< see LanguageModel
  void truncate(std::int32_t n) { model_->truncate(slot_, n); }       ///< see LanguageModel
  /// See CountsChanges: the slot's own.
  std::uint64_t change_count() const requires CountsSlotChanges<M> { return model_->change_count(slot_); }
  /// See TimesItself: the text's share of the passes, by its part of their nodes.
  double pass_seconds() const requires TimesSlots<M> { return model_->pass_seconds(slot_); }
  /// See ExposesKeyValues.
  auto key_values() requires ExposesSlotKeyValues<M> { return model_->key_values(slot_); }
  /// See ExposesFeatures.
  auto features() requires ExposesSlotFeatures<M> { return model_->features(slot_); }

 private:
  friend detail::ConditionedSlot<SlotOf<M>, M>;
  M* model_;
  std::int32_t slot_;
};

}  // namespace specula
