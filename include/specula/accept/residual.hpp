// SPDX-License-Identifier: MIT
// The residual distribution: what rejections of draft tokens leave of the target's.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/status.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/model/view_guard.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula::detail {

/// The residual distribution: starts as p; each rejection makes it norm((weight * p - q)+) with q the
/// distribution of the rejected node given its earlier siblings. Stores no row of V values: weights are
/// computed tile by tile from the raw rows. Allocates in the constructor only.
class Residual {
 public:
  Residual(std::int32_t vocab, std::int32_t max_nodes)
      : vocab_(vocab), masses_(static_cast<std::size_t>(tile_count(vocab))) {
    steps_.reserve(static_cast<std::size_t>(max_nodes));
  }

  /// Restarts from the target's distribution and the masses of its tiles. Without masses, the first rejection
  /// or measured() computes them. (Those of a point mass are ignored.)
  void start(const Distribution& target, std::span<const double> masses) {
    target_ = target;
    steps_.clear();
    total_ = 1;
    measured_ = true;
    if (target.is_point()) {
      std::fill(masses_.begin(), masses_.end(), 0.0);
      masses_[static_cast<std::size_t>(target.point / kTile)] = 1;
    } else if (masses.empty()) {
      measured_ = false;
    } else {
      std::copy(masses.begin(), masses.end(), masses_.begin());
      total_ = merge_tiles(masses_);
    }
  }

  /// A rejection, recorded so that it can be replayed.
  struct Step {
    NodeId node = kNoParent;
    double keep = 1;   // factor on the distribution before
    double total = 1;  // mass that was left
  };
  const Step& last_step() const { return steps_.back(); }
  /// Replays a rejection that left mass. Reads nothing.
  void redo(const TokenTree& tree, const Step& step) {
    tree_ = &tree;
    steps_.push_back(step);
    total_ = step.total;
    measured_ = false;
  }

  /// Subtracts the distribution of `node`; the current distribution is first multiplied by `weight` (1
  /// except in block and traversal verification). Returns the mass that was left, S; where rounding leaves
  /// none, the distribution is unchanged and 0 is returned. Cost: one read of the target's row and of the
  /// draft's; a chosen node reads at most one tile.
  double reject(const TokenTree& tree, NodeId node, double weight = 1) {
    tree_ = &tree;
    const double keep = weight / total_;
    const Distribution& draft = tree.draft_distribution(node);
    if (draft.is_point() && !measured_) {  // the residual is scaled, except for one token
      const double there = keep * (*this)(draft.point);
      const double total = weight - there + std::max(0.0, there - 1);
      if (!(total > 0)) return 0;
      steps_.push_back({node, keep, total});
      return total_ = total;
    }
    steps_.push_back({node, keep, 0});
    if (!measured_) std::fill(masses_.begin(), masses_.end(), 1.0);  // any tile may have mass
    if (draft.is_point()) {                                          // only one tile changes
      for (double& mass : masses_) mass *= keep;
      masses_[static_cast<std::size_t>(draft.point / kTile)] = tile_mass(*this, draft.point / kTile);
    } else if (steps_.size() == 1 && !target_.is_point() && !tree.excludes_siblings(node) &&
               draft.logits.has_logits() && isa() != Isa::reference) {
      first_difference(draft, keep, tree.draft_scale(node));
    } else {
      remeasure();
    }
    measured_ = true;
    const double total = merge_tiles(masses_);
    if (std::isnan(total)) throw StatusError(Status::not_a_number, "a row of the draft holds NaN");
    if (total > 0) return steps_.back().total = total_ = total;
    steps_.pop_back();
    measured_ = false;
    return 0;
  }

  /// *this, with the masses that a draw requires. Cost: as a rejection, unless one has computed them.
  const Residual& measured() {
    while (!measured_) {
      std::fill(masses_.begin(), masses_.end(), 1.0);
      remeasure();
      total_ = merge_tiles(masses_);
      measured_ = total_ > 0 || steps_.empty();
      if (!measured_) steps_.pop_back();  // rounding alone had left mass
    }
    return *this;
  }

