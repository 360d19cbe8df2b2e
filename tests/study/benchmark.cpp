// SPDX-License-Identifier: MIT
// PolicyBenchmark: timing of pipelines against each other.
#include <specula/study/benchmark.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <chrono>
#include <set>
#include <thread>
#include <type_traits>

#include "comma_locale.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

namespace {

const std::vector<std::vector<Token>> kPrompts{{1, 5}, {2, 3, 4}, {0, 7}};

/// A slow rule, whose time is outside the models.
struct Slow : SampleAndMatch {
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    SampleAndMatch::decide(tree, target, rng, out);
  }
};

std::string complaint(std::vector<std::vector<Token>> prompts, BenchmarkOptions options) {
  try {
    PolicyBenchmark(std::move(prompts), std::move(options));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

static_assert(!std::is_copy_constructible_v<PolicyBenchmark> &&
              !std::is_move_constructible_v<PolicyBenchmark>);

TEST_CASE("pipelines on the same prompts: tokens, draft tokens and texts") {
  ToyModel target(8, 1), twin(8, 1), other(8, 2);
  const SamplingParams greedy{.temperature = 0.0f};
  Speculator plain{TreeVerifier{target, Sampling{}, greedy}, NoDrafter{8}, Chain<>{.length = 0}};
  Speculator right{TreeVerifier{target, Sampling{}, greedy}, ModelDrafter{twin}, Chain<>{.length = 3}};
  Speculator elsewhere{TreeVerifier{other, Sampling{}, greedy}, NoDrafter{8}, Chain<>{.length = 0}};
  PolicyBenchmark benchmark(kPrompts, {.max_new_tokens = 10, .repeat = 2});
  benchmark.add("plain", plain);
  benchmark.add("right", right);  // over the same target, in turn
  benchmark.add("elsewhere", elsewhere);
  const auto all = benchmark.run();
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "plain");
  CHECK(all[0].mat == 1);
  CHECK(all[0].acceptance == 0);
  CHECK(all[0].speedup.low == 1);
  CHECK(all[0].speedup.high == 1);
  CHECK(all[0].same_texts == 3);
  CHECK(all[1].mat == doctest::Approx(10.0 / 3));  // rounds of 4, 4 and 2 of 4 tokens
  CHECK(all[1].acceptance == 1);                   // also in the last round, which the text's end cuts
  CHECK(all[1].same_texts == 3);
  CHECK(all[1].microseconds_per_token > all[1].own_microseconds_per_token);
  CHECK(all[2].same_texts < 3);
  const std::string text = to_text(all);
  CHECK(text.find("\nelsewhere") != std::string::npos);
  CHECK(text.find("    3.33   1.000 ") != std::string::npos);
}

TEST_CASE("the table is the same in every locale") {
  const PolicyFigures figures[] = {{.name = "a",
                                    .mat = 3.336,
                                    .acceptance = 0.5,
                                    .microseconds_per_token = 12345.67,
                                    .own_microseconds_per_token = 0.255,
                                    .speedup = {1.5, 1.25, 1.75},
                                    .same_texts = 12345}};
  const specula_test::CommaLocale comma;
  CHECK(to_text(figures) ==
        "policy     MAT   alpha  us/token   own us  speedup (95%)        same text\n"
        "a         3.34   0.500   12345.7     0.26  1.500 (1.250-1.750)      12345\n");
}

TEST_CASE("a slow rule increases the time per token and the pipeline's own time, and lowers the speedup") {
  ToyModel target(8, 1);
  const SamplingParams warm{.temperature = 0.8f};
  Speculator quick{TreeVerifier{target, SampleAndMatch{}, warm}, NoDrafter{8}, Chain<>{.length = 0}};
  Speculator slow{TreeVerifier{target, Slow{}, warm}, NoDrafter{8}, Chain<>{.length = 0}};
  PolicyBenchmark benchmark(kPrompts, {.max_new_tokens = 3, .repeat = 3});
  benchmark.add("quick", quick);
  benchmark.add("slow", slow);
  const auto all = benchmark.run();
  CHECK(all[1].microseconds_per_token > 2000);
  CHECK(all[1].own_microseconds_per_token > 2000);
  CHECK(all[1].speedup.value < 1);
  CHECK(all[1].speedup.value ==
        doctest::Approx(all[0].microseconds_per_token / all[1].microseconds_per_token));
  CHECK(all[1].speedup.low < all[1].speedup.value);
  CHECK(all[1].speedup.value < all[1].speedup.high);
  CHECK(all[1].same_texts == 3);
}

TEST_CASE("a stop token ends a text") {
  ToyModel target(8, 1);
  Speculator plain{TreeVerifier{target, Greedy{}}, NoDrafter{8}, Chain<>{.length = 0}};
  PolicyBenchmark all_tokens(kPrompts, {.max_new_tokens = 9, .stop = {0, 1, 2, 3, 4, 5, 6, 7}, .repeat = 1});
  all_tokens.add("plain", plain);
  all_tokens.run();
  CHECK(plain.stats().rounds == 1 + 3);  // one to warm up
  PolicyBenchmark no_token(kPrompts, {.stop = {8}});
  no_token.add("plain", plain);
  CHECK_THROWS_WITH_AS(no_token.run(), doctest::Contains("Limits::stop[0] is 8"), std::invalid_argument);
}

TEST_CASE("medians") {
  CHECK(detail::median({}) == 0);
  CHECK(detail::median({3, 1, 2}) == 2);
  CHECK(detail::median({4, 1, 2, 9}) == 3);
}

TEST_CASE(
    "order: each runs in every rotation, is first equally often, and never always follows the same one") {
  for (const std::size_t count : {1u, 2u, 3u, 5u}) {
    std::vector<int> first(count);
    std::set<std::size_t> before_zero;
    for (std::size_t rotation = 0; rotation < 2 * count; ++rotation) {
      std::set<std::size_t> seen;
      for (std::size_t turn = 0; turn < count; ++turn) {
        const std::size_t c = detail::in_turn(rotation, turn, count);
        seen.insert(c);
        if (turn == 0) ++first[c];
        if (c == 0 && turn > 0) before_zero.insert(detail::in_turn(rotation, turn - 1, count));
      }
      CHECK(seen.size() == count);
    }
    CHECK(first == std::vector<int>(count, 2));
    if (count > 2) CHECK(before_zero.size() > 1);
  }
}

TEST_CASE("errors name invalid options with value and range") {
  CHECK(complaint({{1}}, {}) == "PolicyBenchmark: prompts.size() is 1, must be in [2, 65535]");
  CHECK(complaint(std::vector(65536, std::vector<Token>{1}), {}) ==
        "PolicyBenchmark: prompts.size() is 65536, must be in [2, 65535]");
  CHECK(complaint({{1}, {}}, {}) == "PolicyBenchmark: prompt 1 is empty");
  CHECK(complaint(kPrompts, {.max_new_tokens = 0}) ==
        "PolicyBenchmark: max_new_tokens is 0, must be in [1, 2147483647]");
  CHECK(complaint(kPrompts, {.repeat = -2}) == "PolicyBenchmark: repeat is -2, must be in [1, 2147483647]");
  ToyModel target(8, 1), draft(8, 2);
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, Chain<>{.length = 3}};
  PolicyBenchmark failing(kPrompts);
  failing.add("failing", run);
  draft.throw_call = 4;
  CHECK_THROWS_WITH_AS(
      failing.run(),
      "PolicyBenchmark: the draft failed, so the figures would be plain decoding's: extend failed",
      std::runtime_error);
  PolicyBenchmark none(kPrompts);
  CHECK_THROWS_WITH_AS(none.run(), "PolicyBenchmark::run: call add() first", std::logic_error);
  draft.throw_call = -1;
  none.add("added", run);
  CHECK_NOTHROW(none.run());
}
