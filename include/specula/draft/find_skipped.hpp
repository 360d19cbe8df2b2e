// SPDX-License-Identifier: MIT
// Finds blocks for LayerSkip on texts of the model's own: by what leaving them out changes, not by how
// similar a block's input and output are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula {

/// A set of blocks, and what drafting without them would give.
struct SkippedTrial {
  SkippedBlocks blocks = SkippedBlocks{};  ///< that are left out
  double agreement = 1;     ///< how often the likeliest token without them is the whole model's
  double cost = 1;          ///< a pass over one node, in passes of the whole model (c)
  std::int32_t length = 0;  ///< of the chain that is predicted to be the fastest
  double speedup = 1;       ///< predicted of that chain over plain decoding
};

/// What find_skipped() tried.
struct FoundBlocks {
  std::vector<double> attention,     ///< (layers): agreement without the attention of this layer alone
      mlp;                           ///< (layers): without its MLP alone
  std::vector<SkippedTrial> trials;  ///< the least missed blocks, one more in each
  std::size_t best = 0;              ///< of `trials`, the largest speedup

  /// The best set; below a speedup of 1 none pays.
  const SkippedTrial& found() const { return trials[best]; }
};

/// How find_skipped() searches.
struct FindSkipped {
  std::int32_t piece =
      16;  ///< tokens of a text that run without the blocks before the context is whole again
  std::int32_t longest = 4;  ///< longest chain to predict for
  double worst = 0.3;        ///< agreement, alone or together, below which no further blocks are tried
  std::int32_t repeats = 5;  ///< passes timed for each cost, of which the median counts
};

namespace detail {

/// Tokens that a round of a chain gives, over what it takes: each draft token is accepted with probability
/// `agreement`, a draft pass costs `cost`, the target's over n nodes times[n - 1], all in target passes over
/// one node.
inline double chain_speedup(double agreement, double cost, std::int32_t length,
                            std::span<const double> times) {
  double tokens = 1, accepted = 1;
  for (std::int32_t n = 0; n < length; ++n) tokens += accepted *= agreement;
  return tokens / (length * cost + times[static_cast<std::size_t>(length)]);
}

template <class M>
class SkippedSearch {
 public:
  SkippedSearch(M& model, std::span<const std::vector<Token>> texts, const FindSkipped& how)
      : model_(&model), texts_(texts), how_(how) {
    expect_in("FindSkipped::piece", how.piece, 1, model.capacity());
    expect_in("FindSkipped::longest", how.longest, 1, 64);
    expect_in("FindSkipped::repeats", how.repeats, 1, 1000);
    if (texts.empty()) throw std::invalid_argument("find_skipped: no texts");
    for (const auto& text : texts)
      if (text.size() < 2 ||
          text.size() + static_cast<std::size_t>(how.longest) > static_cast<std::size_t>(model.capacity()))
        throw std::invalid_argument(
            "find_skipped: a text of " + std::to_string(text.size()) + " tokens, expected 2 to " +
            std::to_string(model.capacity() - how.longest) + ", which the model can hold");
  }

  /// How often the likeliest token without each of these sets is that of the whole model.
  std::vector<double> agreements(std::span<const SkippedBlocks> sets) {
    std::vector<std::size_t> agreed(sets.size());
    std::size_t all = 0;
    std::vector<Token> wanted, found;
    for (const auto& text : texts_) {
      model_->truncate(0);
      for (std::size_t begin = 0; begin < text.size(); begin += static_cast<std::size_t>(how_.piece)) {
        const auto piece =
            Tokens(text).subspan(begin, std::min(text.size() - begin, static_cast<std::size_t>(how_.piece)));
        likeliest(model_->extend(piece, chain(piece.size())), piece.size(), wanted);
        all += piece.size();
        for (std::size_t s = 0; s < sets.size(); ++s) {
          model_->commit({});
          likeliest(model_->extend_skipping(piece, chain(piece.size()), sets[s]), piece.size(), found);
          for (std::size_t i = 0; i < piece.size(); ++i) agreed[s] += wanted[i] == found[i];
        }
        model_->commit({});
        model_->append(piece);
      }
    }
    model_->truncate(0);
    std::vector<double> shares;
    for (const auto count : agreed) shares.push_back(static_cast<double>(count) / static_cast<double>(all));
    return shares;
  }

