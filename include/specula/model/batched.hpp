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

/// A slot of a model of many texts as a LanguageModel: all that works on one model works on it, one pass a
/// call, or, as it MergesPasses, in passes that the caller merges with those of other slots. It has what the
/// model has for each slot. References the model.
template <BatchedLanguageModel M>
class SlotOf : public detail::KeyValuesOf<M, detail::NamesKeyValues<M>>,
               public detail::FeaturesOf<M, detail::NamesFeatures<M>> {
  // What the model has for each slot.
  static constexpr bool kCounts = detail::slots_have_change_count<M>();
  static constexpr bool kTimes = detail::slots_have_pass_seconds<M>();
  static constexpr bool kKeyValues = detail::slots_have_key_values<M>();
  static constexpr bool kFeatures = detail::slots_have_features<M>();
  static constexpr bool kConditioned = requires(const M& c) { c.conditioned_on(), c.keeps_speculation(); };
  template <class View>
  static constexpr bool kTakes = requires(M& m, std::int32_t slot, const View& view) {
    m.set_target_state(slot, view);
  };

 public:
  /// Slot `slot` of `model`.
  SlotOf(M& model, std::int32_t slot) : model_(&model), slot_(slot) {
    static_assert(detail::check_slot_members<SlotOf, M>());
  }

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
  auto change_count() const requires kCounts { return model_->change_count(slot_); }
  /// See TimesItself: the text's share of the passes, by its part of their nodes.
  auto pass_seconds() const requires kTimes { return model_->pass_seconds(slot_); }
  /// See ExposesKeyValues.
  auto key_values() requires kKeyValues { return model_->key_values(slot_); }
  /// See ExposesFeatures.
  auto features() requires kFeatures { return model_->features(slot_); }
  /// See TargetConditioned.
  template <class View>
    requires(kTakes<View>)
  void set_target_state(const View& view) { model_->set_target_state(slot_, view); }
  /// See TargetConditioned.
  auto conditioned_on() const requires kConditioned { return model_->conditioned_on(); }
  /// See TargetConditioned.
  auto keeps_speculation() const requires kConditioned { return model_->keeps_speculation(); }

 private:
  M* model_;
  std::int32_t slot_;
};

}  // namespace specula
