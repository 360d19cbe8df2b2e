// SPDX-License-Identifier: MIT
// Toy models of many texts: a target that shows the state of each, and drafts that read it.
#pragma once

#include <cstdint>
#include <stdexcept>

#include <specula/draft/conditioned.hpp>
#include <specula/model/batched.hpp>

#include "conditioned_models.hpp"
#include "toy_batch.hpp"

namespace specula_test {

/// A target whose slots show their state, all of it.
class SeenBatch : public ToyBatchOf<SeenModel> {
 public:
  using ToyBatchOf::ToyBatchOf;
  ToyKeyValues key_values(std::int32_t slot) { return run_queued(slot), at(slot).key_values(); }
  FeaturesView<float> features(std::int32_t slot) { return run_queued(slot), at(slot).features(); }
};

/// A draft of one text, and of many. It computes appended tokens at once; the batch is what queues them.
template <class Of>
struct Eager : Of {
  Eager(std::int32_t tokens, std::uint64_t seed, float, std::int32_t capacity)
      : Of(tokens, seed, 1.0f, false, capacity) {}
};
template <class Of>
class DraftBatch : public ToyBatchOf<Eager<Of>> {
 public:
  using ToyBatchOf<Eager<Of>>::ToyBatchOf;
  using TargetKeyValues = ToyKeyValues;
  using TargetFeatures = FeaturesView<float>;
  template <class View>
  void set_target_state(std::int32_t slot, const View& view) {
    if constexpr (requires { this->at(slot).set_target_state(view); })
      this->at(slot).set_target_state(view);
    else
      throw std::invalid_argument("another state");
  }
  specula::Conditioning conditioned_on() const { return this->ToyBatchOf<Eager<Of>>::at(0).conditioned_on(); }
  bool keeps_speculation() const { return false; }
};

struct GlideInBatch {
  using Batch = DraftBatch<ToyGlide>;
  using Draft = specula::Glide<specula::SlotOf<Batch>, specula::SlotOf<SeenBatch>>;
};
struct HeadInBatch {
  using Batch = DraftBatch<ToyHead>;
  using Draft = specula::FeatureHead<specula::SlotOf<Batch>, specula::SlotOf<SeenBatch>>;
};
}  // namespace specula_test
