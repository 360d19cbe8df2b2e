// SPDX-License-Identifier: MIT
// Early-exit drafting (sorted speculative decoding, S2D): a token stops at the first exit that is confident
// enough.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/draft/model_drafter.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/policy/concepts.hpp"

namespace specula {

/// The probability that an exit's threshold is compared with, taken from the softmax of the exit's row
/// whatever the verifier's temperature. `confidence`: the largest probability, known before any draw.
/// `sample`: the probability of the token drawn at this exit, as in the paper's algorithm. A token accepted
/// by such a test is not distributed like its exit's row; its distribution is the mixture
///
///   q = 1[p1 >= t1] p1 + m1 (1[p2 >= t2] p2 + m2 (...)),   m_i the mass of exit i below its threshold
///
/// EarlyExitDrafter then returns that mixture as the row. This is exact, but runs every exit that has mass
/// below its threshold.
enum class ExitBy { confidence, sample };

namespace detail {

/// Runs each node to the first exit whose row reaches the threshold.
template <ExitsEarly M>
class EarlyExitForward {
 public:
  EarlyExitForward(const M& model, std::span<const float> thresholds, ExitBy by)
      : by_(by), scan_(model.vocab_size()) {
    const std::int32_t exits = model.exits();
    if (thresholds.size() >= static_cast<std::size_t>(exits))
      throw std::invalid_argument("EarlyExitDrafter: " + std::to_string(thresholds.size()) +
                                  " thresholds, must be fewer than the draft's " + std::to_string(exits) +
                                  " exits: at the last one every token leaves");
    for (std::size_t i = 0; i < thresholds.size(); ++i)
      if (!(thresholds[i] >= 0))
        throw std::invalid_argument("EarlyExitDrafter: threshold " + number(i) + " is " +
                                    number(thresholds[i]) + ", must be at least 0");
    for (std::int32_t exit = 0; exit < exits; ++exit) {
      const auto e = static_cast<std::size_t>(exit);
      const float threshold = e < thresholds.size() ? thresholds[e] : 0;
      if (threshold > 1) continue;  // no token can stop here, so the row is not needed
      stops_.push_back({exit, threshold});
      if (threshold == 0) break;  // every token stops here
    }
    exit_counts_.resize(static_cast<std::size_t>(exits));
    going_.reserve(static_cast<std::size_t>(model.capacity()));
  }

  /// Nodes that stopped at each exit.
  std::span<const std::int64_t> exit_counts() const { return exit_counts_; }

  LogitsView operator()(M& model, Tokens tokens, Nodes parents, NodeId first, Usage& usage) {
    LogitsView rows =
        all(model.extend_to_exit(tokens, parents, stops_[0].exit), tokens.size(), stops_[0].exit);
    going_.resize(tokens.size());
    for (std::size_t i = 0; i < going_.size(); ++i) going_[i] = static_cast<std::int32_t>(i);
    if (by_ == ExitBy::sample) start(rows);
    std::int32_t layers = 0;  // run so far for the remaining rows
    for (auto stop = stops_.begin();; ++stop) {
      const std::size_t before = going_.size();
      usage.layers += static_cast<double>(before) * (model.layers_to(stop->exit) - layers);
      layers = model.layers_to(stop->exit);
      std::erase_if(going_, [&](std::int32_t row) {
        try {
          return by_ == ExitBy::sample ? mix(rows, row, stop->threshold)
                                       : stop->threshold == 0 || scan_.top(rows.row(row)).prob >=
                                                                     static_cast<double>(stop->threshold);
        } catch (const std::runtime_error& e) {
          throw std::runtime_error("the draft's row after node " + number(first + row) + ", at exit " +
                                   number(stop->exit) + ": " + e.what());
        }
      });
      exit_counts_[static_cast<std::size_t>(stop->exit)] += static_cast<std::int64_t>(before - going_.size());
      if (going_.empty()) break;
      const std::int32_t next = std::next(stop)->exit;
      rows = all(model.resume_to_exit(going_, next), tokens.size(), next);
    }
    if (by_ == ExitBy::confidence) return rows;
    for (float& prob : mixed_) prob = std::log(prob);
    return {mixed_.data(), rows.rows, rows.vocab, rows.vocab};
  }

