// SPDX-License-Identifier: MIT
// Reference acceptance rules over dense rows of doubles, transcribed from their definitions. The library's
// rules are compared with them for the same uniform draws, on the random proposals below.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <specula/accept/target_distributions.hpp>
#include <specula/base/rows.hpp>
#include <specula/distribution/random_source.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

namespace specula_test {

using Dense = std::vector<double>;

/// A proposal as plain vectors: per node its token, its parent, and its q given its earlier siblings.
struct DenseTree {
  std::vector<specula::Token> token;
  std::vector<specula::NodeId> parent;
  std::vector<Dense> q;  // (N, V)
  std::int32_t origin = 0;

  std::vector<specula::NodeId> children(specula::NodeId node) const {
    std::vector<specula::NodeId> out;
    for (std::size_t c = 1; c < parent.size(); ++c)
      if (parent[c] == node) out.push_back(static_cast<specula::NodeId>(c));
    return out;
  }
  std::int32_t depth(specula::NodeId node) const {
    return node == 0 ? 0 : 1 + depth(parent[static_cast<std::size_t>(node)]);
  }
};

/// Philox uniform draws over dense weights. Records the margin: how near any uniform draw came to a
/// decision boundary, in units of the distribution's mass. Float rounding may put a draw on the other
/// side of a nearer boundary.
class DenseUniforms {
 public:
  explicit DenseUniforms(std::uint64_t seed) : philox_(seed) {}

  bool accept(double probability, const specula::RandomKey& key, double left = 1) {
    const double uniform = word(key, 0);
    const double distance = std::abs(uniform - probability);
    if (probability > 0 && probability != 1 && std::isfinite(probability))
      margin = std::min(margin, distance * left);
    return uniform < probability;
  }
  specula::Token draw(const Dense& w, const specula::RandomKey& key, double left = 1) {
    Dense tiles((w.size() + 511) / 512);
    double total = 0;
    for (std::size_t x = 0; x < w.size(); ++x) tiles[x / 512] += w[x], total += w[x];
    const std::size_t tile = pick(tiles, word(key, 0), left / total);
    const auto begin = w.begin() + static_cast<std::ptrdiff_t>(tile * 512);
    const Dense inside(
        begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(512, w.size() - tile * 512)));
    return static_cast<specula::Token>(tile * 512 + pick(inside, word(key, 1), left / total));
  }

  /// Records the margin of a decision that no uniform draw made.
  void near(double distance) { margin = std::min(margin, distance); }

  double margin = 1;

 private:
  double word(const specula::RandomKey& key, std::size_t i) const {
    return static_cast<double>(philox_.words(key)[i]) * 0x1p-32;
  }
  std::size_t pick(const Dense& w, double uniform, double scale) {
    double total = 0, seen = 0;
    for (const double x : w) total += x;
    std::size_t last = w.size();
    double nearest = total;
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (!(w[i] > 0)) continue;
      if (seen > 0) nearest = std::min(nearest, std::abs(uniform * total - seen));
      seen += w[i], last = i;
      if (uniform * total < seen) break;
    }
    if (seen < total) nearest = std::min(nearest, std::abs(uniform * total - seen));
    margin = std::min(margin, nearest * scale);
    return last;
  }

  specula::PhiloxRandom philox_;
};

inline specula::RandomKey sample_key(const DenseTree& tree, specula::NodeId node) {
  return {tree.origin + tree.depth(node) + 1, 0, specula::RandomStream::sample, 0};
}
inline specula::RandomKey residual_key(const DenseTree& tree, specula::NodeId node) {
  return {tree.origin + tree.depth(node) + 1, tree.origin, specula::RandomStream::residual, 0};
}
inline specula::RandomKey accept_key(const DenseTree& tree, specula::NodeId node) {
  return {tree.origin + tree.depth(node), tree.origin, specula::RandomStream::accept,
          static_cast<std::uint32_t>(node)};
}

/// Sample-and-match: y ~ p, continuing while y is a child. `distributions` holds p after each node, (N, V).
inline specula::VerifyResult dense_match(const DenseTree& tree, const std::vector<Dense>& distributions,
                                         DenseUniforms& uniforms) {
  specula::VerifyResult out;
  out.clear();
  for (bool more = true; more;) {
    const specula::NodeId at = out.accepted.back();
    const Dense& p = distributions[static_cast<std::size_t>(at)];
    const auto sure = std::find(p.begin(), p.end(), 1.0);
    out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                     : uniforms.draw(p, sample_key(tree, at));
    more = false;
    for (const specula::NodeId c : tree.children(at))
      if (!more && tree.token[static_cast<std::size_t>(c)] == out.next_token)
        out.accepted.push_back(c), more = true;
  }
  return out;
}

