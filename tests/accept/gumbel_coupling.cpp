// SPDX-License-Identifier: MIT
// labels: optimised
// GumbelCoupling: draft and target share Gumbel noise, so one seed gives one text.
#include <specula/accept/gumbel_coupling.hpp>

#include <doctest/doctest.h>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/lossy.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <cmath>
#include <map>

#include "exact_distribution.hpp"
#include "philox_of_arrays.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using SharedChain = Chain<Draw::shared>;

const std::vector<Token> kPrompt = {0, 1, 2};

/// The rule's text, computed independently of the library: argmax of log p(x) - log(-log u), u from word x %
/// 4 of the counter (position, 0, noise << 24 | x / 4, sequence).
std::vector<Token> plain_text(const ToyModel& target, const SamplingParams& params, std::uint32_t seed,
                              std::size_t tokens) {
  std::vector<Token> text = kPrompt;
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::vector<double> p = distribution_after(target, text, params);
    double best = -std::numeric_limits<double>::infinity();
    Token next = kNoToken;
    for (std::uint32_t x = 0; x < p.size(); ++x) {
      const auto words =
          specula_test::philox({static_cast<std::uint32_t>(text.size()), 0, 6u << 24 | x / 4, 0}, {seed, 0});
      const double u = (static_cast<double>(words[x % 4]) + 0.5) / 4294967296.0;
      const double score = std::log(p[x]) - std::log(-std::log(u));
      if (score > best) best = score, next = static_cast<Token>(x);
    }
    text.push_back(next);
  }
  return text;
}

struct Run {
  std::vector<Token> text;
  double mat;
};

template <class Rule, class D, class Shape>
Run run_of(ToyModel& target, Rule rule, const SamplingParams& params, D drafter, Shape shape,
           std::uint64_t seed, std::size_t tokens) {
  Speculator run{TreeVerifier{target, rule, params}, drafter, shape};
  PhiloxRandom rng(seed);
  run.start(kPrompt);
  while (run.text().size() < kPrompt.size() + tokens) run.step(rng);
  const Tokens text = run.text().first(kPrompt.size() + tokens);
  return {{text.begin(), text.end()}, run.stats().mat()};
}

/// Two draft tokens; none in the round after one that rejected the first while the second was token 0.
struct Quitter {
  static constexpr ProposalKind kind = ProposalKind::shared;
  bool quiet = false;
  NodeCounts nodes() const { return {3}; }
  void reset() { quiet = false; }
  void learn(const TokenTree& tree, const VerifyResult& result, const Timing&) {
    quiet = tree.size() == 3 && result.accepted_count() == 0 && tree.token(2) == 0;
  }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    if (!quiet) SharedChain{.length = 2}.propose(drafter, round, tree, rng).run();
  }
};

/// How far three tokens of a pipeline lie from the target's distribution, in standard deviations of a normal;
/// n texts.
template <class Rule, class Shape>
double deviation(Rule rule, Shape shape, std::uint64_t toy, int n) {
  ToyModel target(2, toy), draft(2, toy + 1);
  const std::vector<Token> prompt = {0, 1, 0, 1, 0};
  Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, shape};
  std::map<std::vector<Token>, int> counts;
  for (int i = 0; i < n; ++i) {
    PhiloxRandom rng(5, static_cast<std::uint32_t>(i));
    run.start(prompt);
    while (run.text().size() < prompt.size() + 3) run.step(rng);
    const Tokens text = run.text().first(prompt.size() + 3);
    ++counts[{text.begin(), text.end()}];
  }
  double chi = 0;
  for (int cell = 0; cell < 8; ++cell) {
    std::vector<Token> text = prompt;
    double p = 1;
    for (int i = 0; i < 3; ++i) {
      const Token x = cell >> i & 1;
      p *= distribution_after(target, text, {})[static_cast<std::size_t>(x)];
      text.push_back(x);
    }
    chi += (counts[text] - p * n) * (counts[text] - p * n) / (p * n);
  }
  const double k = 7;  // Wilson and Hilferty: (chi / k)^(1/3) is normal
  return (std::cbrt(chi / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
}

}  // namespace

TEST_CASE("one seed gives one text: that of plain decoding, for any drafter and shape") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 1.4f, .top_p = 0.8f}, {.temperature = 0}};
  constexpr std::size_t n = 16;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const SamplingParams& params = settings[seed % 4];
    ToyModel target(6, 1), twin(6, 1), other(6, 2), sure(6, 3, 8.0f);
    const std::vector<Token> want = plain_text(target, params, seed, n);
    const auto text = [&](auto drafter, auto shape) {
      return run_of(target, GumbelCoupling{}, params, drafter, shape, seed, n).text;
    };
    REQUIRE(text(NoDrafter{6}, Chain<>{}) == want);
    REQUIRE(text(ModelDrafter{twin}, SharedChain{.length = 3}) == want);
    for (const std::int32_t length : {1, 2, 5}) {
      REQUIRE(text(ModelDrafter{other}, SharedChain{.length = length}) == want);
      REQUIRE(text(ModelDrafter{sure}, SharedChain{.length = length, .exit_below = 0.3f}) == want);
    }
    REQUIRE(text(ModelDrafter{other}, Chain<Draw::greedy>{.length = 4}) == want);
    REQUIRE(text(ModelDrafter{other}, Chain<Draw::sampled>{.length = 4}) == want);
    REQUIRE(text(ModelDrafter{other}, Quitter{}) == want);
  }
}

