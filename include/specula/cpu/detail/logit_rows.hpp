// SPDX-License-Identifier: MIT
// The rows of logits that passes write: of all tokens, or of those of a draft vocabulary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/team_product.hpp"

namespace specula::cpu::detail {

/// Rows (count, vocab). With a draft vocabulary, the LM head's outputs are spread over a row's draft tokens;
/// the others are minus infinity, which is written once, since no pass writes there. Nothing is allocated
/// after the constructor.
template <class Real>
class LogitRows {
 public:
  LogitRows() = default;
  LogitRows(const DecoderWeights<Real>& weights, std::int32_t count)
      : tokens_(weights.draft_tokens), rows_(count, weights.config.vocab_size) {
    if (tokens_.empty()) return;
    std::fill(rows_.values.begin(), rows_.values.end(), -std::numeric_limits<Real>::infinity());
    outputs_ = {count, static_cast<std::int32_t>(tokens_.size())};
  }

  Activations<Real>& rows() { return rows_; }

  /// Writes the logits of the hidden states [first, last) to the rows from `to` on. All threads call it.
  void run(const Worker& worker, const PanelMatrix<Real>& head, TeamProduct<Real>& product,
           Activations<Real>& hidden, std::int32_t first, std::int32_t last, std::int32_t to) {
    product.multiply(worker.thread, head, hidden, tokens_.empty() ? rows_ : outputs_, first, last, to);
    const auto [own, end] = product.share(worker.thread, static_cast<std::int32_t>(tokens_.size()));
    for (std::int32_t row = to; row < to + last - first; ++row) {
      const Real* const from = outputs_.at(row);
      Real* const logits = rows_.at(row);
      for (std::int32_t i = own; i < end; ++i) logits[tokens_[static_cast<std::size_t>(i)]] = from[i];
    }
  }

 private:
  std::span<const std::int32_t> tokens_;  // of the draft vocabulary; empty: all
  Activations<Real> rows_;                // (count, vocab)
  Activations<Real> outputs_;             // (count, draft vocabulary)
};

}  // namespace specula::cpu::detail