/// Rejection, children in order: accept with min(1, lenience p / q), else p <- norm((p - q / lenience)+).
inline specula::VerifyResult dense_rejection(const DenseTree& tree, const std::vector<Dense>& distributions,
                                             DenseUniforms& uniforms, double lenience = 1) {
  specula::VerifyResult out;
  out.clear();
  for (bool more = true; more;) {
    const specula::NodeId at = out.accepted.back();
    Dense p = distributions[static_cast<std::size_t>(at)];
    bool rejected = false;
    double left = 1;  // remaining mass of p, the divisor of float errors
    more = false;
    for (const specula::NodeId c : tree.children(at)) {
      const auto x = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(c)]);
      const Dense& q = tree.q[static_cast<std::size_t>(c)];
      if (uniforms.accept(lenience * p[x] / q[x], accept_key(tree, c),
                          left * std::min(1.0, q[x] / lenience))) {
        out.accepted.push_back(c);
        more = true;
        break;
      }
      Dense next(p.size());
      double total = 0;
      for (std::size_t i = 0; i < p.size(); ++i) total += next[i] = std::max(0.0, p[i] - q[i] / lenience);
      rejected = true;
      if (!(total > 0)) continue;
      for (double& w : next) w /= total;
      left *= std::min(1.0, total);
      p = next;
    }
    if (more) continue;
    const auto sure = std::find(p.begin(), p.end(), 1.0);
    if (rejected)
      out.next_token = uniforms.draw(p, residual_key(tree, at), left);
    else
      out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                       : uniforms.draw(p, sample_key(tree, at));
  }
  return out;
}

inline double dense_sum(const Dense& w) {
  double sum = 0;
  for (const double x : w) sum += x;
  return sum;
}

/// (weight * p - q)+.
inline Dense dense_residual(const Dense& p, const Dense& q, double weight) {
  Dense out(p.size());
  for (std::size_t x = 0; x < p.size(); ++x) out[x] = std::max(0.0, weight * p[x] - q[x]);
  return out;
}

/// Block verification of one path: the longest prefix i whose own uniform draw is below
/// h_i, then norm((P_i p - q)+).
inline specula::VerifyResult dense_block(const DenseTree& tree, const std::vector<Dense>& distributions,
                                         DenseUniforms& uniforms) {
  specula::VerifyResult out;
  out.clear();
  const std::size_t last = tree.token.size() - 1;
  std::size_t taken = 0;
  double weight = 1, weight_taken = 1;
  double error = 0;  // error of the weight, in units of a row's error: the divisor of margins
  for (std::size_t i = 1; i <= last; ++i) {
    const auto x = static_cast<std::size_t>(tree.token[i]);
    const double ratio = distributions[i - 1][x] / tree.q[i][x];
    error = error * ratio + weight / tree.q[i][x];
    if (weight * ratio > 1 + 1e-5 * error) error = 0;
    weight = std::min(1.0, weight * ratio);
    double h = weight, scale = 1 / (1 + error);
    if (i < last) {
      const double s = dense_sum(dense_residual(distributions[i], tree.q[i + 1], weight));
      h = s > 0 ? s / (s + 1 - weight) : 0;
      scale *= std::min(1.0, s + 1 - weight);
      if (s > 0) uniforms.near(s + 1 - weight);
    }
    const auto node = static_cast<specula::NodeId>(i);
    if (h > 0 && uniforms.accept(h, accept_key(tree, node), scale)) taken = i, weight_taken = weight;
  }
  for (std::size_t i = 1; i <= taken; ++i) out.accepted.push_back(static_cast<specula::NodeId>(i));
  const auto node = static_cast<specula::NodeId>(taken);
  const Dense& p = distributions[taken];
  const auto sure = std::find(p.begin(), p.end(), 1.0);
  if (taken < last) {
    const Dense left = dense_residual(p, tree.q[taken + 1], weight_taken);
    const double s = dense_sum(left);
    out.next_token =
        s > 0 ? uniforms.draw(left, residual_key(tree, node), s) : uniforms.draw(p, residual_key(tree, node));
  } else {
    out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                     : uniforms.draw(p, sample_key(tree, node));
  }
  return out;
}

