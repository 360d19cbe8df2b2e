// SPDX-License-Identifier: MIT
// labels: optimised
// Rejection sampling on chains and trees, against a dense reference implementation.
#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include <string>

#include "dense_rules.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const SamplingParams kSettings[] = {{},
                                    {.temperature = 0.7f, .top_k = 3},
                                    {.temperature = 1.4f, .top_p = 0.8f},
                                    {.temperature = 0.9f, .min_p = 0.1f},
                                    {.temperature = 0}};

/// Every uniform draw is the same number.
struct Fixed {
  double uniform;
  int asked = 0;
  bool accept(double probability, const RandomKey&) { return ++asked, uniform < probability; }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey&) {
    return detail::draw_two_level(weights, uniform, uniform);
  }
};
constexpr double kLargest = 1 - 0x1p-32;

/// Records its keys, too.
struct RandomKeys : Fixed {
  std::vector<RandomKey> accepts, draws;
  bool accept(double p, const RandomKey& key) { return accepts.push_back(key), Fixed::accept(p, key); }
  template <class Weights>
  Token draw(const Weights& w, const RandomKey& key) {
    return draws.push_back(key), Fixed::draw(w, key);
  }
};

/// One draft token drawn from `q` under the root, verified against `p`.
struct OneDraftToken {
  std::vector<float> p, q;
  ProposalBuilder tree{static_cast<std::int32_t>(p.size()), 2, 2};

  template <class Rng>
  VerifyResult verify(Rng& rng, const SamplingParams& params = {}) {
    std::vector<float> rows = p;
    rows.insert(rows.end(), p.begin(), p.end());
    VerifyWorkspace workspace(tree.vocab(), 2);
    VerifyResult out;
    decide_checked(Rejection{}, tree,
                   TargetDistributions({rows.data(), 2, tree.vocab(), tree.vocab()}, params, workspace), rng,
                   out);
    return out;
  }
  Token draw(double uniform) {
    Fixed fixed{uniform};
    tree.reset(0, 3);
    tree.draw(0, tree.store(0, q, {}), fixed);
    return tree.token(1);
  }
};

void compare(std::uint64_t seed, int cases, std::int32_t vocab_low, std::int32_t vocab_high, Mix mix,
             std::int32_t max_nodes) {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(seed);
    int compared = 0, accepted = 0, rejected = 0;
    for (int i = 0; i < cases; ++i) {
      const SamplingParams& params = kSettings[i % 5];
      mix.nodes = 1 + random.below(max_nodes);
      const Case it = random_case(random, vocab_low + random.below(vocab_high - vocab_low + 1), params, mix,
                                  static_cast<std::uint64_t>(i));
      DenseUniforms uniforms(static_cast<std::uint64_t>(i) + 7000);
      const VerifyResult want = dense_rejection(it.dense, it.distributions, uniforms);
      if (uniforms.margin < (isa == Isa::reference ? 1e-11 : 1e-5)) continue;
      const VerifyResult got = result_of(Rejection{}, it, params, static_cast<std::uint64_t>(i) + 7000);
      CAPTURE(i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
      ++compared, accepted += got.accepted_count(),
          rejected += it.tree.first_child(got.accepted.back()) != kNoParent;
    }
    CHECK(compared > cases * 9 / 10);
    CHECK(accepted > cases / 4);
    CHECK(rejected > cases / 13);
  }
}

}  // namespace

TEST_CASE(
    "same uniform draws, same verification result as the dense rule: chains and trees of every growth") {
  compare(1, 300, 2, 9, {.wide = 0.0}, 8);
  compare(2, 300, 2, 9, {.wide = 0.5}, 20);
  compare(3, 200, 3, 9, {.distinct = false, .chooses = false, .wide = 0.6}, 20);
  compare(4, 200, 3, 9, {.draws = false, .chooses = false, .wide = 0.6}, 16);
}

