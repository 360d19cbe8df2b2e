// SPDX-License-Identifier: MIT
// The facade specula/specula.hpp, and identical text for one seed.
#include <specula/specula.hpp>

#include <doctest/doctest.h>

#include "toy_model.hpp"

TEST_CASE("the facade suffices for a pipeline") {
  specula_test::ToyModel target(7, 1), draft(7, 2);
  specula::Speculator run{
      specula::TreeVerifier{target, specula::Sampling{}, specula::SamplingParams{.temperature = 0.8f}},
      specula::ModelDrafter{draft}, specula::Chain<specula::Draw::sampled>{.length = 3}};
  std::vector<specula::Token> text;
  const std::vector<specula::Token> prompt = {1, 2, 3};
  const specula::Generated done =
      run.generate(prompt, {.max_new_tokens = 20}, specula::PhiloxRandom{7},
                   [&](specula::Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  CHECK(done.tokens == 20);
  CHECK(done.reason == specula::FinishReason::limit);
  CHECK(text.size() == 20);
}

namespace {

using namespace specula;

/// How many of 40 seeds give the text, 16 tokens, of plain decoding under `Plain` with the same seed.
/// Proposals are deterministic.
template <class Rule, class Plain, class Shape>
int same_texts(Shape shape, float temperature) {
  constexpr std::int32_t kVocab = 6;
  int same = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    specula_test::ToyModel target(kVocab, seed), draft(kVocab, seed, 1.0f);
    const auto text = [&](auto rule, auto drafter, auto arrange) {
      Speculator run{TreeVerifier{target, rule, {.temperature = temperature}}, std::move(drafter), arrange};
      run.generate(std::vector<Token>{1, 2}, {.max_new_tokens = 16}, PhiloxRandom{seed}, [](Tokens) {});
      return std::vector<Token>(run.text().begin(), run.text().begin() + 18);
    };
    same += text(Plain{}, NoDrafter{kVocab}, Chain<>{}) == text(Rule{}, ModelDrafter{draft}, shape);
  }
  return same;
}

}  // namespace

TEST_CASE("one seed, one text: deterministic proposals under a rule that does not read q") {
  for (const float temperature : {0.0f, 0.9f}) {
    CHECK(same_texts<SampleAndMatch, SampleAndMatch>(Chain<>{}, temperature) == 40);
    CHECK(same_texts<Sampling, SampleAndMatch>(Cape{}, temperature) == 40);
    CHECK(same_texts<GumbelCoupling, GumbelCoupling>(Cape{}, temperature) == 40);
    CHECK(same_texts<Greedy, Greedy>(Cape{}, temperature) == 40);
  }
}

TEST_CASE("one seed, another text of the same distribution: Rejection and Traversal, above temperature 0") {
  CHECK(same_texts<Rejection, SampleAndMatch>(Chain<>{}, 0.9f) < 20);
  CHECK(same_texts<Traversal, SampleAndMatch>(Cape{}, 0.9f) < 20);
  CHECK(same_texts<Rejection, SampleAndMatch>(Chain<>{}, 0.0f) == 40);
  CHECK(same_texts<Traversal, SampleAndMatch>(Cape{}, 0.0f) == 40);
}