/// Traversal, leaf to root. True if `node` or a node below it was accepted; then `out` is the result.
/// `error` is the error of `weight`, in units of a row's error.
inline bool dense_traversal_at(const DenseTree& tree, const std::vector<Dense>& distributions,
                               DenseUniforms& uniforms, specula::NodeId node, double weight, double error,
                               specula::VerifyResult& out) {
  Dense p = distributions[static_cast<std::size_t>(node)];
  double p_error = 1;
  const std::vector<specula::NodeId> children = tree.children(node);
  for (const specula::NodeId c : children) {
    const auto x = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(c)]);
    const Dense& q = tree.q[static_cast<std::size_t>(c)];
    const double product = weight * p[x] / q[x];
    double product_error = (error * p[x] + weight * p_error) / q[x];
    if (product > 1 + 1e-5 * product_error || p[x] == 0) product_error = 0;
    if (dense_traversal_at(tree, distributions, uniforms, c, std::min(1.0, product), product_error, out))
      return true;
    const Dense left = dense_residual(p, q, weight);
    const double s = dense_sum(left);
    if (s > 0) {
      const double s_error = error + weight * p_error + 1, part = s + 1 - weight;
      uniforms.near(s / s_error);
      p = left;
      for (double& w : p) w /= s;
      p_error = 2 * s_error / s;
      error = (s_error * (1 - weight) + s * error) / (part * part);
      weight = s / part;
    } else {
      weight = error = 0;
    }
  }
  if (node != 0 && !(weight > 0 && uniforms.accept(weight, accept_key(tree, node), 1 / (1 + error))))
    return false;
  out.accepted.clear();
  for (specula::NodeId n = node; n != specula::kNoParent; n = tree.parent[static_cast<std::size_t>(n)])
    out.accepted.insert(out.accepted.begin(), n);
  const auto sure = std::find(p.begin(), p.end(), 1.0);
  if (!children.empty())
    out.next_token = uniforms.draw(p, residual_key(tree, node), 1 / p_error);
  else
    out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                     : uniforms.draw(p, sample_key(tree, node));
  return true;
}
inline specula::VerifyResult dense_traversal(const DenseTree& tree, const std::vector<Dense>& distributions,
                                             DenseUniforms& uniforms) {
  specula::VerifyResult out;
  dense_traversal_at(tree, distributions, uniforms, 0, 1, 0, out);
  return out;
}

/// K-SEQ's rho in [1, k] with 1 - (1 - b)^k = rho b, b = sum min(q, p / rho), by bisection.
inline double dense_rho(const Dense& p, const Dense& q, std::size_t k) {
  double low = 1, high = static_cast<double>(k);
  for (int i = 0; i < 200; ++i) {
    const double rho = (low + high) / 2;
    double b = 0;
    for (std::size_t x = 0; x < p.size(); ++x) b += std::min(q[x], p[x] / rho);
    (1 - std::pow(1 - b, static_cast<double>(k)) > rho * b ? low : high) = rho;
  }
  return low;
}

/// K-SEQ, independent siblings: each is accepted with min(1, p / (rho q)), else norm((p
/// - rho q)+) after the last.
inline specula::VerifyResult dense_k_seq(const DenseTree& tree, const std::vector<Dense>& distributions,
                                         DenseUniforms& uniforms) {
  specula::VerifyResult out;
  out.clear();
  for (bool more = true; more;) {
    const specula::NodeId at = out.accepted.back();
    const Dense& p = distributions[static_cast<std::size_t>(at)];
    const std::vector<specula::NodeId> children = tree.children(at);
    more = false;
    const auto sure = std::find(p.begin(), p.end(), 1.0);
    if (children.empty()) {
      out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                       : uniforms.draw(p, sample_key(tree, at));
      continue;
    }
    const Dense& q = tree.q[static_cast<std::size_t>(children[0])];
    const double rho = dense_rho(p, q, children.size());
    // An error of the equation shifts its root by that error over the slope.
    const auto k = static_cast<double>(children.size());
    double b = 0, slope = 0;
    for (std::size_t x = 0; x < p.size(); ++x) {
      b += std::min(q[x], p[x] / rho);
      if (p[x] < rho * q[x]) slope += p[x] / rho / rho;
    }
    slope = b - rho * slope + k * std::pow(1 - b, k - 1) * slope;
    double sharp = children.size() == 1 ? 1 : std::min(1.0, slope);
    // Where p is nearly one token and q too, the equation is flat around its root: a rule may return any rho
    // that solves it within the rule's tolerance.
    const double tolerance = specula::detail::isa() == specula::Isa::reference ? 1e-14 : 1e-7;
    const auto solves = [&](double root) {
      double mass = 0;
      for (std::size_t x = 0; x < p.size(); ++x) mass += std::min(q[x], p[x] / root);
      return std::abs(1 - std::pow(1 - mass, k) - root * mass) <= 2 * tolerance;
    };
    for (double reach = tolerance; reach < k && children.size() > 1; reach *= 2)
      if (solves(rho + reach) || (rho - reach >= 1 && solves(rho - reach)))
        sharp = std::min(sharp, tolerance / reach);
    for (const specula::NodeId c : children) {
      const auto x = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(c)]);
      if (more) break;
      if (!uniforms.accept(p[x] / (rho * q[x]), accept_key(tree, c), sharp * std::min(1.0, q[x]))) continue;
      out.accepted.push_back(c);
      more = true;
    }
    if (more) continue;
    const Dense left = dense_residual(p, q, 1 / rho);
    const double s = dense_sum(left);
    out.next_token = s > 0 ? uniforms.draw(left, residual_key(tree, at), s * sharp)
                           : uniforms.draw(p, residual_key(tree, at));
  }
  return out;
}