  /// Seconds of a pass over a chain of `nodes` after the first text, the median of some; with `blocks`,
  /// without these.
  double seconds(std::int32_t nodes, const SkippedBlocks* blocks) {
    const auto& text = texts_.front();
    const std::vector<Token> tokens(static_cast<std::size_t>(nodes), text.back());
    if (model_->size() == 0) {
      model_->append(text);
      model_->extend(Tokens(tokens).first(1), chain(1));  // whatever append() deferred
    }
    std::vector<double> times;
    for (std::int32_t i = 0; i < how_.repeats; ++i) {
      model_->commit({});
      Usage usage;
      {
        const PassWatch<M> watch(*model_, usage);
        if (blocks != nullptr) {
          model_->extend_skipping(tokens, chain(tokens.size()), *blocks);
        } else {
          model_->extend(tokens, chain(tokens.size()));
        }
      }
      times.push_back(usage.seconds);
    }
    model_->commit({});
    std::nth_element(times.begin(), times.begin() + how_.repeats / 2, times.end());
    return times[static_cast<std::size_t>(how_.repeats / 2)];
  }

 private:
  Nodes chain(std::size_t nodes) {
    while (chain_.size() < nodes) chain_.push_back(static_cast<NodeId>(chain_.size()) - 1);
    return Nodes(chain_).first(nodes);
  }
  void likeliest(const LogitsView& rows, std::size_t nodes, std::vector<Token>& out) {
    expect_rows("find_skipped: the model", rows, nodes, model_->vocab_size());
    out.clear();
    for (std::int32_t i = 0; i < rows.rows; ++i) {
      const auto row = rows.row(i);
      out.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
  }

  M* model_;
  std::span<const std::vector<Token>> texts_;
  FindSkipped how_;
  std::vector<NodeId> chain_;  // parents: kNoParent, 0, 1, ...
};

}  // namespace detail

/// Leaves out each block alone, then the least missed ones together, one more at a time, on texts that the
/// model wrote itself (10 of 100 tokens are enough); and predicts from agreement and measured times which
/// set, and which length of a chain, is the fastest. The model is empty afterwards. Cost: about 2
/// layers passes over the texts, and 1.5 for each set that is tried, of which there are at most layers.
/// Throws std::invalid_argument for no texts, ones that the model cannot hold, or fields out of range; and as
/// the model.
template <SkipsLayers M>
FoundBlocks find_skipped(M& model, std::span<const std::vector<Token>> texts, const FindSkipped& how = {}) {
  detail::SkippedSearch<M> search(model, texts, how);
  const std::int32_t layers = model.layers();
  // Each block alone: attention first.
  std::vector<SkippedBlocks> alone(static_cast<std::size_t>(2 * layers), SkippedBlocks(layers));
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const std::size_t layer = i % static_cast<std::size_t>(layers);
    (i == layer ? alone[i].attention : alone[i].mlp)[layer] = 1;
  }
  const auto single = search.agreements(alone);
  FoundBlocks out;
  out.attention.assign(single.begin(), single.begin() + layers);
  out.mlp.assign(single.begin() + layers, single.end());

  std::vector<std::size_t> order(alone.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return single[a] != single[b] ? single[a] > single[b] : a < b;
  });
  std::vector<SkippedBlocks> together;
  SkippedBlocks set(layers);
  for (const std::size_t i : order) {
    if (single[i] < how.worst || static_cast<std::int32_t>(together.size()) == layers) break;
    const std::size_t layer = i % static_cast<std::size_t>(layers);
    (i == layer ? set.attention : set.mlp)[layer] = 1;
    together.push_back(set);
  }
  if (together.empty()) together.emplace_back(layers);  // every block matters: the whole model
  // A few sets at a time, until one agrees too rarely: a pass over the texts is dear.
  std::vector<double> joint;
  while (joint.size() < together.size() && (joint.empty() || joint.back() >= how.worst)) {
    const auto left = std::span<const SkippedBlocks>(together).subspan(joint.size());
    const auto more = search.agreements(left.first(std::min<std::size_t>(left.size(), 4)));
    joint.insert(joint.end(), more.begin(), more.end());
  }
  together.resize(joint.size());

  std::vector<double> times;  // of the whole model over 1, 2, ... nodes, in passes over one
  for (std::int32_t n = 1; n <= how.longest + 1; ++n) times.push_back(search.seconds(n, nullptr));
  const double whole = times.front();
  for (double& time : times) time /= whole;
  for (std::size_t t = 0; t < together.size(); ++t) {
    SkippedTrial trial{
        .blocks = together[t], .agreement = joint[t], .cost = search.seconds(1, &together[t]) / whole};
    trial.speedup = 0;
    for (std::int32_t length = 1; length <= how.longest; ++length)
      if (const double speedup = detail::chain_speedup(trial.agreement, trial.cost, length, times);
          speedup > trial.speedup)
        trial.speedup = speedup, trial.length = length;
    out.trials.push_back(std::move(trial));
    if (out.trials.back().speedup > out.trials[out.best].speedup) out.best = out.trials.size() - 1;
  }
  model.truncate(0);
  return out;
}

}  // namespace specula
