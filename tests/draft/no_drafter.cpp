// SPDX-License-Identifier: MIT
// NoDrafter: plain decoding as a pipeline.
#include <specula/draft/no_drafter.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

TEST_CASE("NoDrafter has no draft tokens") {
  NoDrafter none(9);
  CHECK(none.vocab_size() == 9);
  const Token token = 1;
  const NodeId parent = kNoParent;
  none.sync({}, {});
  none.truncate(0);
  const PointMasses said = none.extend({&token, 1}, {&parent, 1});
  CHECK(said.tokens.size() == 1);
  CHECK(said.tokens[0] == kNoToken);
  CHECK_THROWS_WITH_AS(NoDrafter(0), "NoDrafter: the vocabulary is 0, must be in [1, 2147483647]",
                       std::invalid_argument);
}

TEST_CASE("a pipeline with NoDrafter is plain decoding: one call, one node, one token per round") {
  ToyModel target(9, 1);
  Speculator run{TreeVerifier{target, Sampling{}}, NoDrafter{9}, Chain<>{.length = 3}};
  PhiloxRandom rng(4);
  const std::vector<Token> prompt = {1, 2, 3};
  run.start(prompt);
  for (int i = 0; i < 20; ++i) CHECK(run.step(rng).size() == 1);
  CHECK(run.stats().target.calls == 20);
  CHECK(run.stats().target.nodes == 20);
  CHECK(run.stats().draft.calls == 0);
  CHECK(run.stats().proposed == 0);
  CHECK(run.stats().mat() == 1);
  // The text is that of drawing from the target's rows with the same uniform draws.
  std::vector<Token> text = prompt;
  detail::RowScan scan(9);
  std::vector<float> row(9);
  for (int i = 0; i < 20; ++i) {
    target.row(text[text.size() - 2], text.back(), row.data());
    const Distribution distribution = scan.distribution(row, {});
    text.push_back(rng.draw(scan.weights(distribution),
                            RandomKey{static_cast<std::int32_t>(text.size()), 0, RandomStream::sample, 0}));
  }
  CHECK(std::equal(text.begin(), text.end(), run.text().begin(), run.text().end()));
}