/// Typical acceptance: a child is accepted iff its parent is and p(x) > min(epsilon, delta exp(-H(p))); the
/// deepest node wins, then the first.
inline specula::VerifyResult dense_typical(const DenseTree& tree, const std::vector<Dense>& distributions,
                                           DenseUniforms& uniforms, double epsilon, double delta) {
  std::vector<char> accepted(tree.token.size(), 1);
  specula::NodeId deepest = 0;
  for (std::size_t n = 1; n < tree.token.size(); ++n) {
    const auto parent = static_cast<std::size_t>(tree.parent[n]);
    const Dense& p = distributions[parent];
    double entropy = 0;
    for (const double x : p)
      if (x > 0) entropy -= x * std::log(x);
    const double least = std::min(epsilon, delta * std::exp(-entropy));
    const double prob = p[static_cast<std::size_t>(tree.token[n])];
    accepted[n] = accepted[parent] && prob > least;
    if (accepted[parent] && prob > 0) uniforms.near(std::abs(prob - least));
    if (accepted[n] && tree.depth(static_cast<specula::NodeId>(n)) > tree.depth(deepest))
      deepest = static_cast<specula::NodeId>(n);
  }
  specula::VerifyResult out;
  for (specula::NodeId n = deepest; n != specula::kNoParent; n = tree.parent[static_cast<std::size_t>(n)])
    out.accepted.insert(out.accepted.begin(), n);
  const Dense& p = distributions[static_cast<std::size_t>(deepest)];
  const auto sure = std::find(p.begin(), p.end(), 1.0);
  out.next_token = sure != p.end() ? static_cast<specula::Token>(sure - p.begin())
                                   : uniforms.draw(p, sample_key(tree, deepest));
  return out;
}

/// Greedy: a child is accepted iff it is the first largest logit of its parent's row.
inline specula::VerifyResult dense_greedy(const DenseTree& tree,
                                          const std::vector<std::vector<float>>& rows) {
  specula::VerifyResult out;
  out.clear();
  for (bool more = true; more;) {
    const std::vector<float>& row = rows[static_cast<std::size_t>(out.accepted.back())];
    out.next_token = static_cast<specula::Token>(std::max_element(row.begin(), row.end()) - row.begin());
    more = false;
    for (const specula::NodeId c : tree.children(out.accepted.back()))
      if (!more && tree.token[static_cast<std::size_t>(c)] == out.next_token)
        out.accepted.push_back(c), more = true;
  }
  return out;
}

/// Parameters of a random proposal.
struct Mix {
  std::int32_t nodes = 10;
  bool draws = true, distinct = true, chooses = true;
  double wide = 0.3;  // how often the parent is an early node
  double spread = 3;
  float (*round)(float) = nullptr;  // rounds logits to the device's type; null: float
};

/// A proposal, its dense copy, and the target's rows.
struct Case {
  specula::ProposalBuilder tree;
  DenseTree dense;
  std::vector<float> rows;  // (N, V)
  std::vector<std::vector<float>> row;
  std::vector<Dense> distributions;  // (N, V)

  specula::LogitsView view() const { return {rows.data(), tree.size(), tree.vocab(), tree.vocab()}; }
};

