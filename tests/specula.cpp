#include <doctest/doctest.h>
#include <specula/specula.hpp>

#include "toy_model.hpp"

TEST_CASE("one header brings a pipeline") {
  specula_test::ToyModel target(7, 1), draft(7, 2);
  specula::Speculator run{
      specula::TreeVerifier{target, specula::Sampling{}, specula::SamplingParams{.temperature = 0.8f}},
      specula::ModelDrafter{draft}, specula::Chain<specula::Draw::sampled>{.length = 3}};
  std::vector<specula::Token> text;
  const std::vector<specula::Token> prompt = {1, 2, 3};
  const specula::Generated done =
      run.generate(prompt, {.max_new_tokens = 20}, specula::PhiloxChance{7},
                   [&](specula::Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  CHECK(done.tokens == 20);
  CHECK(done.reason == specula::FinishReason::limit);
  CHECK(text.size() == 20);
}
