// SPDX-License-Identifier: MIT
// Top-k distillation loss (HASS) and its gradient, fused from the two rows of logits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_math.hpp"

namespace specula {

namespace detail {

/// The k largest of the logits offered in token order, best first, ties to the lower token.
template <class Real>
class LargestLogits {
 public:
  static constexpr std::int32_t kMax = 64;

  explicit LargestLogits(std::int32_t k) : k_(static_cast<std::size_t>(k)) {}

  /// Threshold: only logits above it are inserted.
  Real bound() const {
    if (count_ < k_) return -std::numeric_limits<Real>::infinity();
    return k_ == 0 ? std::numeric_limits<Real>::infinity() : logits_[k_ - 1];
  }
  void offer(std::size_t token, Real logit) {
    if (!(logit > bound())) return;
    std::size_t at = count_ < k_ ? count_++ : k_ - 1;
    for (; at > 0 && logits_[at - 1] < logit; --at) {
      logits_[at] = logits_[at - 1];
      tokens_[at] = tokens_[at - 1];
    }
    logits_[at] = logit;
    tokens_[at] = token;
  }
  std::span<const std::size_t> tokens() const { return std::span(tokens_).first(count_); }

 private:
  std::size_t k_, count_ = 0;
  std::array<Real, kMax> logits_;
  std::array<std::size_t, kMax> tokens_;
};

template <class Real>
[[noreturn]] void refuse_row(const char* whose, std::span<const Real> row) {
  const auto bad = std::find_if(row.begin(), row.end(),
                                [](Real l) { return !(l < std::numeric_limits<Real>::infinity()); });
  std::string message = std::string(whose).append("'s row of logits ");
  if (bad != row.end())
    message.append("holds NaN or +infinity at token ").append(std::to_string(bad - row.begin()));
  else if (std::any_of(row.begin(), row.end(), [](Real l) { return std::isfinite(l); }))
    message.append("is too large: its largest logit is beyond 1e38");
  else
    message.append("is empty: none is above -infinity");
  throw std::runtime_error(message);
}
[[noreturn]] inline void refuse_loss(std::size_t token, double logit) {
  throw std::runtime_error(std::string("TopKDistillation: the loss is infinite: the draft's logit of token ")
                               .append(std::to_string(token))
                               .append(", which the target may choose, is ")
                               .append(std::to_string(logit)));
}

/// log p of a row's softmax. Relative to its largest logit, so that log_z is in [0, log V].
template <class Real>
struct LogSoftmax {
  Real largest;
  double log_z;

  double operator()(Real logit) const {
    return static_cast<double>(logit) - static_cast<double>(largest) - log_z;
  }
};

/// LogSoftmax of a row, which is read once; offers its largest logits to `largest`.
inline LogSoftmax<float> log_softmax(const char* whose, std::span<const float> row,
                                     LargestLogits<float>& largest) {
  constexpr std::int32_t kChunk = 8;  // tiles that are still in the L1 cache at their second read
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto vocab = static_cast<std::int32_t>(row.size());
  std::array<TileStats, kChunk> stats;
  std::array<float, kTile> padding;
  std::array<std::int32_t, kTile> places;
  double unit = -kInf, sum = 0;
  float top = -std::numeric_limits<float>::infinity(), rest = 0;
  for (std::int32_t first = 0; first < tile_count(vocab);) {
    const std::int32_t whole = std::min(kChunk, vocab / kTile - first), count = std::max(1, whole);
    const float* tile = tile_at(row.data(), vocab, first, padding);
    kernels().stats(tile, count, 1.0, stats.data());
    for (std::int32_t t = 0; t < count; ++t, tile += kTile) {
      const TileStats& s = stats[static_cast<std::size_t>(t)];
      if (!(s.sum < kInf)) refuse_row(whose, row);
      if (s.unit == -kInf) continue;  // nothing but -infinity
      sum = s.unit > unit ? sum * pow2(unit - s.unit) + s.sum : sum + s.sum * pow2(s.unit - unit);
      unit = std::max(unit, s.unit);
      if (s.maximum > top) top = s.maximum, rest = s.rest;
      if (!(s.maximum > largest.bound())) continue;
      const std::int32_t found = kernels().above(tile, largest.bound(), places.data());
      for (std::int32_t i = 0; i < found; ++i) {
        const std::int32_t place = places[static_cast<std::size_t>(i)];
        largest.offer(static_cast<std::size_t>((first + t) * kTile + place), tile[place]);
      }
    }
    first += count;
  }
  if (!std::isfinite(top) || too_large(top, 1.0)) refuse_row(whose, row);
  return {top, (std::log2(sum) - static_cast<double>(rest)) / kLog2E};
}
/// The same in doubles, two reads: the reference.
inline LogSoftmax<double> log_softmax(const char* whose, std::span<const double> row,
                                      LargestLogits<double>& largest) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::size_t x = 0; x < row.size(); ++x) {
    if (!(row[x] < std::numeric_limits<double>::infinity())) refuse_row(whose, row);
    top = std::max(top, row[x]);
    largest.offer(x, row[x]);
  }
  if (!std::isfinite(top)) refuse_row(whose, row);
  for (const double l : row) sum += std::exp(l - top);
  return {top, std::log(sum)};
}

