// SPDX-License-Identifier: MIT
// AdaptiveChain: chains whose end is learned (Draft & Verify's threshold, a heuristic).
#include <specula/shape/adaptive_chain.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "random.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

static_assert(ProposalShape<AdaptiveChain<>, ModelDrafter<ToyModel>>);
static_assert(ProposalShape<AdaptiveChain<HeuristicEnd, Draw::sampled>, ModelDrafter<ToyModel>>);
static_assert(AdaptiveChain<>::kind == ProposalKind::deterministic);
static_assert(AdaptiveChain<ThresholdEnd, Draw::sampled>::kind == ProposalKind::sampled);

TEST_CASE("the threshold follows the acceptance rate, as in Draft & Verify") {
  ThresholdEnd end{.unbounded = true};
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

TEST_CASE("below the goal the threshold does not end chains; what the heuristic would make of them does") {
  ThresholdEnd end;  // no rate yet
  CHECK(end.length() == 5);
  CHECK(end.exit_below() == 0);
  end.learn(5, 2);
  CHECK(end.length() == 4);
  end.learn(4, 4), end.learn(6, 6), end.learn(8, 8), end.learn(10, 10);
  CHECK(end.rate > end.goal);
  CHECK(end.length() == 12);
  CHECK(end.exit_below() == end.threshold);
  end.learn(12, 7);  // the heuristic's chain of 12 would have been rejected
  CHECK(end.length() == 11);
  ThresholdEnd few{.longest = 3};
  CHECK(few.length() == 3);
  few.learn(3, 3);
  CHECK(few.length() == 3);
  few.learn(3, 0);
  CHECK(few.length() == 2);
  // The threshold is the paper's, bounded or not.
  ThresholdEnd paper{.unbounded = true}, bounded;
  for (int i = 0; i < 500; ++i) {
    const std::int32_t drafted = 1 + i * 7 % 12, accepted = i * 5 % (drafted + 1);
    paper.learn(drafted, accepted), bounded.learn(drafted, accepted);
    CHECK(bounded.threshold == paper.threshold);
  }
  CHECK_THROWS_WITH_AS((ThresholdEnd{.below = {.now = 0}}.validate()),
                       "HeuristicEnd::now is 0, must be in [1, 16777214]", std::invalid_argument);
}

namespace {

/// Speed over plain decoding of 5,000 tokens in simulated time: a draft token takes `cost` passes of the
/// target. Each token has its own confidence; `sure`: 0.98 whatever becomes of it, else the probability with
/// which it is accepted.
template <class End>
double simulated_speed(End end, double acceptance, double cost, bool sure, std::uint64_t seed) {
  Random random(seed);
  double time = 0;
  std::int32_t tokens = 0;
  while (tokens < 5000) {
    std::int32_t drafted = 0, accepted = 0;
    for (bool right = true; drafted < end.length();) {
      // honest: uniform in [2 a - 1, 1], or in [0, 2 a]
      const double prob =
          sure ? acceptance
               : random.between(std::max(0.0, 2 * acceptance - 1), std::min(1.0, 2 * acceptance));
      right = right && random.between(0, 1) < prob;
      ++drafted, accepted += right;
      if (static_cast<float>(sure ? 0.98 : prob) < end.exit_below()) break;
    }
    end.learn(drafted, accepted);
    time += 1 + cost * drafted;
    tokens += accepted + 1;
  }
  return tokens / time;
}
struct FixedEnd {
  std::int32_t tokens;
  std::int32_t length() const { return tokens; }
  float exit_below() const { return 0; }
  void learn(std::int32_t, std::int32_t) {}
};

}  // namespace

TEST_CASE("an adaptive length is not much slower than the best fixed one, sure drafts and honest ones") {
  struct Cost {
    double of_a_token, least;  // and what the ends reach of the best fixed chain's speed, everywhere
  };
  // Where tokens are nearly free, the best chain is longer than what the heuristic lets it grow to.
  for (const Cost& cost : {Cost{0.02, 0.75}, Cost{0.1, 0.93}, Cost{0.25, 0.9}})
    for (const bool sure : {true, false})
      for (const double acceptance : {0.5, 0.7, 0.8, 0.95}) {
        CAPTURE(cost.of_a_token);
        CAPTURE(sure);
        CAPTURE(acceptance);
        const auto speed = [&](auto end) {
          double sum = 0;
          for (std::uint64_t seed = 1; seed <= 4; ++seed)
            sum += simulated_speed(end, acceptance, cost.of_a_token, sure, seed) / 4;
          return sum;
        };
        double best = 0;
        for (std::int32_t length = 0; length <= 20; ++length) best = std::max(best, speed(FixedEnd{length}));
        CHECK(speed(ThresholdEnd{}) > cost.least * best);
        CHECK(speed(HeuristicEnd{}) > cost.least * best);
        // A bad start; above the goal the threshold returns by the paper's steps, a thousandth per round.
        const float threshold = acceptance < 0.9 ? 1.0f : 0.6f;
        CHECK(speed(ThresholdEnd{.threshold = threshold, .below = {.now = 1}}) > (cost.least - 0.01) * best);
      }
  // The paper's rule, with a goal that a sure draft does not reach.
  CHECK(simulated_speed(ThresholdEnd{.threshold = 1, .unbounded = true}, 0.8, 0.02, true, 1) <
        0.6 * simulated_speed(FixedEnd{10}, 0.8, 0.02, true, 1));
}

namespace {

/// The token after t is 5 t + 3 mod 64; the draft is as sure as ever, and wrong, where t is a multiple of 5.
struct Walk {
  bool draft = false;
  std::vector<Token> context = {}, nodes = {};
  std::vector<float> rows = {};
  std::int32_t vocab_size() const { return 64; }
  std::int32_t size() const { return static_cast<std::int32_t>(context.size()); }
  std::int32_t capacity() const { return 8192; }
  void append(Tokens tokens) { nodes.clear(), context.insert(context.end(), tokens.begin(), tokens.end()); }
  LogitsView extend(Tokens tokens, Nodes) {
    rows.assign(tokens.size() * 64, 0.0f);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      nodes.push_back(tokens[i]);
      rows[i * 64 + static_cast<std::size_t>(5 * tokens[i] + 3 + (draft && tokens[i] % 5 == 0)) % 64] = 8;
    }
    return {rows.data(), static_cast<std::int32_t>(tokens.size()), 64, 64};
  }
  void commit(Nodes path) {
    for (const NodeId n : path) context.push_back(nodes[static_cast<std::size_t>(n)]);
    nodes.clear();
  }
  void truncate(std::int32_t n) { nodes.clear(), context.resize(static_cast<std::size_t>(n)); }
};

}  // namespace

