// GLIDE drafter: a draft model with cross attention to the target's KV cache.
#pragma once

#include <type_traits>
#include <utility>

#include "specula/concepts.hpp"
#include "specula/draft/detail/conditioned_drafter.hpp"

namespace specula {

/// Drafts with a small model whose layers attend to their own cache and to the keys and values that the
/// target cached for the context. Within a round a draft token sees the target's keys of the context, not of
/// the draft tokens before it. So accepted tokens are run again in the next round, when the target has their
/// keys: they are appended, which a lazy model merges into its next pass. (A one-layer draft that declares
/// keeps_speculation() keeps them: its own keys and values do not change.)
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}},
///                           specula::Glide{draft, target}, specula::Cape{}};
///
/// Both models are referenced and must outlive the drafter. The first sync() drops the draft's previous
/// content. Throws std::invalid_argument if the vocabularies differ, and whatever the draft's
/// set_target_state() throws. Allocates in the constructor only. Source: GLIDE with a CAPE (Du et al. 2024),
/// section 4.1.
template <LanguageModel D, ExposesKeyValues T>
  requires TargetConditioned<D, decltype(std::declval<T&>().key_values())>
class Glide : public detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor> {
 public:
  using detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor>::ConditionedDrafter;
};
/// Glide{draft, target}: references both models. Empties the draft.
template <class D, class T>
Glide(D&&, T&&) -> Glide<std::remove_reference_t<D>, std::remove_reference_t<T>>;  // a temporary: deleted

}  // namespace specula