/// -sum p log q, and keep * q - take * p in `gradient` unless that is empty. Throws if the sum is infinite.
inline double cross_entropy(std::span<const float> target, const LogSoftmax<float>& log_p,
                            std::span<const float> draft, const LogSoftmax<float>& log_q, double keep,
                            double take, std::span<float> gradient) {
  Distribution p, q;
  p.shift = log_p.largest, p.log_z = log_p.log_z;
  q.shift = log_q.largest, q.log_z = log_q.log_z;
  const Exponent p_exponent(p), q_exponent(q);
  const auto vocab = static_cast<std::int32_t>(target.size());
  std::array<float, kTile> target_padding, draft_padding, out;
  double sum = 0;
  for (std::int32_t t = 0; t < tile_count(vocab); ++t) {
    const double part = kernels().cross(tile_at(target.data(), vocab, t, target_padding), p_exponent,
                                        tile_at(draft.data(), vocab, t, draft_padding), q_exponent,
                                        static_cast<float>(keep), static_cast<float>(take), out.data());
    const auto begin = static_cast<std::size_t>(t) * kTile, end = std::min(begin + kTile, target.size());
    if (!(part > -std::numeric_limits<double>::infinity())) {
      std::size_t worst = begin;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t x = begin; x < end; ++x)
        if (static_cast<double>(draft[x]) < least && std::exp(log_p(target[x])) > 0)
          least = static_cast<double>(draft[worst = x]);
      refuse_loss(worst, least);
    }
    sum += part;
    if (!gradient.empty())
      std::copy_n(out.begin(), end - begin, gradient.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return -sum / kLog2E;
}
inline double cross_entropy(std::span<const double> target, const LogSoftmax<double>& target_log,
                            std::span<const double> draft, const LogSoftmax<double>& draft_log, double keep,
                            double take, std::span<double> gradient) {
  double sum = 0;
  for (std::size_t x = 0; x < target.size(); ++x) {
    double p = std::exp(target_log(target[x]));
    if (p < std::numeric_limits<double>::min()) p = 0;
    const double log_q = draft_log(draft[x]);
    if (p > 0 && !std::isfinite(log_q)) refuse_loss(x, draft[x]);
    if (p > 0) sum += p * log_q;
    if (!gradient.empty()) gradient[x] = keep * std::exp(log_q) - take * p;
  }
  return -sum;
}

}  // namespace detail

/// The loss of one row of a draft's logits given the target's, with p and q their softmaxes:
///
///   cross_entropy = -sum over all tokens of p log q
///   top_k         = -sum over the `k` likeliest tokens of the target, ties to the lower token, of p log q
///   total         = cross_entropy_weight * cross_entropy + weight * top_k
///
/// Neither distribution is renormalised over the k. Its gradient by the draft's logits is, P being the sum of
/// p over the k: (cross_entropy_weight + weight * P) q - cross_entropy_weight * p - weight * p [x among the
/// k]. With k = 0 or weight = 0 this is plain distillation. Source: HASS (Zhang et al. 2024), section 3.1,
/// which has k = 10, weight = 1 and, with EAGLE, a cross-entropy weight of 0.1.
struct TopKDistillation {
  std::int32_t k = 10;                ///< number of likeliest tokens of the target; 0 to 64
  double weight = 1;                  ///< of the top-k term
  double cross_entropy_weight = 0.1;  ///< of the cross entropy over all tokens

  /// Terms of one row, in nats, unweighted.
  struct Loss {
    double cross_entropy = 0;  ///< over all tokens
    double top_k = 0;          ///< over the k likeliest
  };

  static constexpr std::int32_t kMax = detail::LargestLogits<float>::kMax;  ///< maximum k

