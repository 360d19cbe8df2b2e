// SPDX-License-Identifier: MIT
// How the proposals of shapes grow on a device: passes of the draft, and the kernels of growth between them.
#pragma once

#include <algorithm>
#include <concepts>
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

/// How large the proposals of a shape get on a device.
struct GrowthSizes {
  int width = 0,        ///< nodes of the largest, the root included
      held = 0,         ///< the larger of these and of the nodes that the draft runs
      depth = 0,        ///< accepted tokens of a round, at most
      shortest = 0,     ///< the least depth that a round may have, but for 0: a chain's varies
      pass_tokens = 1,  ///< of the draft, after its first pass
      again = 2;        ///< last tokens of the text that its first pass reads again
};

/// How proposals of a shape grow on a device. A shape without one has cuda::Model.
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

/// What growths by a plan share: the draft's rows, memory between the steps, and the tree that they write.
template <class Device, class Plan>
class TreeGrowth {
 public:
  using Draft = ChosenDraft;  ///< what the rule is told of the draft's distributions

 protected:
  template <class Capacity>
  TreeGrowth(const GrowthInput<Device>& in, int rows, const Capacity& capacity)
      : in_(in), logits_(in.draft.allocate_logits(rows)) {
    in.device.make_plan(plan_, capacity);
    memory_ = allocate<double>(workspace_bytes(plan_) / sizeof(double) + 1);
    const int n = plan_.width;
    tree_.token = allocate<Token>(n), tree_.parent = allocate<NodeId>(n);
    tree_.position = allocate<std::int32_t>(n);
    tree_.ancestors = allocate<std::uint64_t>(n * mask_words(n));
  }
  template <class T>
  T* allocate(std::integral auto n) {
    return in_.device.template allocate<T>(static_cast<std::size_t>(n));
  }

  /// The rows of the draft's last pass choose nodes of `step`, for the next pass.
  template <class Out>
  void grow(int step, const Out& out) {
    in_.device.grow(plan_, step, roots(), DraftRows<float>{logits_, in_.draft.vocab()}, out, memory_);
  }
  RoundProposal finish() {
    in_.device.finish(plan_, roots(), tree_, memory_);
    return {
        in_.draft.pass(tree_.token, tree_.position, tree_.ancestors, mask_words(plan_.width), plan_.width),
        tree_.parent};
  }

  GrowthInput<Device> in_;
  Plan plan_;
  float* logits_;

 private:
  Roots roots() const { return {in_.root, in_.draft.place()}; }

  double* memory_ = nullptr;
  GrownTrees tree_{};
};

}  // namespace detail

/// A chain: each token is drawn from the draft's row after the one before, or its likeliest.
template <class Device, Draw mode>
class DeviceGrowth<Device, Chain<mode>> {
  static_assert(mode != Draw::shared,
                "cuda::Round has no chain by shared noise: run it by a Speculator over cuda::Model");

 public:
  /// What the rule is told of the draft's distributions.
  using Draft = std::conditional_t<mode == Draw::sampled, LogitsDraft<float>, ChosenDraft>;

  /// Throws std::invalid_argument for a length out of range, and for a chain that ends by its confidence.
  static GrowthSizes sizes(const Chain<mode>& shape) {
    detail::expect_growth("Chain::length", shape.length, 1, 63);
    if (shape.exit_below > 0)
      throw std::invalid_argument(
          "cuda::Round: a chain ends by Chain::exit_below on the CPU alone: 0, or a Speculator over "
          "cuda::Model");
    return {1 + shape.length, 1 + shape.length, shape.length, 1};
  }

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const Chain<mode>& shape)
      : in_(in),
        logits_(in.draft.allocate_logits(shape.length)),
        stats_(in.device.template allocate<RowStats>(static_cast<std::size_t>(shape.length))) {
    in.device.make_plan(plan_, 1, 1, in.draft.vocab());
  }

  /// Enqueues the draft's passes of a chain of `length`.
  detail::RoundProposal enqueue(int length) {
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
    return in_.draft.chain(in_.root, length + 1);
  }
  /// Of the proposal, which was drawn.
  Draft draft() const { return {logits_, in_.draft.vocab(), stats_}; }

 private:
  detail::GrowthInput<Device> in_;
  SamplePlan<float> plan_;
  float* logits_;
  RowStats* stats_;
};