 private:
  /// Returns `rows`; throws unless there is one per node.
  LogitsView all(const LogitsView& rows, std::size_t nodes, std::int32_t exit) const {
    expect_rows("EarlyExitDrafter: the draft", rows, nodes, scan_.vocab(),
                [&] { return "at exit " + number(exit) + " for"; });
    return rows;
  }
  void start(const LogitsView& rows) {
    mixed_.assign(static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.vocab), 0.0f);
    weight_.assign(static_cast<std::size_t>(rows.rows), 1.0);
  }

  /// Adds the tokens that stop at this exit to the row's mixture. Returns whether no mass goes on.
  bool mix(const LogitsView& rows, std::int32_t row, float threshold) {
    const auto at = static_cast<std::size_t>(row);
    const std::span<const float> logits = rows.row(row);
    const Distribution distribution = scan_.distribution(logits, {});
    double below = 0;
    float* const to = mixed_.data() + at * static_cast<std::size_t>(rows.vocab);
    for (std::size_t x = 0; x < logits.size(); ++x) {
      const double prob = distribution(static_cast<Token>(x));
      if (prob >= static_cast<double>(threshold))
        to[x] += static_cast<float>(weight_[at] * prob);
      else
        below += prob;
    }
    weight_[at] *= below;
    return below == 0;
  }

  struct Stop {
    std::int32_t exit;
    float threshold;
  };
  std::vector<Stop> stops_;  // exits at which a token may stop; all stop at the last
  ExitBy by_;
  RowScan scan_;
  std::vector<std::int32_t> going_;        // rows that continue to a later exit
  std::vector<std::int64_t> exit_counts_;  // (exits)
  std::vector<float> mixed_;               // (rows, V), for ExitBy::sample
  std::vector<double> weight_;             // (rows) mass left for later exits
};

}  // namespace detail

///   specula::EarlyExitDrafter drafter{exits, {0.5f, 0.5f}};
///
/// Drafts with a model trained to stop after fewer layers (or any with exits): a token stops at the first
/// exit confident enough. One such draft serves targets of different sizes: the thresholds set the cost per
/// draft token. The upper layers process tokens that stopped early in one batch, when a later one needs them.
/// So every row equals that of the model truncated at its exit. References the model, which must outlive it.
/// **Draws.** Nothing: with ExitBy::sample the row is a mixture, which the shape draws from.
/// **Cost.** Layers up to each node's exit. With ExitBy::confidence it allocates in the constructor only.
/// **Throws.** As ModelDrafter; the constructor std::invalid_argument for bad thresholds.
/// **Source.** Sorted Speculative Decoding (Kavehzadeh et al. 2024), algorithm 1.
template <ExitsEarly M>
class EarlyExitDrafter : public ModelDrafter<M, detail::EarlyExitForward<M>> {
  using Base = ModelDrafter<M, detail::EarlyExitForward<M>>;

 public:
  /// `thresholds`: one per exit before the last, or fewer; then the next is 0. Above 1: no token stops there,
  /// and the row is not computed. Throws std::invalid_argument if there are more, or if one is negative.
  explicit EarlyExitDrafter(M& model, const std::vector<float>& thresholds, ExitBy by = ExitBy::confidence)
      : Base(model, detail::EarlyExitForward<M>(model, thresholds, by)) {}
  // clang-format off
  EarlyExitDrafter(M&&, const std::vector<float>&, ExitBy = ExitBy::confidence) = delete;  // a temporary: the model must outlive this; name it
  // clang-format on

  /// Nodes that stopped at each exit so far.
  std::span<const std::int64_t> exit_counts() const { return this->forward().exit_counts(); }
};

}  // namespace specula