TEST_CASE("the same where a row has several tiles") {
  compare(5, 60, 500, 1600, {.wide = 0.5, .spread = 9}, 10);
}

TEST_CASE("more than 32 siblings and more than 64 nodes") {
  Random random(6);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const ReferenceArithmetic reference;
    const Case it =
        random_case(random, 50, {}, {.nodes = 100, .draws = i % 2 == 0, .wide = 0.97, .spread = 1}, i);
    std::size_t siblings = 0;
    for (NodeId n = 0; n < it.tree.size(); ++n) siblings = std::max(siblings, it.dense.children(n).size());
    CHECK(it.tree.size() == 100);
    DenseUniforms uniforms(i);
    const VerifyResult want = dense_rejection(it.dense, it.distributions, uniforms),
                       got = result_of(Rejection{}, it, {}, i);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
  }
  // 40 children of the root, of which only the last is accepted.
  ProposalBuilder tree(64, 41, 0);
  tree.reset(0, 0);
  for (Token x = 1; x <= 40; ++x) tree.choose(0, x, 1);
  std::vector<float> rows(41 * 64, 0.0f);
  for (Token x = 0; x < 64; ++x) rows[static_cast<std::size_t>(x)] = x == 40 ? 0.0f : -kInf;
  VerifyWorkspace workspace(64, 41);
  PhiloxRandom rng(3);
  VerifyResult out;
  decide_checked(Rejection{}, tree, TargetDistributions({rows.data(), 41, 64, 64}, {}, workspace), rng, out);
  CHECK(out.accepted == std::vector<NodeId>{0, 40});
}

TEST_CASE("a uniform draw of 0 does not accept a token of target probability 0") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    OneDraftToken draft_token{{-kInf, 1, 2}, {5, 0, 0}};
    REQUIRE(draft_token.draw(0.0) == 0);
    Fixed zero{0.0};
    const VerifyResult result = draft_token.verify(zero);
    CHECK(result.accepted_count() == 0);
    CHECK(result.next_token == 1);  // the first token with mass left
  }
}

TEST_CASE("if q = p, draft tokens are accepted, even at the largest uniform draw") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> row = mixed_row(random, 1 + random.below(1200), i % 2 ? 1 : 12);
      OneDraftToken draft_token{row, row};
      draft_token.draw(random.uniform());
      Fixed largest{kLargest};
      CHECK(draft_token.verify(largest).accepted_count() == 1);
    }
  }
}

TEST_CASE("point masses against point masses") {
  ProposalBuilder tree(4, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 2, 1);
  tree.choose(1, 3, 1);
  const std::vector<float> rows = {0, 0, 1, 0, /**/ 1, 0, 0, 0, /**/ 0, 0, 0, 1};
  VerifyWorkspace workspace(4, 3);
  for (const double uniform : {0.0, 0.5, kLargest}) {
    Fixed fixed{uniform};
    VerifyResult out;
    decide_checked(Rejection{}, tree,
                   TargetDistributions({rows.data(), 3, 4, 4}, {.temperature = 0}, workspace), fixed, out);
    CHECK(out.accepted == std::vector<NodeId>{0, 1});  // 2 is always accepted, 3 always rejected
    CHECK(out.next_token == 0);
  }
}

TEST_CASE("a rejection that leaves no mass keeps p") {
  // A ratio just below 1 although q = p is hard to produce; a wrong uniform draw has the same effect.
  struct NeverAccepts : Fixed {
    bool accept(double, const RandomKey&) { return false; }
  };
  OneDraftToken draft_token{{0, 1, -kInf}, {0, 1, -kInf}};
  draft_token.draw(0.0);
  NeverAccepts never{{0.0}};
  CHECK(draft_token.verify(never).next_token == 0);
  NeverAccepts last{{kLargest}};
  CHECK(draft_token.verify(last).next_token == 1);
}

