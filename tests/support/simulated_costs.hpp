// SPDX-License-Identifier: MIT
// Models with simulated costs, for tests of cost-aware proposals.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <specula/specula.hpp>

#include "random.hpp"

namespace specula_test {

/// A bigram model: the row after a token is a row of a table.
class BigramModel {
 public:
  BigramModel(std::vector<float> table, std::int32_t vocab, std::int32_t capacity = 4096)
      : table_(std::move(table)), vocab_(vocab), capacity_(capacity) {
    const auto nodes = std::size_t{128};
    context_.reserve(static_cast<std::size_t>(capacity));
    nodes_.reserve(nodes);
    rows_.reserve(nodes * static_cast<std::size_t>(vocab));
  }
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t size() const { return static_cast<std::int32_t>(context_.size()); }
  std::int32_t capacity() const { return capacity_; }
  void append(specula::Tokens tokens) {
    nodes_.clear();
    context_.insert(context_.end(), tokens.begin(), tokens.end());
  }
  specula::LogitsView extend(specula::Tokens tokens, specula::Nodes) {
    rows_.clear();
    for (const specula::Token token : tokens) {
      nodes_.push_back(token);
      const auto row = table_.begin() + static_cast<std::ptrdiff_t>(token) * vocab_;
      rows_.insert(rows_.end(), row, row + vocab_);
    }
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), vocab_, vocab_};
  }
  void commit(specula::Nodes path) {
    for (const specula::NodeId n : path) context_.push_back(nodes_[static_cast<std::size_t>(n)]);
    nodes_.clear();
  }
  void truncate(std::int32_t n) {
    nodes_.clear();
    context_.resize(static_cast<std::size_t>(n));
  }

 private:
  std::vector<float> table_, rows_;  // (V, V), (nodes per call, V)
  std::vector<specula::Token> context_, nodes_;
  std::int32_t vocab_, capacity_;
};

/// A target's table and a draft's that resembles it, whose logits differ by `noise`.
struct Tables {
  std::vector<float> target, draft;
};
inline Tables similar_tables(std::int32_t vocab, double sharpness, double noise, std::uint64_t seed) {
  Random random(seed);
  Tables out;
  for (std::int32_t i = 0; i < vocab * vocab; ++i) {
    const double row_sharpness =
        sharpness * (0.3 + static_cast<double>(i / vocab % 7) / 4);  // some rows are more peaked
    const double l = -row_sharpness * std::log(random.uniform() + 1e-6);
    out.target.push_back(static_cast<float>(l));
    out.draft.push_back(static_cast<float>(l + noise * random.between(-1, 1)));
  }
  return out;
}

using Cost = std::function<double(std::int32_t)>;

/// A verifier whose usage() reports that a pass over n nodes took cost(n).
template <class V>
class SimulatedVerifier : public V {
 public:
  SimulatedVerifier(V verifier, Cost cost) : V(std::move(verifier)), cost_(std::move(cost)) {}
  template <class C>
  const specula::VerifyResult& run_round(const specula::TokenTree& tree, C& rng) {
    usage_.seconds += cost_(tree.size());
    usage_.nodes += tree.size();
    ++usage_.calls;
    return V::run_round(tree, rng);
  }
  const specula::Usage& usage() const noexcept { return usage_; }
  void set_cost(Cost cost) { cost_ = std::move(cost); }

 private:
  Cost cost_;
  specula::Usage usage_;
};

/// A drafter whose usage() does the same.
template <class D>
class SimulatedDrafter : public D {
 public:
  SimulatedDrafter(D drafter, Cost cost) : D(std::move(drafter)), cost_(std::move(cost)) {}
  specula::LogitsView extend(specula::Tokens tokens, specula::Nodes parents) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    usage_.seconds += cost_(n);
    usage_.nodes += n;
    ++usage_.calls;
    return D::extend(tokens, parents);
  }
  const specula::Usage& usage() const noexcept { return usage_; }

 private:
  Cost cost_;
  specula::Usage usage_;
};

struct Simulated {
  double rate = 0;   // tokens per simulated second
  double nodes = 0;  // proposed per round, without the root
  double mat = 0;
};

/// `rounds` rounds of a pipeline under simulated costs, after `warm` rounds of warm-up.
template <class Rule, class S>
Simulated simulate(const Tables& tables, Rule rule, S shape, const Cost& target_cost, const Cost& draft_cost,
                   int rounds, int warm = 0, const specula::SamplingParams& params = {}) {
  const auto vocab =
      static_cast<std::int32_t>(std::lround(std::sqrt(static_cast<double>(tables.target.size()))));
  BigramModel target(tables.target, vocab, 1 << 20), draft(tables.draft, vocab, 1 << 20);
  using V = specula::TreeVerifier<BigramModel, Rule>;
  using D = specula::ModelDrafter<BigramModel>;
  specula::Speculator run{SimulatedVerifier<V>(V{target, rule, params}, target_cost),
                          SimulatedDrafter<D>(D{draft}, draft_cost), shape};
  specula::PhiloxRandom rng(11);
  const std::vector<specula::Token> prompt{1, 2, 3};
  run.start(prompt);
  for (int i = 0; i < warm; ++i) run.step(rng);
  const specula::Stats before = run.stats();
  for (int i = 0; i < rounds; ++i) run.step(rng);
  const specula::Stats& now = run.stats();
  const double tokens = static_cast<double>(now.new_tokens - before.new_tokens);
  const double seconds =
      now.target.seconds - before.target.seconds + now.draft.seconds - before.draft.seconds;
  return {tokens / seconds, static_cast<double>(now.proposed - before.proposed) / rounds, tokens / rounds};
}

}  // namespace specula_test