TEST_CASE("the same with a vocabulary of two tiles, on every instruction set") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      const SamplingParams params = seed % 2 ? SamplingParams{.top_k = 40} : SamplingParams{};
      ToyModel target(700, 1, 6.0f), draft(700, 1, 4.0f);
      const std::vector<Token> want = plain_text(target, params, seed, 8);
      CHECK(run_of(target, GumbelCoupling{}, params, ModelDrafter{draft}, SharedChain{.length = 3}, seed, 8)
                .text == want);
      CHECK(run_of(target, GumbelCoupling{}, params, NoDrafter{700}, Chain<>{}, seed, 8).text == want);
    }
  }
}

TEST_CASE(
    "draft tokens drawn with shared noise are accepted more often than independent ones, and always if q = "
    "p") {
  double shared = 0, independent = 0;
  for (std::uint64_t toy = 1; toy <= 20; ++toy) {
    ToyModel target(6, toy, 3.0f), draft(6, toy, 2.0f),
        twin(6, toy, 3.0f);  // a draft with a flatter distribution
    shared +=
        run_of(target, GumbelCoupling{}, {}, ModelDrafter{draft}, SharedChain{.length = 4}, toy, 50).mat;
    independent +=
        run_of(target, SampleAndMatch{}, {}, ModelDrafter{draft}, Chain<Draw::sampled>{.length = 4}, toy, 50)
            .mat;
    CHECK(run_of(target, GumbelCoupling{}, {}, ModelDrafter{twin}, SharedChain{.length = 4}, toy, 50).mat ==
          5);
  }
  CHECK(shared / 20 > 3);
  CHECK(shared > 1.5 * independent);
}

TEST_CASE(
    "keeps the target's distribution: three tokens, n 20,000, alpha 1e-4, whatever the shape learns from "
    "rejected "
    "draft tokens") {
  for (std::uint64_t toy = 1; toy <= 3; ++toy) {
    CHECK(std::abs(deviation(GumbelCoupling{}, SharedChain{.length = 3}, toy, 20000)) < 3.89);
    CHECK(std::abs(deviation(GumbelCoupling{}, Quitter{}, toy, 20000)) < 3.89);
    CHECK(std::abs(deviation(SampleAndMatch{}, SharedChain{.length = 3}, toy, 20000)) < 3.89);
  }
}

TEST_CASE("rules that read q are biased by noise that is used again in the next round: n 20,000") {
  // Block decides from the leaf, so the second draft token influences where the round ends; its noise is then
  // used again.
  CHECK(deviation(accept_lossy(Block{}), SharedChain{.length = 3}, 1, 20000) > 8);
  CHECK(deviation(accept_lossy(Block{}), SharedChain{.length = 3}, 3, 20000) > 8);
  // Rejection decides from the root; but a draft token that it never tested may change the next proposal.
  CHECK(deviation(accept_lossy(Rejection{}), Quitter{}, 1, 20000) > 6);
  CHECK(deviation(accept_lossy(Rejection{}), Quitter{}, 3, 20000) > 6);
  static_assert(
      !Rejection::lossless_for(ProposalKind::shared) && !Block::lossless_for(ProposalKind::shared) &&
      !Traversal::lossless_for(ProposalKind::shared) && !Lenient::lossless_for(ProposalKind::shared));
  static_assert(GumbelCoupling::lossless_for(ProposalKind::shared) &&
                GumbelCoupling::lossless_for(ProposalKind::mixed));
}

TEST_CASE(
    "a distribution of one token uses no noise; of two children with the same token, the first is accepted") {
  ProposalBuilder tree(3, 4, 0);
  tree.reset(0, 5);
  tree.choose(0, 1, 1);
  tree.choose(0, 1, 1);
  tree.choose(2, 1, 1);
  const std::vector<float> rows = {0, 9, 0, /**/ 9, 0, 0, /**/ 0, 9, 0, /**/ 0, 0, 9};
  VerifyWorkspace workspace(3, 4);
  PhiloxRandom rng(1);
  VerifyResult out;
  decide_checked(GumbelCoupling{}, tree,
                 TargetDistributions({rows.data(), 4, 3, 3}, {.temperature = 0}, workspace), rng, out);
  CHECK(out.accepted == std::vector<NodeId>{0, 1});
  CHECK(out.next_token == 0);
}
