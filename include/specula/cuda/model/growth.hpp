// SPDX-License-Identifier: MIT
// How the proposals of shapes grow on a device: passes of the draft, and the kernels of growth between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "specula/cuda/api/grow_cape.cuh"
#include "specula/cuda/api/grow_dynamic_tree.cuh"
#include "specula/cuda/api/sample.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/model/detail/round_draft.hpp"
#include "specula/shape/cape.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/dynamic_tree.hpp"

namespace specula::cuda {

/// A proposal on a device, its root first. Arrays on the device.
struct RoundProposal {
  const Token* token = nullptr;            ///< (width) padding is negative
  const NodeId* parent = nullptr;          ///< (width) null: a chain
  const std::int32_t* begin = nullptr;     ///< (2) 0 and the width
  const std::int32_t* position = nullptr;  ///< (width) in the text
  const std::uint64_t* mask = nullptr;     ///< (width, words) as DevicePass has it
  int words = 0,                           ///< of a node
      width = 0;                           ///< nodes, padding included
};

/// How proposals of a shape grow on a device, and how large they get. A shape without one has cuda::Model.
template <class Device, class Shape>
class DeviceGrowth {
  static_assert(
      sizeof(Device) == 0,
      "cuda::Round has no growth on the device for this shape: Chain, Cape and DynamicTree have one; run "
      "the others by a Speculator over cuda::Model, which takes every shape");
};

namespace detail {

/// What a growth is made with. `root`: the first of `width` tokens, which BeginRound writes.
template <class Device>
struct GrowthInput {
  Device& device;
  RoundDraft<Device>& draft;
  const PassConstants& constants;
  Token* root;
  const SamplingParams *params, *greedy;
  const std::uint64_t* seed;
  const std::uint32_t* sequence;
};

inline void expect_growth(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw std::invalid_argument("cuda::Round: " + std::string(field) + " is " + std::to_string(value) +
                                ", must be " + std::to_string(least) + " to " + std::to_string(most));
}

/// A tree that a kernel writes, of `width` nodes.
template <class Device>
GrownTrees allocate_tree(Device& device, int width) {
  const auto n = static_cast<std::size_t>(width);
  GrownTrees out{};
  out.token = device.template allocate<Token>(n), out.parent = device.template allocate<NodeId>(n);
  out.begin = device.template allocate<std::int32_t>(2),
  out.position = device.template allocate<std::int32_t>(n);
  out.ancestors = device.template allocate<std::uint64_t>(n * static_cast<std::size_t>(mask_words(width)));
  return out;
}
inline RoundProposal proposal_of(const GrownTrees& tree, int width) {
  return {tree.token, tree.parent, tree.begin, tree.position, tree.ancestors, mask_words(width), width};
}

}  // namespace detail

/// A chain: each token is drawn from the draft's row after the one before, or its likeliest.
template <class Device, Draw mode>
class DeviceGrowth<Device, Chain<mode>> {
  static_assert(mode != Draw::shared,
                "cuda::Round has no chain by shared noise: run it by a Speculator over cuda::Model");

 public:
  static constexpr bool kIsChain = true;  ///< of one path
  /// What the rule is told of the draft's distributions.
  using Draft = std::conditional_t<mode == Draw::sampled, LogitsDraft<float>, ChosenDraft>;

  /// Throws std::invalid_argument for a length out of range, and for a chain that ends by its confidence.
  static void validate(const Chain<mode>& shape) {
    detail::expect_growth("Chain::length", shape.length, 1, 63);
    if (shape.exit_below > 0)
      throw std::invalid_argument(
          "cuda::Round: a chain ends by Chain::exit_below on the CPU alone: 0, or a Speculator over "
          "cuda::Model");
  }
  static int width(const Chain<mode>& shape) { return 1 + shape.length; }  ///< nodes of the largest proposal
  static int depth(const Chain<mode>& shape) { return shape.length; }      ///< accepted tokens, at most
  static int pass_tokens(const Chain<mode>&) { return 1; }   ///< of the draft, after its first pass
  static int again(const Chain<mode>&) { return 2; }         ///< tokens that it reads again
  static bool takes(const Chain<mode>& shape, int length) {  ///< whether a round may have it
    return length >= 1 && length <= shape.length;
  }

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const Chain<mode>& shape)
      : in_(in),
        logits_(in.draft.allocate_logits(shape.length)),
        stats_(in.device.template allocate<RowStats>(static_cast<std::size_t>(shape.length))) {
    in.device.make_plan(plan_, 1, 1, in.draft.vocab());
  }

