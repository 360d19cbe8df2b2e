// SPDX-License-Identifier: MIT
// Sorted fine-tuning loss of a model with early exits, and its gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "losses/top_k_distillation.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/row_math.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula {

namespace detail {
/// log_softmax() of an exit's row; errors name the exit.
template <class Real>
auto log_softmax_of_exit(std::size_t exit, std::span<const Real> row, LargestLogits<Real>& largest) {
  try {
    return log_softmax("sorted_loss: an exit", row, largest);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(std::string(e.what()) + " (exit " + std::to_string(exit) + ")");
  }
}
}  // namespace detail

/// Mean over the exits of a model of the cross entropy of the `expected` token, in nats. `logits` has one row
/// (V) per exit. Writes `scale` times the gradient by the logits, (softmax - one-hot) / exits, to
/// `gradients`, which has the same number of rows or none; a row may be the row of logits itself.
///
/// Throws std::invalid_argument for no rows, rows of different widths or a token outside them, and
/// std::runtime_error for a row that holds NaN or +infinity or has the token at -infinity (gradients of the
/// exits before it are written then). Cost: two reads of
/// each row and a write of its gradient; no allocation. Source: Sorted Speculative Decoding (Kavehzadeh et
/// al. 2024), equation 3.
template <class Real>
double sorted_loss(std::span<const std::span<const Real>> logits, Token expected,
                   std::span<const std::span<Real>> gradients = {}, double scale = 1) {
  if (logits.empty()) throw std::invalid_argument("sorted_loss: no exits");
  if (!gradients.empty() && gradients.size() != logits.size())
    throw std::invalid_argument("sorted_loss: " + std::to_string(logits.size()) + " rows of logits, " +
                                std::to_string(gradients.size()) + " of gradients");
  const std::size_t vocab = logits[0].size();
  if (expected < 0 || static_cast<std::size_t>(expected) >= vocab)
    throw std::invalid_argument("sorted_loss: token " + std::to_string(expected) + ", the rows are " +
                                std::to_string(vocab) + " wide");
  const auto token = static_cast<std::size_t>(expected);
  const double share = 1.0 / static_cast<double>(logits.size());
  double loss = 0;
  for (std::size_t e = 0; e < logits.size(); ++e)
    if (logits[e].size() != vocab || (!gradients.empty() && gradients[e].size() != vocab))
      throw std::invalid_argument("sorted_loss: the rows of exit " + std::to_string(e) + " are not " +
                                  std::to_string(vocab) + " wide");
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const std::span<const Real> row = logits[e];
    detail::LargestLogits<Real> none(0);
    const auto log_p = detail::log_softmax_of_exit(e, row, none);
    const double surprise = -log_p(row[token]);
    if (!std::isfinite(surprise))
      throw std::runtime_error("sorted_loss: the loss is infinite: exit " + std::to_string(e) +
                               "'s logit of token " + std::to_string(expected) + " is -inf");
    loss += share * surprise;
    if (gradients.empty()) continue;
    const std::span<Real> out = gradients[e];
    const double weight = scale * share;
    if constexpr (std::is_same_v<Real, float>) {
      Distribution distribution;
      distribution.logits = row.data();
      distribution.shift = log_p.largest, distribution.log_z = log_p.log_z;
      std::array<float, detail::kTile> probs;
      for (std::size_t begin = 0; begin < vocab; begin += detail::kTile) {
        detail::fill_tile(distribution, static_cast<std::int32_t>(vocab),
                          static_cast<std::int32_t>(begin / detail::kTile), probs.data());
        const std::size_t end = std::min<std::size_t>(begin + detail::kTile, vocab);
        for (std::size_t x = begin; x < end; ++x) out[x] = static_cast<float>(weight) * probs[x - begin];
      }
    } else {
      for (std::size_t x = 0; x < vocab; ++x) out[x] = weight * std::exp(log_p(row[x]));
    }
    out[token] -= static_cast<Real>(weight);
  }
  return loss;
}

}  // namespace specula
