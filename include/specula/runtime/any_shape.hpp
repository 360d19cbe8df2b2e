// SPDX-License-Identifier: MIT
// Type-erased proposal shape, chosen at run time.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula {

/// Any ProposalShape of one kind over drafters of type `D`: plain and cost-aware shapes over an AnyDrafter
/// share one Speculator. The kind is part of the type, so the compiler still rejects a rule that is not
/// lossless for it. Optional members that a shape lacks do nothing. Cost: one virtual call per propose() or
/// learn().
template <Drafter D, ProposalKind of>
class AnyShape {
 public:
  static constexpr ProposalKind kind = of;  ///< how its draft tokens are drawn

  /// Takes the shape.
  template <class S>
    requires(!std::same_as<S, AnyShape> && ProposalShape<S, D> && S::kind == of)
  explicit AnyShape(S shape) : shape_(std::make_unique<Of<S>>(std::move(shape))) {}

  NodeCounts nodes() const { return shape_->nodes(); }  ///< the shape's own
  /// Throws what the shape's validate() throws.
  void validate() const { shape_->validate(); }
  void reserve(const Sizes& sizes = {}) { shape_->reserve(sizes); }  ///< Sizes the shape's workspace.
  void reset() { shape_->reset(); }                                  ///< Begins a text.
  /// Grows `tree` by draft tokens of `drafter`; see ProposalShape.
  Steps propose(D& drafter, const ProposeContext& context, ProposalBuilder& tree, PhiloxRandom& rng) {
    return shape_->propose(drafter, context, tree, rng);
  }
  /// Reports a round to the shape: the proposal, its result and the times.
  void learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    shape_->learn(tree, result, timing);
  }
  /// One entry per drafter that reviews; empty if the shape has none.
  std::span<const Reviews> reviewed() const { return shape_->reviewed(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual NodeCounts nodes() const = 0;
    virtual void validate() const = 0;
    virtual void reserve(const Sizes& sizes) = 0;
    virtual void reset() = 0;
    virtual Steps propose(D&, const ProposeContext&, ProposalBuilder&, PhiloxRandom&) = 0;
    virtual void learn(const TokenTree&, const VerifyResult&, const Timing&) = 0;
    virtual std::span<const Reviews> reviewed() const = 0;
  };
  template <class S>
  struct Of final : Base {
    static_assert(detail::check_shape_members<S>());
    explicit Of(S shape) : it(std::move(shape)) {}
    NodeCounts nodes() const override { return it.nodes(); }
    void validate() const override { detail::expect_valid(it); }
    void reserve([[maybe_unused]] const Sizes& sizes) override {
      if constexpr (Reserves<S>) it.reserve(sizes);
    }
    void reset() override {
      if constexpr (LearnsFromRounds<S>) it.reset();
    }
    Steps propose(D& drafter, const ProposeContext& context, ProposalBuilder& tree,
                  PhiloxRandom& rng) override {
      return specula::propose(it, drafter, context, tree, rng);
    }
    void learn([[maybe_unused]] const TokenTree& tree, [[maybe_unused]] const VerifyResult& result,
               [[maybe_unused]] const Timing& timing) override {
      if constexpr (LearnsFromRounds<S>) it.learn(tree, result, timing);
    }
    std::span<const Reviews> reviewed() const override {
      if constexpr (CountsReviews<S>) return it.reviewed();
      return {};
    }
    S it;
  };

  std::unique_ptr<Base> shape_;
};

}  // namespace specula
