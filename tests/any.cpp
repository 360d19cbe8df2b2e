// SPDX-License-Identifier: MIT
// any.hpp suffices for a text whose models, drafter, rule and shape are all chosen at run time.
#include <specula/any.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;

TEST_CASE("a text of chosen parts is that of the same parts by their types") {
  specula_test::ToyModel one(5, 1), draft(5, 2), same(5, 1), same_draft(5, 2);
  const Chain<Draw::sampled> chain{.length = 3};
  Speculator known{TreeVerifier{one, Rejection{}}, ModelDrafter{draft}, chain};
  AnyModel target(same), small(same_draft);
  Speculator chosen{TreeVerifier{target, AnyRule<ProposalKind::sampled>(RuleName::token)}, small.drafter(),
                    AnyShape<AnyDrafter, ProposalKind::sampled>(chain)};
  PhiloxRandom rng(7), again(7);
  known.start(std::vector<Token>{1, 2}), chosen.start(std::vector<Token>{1, 2});
  for (int round = 0; round < 5; ++round) known.step(rng), chosen.step(again);
  CHECK(std::equal(known.text().begin(), known.text().end(), chosen.text().begin(), chosen.text().end()));
  CHECK(known.text().size() > 6);
}