  /// Throws std::invalid_argument unless k is in [0, 64] and the weights are finite and >= 0.
  void validate() const {
    if (k < 0 || k > kMax)
      throw std::invalid_argument(
          std::string("TopKDistillation: k is ").append(std::to_string(k)).append(", must be in [0, 64]"));
    check_weight("weight", weight);
    check_weight("cross_entropy_weight", cross_entropy_weight);
  }

  /// The weighted sum.
  double total(const Loss& loss) const {
    return cross_entropy_weight * loss.cross_entropy + weight * loss.top_k;
  }

  /// The loss of a row: `target` and `draft` are logits, (V). Writes `scale` times the gradient of total() by
  /// the draft's logits to `gradient`, (V) or empty, which may be `draft` itself. A k above V counts as V.
  ///
  /// A logit of the target may be -infinity: p is 0 there, and the draft's may be -infinity too. Throws
  /// std::runtime_error on another -infinity of the draft, since the loss would be infinite, on NaN or
  /// +infinity, and on a row without a finite logit (`gradient` is then unspecified), std::invalid_argument
  /// as validate() does and on rows that are empty or of different widths, or a scale that is not finite.
  ///
  /// Cost: two reads of each row and a write of the gradient; no allocation.
  /// **Range.** Logits up to 100; a probability below 2^-126 counts as 0.
  /// **Error.** Of a loss 2e-6, relative, plus 5e-7; of a gradient 1e-6 of its scale times both weights' sum.
  /// **Bits.** As those of row_kernels.hpp.
  Loss row(std::span<const float> target, std::span<const float> draft, std::span<float> gradient = {},
           double scale = 1) const {
    return fused(target, draft, gradient, scale);
  }
  /// The same in double precision, without vector arithmetic and with one more read; the smallest probability
  /// is 2^-1022.
  Loss row(std::span<const double> target, std::span<const double> draft, std::span<double> gradient = {},
           double scale = 1) const {
    return fused(target, draft, gradient, scale);
  }

 private:
  template <class Real>
  Loss fused(std::span<const Real> target, std::span<const Real> draft, std::span<Real> gradient,
             double scale) const {
    validate();
    check_rows(target.size(), draft.size(), gradient.size(), scale);
    detail::LargestLogits<Real> likeliest(k), none(0);
    const auto target_log = detail::log_softmax("TopKDistillation: the target", target, likeliest);
    const auto draft_log = detail::log_softmax("TopKDistillation: the draft", draft, none);
    const auto tokens = likeliest.tokens();
    std::array<double, kMax> probs;
    Loss loss;
    double mass = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t x = tokens[i];
      const double p = std::exp(target_log(target[x])), log_q = draft_log(draft[x]);
      probs[i] = p < static_cast<double>(std::numeric_limits<Real>::min()) ? 0 : p;
      if (probs[i] == 0) continue;
      if (!std::isfinite(log_q)) detail::refuse_loss(x, static_cast<double>(draft[x]));
      mass += p;
      loss.top_k -= p * log_q;
    }
    loss.cross_entropy = detail::cross_entropy(target, target_log, draft, draft_log,
                                               scale * (cross_entropy_weight + weight * mass),
                                               scale * cross_entropy_weight, gradient);
    if (!gradient.empty())
      for (std::size_t i = 0; i < tokens.size(); ++i)
        gradient[tokens[i]] -= static_cast<Real>(scale * weight * probs[i]);
    return loss;
  }

  static void check_weight(const char* name, double value) {
    if (!(value >= 0) || !std::isfinite(value))
      throw std::invalid_argument(std::string("TopKDistillation: ")
                                      .append(name)
                                      .append(" is ")
                                      .append(std::to_string(value))
                                      .append(", must be finite and >= 0"));
  }
  static void check_rows(std::size_t target, std::size_t draft, std::size_t gradient, double scale) {
    if (target == 0 || draft != target || (gradient != 0 && gradient != target))
      throw std::invalid_argument(std::string("TopKDistillation: the rows are ")
                                      .append(std::to_string(target))
                                      .append(" (target), ")
                                      .append(std::to_string(draft))
                                      .append(" (draft) and ")
                                      .append(std::to_string(gradient))
                                      .append(" (gradient) wide, must be alike, or the gradient empty"));
    if (!std::isfinite(scale))
      throw std::invalid_argument(std::string("TopKDistillation: scale is ")
                                      .append(std::to_string(scale))
                                      .append(", must be finite"));
  }
};

}  // namespace specula
