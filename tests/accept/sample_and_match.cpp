#include <specula/accept/sample_and_match.hpp>

#include <doctest/doctest.h>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("same coins, same verdict as the dense rule, on random trees") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 1.4f, .top_p = 0.8f}, {.temperature = 0}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int compared = 0, accepted = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const SamplingParams& params = settings[i % 4];
      const Case it = random_case(random, 2 + random.below(7), params, {.nodes = 1 + random.below(20)}, i);
      DenseCoins coins(1000 + i);
      const Verdict want = dense_match(it.dense, it.laws, coins);
      if (isa != detail::Isa::reference && coins.margin < 1e-5) continue;
      const Verdict got = verdict_of(SampleAndMatch{}, it, params, 1000 + i);
      CHECK(got.path == want.path);
      CHECK(got.next == want.next);
      ++compared, accepted += got.accepted();
    }
    CHECK(compared > 390);
    CHECK(accepted > 100);
  }
}

TEST_CASE("its tokens are those of plain sampling at the same seed, whatever was proposed") {
  Random random(2);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Case it = random_case(random, 4, {}, {.nodes = 12}, i);
    const Verdict verdict = verdict_of(SampleAndMatch{}, it, {}, i);
    PhiloxChance chance(i);
    detail::RowScan scan(4);
    for (std::size_t n = 0; n < verdict.path.size(); ++n) {
      const NodeId at = verdict.path[n];
      const RowLaw law = scan.law(it.row[static_cast<std::size_t>(at)], {});
      const Token sampled =
          chance.draw(scan.weights(law), Site{it.tree.position(at) + 1, 0, Stream::sample, 0});
      CHECK(sampled == (n + 1 < verdict.path.size() ? it.tree.token(verdict.path[n + 1]) : verdict.next));
    }
  }
}

TEST_CASE("of two children with one token, the first is taken") {
  TokenTree tree(3, 4, 0);
  tree.reset(0, 5);
  tree.choose(0, 1, 1);
  tree.choose(0, 1, 1);
  tree.choose(2, 1, 1);
  const std::vector<float> rows = {0, 9, 0, /**/ 9, 0, 0, /**/ 0, 9, 0, /**/ 0, 0, 9};
  VerifyWorkspace workspace(3, 4);
  PhiloxChance chance(1);
  Verdict out;
  SampleAndMatch{}.verify(tree, TargetLaws({rows.data(), 4, 3, 3}, {.temperature = 0}, workspace), chance,
                          out);
  CHECK(out.path == std::vector<NodeId>{0, 1});
  CHECK(out.next == 0);
}

static_assert(SampleAndMatch::exact_for(DraftLaw::deterministic) &&
              SampleAndMatch::exact_for(DraftLaw::mixed));