/// CAPE: a chain of the likeliest tokens, with siblings where the draft is unsure.
template <class Device>
class DeviceGrowth<Device, Cape> : public detail::TreeGrowth<Device, CapePlan<float>> {
 public:
  /// Throws std::invalid_argument for a field out of range.
  static GrowthSizes sizes(const Cape& shape) {
    shape.validate();
    detail::expect_growth("Cape::length", shape.length, 1, 63);
    detail::expect_growth("Cape::budget", shape.budget, 1, 511);
    detail::expect_growth("Cape::extras, the most of a row,", shape.extras.most(), 0, 31);
    const int width = shape.nodes().most;  // at a small budget less than the spine
    return {width, std::max(width, shape.length), shape.length, shape.length};
  }

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const Cape& shape)
      : detail::TreeGrowth<Device, CapePlan<float>>(in, 1, capacity(in, shape)),
        spine_{this->template allocate<Token>(shape.length),
               this->template allocate<std::int32_t>(shape.length)} {}

  /// Enqueues the draft's passes.
  detail::RoundProposal enqueue(int length) {
    for (int i = 0; i < length; ++i) {
      if (i == 0)
        this->in_.draft.first(this->logits_);
      else
        this->in_.draft.one(spine_.token + i - 1, i, this->logits_);
      this->grow(i, spine_);
    }
    return this->finish();
  }

 private:
  static CapeCapacity capacity(const detail::GrowthInput<Device>& in, const Cape& shape) {
    CapeCapacity out{1, shape.length, shape.budget, in.draft.vocab(), {}};
    std::copy(shape.extras.thresholds.begin(), shape.extras.thresholds.end(), out.extras.thresholds);
    std::copy(shape.extras.counts.begin(), shape.extras.counts.end(), out.extras.counts);
    return out;
  }

  CapeSpine spine_;
};

/// The dynamic tree of EAGLE-2: the draft runs over a level of nodes at a time.
template <class Device>
class DeviceGrowth<Device, DynamicTree> : public detail::TreeGrowth<Device, DynamicTreePlan<float>> {
 public:
  /// Throws std::invalid_argument for a field out of range.
  static GrowthSizes sizes(const DynamicTree& shape) {
    detail::expect_growth("DynamicTree::top_k", shape.top_k, 1, 32);
    detail::expect_growth("DynamicTree::expansions", shape.expansions, 0, 61);
    detail::expect_growth("DynamicTree::total", shape.total, 1, 511);
    detail::expect_growth("DynamicTree::top_k * expansions", std::int64_t{shape.top_k} * shape.expansions, 0,
                          511);
    const int depth = shape.expansions + 1;
    return {shape.nodes().most, shape.nodes().held(), depth, depth, shape.top_k, depth + 1};
  }

  /// Allocates.
  DeviceGrowth(const detail::GrowthInput<Device>& in, const DynamicTree& shape)
      : detail::TreeGrowth<Device, DynamicTreePlan<float>>(
            in, shape.top_k,
            DynamicTreeCapacity{1, shape.top_k, shape.expansions, shape.total, in.draft.vocab()}) {
    const int nodes = shape.expansions * shape.top_k;
    levels_ = {this->template allocate<Token>(nodes), this->template allocate<NodeId>(nodes),
               this->template allocate<std::int32_t>(nodes),
               this->template allocate<std::uint64_t>(nodes * this->plan_.draft_words)};
  }

  /// Enqueues the draft's passes.
  detail::RoundProposal enqueue(int) {
    const int top_k = this->plan_.top_k, words = this->plan_.draft_words;
    this->in_.draft.first(this->logits_);
    this->grow(0, levels_);
    for (int level = 0; level < this->plan_.expansions; ++level) {
      const int at = level * top_k;
      this->in_.draft.nodes(this->in_.draft.pass(levels_.token + at, levels_.position + at,
                                                 levels_.ancestors + at * words, words, top_k, 1 + at),
                            levels_.parent + at, this->logits_);
      this->grow(level + 1, levels_);
    }
    return this->finish();
  }

 private:
  DraftLevels levels_{};
};

}  // namespace specula::cuda
