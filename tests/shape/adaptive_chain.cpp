// labels: light
// AdaptiveChain: chains whose end is learned (Draft & Verify's threshold, a heuristic).
#include <specula/shape/adaptive_chain.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

static_assert(ProposalShape<AdaptiveChain<>, ModelDrafter<ToyModel>>);
static_assert(ProposalShape<AdaptiveChain<HeuristicEnd, Draw::sampled>, ModelDrafter<ToyModel>>);
static_assert(AdaptiveChain<>::kind == ProposalKind::deterministic);
static_assert(AdaptiveChain<ThresholdEnd, Draw::sampled>::kind == ProposalKind::sampled);

TEST_CASE("the threshold follows the acceptance rate, as in Draft & Verify") {
  ThresholdEnd end;
  CHECK(end.exit_below() == 0.6f);
  CHECK(end.length() == 12);
  end.learn(4, 4);  // rate .5 < .9: up
  CHECK(end.rate == doctest::Approx(0.5));
  CHECK(end.threshold == doctest::Approx(0.9 * 0.6 + 0.1 * 0.61));
  end.learn(4, 4), end.learn(4, 4), end.learn(4, 4);  // rates .75, .875, .9375: up, up, down
  CHECK(end.rate == doctest::Approx(0.9375));
  CHECK(end.threshold == doctest::Approx(0.602));
  end.learn(12, 12);  // already the longest: unchanged
  CHECK(end.threshold == doctest::Approx(0.602));
  end.learn(12, 0);
  CHECK(end.rate == doctest::Approx(0.484375));
  CHECK(end.threshold == doctest::Approx(0.603));
  const ThresholdEnd before = end;
  end.learn(0, 0);  // nothing was drafted: nothing is learned
  CHECK(end.threshold == before.threshold);
  CHECK(end.rate == before.rate);
}

TEST_CASE("parameters other than Draft & Verify's; the threshold is always a probability") {
  ThresholdEnd slow{.memory = 0.75f};
  slow.learn(4, 4);
  CHECK(slow.rate == doctest::Approx(0.25));
  ThresholdEnd easy{.goal = 0.5f};
  easy.learn(4, 4);  // at the goal it falls
  CHECK(easy.threshold == doctest::Approx(0.599));
  ThresholdEnd hopeless, perfect;
  for (int i = 0; i < 2000; ++i) hopeless.learn(4, 0), perfect.learn(4, 4);
  CHECK(hopeless.threshold == 1.0f);
  CHECK(perfect.threshold == 0.0f);
  hopeless.learn(4, 4), hopeless.learn(4, 4), hopeless.learn(4, 4), hopeless.learn(4, 4);
  CHECK(hopeless.threshold < 1.0f);
}

TEST_CASE("the heuristic lengthens by two and shortens by one") {
  HeuristicEnd end;
  CHECK(end.length() == 5);
  end.learn(5, 5);
  CHECK(end.length() == 7);
  end.learn(7, 3);
  CHECK(end.length() == 6);
  for (int i = 0; i < 20; ++i) end.learn(end.length(), 0);
  CHECK(end.length() == 1);
  for (int i = 0; i < 20; ++i) end.learn(end.length(), end.length());
  CHECK(end.length() == 20);
  end.learn(0, 0);
  CHECK(end.length() == 20);
  HeuristicEnd low{.longest = 6, .now = 9};
  CHECK(low.length() == 6);
  low.learn(6, 0);
  CHECK(low.length() == 5);
  low.learn(0, 0);  // nothing was drafted
  CHECK(low.length() == 5);
  low.learn(3, 3);  // the chain was shortened for another reason
  CHECK(low.length() == 5);
  low.learn(3, 2);
  CHECK(low.length() == 4);
  low.learn(4, 4), low.learn(6, 6);
  CHECK(low.now == 6);
}

TEST_CASE("chains end by the policy; its state is carried to the next text or reset") {
  ToyModel target(5, 1, 3.0f), draft(5, 1, 3.0f);  // the same model: all is accepted
  const std::vector<Token> prompt{0, 1, 2};
  for (const bool carry : {true, false}) {
    CAPTURE(carry);
    Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, ModelDrafter{draft},
                   AdaptiveChain<HeuristicEnd>{.end = {.longest = 9, .now = 3}, .carry = carry}};
    run.start(prompt);
    PhiloxRandom rng(1);
    for (const std::int32_t nodes : {4, 6, 8, 10, 10}) {
      run.step(rng);
      CHECK(run.proposal().size() == nodes);
    }
    run.start(std::vector<Token>{1, 1});
    run.step(rng);
    CHECK(run.proposal().size() == (carry ? 10 : 4));
  }
  // The learned threshold is used, not the initial one.
  AdaptiveChain<> learned;
  learned.now.threshold = 1;
  Speculator short_run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, ModelDrafter{draft}, learned};
  short_run.start(prompt);
  PhiloxRandom uniform(1);
  short_run.step(uniform);
  CHECK(short_run.proposal().size() == 2);
  // The first draft token below the threshold is the last one, and is kept.
  Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, ModelDrafter{draft},
                 AdaptiveChain<>{}};
  run.start(prompt);
  PhiloxRandom rng(1);
  for (int i = 0; i < 6; ++i) {
    const float threshold = run.shape().now.threshold;
    run.step(rng);
    const TokenTree& tree = run.proposal();
    for (NodeId n = 1; n + 1 < tree.size(); ++n) CHECK(tree.confidence(n) >= threshold);
    if (tree.size() < 13) CHECK(tree.confidence(tree.size() - 1) < threshold);
  }
}

TEST_CASE("rounds allocate nothing") {
  ToyModel target(5, 1, 3.0f, 400), draft(5, 2, 3.0f, 400);
  Speculator run{TreeVerifier{target, Rejection{}}, ModelDrafter{draft},
                 AdaptiveChain<ThresholdEnd, Draw::sampled>{}};
  run.start(std::vector<Token>{0, 1, 2});
  PhiloxRandom rng(1);
  run.step(rng);
  AllocationCount allocated;
  for (int i = 0; i < 20; ++i) run.step(rng);
  const auto n = allocated.count();
  CHECK(n == 0);
}
