// labels: light
// AnyRule: type-erased acceptance rules.
#include <specula/any/any_rule.hpp>

#include <doctest/doctest.h>

#include <vector>

#include <specula/accept/lossy.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;
using Rule = AnyRule::Rule;

namespace {

/// The text under a rule, over proposals of this kind.
template <Draw mode, class R>
std::vector<Token> text_under(R rule) {
  ToyModel target(12, 7, 2.0f, 256), draft(12, 9, 1.0f, 256);
  Speculator run{TreeVerifier{target, rule, {.temperature = 0.9f}}, ModelDrafter{draft},
                 Chain<mode>{.length = 4}};
  PhiloxRandom rng(3);
  const std::vector<Token> prompt{1, 5, 2};
  run.generate(prompt, {.max_new_tokens = 80}, rng, [](Tokens) {});
  return {run.text().begin(), run.text().end()};
}

}  // namespace

TEST_CASE("an AnyRule is lossless for the kinds that its rule is lossless for") {
  const auto same = [](Rule chosen, auto rule) {
    for (const ProposalKind kind : {ProposalKind::deterministic, ProposalKind::sampled_distinct,
                                    ProposalKind::sampled_iid, ProposalKind::shared}) {
      CAPTURE(static_cast<int>(chosen));
      CAPTURE(static_cast<int>(kind));
      CHECK(AnyRule(chosen).is_lossless(kind) == rule.lossless_for(kind));
    }
  };
  same(Rule::sampling, Sampling{});
  same(Rule::token, Rejection{});
  same(Rule::block, Block{});
  same(Rule::traversal, Traversal{});
  same(Rule::match, SampleAndMatch{});
  same(Rule::k_seq, KSeq{});
  same(Rule::gumbel, GumbelCoupling{});
  same(Rule::lenient, Lenient{2});
  same(Rule::typical, Typical{});
  CHECK_THROWS_AS(AnyRule(Rule::lenient, 0.5), std::invalid_argument);
}

TEST_CASE("an AnyRule writes the text of its rule") {
  CHECK(text_under<Draw::sampled>(AnyRule(Rule::sampling)) == text_under<Draw::sampled>(Sampling{}));
  CHECK(text_under<Draw::sampled>(AnyRule(Rule::token)) == text_under<Draw::sampled>(Rejection{}));
  CHECK(text_under<Draw::sampled>(AnyRule(Rule::block)) == text_under<Draw::sampled>(Block{}));
  CHECK(text_under<Draw::greedy>(AnyRule(Rule::match)) == text_under<Draw::greedy>(SampleAndMatch{}));
  CHECK(text_under<Draw::shared>(AnyRule(Rule::gumbel)) == text_under<Draw::shared>(GumbelCoupling{}));
  CHECK(text_under<Draw::sampled>(AnyRule(Rule::lenient, 3)) ==
        text_under<Draw::sampled>(accept_lossy(Lenient{3})));
  CHECK(text_under<Draw::shared>(AnyRule(Rule::token)) ==
        text_under<Draw::shared>(accept_lossy(Rejection{})));
}
