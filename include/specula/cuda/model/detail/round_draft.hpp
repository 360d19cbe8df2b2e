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

/// References device, models and arrays. Nothing in a pass depends on the text.
template <class Device>
class RoundDraft {
  using Decoder = DeviceDecoder<Device>;

 public:
  /// `again`: tokens of the first pass. `most`: of any other. `place` and `before_place`: see BeginRound.
  RoundDraft(Device& device, Decoder& model, const Decoder& target, const PassConstants& constants, int again,
             int most, const std::int32_t* place, const std::int32_t* before_place)
      : model_(model),
        target_(model.weights().conditioned_on == Conditioning::nothing ? nullptr : &target),
        constants_(constants),
        place_(place),
        before_place_(before_place),
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

  /// The text's last tokens again. One row: after the root.
  void first(float* logits) { first_.run(logits); }
  /// Draft token `number`, from 1, of a chain whose earlier ones ran. One row.
  void one(const Token* token, int number, float* logits) {
    run({token, constants_.count, place_ + number, constants_.count, place_ + number, 1, 1}, constants_.chain,
        PassConstants::kWords, before_place_ + number, nullptr, logits);
  }
  /// `count` nodes of a tree, of which `earlier` ran, the root included, and that are numbered in this order.
  /// `begin`: 0 and the count. A row for each.
  void nodes(const Token* token, const std::int32_t* position, const NodeId* parent,
             const std::uint64_t* mask, int words, const std::int32_t* begin, int count, int earlier,
             float* logits) {
    run({token, begin, place_, constants_.count + earlier, position, count, 1}, mask, words, parent, place_,
        logits);
  }

 private:
  void run(const PassTokens& tokens, const std::uint64_t* mask, int words, const std::int32_t* feature,
           const std::int32_t* feature_base, float* logits) {
    DevicePass pass;
    pass.tokens = tokens;
    pass.mask = mask, pass.words = words;
    pass.row = constants_.count;
    pass.feature = feature, pass.feature_base = feature_base;
    pass.height = kHeights.front(), pass.logits = logits;
    model_.pass(plan_, pass, true, {target_, &cross_, place_, nullptr, 0});  // all of the target's tokens
  }

  Decoder& model_;
  const Decoder* target_;
  PassConstants constants_;
  const std::int32_t *place_, *before_place_;
  TextPasses<Device> first_;
  typename Device::Attention plan_, cross_{};
};

}  // namespace specula::cuda::detail
