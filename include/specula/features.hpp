// What a model knows at each token of its context: hidden states, for drafters that look into their target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "detail/view_guard.hpp"

namespace specula {

/// Features of a model's committed tokens: for each the hidden state that enters the LM head, that is after
/// the final norm. Not owned; valid until the model's next call that changes it. Then every accessor throws
/// std::logic_error, in all builds; so does the view that no model gave.
template <class Real>
class FeaturesView {
 public:
  FeaturesView() = default;
  /// `size` rows of `width` numbers at `data`, `stride` numbers apart. `guard` is the model's.
  FeaturesView(const Real* data, std::int32_t size, std::int32_t width, std::ptrdiff_t stride,
               detail::ViewGuard guard)
      : data_(data), size_(size), width_(width), stride_(stride), guard_(guard) {}

  /// Committed tokens.
  std::int32_t size() const {
    (guard_.check)("FeaturesView");
    return size_;
  }
  /// Numbers a token: the model's hidden size.
  std::int32_t width() const {
    (guard_.check)("FeaturesView");
    return width_;
  }
  /// Whether there is no row, or no model; throws on a stale view only.
  bool empty() const { return guard_.empty() || size() == 0; }

  /// (width), the feature of token `i`. Throws std::invalid_argument unless 0 <= i < size().
  std::span<const Real> row(std::int32_t i) const {
    (guard_.check)("FeaturesView");
    if (i < 0 || i >= size_)
      throw std::invalid_argument("FeaturesView::row: row " + std::to_string(i) + ", must be in [0, " +
                                  std::to_string(size_) + ")");
    return {data_ + i * stride_, static_cast<std::size_t>(width_)};
  }

 private:
  const Real* data_ = nullptr;  // (size, width), row-major
  std::int32_t size_ = 0, width_ = 0;
  std::ptrdiff_t stride_ = 0;
  detail::ViewGuard guard_;
};

}  // namespace specula
