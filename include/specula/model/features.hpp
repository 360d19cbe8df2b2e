// SPDX-License-Identifier: MIT
// Features: hidden states of a model at the tokens of its context, for drafters conditioned on their
// target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/model/view_guard.hpp"

namespace specula {

/// The hidden states after some layers of a model, before any norm.
template <class Real>
struct HiddenStates {
  std::span<const std::int32_t> layers;  ///< ascending; 1 is the first, 0 the embedding
  const Real* data = nullptr;            ///< per token, one state after the other
  std::ptrdiff_t stride = 0;             ///< numbers between tokens
};

/// Features of a model's committed tokens: per token the hidden state that enters the LM head, that is
/// after the final norm, and the hidden states after some layers, if the model keeps them. Not owned; valid
/// until the next call that changes the model. After that every accessor throws std::logic_error, in all
/// builds; so does a default-constructed view.
template <class Real>
class FeaturesView {
 public:
  FeaturesView() = default;
  /// `size` rows of `width` numbers at `data`, `stride` numbers apart. `guard` is the model's.
  FeaturesView(const Real* data, std::int32_t size, std::int32_t width, std::ptrdiff_t stride,
               detail::ViewGuard guard, HiddenStates<Real> inner = {})
      : data_(data), size_(size), width_(width), stride_(stride), guard_(guard), inner_(inner) {}

  /// Committed tokens.
  std::int32_t size() const {
    guard_.expect_valid("FeaturesView");
    return size_;
  }
  /// Numbers per token: the model's hidden size.
  std::int32_t width() const {
    guard_.expect_valid("FeaturesView");
    return width_;
  }
  /// Whether there is no row, or no model; throws only on a stale view.
  bool empty() const { return guard_.empty() || size() == 0; }

  /// (width), the feature of token `i`. Throws std::invalid_argument unless 0 <= i < size().
  std::span<const Real> row(std::int32_t i) const {
    check_row("row", i);
    return {data_ + i * stride_, static_cast<std::size_t>(width_)};
  }

  /// The layers whose hidden states are kept too, ascending; 1 is the first, 0 the embedding.
  std::span<const std::int32_t> layers() const {
    guard_.expect_valid("FeaturesView");
    return inner_.layers;
  }
  /// (width), the hidden state of token `i` after layer layers()[k]. Throws std::invalid_argument unless 0
  /// <= i < size() and k < layers().size().
  std::span<const Real> hidden_state(std::int32_t i, std::size_t k) const {
    check_row("hidden_state", i);
    if (k >= inner_.layers.size())
      throw std::invalid_argument("FeaturesView::hidden_state: number " + std::to_string(k) + " of " +
                                  std::to_string(inner_.layers.size()));
    return {inner_.data + i * inner_.stride + static_cast<std::ptrdiff_t>(k) * width_,
            static_cast<std::size_t>(width_)};
  }

 private:
  void check_row(const char* call, std::int32_t i) const {
    guard_.expect_valid("FeaturesView");
    if (i < 0 || i >= size_)
      throw std::invalid_argument("FeaturesView::" + std::string(call) + ": row " + std::to_string(i) +
                                  ", must be in [0, " + std::to_string(size_) + ")");
  }

  const Real* data_ = nullptr;  // (size, width), row-major
  std::int32_t size_ = 0, width_ = 0;
  std::ptrdiff_t stride_ = 0;
  detail::ViewGuard guard_;
  HiddenStates<Real> inner_;
};

}  // namespace specula
