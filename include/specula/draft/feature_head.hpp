// EAGLE and HASS drafter: a draft head on the target's features (hidden states). HASS differs in training
// only.
#pragma once

#include <type_traits>
#include <utility>

#include "specula/concepts.hpp"
#include "specula/draft/detail/conditioned_drafter.hpp"

namespace specula {

/// Drafts with a head that predicts the target's next feature from a token and the feature before it, and the
/// next token from that feature by the target's own LM head. Within a round the features after the root are
/// the head's own predictions. So accepted tokens are run again in the next round, on the target's features:
/// they are appended, which a lazy model merges into its next pass.
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}},
///                           specula::FeatureHead{head, target}, specula::DynamicTree{}};
///
/// Both models are referenced and must outlive the drafter. The first sync() drops the head's previous
/// content. Throws std::invalid_argument if the vocabularies differ, and whatever the head's
/// set_target_state() throws. Allocates in the constructor only. Sources: EAGLE (Li et al. 2024); HASS (Zhang
/// et al. 2024).
template <LanguageModel D, ExposesFeatures T>
  requires TargetConditioned<D, decltype(std::declval<T&>().features())>
class FeatureHead : public detail::ConditionedDrafter<D, T, detail::FeaturesAccessor> {
 public:
  using detail::ConditionedDrafter<D, T, detail::FeaturesAccessor>::ConditionedDrafter;
};
/// FeatureHead{draft, target}: references both models. Empties the draft.
template <class D, class T>
FeatureHead(D&&, T&&) -> FeatureHead<std::remove_reference_t<D>, std::remove_reference_t<T>>;  // a temporary: deleted

}  // namespace specula
