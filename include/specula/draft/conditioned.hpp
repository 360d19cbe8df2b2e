// SPDX-License-Identifier: MIT
// Drafters that are conditioned on the target: GLIDE on its keys and values, EAGLE and HASS on its features.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/draft/model_drafter.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/concepts.hpp"

namespace specula::detail {

/// The memory of the target that GLIDE reads, and the one that EAGLE and HASS read.
struct KeyValuesAccessor {
  static constexpr const char* name = "Glide";
  template <ExposesKeyValues T>
  static auto of(T& target) {
    return target.key_values();
  }
};
struct FeaturesAccessor {
  static constexpr const char* name = "FeatureHead";
  template <ExposesFeatures T>
  static auto of(T& target) {
    return target.features();
  }
};

// The members of Glide and FeatureHead, so shown in the reference.
/// @endcond

/// A ModelDrafter over a draft model that reads memory of the target. `Accessor` has a `name` for messages,
/// and `of(target)`, the view. Between rounds the draft's cache keeps only tokens appended as context:
/// speculative ones were computed before the target had processed all tokens before them. A model whose cache
/// does not depend on the view says so (keeps_speculation()), and keeps them.
template <TargetConditioned D, LanguageModel T, class Accessor>
class ConditionedDrafter {
  static_assert(check_model_members<T>());

 public:
  /// Empties the draft.
  ConditionedDrafter(D& model, T& target) : draft_(model), model_(&model), target_(&target) {
    if (model.vocab_size() != target.vocab_size())
      throw std::invalid_argument(std::string(Accessor::name) + ": the draft's vocabulary has " +
                                  std::to_string(model.vocab_size()) + " tokens, the target's " +
                                  std::to_string(target.vocab_size()));
    if (cache_id() == cache_of(target))
      throw std::invalid_argument(std::string(Accessor::name) + ": the same model is target and draft");
    update_target_state();  // throws now if the models do not fit
    draft_.truncate(0);
  }
  ConditionedDrafter(D&&, T&) = delete;   // a temporary: the model must outlive this; name it
  ConditionedDrafter(D&, T&&) = delete;   // a temporary: the model must outlive this; name it
  ConditionedDrafter(D&&, T&&) = delete;  // a temporary: the model must outlive this; name it

  std::int32_t vocab_size() const { return draft_.vocab_size(); }  ///< size V of the vocabulary
  std::int32_t capacity() const { return draft_.capacity(); }      ///< tokens and nodes that it can hold
  const void* cache_id() const { return draft_.cache_id(); }       ///< see NamesItsCache
  /// Usage of the draft, and the time that the target took for its views.
  Usage usage() const noexcept {
    Usage all = draft_.usage();
    all.seconds += view_usage_.seconds, all.waited_seconds += view_usage_.waited_seconds;
    return all;
  }

  /// KV cache rollback: drops all nodes, and committed tokens from `n` on.
  void truncate(std::int32_t n) { draft_.truncate(n); }

  /// Brings the draft to `context` followed by `draft_tokens`. Requires that `context` extends the last one
  /// and is what the target holds now. If it equals the last one, nodes that are among the draft tokens are
  /// kept. Throws, and changes nothing, std::invalid_argument on a shorter context and std::logic_error if
  /// the target holds more or fewer tokens. Cost: the draft's pass over the added tokens, unless it is lazy.
  void sync(Tokens context, Tokens draft_tokens) {
    const auto known = static_cast<std::size_t>(draft_.known());
    if (context.size() < known)
      throw std::invalid_argument(std::string(Accessor::name) + "::sync: a context of " +
                                  std::to_string(context.size()) + " tokens after one of " +
                                  std::to_string(known) + "; truncate first");
    if (static_cast<std::size_t>(target_->size()) != context.size())
      throw std::logic_error(std::string(Accessor::name) + "::sync: a context of " +
                             std::to_string(context.size()) + " tokens, but the target holds " +
                             std::to_string(target_->size()) + "; bring the target there first");
    draft_.expect_unchanged();
    if (context.size() > known && !model_->keeps_speculation()) draft_.drop_speculation();
    update_target_state();
    draft_.sync(context, draft_tokens);
  }

  /// Rows after new nodes; see Drafter. Cost: one pass of the draft.
  LogitsView extend(Tokens tokens, Nodes parents) { return draft_.extend(tokens, parents); }
  /// extend() in halves, if the draft's has them; see MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) requires MergesPasses<ModelDrafter<D>> {
    return draft_.begin_pass(tokens, parents);
  }
  /// The second half.
  LogitsView end_pass(const LogitsView& rows) requires MergesPasses<ModelDrafter<D>> {
    return draft_.end_pass(rows);
  }

 private:
  void update_target_state() {
    const PassWatch<T> watch(*target_, view_usage_);
    model_->set_target_state(Accessor::of(*target_));
  }

  ModelDrafter<D> draft_;
  D* model_;
  T* target_;
  Usage view_usage_;
};

/// @cond

}  // namespace specula::detail

namespace specula {

///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}},
///                           specula::Glide{glide, target}, specula::Cape{}};
///
/// Drafts with a small model whose layers attend to their own cache and to the keys and values that the
/// target cached for the context. Within a round a draft token sees the target's keys of the context, not of
/// the draft tokens before it. So accepted tokens are run again in the next round, when the target has their
/// keys: they are appended, which a lazy model merges into its next pass. (A one-layer draft that says
/// keeps_speculation() keeps them: its own keys and values do not change.) References both models, which must
/// outlive it; its first sync() empties the draft.
/// **Draws.** Nothing.
/// **Cost.** One pass of the draft per extend(), and per sync() unless lazy. Allocates when constructed only.
/// **Throws.** std::invalid_argument if the vocabularies differ; what the draft's set_target_state() throws.
/// **Source.** GLIDE with a CAPE (Du et al. 2024), section 4.1.
template <TargetConditioned D, ExposesKeyValues T>
  requires std::same_as<typename D::TargetKeyValues, decltype(std::declval<T&>().key_values())>
class Glide : public detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor> {
 public:
  using detail::ConditionedDrafter<D, T, detail::KeyValuesAccessor>::ConditionedDrafter;
};
/// Glide{draft, target}: references both models. Empties the draft.
template <class D, class T>
Glide(D&&, T&&) -> Glide<std::remove_reference_t<D>, std::remove_reference_t<T>>;  // a temporary: deleted

///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}},
///                           specula::FeatureHead{head, target}, specula::DynamicTree{}};
///
/// Drafts with a head that predicts the target's next feature from a token and the feature before it, and the
/// next token from that feature by the target's own LM head. Within a round the features after the root are
/// the head's own predictions. So accepted tokens are run again in the next round, on the target's features:
/// they are appended, which a lazy model merges into its next pass. References both models, which must
/// outlive it; its first sync() empties the head.
/// **Draws.** Nothing. **Cost.** As Glide. **Throws.** As Glide.
/// **Source.** EAGLE (Li et al. 2024); HASS (Zhang et al. 2024).
template <TargetConditioned D, ExposesFeatures T>
  requires std::same_as<typename D::TargetFeatures, decltype(std::declval<T&>().features())>
class FeatureHead : public detail::ConditionedDrafter<D, T, detail::FeaturesAccessor> {
 public:
  using detail::ConditionedDrafter<D, T, detail::FeaturesAccessor>::ConditionedDrafter;
};
/// FeatureHead{draft, target}: references both models. Empties the draft.
template <class D, class T>
FeatureHead(D&&, T&&)
    -> FeatureHead<std::remove_reference_t<D>, std::remove_reference_t<T>>;  // a temporary: deleted

}  // namespace specula
