// SPDX-License-Identifier: MIT
// Views of what a model on a device keeps of its committed tokens, for drafts on the device.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/cuda/args/paged_kv.cuh"
#include "specula/model/view_guard.hpp"

namespace specula::cuda {

/// Keys and values of a text: of layer l those of sequence `slot` in layer(l). Valid until the model changes;
/// after that the accessors throw std::logic_error.
template <class Decoder>
class DeviceKeyValues {
 public:
  /// Of slot `slot` of `decoder`, which has `size` tokens.
  DeviceKeyValues(const Decoder& decoder, std::int32_t slot, std::int32_t size,
                  specula::detail::ViewGuard guard)
      : decoder_(&decoder), slot_(slot), size_(size), guard_(guard) {}

  std::int32_t size() const { return guard_.expect_valid("DeviceKeyValues"), size_; }  ///< committed tokens
  std::int32_t slot() const { return guard_.expect_valid("DeviceKeyValues"), slot_; }  ///< their sequence
  /// The keys and values of layer `layer`, for all slots; without lengths. Throws std::invalid_argument for a
  /// layer out of range.
  PagedKv<BFloat16> layer(std::int32_t layer) const {
    guard_.expect_valid("DeviceKeyValues");
    const auto layers = static_cast<std::int32_t>(decoder_->weights().layers.size());
    if (layer < 0 || layer >= layers)
      throw std::invalid_argument("DeviceKeyValues: layer " + std::to_string(layer) + ", must be 0 to " +
                                  std::to_string(layers - 1));
    return decoder_->cache(static_cast<std::size_t>(layer), nullptr);
  }
  const Decoder& decoder() const { return *decoder_; }         ///< whose they are
  specula::detail::ViewGuard guard() const { return guard_; }  ///< of the view

 private:
  const Decoder* decoder_;
  std::int32_t slot_, size_;
  specula::detail::ViewGuard guard_;
};

/// Features of a text's committed tokens: the hidden states that enter the LM head, in the device's memory.
/// Valid until the model changes; after that the accessors throw std::logic_error.
template <class Decoder>
class DeviceFeatures {
 public:
  /// Of slot `slot` of `decoder`, which has `size` tokens and keeps features.
  DeviceFeatures(const Decoder& decoder, std::int32_t slot, std::int32_t size,
                 specula::detail::ViewGuard guard)
      : decoder_(&decoder), slot_(slot), size_(size), guard_(guard) {}

  std::int32_t size() const { return guard_.expect_valid("DeviceFeatures"), size_; }  ///< committed tokens
  std::int32_t slot() const { return guard_.expect_valid("DeviceFeatures"), slot_; }  ///< their sequence
  /// Numbers per token.
  std::int32_t width() const { return guard_.expect_valid("DeviceFeatures"), decoder_->weights().hidden; }
  /// (width), on the device. Throws std::invalid_argument unless 0 <= i < size().
  const BFloat16* row(std::int32_t i) const {
    guard_.expect_valid("DeviceFeatures");
    if (i < 0 || i >= size_)
      throw std::invalid_argument("DeviceFeatures::row: row " + std::to_string(i) + ", must be in [0, " +
                                  std::to_string(size_) + ")");
    return decoder_->features() +
           (static_cast<std::int64_t>(slot_) * decoder_->capacity() + i) * decoder_->weights().hidden;
  }
  const Decoder& decoder() const { return *decoder_; }         ///< whose they are
  specula::detail::ViewGuard guard() const { return guard_; }  ///< of the view

 private:
  const Decoder* decoder_;
  std::int32_t slot_, size_;
  specula::detail::ViewGuard guard_;
};

}  // namespace specula::cuda
