// SPDX-License-Identifier: MIT
// Context alignment of HASS: training a feature head on its own features, as it drafts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// A feature head drafts from its own features: step 2 of a round reads step 1's, step 3 both, and only
/// tokens before the root have the target's. Training therefore runs `forwards` forwards over a sequence, one
/// per draft step, with keys and values from several streams of columns:
///
///   stream 0       column c is (token c, the target's feature of c - 1)
///   stream s >= 1  column c is (token c, the feature that forward s predicted in row c - 1, detached)
///
/// Forwards count from 1. The rows (queries) of forward j are the columns of stream j - 1; its row r is step
/// j of the round whose root is at r - (j - 1). It sees the target's features up to that root, then one
/// column of each of its own streams, its own being the last:
///
///   stream 0       columns 0 .. r - (j - 1)
///   stream s < j   column r - (j - 1) + s
///
/// Those are r + 1 columns at the distinct positions 0 .. r; rotary embeddings take columns as positions.
/// Rows before first_row(j) belong to no round: they see their own column and the existing ones of the
/// others, so that no softmax is empty, and have no loss.
///
/// The functions throw std::invalid_argument unless forwards >= 1, a forward is in [1, forwards], a stream in
/// [0, forwards), rows and columns are >= 0. Cost: O(1). Source: HASS (Zhang et al. 2024), section 3.2; there
/// `forwards` is 3.
struct ContextAlignment {
  std::int32_t forwards = 3;  ///< training passes over a sequence; the first sees the target's features only

  /// Throws std::invalid_argument unless `forwards` is in [1, kMax].
  void validate() const { check_range("forwards", forwards, 1, kMax); }

  /// The first row of `forward` that takes part in the loss.
  std::int32_t first_row(std::int32_t forward) const {
    check_forward(forward);
    return forward - 1;
  }

  /// Number of columns of stream 0 that a row sees: [0, target_columns).
  std::int32_t target_columns(std::int32_t forward, std::int32_t row) const {
    check_forward(forward);
    check_range("row", row, 0, kMax);
    return std::max(0, row - forward + 2);
  }

  /// The one column that a row sees of a stream from 1 on, or -1 if it sees none.
  std::int32_t column(std::int32_t forward, std::int32_t stream, std::int32_t row) const {
    check_forward(forward);
    check_range("stream", stream, 1, forwards - 1);
    check_range("row", row, 0, kMax);
    return stream < forward ? std::max(-1, row - (forward - 1) + stream) : -1;
  }

  /// Whether a row sees a column: the attention mask.
  bool sees(std::int32_t forward, std::int32_t row, std::int32_t stream, std::int32_t column) const {
    validate();
    check_range("stream", stream, 0, forwards - 1);
    check_range("column", column, 0, kMax);
    return stream == 0 ? column < target_columns(forward, row) : column == this->column(forward, stream, row);
  }

 private:
  static constexpr std::int32_t kMax = 1 << 30;

  void check_forward(std::int32_t forward) const {
    validate();
    check_range("forward", forward, 1, forwards);
  }
  static void check_range(const char* name, std::int32_t value, std::int32_t least, std::int32_t most) {
    if (value >= least && value <= most) return;
    throw std::invalid_argument(std::string("ContextAlignment: ")
                                    .append(name)
                                    .append(" is ")
                                    .append(std::to_string(value))
                                    .append(", must be in [")
                                    .append(std::to_string(least))
                                    .append(", ")
                                    .append(std::to_string(most))
                                    .append("]"));
  }
};

}  // namespace specula
