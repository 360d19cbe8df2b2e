// SPDX-License-Identifier: MIT
// The draft's passes of a round on a device: over the text's last tokens, a token of a chain, a level of a
// tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/model/decoder.hpp"
#include "specula/cuda/model/detail/round_bodies.cuh"
#include "specula/cuda/model/detail/text_passes.hpp"

namespace specula::cuda::detail {

/// A proposal on a device, its root first: what the target reads, and each node's parent; null: a chain.
struct RoundProposal {
  DevicePass pass;
  const NodeId* parent = nullptr;
};

/// References device, models and arrays. Nothing in a pass depends on the text.
template <class Device>
class RoundDraft {
  using Decoder = DeviceDecoder<Device>;

 public:
  /// `again`: tokens of the first pass. `most`: of any other. `place`: see BeginRound.
  RoundDraft(Device& device, Decoder& model, const Decoder& target, const PassConstants& constants, int again,
             int most, const std::int32_t* place)
      : model_(model),
        target_(target),
        constants_(constants),
        place_(place),
        first_(device, model, &target, constants, again, false, true),
        plan_(model.plan(most, false)) {
    model.prepare(kHeights.front(), false, true);
    if (model.weights().conditioned_on == Conditioning::key_values)
      cross_ = model.plan_cross(target, most, false);
  }

  int vocab() const { return model_.weights().vocab; }
  const std::int32_t* place() const { return place_; }
  const TextPass& again() const { return first_.arrays(); }  // which BeginRound writes
  /// Memory for `rows` rows of logits, of which each pass writes as many as its product has.
  float* allocate_logits(int rows) { return model_.allocate_logits(rows + kHeights.front()); }

  /// Over `count` nodes of a tree, of which `earlier` ran, the root included, and that are numbered in this
  /// order; a row for each. Tokens that are negative are padding.
  DevicePass pass(const Token* token, const std::int32_t* position, const std::uint64_t* mask, int words,
                  int count, int earlier = 0) const {
    DevicePass out;
    out.tokens = {token, constants_.begin_of(count), place_, constants_.count + earlier, position, count, 1};
    out.mask = mask, out.words = words;
    out.row = constants_.count;
    return out;
  }
  /// Of `count` tokens from the root on.
  RoundProposal chain(const Token* root, int count) const {
    return {pass(root, place_, constants_.chain, PassConstants::kWords, count)};
  }

  /// Runs the text's last tokens again. One row: after the root.
  void first(float* logits) { first_.run(logits); }
  /// Runs draft token `number`, from 1, of a chain whose earlier ones ran. One row.
  void one(const Token* token, int number, float* logits) {
    DevicePass next = pass(token, place_ + number, constants_.chain, PassConstants::kWords, 1);
    next.tokens.length = place_ + number;
    run(next, place_ + number - 1, nullptr, logits);
  }
  /// Runs a pass() over nodes with these parents.
  void nodes(const DevicePass& level, const NodeId* parent, float* logits) {
    run(level, parent, place_, logits);
  }

 private:
  void run(DevicePass pass, const std::int32_t* feature, const std::int32_t* feature_base, float* logits) {
    pass.feature = feature, pass.feature_base = feature_base;
    pass.height = kHeights.front(), pass.logits = logits;
    model_.pass(plan_, pass, true, {&target_, &cross_, place_, nullptr, 0});  // all of the target's tokens
  }

  Decoder& model_;
  const Decoder& target_;
  PassConstants constants_;
  const std::int32_t* place_;
  TextPasses<Device> first_;
  typename Device::Attention plan_, cross_{};
};

}  // namespace specula::cuda::detail
