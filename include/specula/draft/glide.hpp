// GLIDE: a draft that reads the target's cached keys and values.
#pragma once

#include <utility>

#include "specula/concepts.hpp"
#include "specula/draft/detail/conditioned_drafter.hpp"

namespace specula {

namespace detail {
struct KeyValuesAccessor {
  static constexpr const char* name = "Glide";
  template <ExposesKeyValues T>
  static auto of(T& target) {
    return target.key_values();
  }
};
}  // namespace detail

/// Drafts with a small model whose layers attend, beside their own cache, to the keys and values that the
/// target cached for the context. In the round the draft lags behind itself: a draft token sees the target's
/// context, not the draft tokens before it. So accepted tokens are run again in the next round, now that the
/// target has theirs: appended, which a lazy model merges into its next pass. (A draft of one layer that says
/// so keeps them: its own keys and values are the same either way.)
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}}, specula::Glide{draft,
///   target},
///                           specula::Cape{}};
///
/// Both models are referenced and must outlive the drafter. What the draft holds already is dropped by the
/// first sync(). Throws std::invalid_argument if the vocabularies differ, and what the draft's
/// set_target_state() throws. Allocates in the constructor only. Source: GLIDE with a CAPE (Du et al. 2024),
/// section 4.1.
template <LanguageModel D, ExposesKeyValues T>
  requires TargetConditioned<D, decltype(std::declval<T&>().key_values())>
class Glide : public detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor> {
 public:
  Glide(D& draft, T& target) : detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor>(draft, target) {}
  Glide(D&&, T&) = delete;
  Glide(D&, T&&) = delete;
  Glide(D&&, T&&) = delete;
};

}  // namespace specula