TEST_CASE("a proposal of the root alone, and a vocabulary of one token") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(5, 4, 0);
    tree.reset(2, 9);
    const std::vector<float> row = {0, 1, 2, 1, 0};
    VerifyWorkspace workspace(5, 4);
    PhiloxRandom rng(4);
    VerifyResult out;
    decide_checked(Rejection{}, tree, TargetDistributions({row.data(), 1, 5, 5}, {}, workspace), rng, out);
    CHECK(out.accepted == std::vector<NodeId>{0});
    detail::RowScan scan(5);
    CHECK(out.next_token ==
          rng.draw(scan.weights(scan.distribution(row, {})), RandomKey{10, 0, RandomStream::sample, 0}));

    ProposalBuilder one(1, 3, 3);  // a vocabulary of one token
    one.reset(0, 0);
    const std::vector<float> rows = {7, -3, 0};
    one.draw(0, one.store(0, std::span<const float>(rows).first(1), {}), rng);
    one.choose(1, 0, 1);
    VerifyWorkspace small(1, 3);
    decide_checked(Rejection{}, one, TargetDistributions({rows.data(), 3, 1, 1}, {}, small), rng, out);
    CHECK(out.accepted == std::vector<NodeId>{0, 1, 2});
    CHECK(out.next_token == 0);
  }
}

TEST_CASE("rows off the path are never read; a bad row on it is an error that names the node") {
  Random random(11);
  for (std::uint64_t i = 0; i < 200; ++i) {
    Case poisoned = random_case(random, 6, {}, {.nodes = 14, .wide = 0.5}, i);
    const VerifyResult clean = result_of(Rejection{}, poisoned, {}, i);
    std::vector<char> on_path(14, 0);
    for (const NodeId n : clean.accepted) on_path[static_cast<std::size_t>(n)] = 1;
    for (std::size_t n = 0; n < 14; ++n)
      if (!on_path[n]) std::fill_n(poisoned.rows.begin() + static_cast<std::ptrdiff_t>(6 * n), 6, kNan);
    const VerifyResult again = result_of(Rejection{}, poisoned, {}, i);
    CHECK(again.accepted == clean.accepted);
    CHECK(again.next_token == clean.next_token);

    const NodeId bad = clean.accepted[static_cast<std::size_t>(
        random.below(static_cast<std::int32_t>(clean.accepted.size())))];
    const auto at = static_cast<std::size_t>(6 * bad + random.below(6));
    for (const float value : {kNan, kInf}) {
      poisoned.rows[at] = value;
      const std::string message = "the target's row after node " + std::to_string(bad) +
                                  ": a row of logits holds NaN or +infinity at token " +
                                  std::to_string(at % 6);
      CHECK_THROWS_WITH_AS(result_of(Rejection{}, poisoned, {}, i), message.c_str(), std::runtime_error);
    }
    std::fill_n(poisoned.rows.begin() + 6 * bad, 6, -kInf);
    const std::string message = "the target's row after node " + std::to_string(bad) +
                                ": a row of logits is empty: none is above -infinity";
    CHECK_THROWS_WITH_AS(result_of(Rejection{}, poisoned, {}, i), message.c_str(), std::runtime_error);
  }
}

TEST_CASE("uniform draws: one per tested node, then one for the next token") {
  OneDraftToken draft_token{{0, 0, 0}, {0, 0, 0}};
  draft_token.draw(0.0);
  RandomKeys accepted{{0.5}, {}, {}};
  draft_token.verify(accepted);
  CHECK(accepted.accepts == std::vector<RandomKey>{{4, 3, RandomStream::accept, 1}});
  CHECK(accepted.draws == std::vector<RandomKey>{{5, 0, RandomStream::sample, 0}});
  draft_token.p = {-kInf, 0, 0};
  RandomKeys rejected{{0.5}, {}, {}};
  draft_token.verify(rejected);
  CHECK(rejected.accepts == std::vector<RandomKey>{{4, 3, RandomStream::accept, 1}});
  CHECK(rejected.draws == std::vector<RandomKey>{{4, 3, RandomStream::residual, 0}});
}