TEST_CASE("a sure draft that is right four times of five keeps its length, text after text") {
  const auto last_mat = [](auto shape) {
    Walk target, draft{.draft = true};
    Speculator run{TreeVerifier{target, Greedy{}, SamplingParams{.temperature = 0}}, ModelDrafter{draft},
                   shape};
    double mat = 0;
    for (Token first = 0; first < 8; ++first) {
      const Token prompt[] = {first, 2, 3};
      const Stats before = run.stats();
      run.generate(prompt, {.max_new_tokens = 512}, PhiloxRandom{1}, [](Tokens) {});
      mat = (run.stats() - before).mat();
    }
    return mat;
  };
  const double fixed = last_mat(Chain<>{.length = 4});
  CHECK(last_mat(AdaptiveChain<>{}) > 0.9 * fixed);
  CHECK(last_mat(AdaptiveChain<HeuristicEnd>{}) > 0.9 * fixed);
  CHECK(last_mat(AdaptiveChain<>{.end = {.unbounded = true}}) < 0.6 * fixed);
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
  AdaptiveChain<> learned{.end = {.unbounded = true}};
  learned.now.threshold = 1;
  Speculator short_run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, ModelDrafter{draft}, learned};
  short_run.start(prompt);
  PhiloxRandom uniform(1);
  short_run.step(uniform);
  CHECK(short_run.proposal().size() == 2);
  // The first draft token below the threshold is the last one, and is kept.
  Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0}}, ModelDrafter{draft},
                 AdaptiveChain<>{.end = {.unbounded = true}}};
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
