// SPDX-License-Identifier: MIT
// Random sources with fixed uniform draws, and comparison of a rule with its dense transcription.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <specula/distribution/random_source.hpp>

#include "dense_rules.hpp"

namespace specula_test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kLargestUniform = 1 - 0x1p-32;

/// Every uniform draw is the same number. Records the keys.
struct FixedUniforms {
  double uniform = 0;
  std::vector<specula::RandomKey> accepts = {}, draws = {};
  bool accept(double probability, const specula::RandomKey& key) {
    accepts.push_back(key);
    return uniform < probability;
  }
  template <class Weights>
  specula::Token draw(const Weights& weights, const specula::RandomKey& key) {
    draws.push_back(key);
    return specula::detail::draw_two_level(weights, uniform, uniform);
  }
};

/// `rule` on `tree` with the target's `rows`, (N, V).
template <class Rule, class Rng>
specula::VerifyResult run_rule(const Rule& rule, const specula::TokenTree& tree,
                               const std::vector<float>& rows, Rng& rng,
                               const specula::SamplingParams& params = {}) {
  specula::VerifyWorkspace workspace(tree.vocab(), tree.capacity());
  specula::VerifyResult out;
  const auto count = static_cast<std::int32_t>(rows.size()) / tree.vocab();
  decide_checked(
      rule, tree,
      specula::TargetDistributions({rows.data(), count, tree.vocab(), tree.vocab()}, params, workspace), rng,
      out);
  return out;
}

/// Which random proposals to compare a rule on.
struct Span {
  std::uint64_t seed;
  int cases;
  std::int32_t vocab_low, vocab_high, max_nodes;
  double least = 0.9;  // share of the results that must be comparable
};

/// Checks that `rule` gives the result of dense(case, uniform draws) for the same uniform draws, with every
/// arithmetic. Leaves out results that depend on rounding, which must be few.
template <class Rule, class DenseRule>
void compare(const Rule& rule, DenseRule dense, const Span& span, Mix mix) {
  static const specula::SamplingParams settings[] = {{},
                                                     {.temperature = 0.7f, .top_k = 3},
                                                     {.temperature = 1.4f, .top_p = 0.8f},
                                                     {.temperature = 0.9f, .min_p = 0.1f},
                                                     {.temperature = 0}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(span.seed);
    int compared = 0, accepted = 0, stopped = 0;
    for (int i = 0; i < span.cases; ++i) {
      const specula::SamplingParams& params = settings[i % 5];
      mix.nodes = 1 + random.below(span.max_nodes);
      const std::int32_t vocab = span.vocab_low + random.below(span.vocab_high - span.vocab_low + 1);
      const Case it = random_case(random, vocab, params, mix, static_cast<std::uint64_t>(i));
      const std::uint64_t seed = static_cast<std::uint64_t>(i) + 7000;
      DenseUniforms uniforms(seed);
      const specula::VerifyResult want = dense(it, uniforms);
      if (uniforms.margin < (isa == specula::Isa::reference ? 1e-11 : 1e-5)) continue;
      const specula::VerifyResult got = result_of(rule, it, params, seed);
      CAPTURE(i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
      ++compared, accepted += got.accepted_count(),
          stopped += it.tree.first_child(got.accepted.back()) != specula::kNoParent;
    }
    CHECK(compared > span.cases * span.least);
    CHECK(accepted > span.cases / 4);
    CHECK(stopped > span.cases / 10);
  }
}

/// Checks that a row which `rule` does not read may hold anything, and that NaN, infinities or an empty row
/// where it does read is an error that names the node. `asks`: 0 never reads, 1 always, 2 maybe.
template <class Rule, class Asks>
void check_rows_read(const Rule& rule, const Mix& mix, Asks asks) {
  Random random(11);
  int unread = 0, read = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Case it = random_case(random, 6, {}, mix, i);
    const specula::VerifyResult clean = result_of(rule, it, {}, i);
    std::vector<std::int32_t> must;
    for (specula::NodeId n = 0; n < it.tree.size(); ++n) {
      const int how = asks(it, clean, n);
      if (how == 1) must.push_back(n);
      if (how != 0) continue;
      std::fill_n(it.rows.begin() + 6 * n, 6, kNan);
      ++unread;
    }
    const specula::VerifyResult again = result_of(rule, it, {}, i);
    CHECK(again.accepted == clean.accepted);
    CHECK(again.next_token == clean.next_token);
    if (must.empty()) continue;
    const specula::NodeId bad =
        must[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(must.size())))];
    const std::string prefix = "the target's row after node " + std::to_string(bad) + ": a row of logits ";
    const auto at = static_cast<std::size_t>(6 * bad + random.below(6));
    for (const float value : {kNan, kInf}) {
      it.rows[at] = value;
      const std::string message = prefix + "holds NaN or +infinity at token " + std::to_string(at % 6);
      CHECK_THROWS_WITH_AS(result_of(rule, it, {}, i), message.c_str(), std::runtime_error);
    }
    std::fill_n(it.rows.begin() + 6 * bad, 6, -kInf);
    const std::string message = prefix + "is empty: none is above -infinity";
    CHECK_THROWS_WITH_AS(result_of(rule, it, {}, i), message.c_str(), std::runtime_error);
    ++read;
  }
  CHECK(unread > 100);
  CHECK(read > 150);
}

}  // namespace specula_test