  /// Enqueues the draft's passes of a chain of `length`.
  RoundProposal enqueue(int length) {
    const int vocab = in_.draft.vocab();
    for (int i = 0; i < length; ++i) {
      float* const row = logits_ + static_cast<std::int64_t>(i) * vocab;
      if (i == 0)
        in_.draft.first(row);
      else
        in_.draft.one(in_.root + i, i, row);
      SampleArgs<float> draw{};
      draw.logits = row, draw.stride = vocab;
      draw.seed = in_.seed, draw.sequence = in_.sequence, draw.stream = RandomStream::draft;
      draw.params = mode == Draw::sampled ? in_.params : in_.greedy;
      draw.position = in_.draft.place() + i + 1, draw.origin = in_.draft.place();
      draw.index =
          reinterpret_cast<const std::uint32_t*>(in_.constants.count) + i;  // as ProposalBuilder counts
      draw.token = in_.root + i + 1;
      draw.stats = stats_ + i;
      in_.device.draw(plan_, draw);
    }
    return {in_.root,
            nullptr,
            in_.constants.begin_of(length + 1),
            in_.draft.place(),
            in_.constants.chain,
            detail::PassConstants::kWords,
            length + 1};
  }
  /// Of the proposal.
  Draft draft() const {
    if constexpr (mode == Draw::sampled)
      return {logits_, in_.draft.vocab(), stats_};
    else
      return {};
  }

 private:
  detail::GrowthInput<Device> in_;
  SamplePlan<float> plan_;
  float* logits_;
  RowStats* stats_;
};

/// CAPE: a chain of the likeliest tokens, with siblings where the draft is unsure.
template <class Device>
class DeviceGrowth<Device, Cape> {
 public:
  static constexpr bool kIsChain = false;  ///< of one path
  using Draft = ChosenDraft;               ///< what the rule is told of the draft's distributions

  /// Throws std::invalid_argument for a field out of range.
  static void validate(const Cape& shape) {
    shape.validate();
    detail::expect_growth("Cape::length", shape.length, 1, 63);
    detail::expect_growth("Cape::budget", shape.budget, 1, 511);
    detail::expect_growth("Cape::extras, the most of a row,", shape.extras.most(), 0, 31);
  }
  static int width(const Cape& shape) { return shape.nodes().most; }  ///< nodes of the proposal
  static int depth(const Cape& shape) { return shape.length; }        ///< accepted tokens, at most
  static int pass_tokens(const Cape&) { return 1; }                   ///< of the draft, after its first pass
  static int again(const Cape&) { return 2; }                         ///< tokens that it reads again
  static bool takes(const Cape& shape, int length) {
    return length == shape.length;
  }  ///< a round may have it

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const Cape& shape)
      : in_(in), logits_(in.draft.allocate_logits(1)) {
    CapeCapacity capacity{1, shape.length, shape.budget, in.draft.vocab(), {}};
    std::copy(shape.extras.thresholds.begin(), shape.extras.thresholds.end(), capacity.extras.thresholds);
    std::copy(shape.extras.counts.begin(), shape.extras.counts.end(), capacity.extras.counts);
    in.device.make_plan(plan_, capacity);
    const auto steps = static_cast<std::size_t>(shape.length);
    spine_ = {in.device.template allocate<Token>(steps), in.device.template allocate<std::int32_t>(steps)};
    memory_ = in.device.template allocate<double>(workspace_bytes(plan_) / sizeof(double) + 1);
    tree_ = detail::allocate_tree(in.device, plan_.width);
  }

  /// Enqueues the draft's passes.
  RoundProposal enqueue(int) {
    const Roots roots{in_.root, in_.draft.place()};
    const DraftRows<float> rows{logits_, in_.draft.vocab()};
    for (int i = 0; i < plan_.length; ++i) {
      if (i == 0)
        in_.draft.first(logits_);
      else
        in_.draft.one(spine_.token + i - 1, i, logits_);
      in_.device.grow(plan_, i, roots, rows, spine_, memory_);
    }
    in_.device.finish(plan_, roots, tree_, memory_);
    return detail::proposal_of(tree_, plan_.width);
  }
  Draft draft() const { return {}; }  ///< of the proposal

 private:
  detail::GrowthInput<Device> in_;
  CapePlan<float> plan_;
  float* logits_;
  CapeSpine spine_{};
  double* memory_ = nullptr;
  GrownTrees tree_{};
};