/// Grows a random proposal, in all ways that ProposalBuilder has, and random target rows for it. The children
/// of a node are drawn from one row, some of them from a point mass. Draft rows resemble the target's, so
/// that some tokens are accepted.
inline Case random_case(Random& random, std::int32_t vocab, const specula::SamplingParams& params,
                        const Mix& mix, std::uint64_t seed) {
  Case out{specula::ProposalBuilder(vocab, mix.nodes, mix.nodes), {}, {}, {}, {}};
  specula::PhiloxRandom uniforms(seed);
  const std::int32_t origin = random.below(1000);
  out.tree.reset(random.below(vocab), origin);
  out.dense.origin = origin;
  out.dense.token.push_back(out.tree.token(0));
  out.dense.parent.push_back(specula::kNoParent);
  out.dense.q.emplace_back();
  std::vector<std::vector<float>> draft;
  std::vector<specula::Distribution> stored(static_cast<std::size_t>(mix.nodes));
  const auto add_rows = [&] {
    std::vector<float> p, q;
    const auto fill = [&](bool structured) {
      p = structured ? mixed_row(random, vocab, mix.spread, 0.2, 0.1, !mix.round)
                     : random.row(vocab, mix.spread, 0.2, 0.1);
      if (vocab > 512 && random.bernoulli(0.5)) random.move_tiles(p);
      q = p;
      for (float& l : q) l += static_cast<float>(random.between(-1, 1));
      if (random.bernoulli(0.1)) q = p;  // a draft that is the target
      for (std::vector<float>* row : {&p, &q})
        if (mix.round)
          for (float& l : *row) l = mix.round(l);
    };
    // Where rounding decides what a truncation keeps, results may differ.
    const auto near = [&](const std::vector<float>& row) {
      return params.truncates() && !params.greedy() && by_sorting(row, params, 1e-5).near;
    };
    fill(true);
    if (near(p) || near(q)) fill(false);
    out.row.push_back(p);
    out.distributions.push_back(plain_distribution(p, params));
    draft.push_back(q);
  };
  add_rows();
  while (out.tree.room() > 0) {
    const std::int32_t n = out.tree.size();
    const specula::NodeId parent = random.bernoulli(mix.wide) ? random.below(std::max(1, n / 3)) : n - 1;
    const auto at = static_cast<std::size_t>(parent);
    specula::Distribution& distribution = stored[at];
    if (distribution.logits == nullptr)
      distribution = out.tree.store(parent, draft[at], params.greedy() ? specula::SamplingParams{} : params);
    Dense q = plain_distribution(draft[at], params.greedy() ? specula::SamplingParams{} : params);
    const int how = random.below(3);
    specula::NodeId added = specula::kNoParent;
    if (how == 0 && mix.draws) {
      added = out.tree.draw(parent, distribution, uniforms);
    } else if (how == 1 && mix.distinct) {
      double total = 0;
      for (const specula::NodeId c : out.dense.children(parent))
        q[static_cast<std::size_t>(out.dense.token[static_cast<std::size_t>(c)])] = 0;
      for (const double x : q) total += x;
      for (double& x : q) x /= total;
      added = out.tree.draw_distinct(parent, distribution, uniforms);
    } else if (how == 2 && mix.chooses) {
      const auto largest = std::max_element(out.row[at].begin(), out.row[at].end()) - out.row[at].begin();
      const specula::Token token =
          random.bernoulli(0.5) ? random.below(vocab) : static_cast<specula::Token>(largest);
      q.assign(q.size(), 0.0);
      q[static_cast<std::size_t>(token)] = 1;
      added = out.tree.choose(parent, token, 0.5f);
    }
    if (added == specula::kNoParent) {
      // no node may have a distinct token left
      if (!mix.draws && !mix.chooses && random.bernoulli(0.2)) break;
      continue;
    }
    out.dense.token.push_back(out.tree.token(added));
    out.dense.parent.push_back(parent);
    out.dense.q.push_back(std::move(q));
    add_rows();
  }
  for (const std::vector<float>& row : out.row) out.rows.insert(out.rows.end(), row.begin(), row.end());
  return out;
}

/// The library's result of `rule` on `it`, for the same uniform draws as DenseUniforms(seed).
template <class Rule>
specula::VerifyResult result_of(const Rule& rule, const Case& it, const specula::SamplingParams& params,
                                std::uint64_t seed) {
  specula::VerifyWorkspace workspace(it.tree.vocab(), it.tree.size());
  specula::PhiloxRandom rng(seed);
  specula::VerifyResult out;
  decide_checked(rule, it.tree, specula::TargetDistributions(it.view(), params, workspace), rng, out);
  return out;
}

}  // namespace specula_test
