// SPDX-License-Identifier: MIT
// Checks that an optional member of a model has the type that its concept asks for: static_asserts that name
// it.
#pragma once

#include <cstdint>

#include "specula/base/has_member.hpp"
#include "specula/model/batched_language_model.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"

namespace specula::detail {

// See base/has_member.hpp.
SPECULA_HAS_MEMBER(change_count)
SPECULA_HAS_MEMBER(pass_seconds)
SPECULA_HAS_MEMBER(raw_rows)
SPECULA_HAS_MEMBER(key_values)
SPECULA_HAS_MEMBER(features)
SPECULA_HAS_MEMBER(set_target_state)
SPECULA_HAS_MEMBER(set_context)
SPECULA_HAS_MEMBER(extend_skipping)
SPECULA_HAS_MEMBER(attention_similarity)
SPECULA_HAS_MEMBER(extend_to_exit)
SPECULA_HAS_MEMBER(resume_to_exit)
SPECULA_HAS_MEMBER(cache_id)
SPECULA_HAS_MEMBER(fork)

template <class M>
concept NamesKeyValues = requires {
  typename M::TargetKeyValues;
};
template <class M>
concept NamesFeatures = requires {
  typename M::TargetFeatures;
};

/// Whether a member is that of the slots of a model of many texts, which `M` may be as well.
template <class M>
consteval bool slots_have_change_count() {
  return BatchedLanguageModel<M> && requires(const M& c, std::int32_t slot) { c.change_count(slot); };
}
template <class M>
consteval bool slots_have_pass_seconds() {
  return BatchedLanguageModel<M> && requires(const M& c, std::int32_t slot) { c.pass_seconds(slot); };
}
template <class M>
consteval bool slots_have_key_values() {
  return BatchedLanguageModel<M> && requires(M & m, std::int32_t slot) { m.key_values(slot); };
}
template <class M>
consteval bool slots_have_features() {
  return BatchedLanguageModel<M> && requires(M & m, std::int32_t slot) { m.features(slot); };
}
template <class M>
consteval bool slots_take_key_values() {
  if constexpr (BatchedLanguageModel<M> && NamesKeyValues<M>)
    return requires(M & m, std::int32_t slot, const typename M::TargetKeyValues& view) {
      m.set_target_state(slot, view);
    };
  return false;
}
template <class M>
consteval bool slots_take_features() {
  if constexpr (BatchedLanguageModel<M> && NamesFeatures<M>)
    return requires(M & m, std::int32_t slot, const typename M::TargetFeatures& view) {
      m.set_target_state(slot, view);
    };
  return false;
}

/// Compiles if each optional member of the LanguageModel `M` satisfies its concept; otherwise a static_assert
/// names the member. A type may be a LanguageModel and a BatchedLanguageModel: then the member may be the
/// latter's.
template <class M>
consteval bool check_model_members() {
  static_assert(!has_change_count<M>() || CountsChanges<M> || slots_have_change_count<M>(),
                "the model's change_count is not CountsChanges: std::uint64_t change_count() const; of a "
                "wrapper also a std::optional");
  static_assert(!has_pass_seconds<M>() || TimesItself<M> || slots_have_pass_seconds<M>(),
                "the model's pass_seconds is not TimesItself: double pass_seconds() const; of a wrapper also "
                "a std::optional");
  static_assert(!has_raw_rows<M>() || KeepsRawRows<M>,
                "the model's raw_rows is not KeepsRawRows: LogitsView raw_rows() const");
  static_assert(!has_set_context<M>() || TakesContext<M>,
                "the model's set_context is not TakesContext: void set_context(std::int32_t)");
  static_assert(!has_key_values<M>() || ExposesKeyValues<M> || slots_have_key_values<M>(),
                "the model's key_values is not ExposesKeyValues: key_values() returns a view with "
                "std::int32_t size() const");
  static_assert(!has_features<M>() || ExposesFeatures<M> || slots_have_features<M>(),
                "the model's features is not ExposesFeatures: features() returns a view with std::int32_t "
                "size() const, std::int32_t width() const, row(std::int32_t) const");
  static_assert(
      !has_set_target_state<M>() || TargetConditioned<M> || slots_take_key_values<M>() ||
          slots_take_features<M>(),
      "a model with set_target_state() must be TargetConditioned: TargetKeyValues or TargetFeatures, the "
      "view that it takes, Conditioning conditioned_on() const, bool keeps_speculation() const");
  static_assert(!NamesKeyValues<M> || TakesKeyValues<M> || slots_take_key_values<M>(),
                "a model that names TargetKeyValues must have set_target_state(const TargetKeyValues&)");
  static_assert(!NamesFeatures<M> || TakesFeatures<M> || slots_take_features<M>(),
                "a model that names TargetFeatures must have set_target_state(const TargetFeatures&)");
  static_assert((!has_extend_skipping<M>() && !has_attention_similarity<M>()) || SkipsLayers<M>,
                "a model with extend_skipping or attention_similarity must be SkipsLayers: LogitsView "
                "extend_skipping(Tokens, Nodes, const SkippedBlocks&), std::span<const double> "
                "attention_similarity(), std::int32_t layers() const, std::int32_t node_count() const");
  static_assert((!has_extend_to_exit<M>() && !has_resume_to_exit<M>()) || ExitsEarly<M>,
                "a model with extend_to_exit or resume_to_exit must be ExitsEarly: LogitsView "
                "extend_to_exit(Tokens, Nodes, std::int32_t exit), LogitsView resume_to_exit(std::span<const "
                "std::int32_t> rows, std::int32_t exit), std::int32_t exits() const, std::int32_t "
                "layers_to(std::int32_t exit) const");
  static_assert(!has_cache_id<M>() || NamesItsCache<M>,
                "the model's cache_id is not NamesItsCache: const void* cache_id() const");
  return check_pass_halves<M>();
}

/// The same for the BatchedLanguageModel `M`, of which `Slot` is a slot as a LanguageModel.
template <class Slot, class M>
consteval bool check_slot_members() {
  static_assert(!has_fork<M>() || ForksTexts<M>,
                "the batched model's fork is not ForksTexts: void fork(std::int32_t from, std::int32_t to, "
                "std::int32_t n)");
  static_assert(!has_change_count<M>() || CountsChanges<Slot>,
                "the batched model's change_count makes no slot CountsChanges: std::uint64_t "
                "change_count(std::int32_t slot) const");
  static_assert(!has_pass_seconds<M>() || TimesItself<Slot>,
                "the batched model's pass_seconds makes no slot TimesItself: double "
                "pass_seconds(std::int32_t slot) const");
  static_assert(
      !has_key_values<M>() || ExposesKeyValues<Slot>,
      "the batched model's key_values makes no slot ExposesKeyValues: key_values(std::int32_t slot) "
      "returns a view with std::int32_t size() const");
  static_assert(!has_features<M>() || ExposesFeatures<Slot>,
                "the batched model's features makes no slot ExposesFeatures: features(std::int32_t slot) "
                "returns a view with std::int32_t size() const, std::int32_t width() const, "
                "row(std::int32_t) const");
  static_assert(!has_set_target_state<M>() || TargetConditioned<Slot>,
                "a batched model with set_target_state() must make its slots TargetConditioned: "
                "TargetKeyValues or TargetFeatures, the view that set_target_state(std::int32_t slot, view) "
                "takes, Conditioning conditioned_on() const, bool keeps_speculation() const");
  static_assert(!NamesKeyValues<M> || TakesKeyValues<Slot>,
                "a batched model that names TargetKeyValues must have set_target_state(std::int32_t slot, "
                "const TargetKeyValues&)");
  static_assert(!NamesFeatures<M> || TakesFeatures<Slot>,
                "a batched model that names TargetFeatures must have set_target_state(std::int32_t slot, "
                "const TargetFeatures&)");
  return true;
}

}  // namespace specula::detail