/// The dynamic tree of EAGLE-2: the draft runs over a level of nodes at a time.
template <class Device>
class DeviceGrowth<Device, DynamicTree> {
 public:
  static constexpr bool kIsChain = false;  ///< of one path
  using Draft = ChosenDraft;               ///< what the rule is told of the draft's distributions

  /// Throws std::invalid_argument for a field out of range.
  static void validate(const DynamicTree& shape) {
    detail::expect_growth("DynamicTree::top_k", shape.top_k, 1, 32);
    detail::expect_growth("DynamicTree::expansions", shape.expansions, 0, 61);
    detail::expect_growth("DynamicTree::total", shape.total, 1, 511);
    detail::expect_growth("DynamicTree::top_k * expansions", std::int64_t{shape.top_k} * shape.expansions, 0,
                          511);
  }
  static int width(const DynamicTree& shape) { return shape.nodes().most; }    ///< nodes of the proposal
  static int depth(const DynamicTree& shape) { return shape.expansions + 1; }  ///< accepted tokens, at most
  static int pass_tokens(const DynamicTree& shape) {
    return shape.top_k;
  }  ///< of the draft, after its first pass
  static int again(const DynamicTree& shape) { return shape.expansions + 2; }  ///< tokens that it reads again
  static bool takes(const DynamicTree& shape, int length) {
    return length == depth(shape);
  }  ///< a round may have it

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const DynamicTree& shape)
      : in_(in), logits_(in.draft.allocate_logits(shape.top_k)) {
    in.device.make_plan(plan_,
                        DynamicTreeCapacity{1, shape.top_k, shape.expansions, shape.total, in.draft.vocab()});
    const auto slots = static_cast<std::size_t>(shape.expansions * shape.top_k);
    levels_ = {
        in.device.template allocate<Token>(slots), in.device.template allocate<NodeId>(slots),
        in.device.template allocate<std::int32_t>(slots),
        in.device.template allocate<std::uint64_t>(slots * static_cast<std::size_t>(plan_.draft_words))};
    memory_ = in.device.template allocate<double>(workspace_bytes(plan_) / sizeof(double) + 1);
    tree_ = detail::allocate_tree(in.device, plan_.width);
    begin_ = in.constants.begin_of(shape.top_k);
  }

  /// Enqueues the draft's passes.
  RoundProposal enqueue(int) {
    const Roots roots{in_.root, in_.draft.place()};
    const DraftRows<float> rows{logits_, in_.draft.vocab()};
    in_.draft.first(logits_);
    in_.device.grow(plan_, 0, roots, rows, levels_, memory_);
    for (int level = 0; level < plan_.expansions; ++level) {
      const std::int64_t at = static_cast<std::int64_t>(level) * plan_.top_k;
      in_.draft.nodes(levels_.token + at, levels_.position + at, levels_.parent + at,
                      levels_.ancestors + at * plan_.draft_words, plan_.draft_words, begin_, plan_.top_k,
                      1 + level * plan_.top_k, logits_);
      in_.device.grow(plan_, level + 1, roots, rows, levels_, memory_);
    }
    in_.device.finish(plan_, roots, tree_, memory_);
    return detail::proposal_of(tree_, plan_.width);
  }
  Draft draft() const { return {}; }  ///< of the proposal

 private:
  detail::GrowthInput<Device> in_;
  DynamicTreePlan<float> plan_;
  float* logits_;
  const std::int32_t* begin_ = nullptr;
  DraftLevels levels_{};
  double* memory_ = nullptr;
  GrownTrees tree_{};
};

}  // namespace specula::cuda
