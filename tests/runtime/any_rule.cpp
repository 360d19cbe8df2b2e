// SPDX-License-Identifier: MIT
// labels: optimised
// AnyRule: type-erased acceptance rules.
#include <specula/runtime/any_rule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/accept/lossy.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

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

TEST_CASE("an AnyRule writes the text of its rule") {
  using OfChosen = AnyRule<ProposalKind::deterministic>;
  using OfSampled = AnyRule<ProposalKind::sampled>;
  using OfShared = AnyRule<ProposalKind::shared>;
  CHECK(text_under<Draw::sampled>(OfSampled(RuleName::sampling)) == text_under<Draw::sampled>(Sampling{}));
  CHECK(text_under<Draw::sampled>(OfSampled(RuleName::token)) == text_under<Draw::sampled>(Rejection{}));
  CHECK(text_under<Draw::sampled>(OfSampled(RuleName::block)) == text_under<Draw::sampled>(Block{}));
  CHECK(text_under<Draw::greedy>(OfChosen(RuleName::match)) == text_under<Draw::greedy>(SampleAndMatch{}));
  CHECK(text_under<Draw::shared>(OfShared(RuleName::gumbel)) == text_under<Draw::shared>(GumbelCoupling{}));
  CHECK(text_under<Draw::sampled>(OfSampled::accept_lossy(RuleName::lenient, 3)) ==
        text_under<Draw::sampled>(accept_lossy(Lenient{3})));
  CHECK(text_under<Draw::sampled>(OfSampled::accept_lossy(RuleName::typical)) ==
        text_under<Draw::sampled>(accept_lossy(Typical{})));
  CHECK(text_under<Draw::shared>(OfShared::accept_lossy(RuleName::token)) ==
        text_under<Draw::shared>(accept_lossy(Rejection{})));
}

TEST_CASE(
    "the first token under any AnyRule that can be made without accept_lossy() has the target's "
    "distribution") {
  constexpr std::int32_t kVocab = 4;
  constexpr int kTexts = 20000;
  const std::vector<Token> prompt{1, 2};
  ToyModel target(kVocab, 1, 2.0f), draft(kVocab, 5, 2.0f);
  std::array<float, kVocab> row{};
  target.row(1, 2, row.data());
  detail::RowScan scan(kVocab);
  const Distribution want = scan.distribution(row, {});
  const auto farthest = [&]<Draw mode>(AnyRule<Chain<mode>::kind> rule) {
    Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, Chain<mode>{.length = 2}};
    std::array<int, kVocab> counts{};
    for (int text = 0; text < kTexts; ++text) {
      PhiloxRandom rng(7, static_cast<std::uint32_t>(text));
      run.start(prompt);
      ++counts[static_cast<std::size_t>(run.step(rng).front())];
    }
    double most = 0;
    for (Token x = 0; x < kVocab; ++x)
      most = std::max(most, std::abs(counts[static_cast<std::size_t>(x)] / double{kTexts} - double{want(x)}));
    return most;
  };
  const auto check = [&]<Draw mode>() {
    for (int name = 0; name <= static_cast<int>(RuleName::typical); ++name) {
      const auto rule = static_cast<RuleName>(name);
      using Rule = AnyRule<Chain<mode>::kind>;
      CAPTURE(name_of(rule));
      CAPTURE(static_cast<int>(mode));
      if (is_lossless(rule, Chain<mode>::kind))
        CHECK(farthest.template operator()<mode>(Rule(rule)) < 0.02);  // 5 standard deviations
      else
        CHECK_THROWS_AS(Rule{rule}, std::invalid_argument);
    }
  };
  check.template operator()<Draw::greedy>();
  check.template operator()<Draw::sampled>();
  check.template operator()<Draw::shared>();
  const double typical = farthest.template operator()<Draw::sampled>(
      AnyRule<ProposalKind::sampled>::accept_lossy(RuleName::typical));
  CHECK(typical > 0.1);  // what the constructor keeps out
}