  double total() const { return total_; }
  /// Probability of `token` under the residual.
  double prob(Token token) const { return (*this)(token) / total_; }

  // The interface of Rng::draw's weights: weights up to the factor total().
  std::int32_t vocab() const { return vocab_; }
  /// Throws std::logic_error if neither measured() nor a rejection has computed the masses since start().
  std::span<const double> tile_masses() const {
    if (!measured_)
      throw std::logic_error("a draw from a residual whose tiles were not measured: draw from measured()");
    return masses_;
  }
  double operator()(Token token) const {
    double w = target_(token);
    for (const Step& s : steps_) w = std::max(0.0, s.keep * w - tree_->draft_prob(s.node, token));
    return w;
  }
  void fill(std::int32_t tile, float* weights) const {
    std::array<float, kTile> less;
    fill_tile(target_, vocab_, tile, weights);
    for (const Step& s : steps_) {
      const Distribution& draft = tree_->draft_distribution(s.node);
      fill_tile(draft, vocab_, tile, less.data());
      if (tree_->excludes_siblings(s.node))
        for (NodeId c = tree_->first_child(tree_->parent(s.node)); c != s.node; c = tree_->next_sibling(c))
          if (tree_->token(c) / kTile == tile) less[static_cast<std::size_t>(tree_->token(c) % kTile)] = 0;
      kernels().subtract(weights, less.data(), static_cast<float>(s.keep),
                         static_cast<float>(tree_->draft_scale(s.node)));
    }
  }

 private:
  /// Recomputes the masses of the tiles that have any.
  void remeasure() {
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      double& mass = masses_[static_cast<std::size_t>(t)];
      if (mass > 0) mass = tile_mass(*this, t);
    }
  }
  /// Masses after the first rejection, the common case: both rows in one pass, nothing stored.
  void first_difference(const Distribution& draft, double keep, double take) {
    const Exponent p(target_), q(draft);
    std::array<float, kTile> p_padding, q_padding;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      double& mass = masses_[static_cast<std::size_t>(t)];
      if (mass > 0)
        mass = kernels().difference(tile_at(target_.logits, vocab_, t, p_padding), p,
                                    tile_at(draft.logits, vocab_, t, q_padding), q, static_cast<float>(keep),
                                    static_cast<float>(take));
    }
  }

  std::int32_t vocab_;
  Distribution target_;
  const TokenTree* tree_ = nullptr;
  std::vector<Step> steps_;
  std::vector<double> masses_;  // (ceil(V / 512)), if measured_
  double total_ = 1;
  bool measured_ = false;
};

/// The residual that TargetDistributions::residual() hands out; its members are those of Residual. There is
/// one: once another is started, every member throws std::logic_error.
class ResidualView {
 public:
  /// Without a residual: every member throws.
  ResidualView() = default;
  ResidualView(Residual& residual, ViewGuard guard) : residual_(&residual), guard_(guard) {}

  const Residual::Step& last_step() const { return current().last_step(); }
  void redo(const TokenTree& tree, const Residual::Step& step) { current().redo(tree, step); }
  double reject(const TokenTree& tree, NodeId node, double weight = 1) {
    return current().reject(tree, node, weight);
  }
  const ResidualView& measured() {
    current().measured();
    return *this;
  }
  double total() const { return current().total(); }
  double prob(Token token) const { return current().prob(token); }

  std::int32_t vocab() const { return current().vocab(); }
  std::span<const double> tile_masses() const { return current().tile_masses(); }
  double operator()(Token token) const { return current()(token); }
  void fill(std::int32_t tile, float* weights) const { current().fill(tile, weights); }

 private:
  Residual& current() const {
    guard_.expect_valid("a residual", "another was started since");
    return *residual_;
  }
  Residual* residual_ = nullptr;
  ViewGuard guard_;
};

}  // namespace specula::detail
