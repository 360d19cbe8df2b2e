// SPDX-License-Identifier: MIT
// labels: optimised
// Rounds on the device: lengths that alternate, limits and stop tokens within a round, short prompts, full
// contexts, bad input, errors, and what the host waits for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "bigram_model.hpp"
#include "small_model.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula::Chain;
using specula::FinishReason;
using specula::Greedy;
using specula::SamplingParams;
using specula::Status;
using specula::Tokens;
using specula_test::EmulatedDevice;

namespace {

/// A small target, and a draft that agrees often: its first layer, embedding and head.
struct Models {
  EmulatedDevice device;
  cuda::DeviceWeights target, draft;
  explicit Models(int positions = 160) {
    const auto weights = small_weights();
    auto first = weights;
    first.config.layers = 1, first.layers.resize(1);
    target = cuda::upload(device, weights, positions), draft = cuda::upload(device, first, positions);
  }
};
template <class Shape>
auto round_of(Models& on, const Shape& shape) {
  return cuda::Round<EmulatedDevice, Shape, Greedy>(on.device, on.target, on.draft, shape, {},
                                                    {.capacity = 160});
}

template <class Run>
std::vector<Token> text_of(Run& run, const std::vector<Token>& prompt, const specula::Limits& limits,
                           std::int32_t length, specula::Generated* how = nullptr) {
  std::vector<Token> out;
  const specula::Generated generated = run.generate(
      prompt, limits, 1, [&](Tokens part) { out.insert(out.end(), part.begin(), part.end()); }, length);
  if (how) *how = generated;
  return out;
}

specula::DynamicTree small_tree() {
  specula::DynamicTree out;
  out.top_k = 3, out.expansions = 2, out.total = 8;
  return out;
}

}  // namespace

TEST_CASE("chains of every length write the text of plain decoding, bit for bit") {
  Models on;
  auto run = round_of(on, Chain<>{.length = 4});
  const std::vector<Token> prompt = random_tokens(21, 3);
  const std::vector<Token> plain = text_of(run, prompt, {.max_new_tokens = 40}, 0);
  CHECK(plain.size() == 40);
  CHECK(run.rounds() == 40);
  for (const int length : {1, 2, 3, 4}) {
    CHECK(text_of(run, prompt, {.max_new_tokens = 40}, length) == plain);
    CHECK(run.rounds() < 40);
  }
  CHECK(run.finished());
  CHECK(run.status() == Status::ok);
  CHECK(std::equal(plain.begin(), plain.end(), run.text().begin() + 21));
}

TEST_CASE("lengths that change from round to round, with hundreds of tokens that the draft has not read") {
  Models on(260);
  cuda::Round run(on.device, on.target, on.draft, Chain<>{.length = 4}, Greedy{}, {.capacity = 260});
  const std::vector<Token> prompt = random_tokens(7, 5);
  const std::vector<Token> plain = text_of(run, prompt, {.max_new_tokens = 160}, 0);
  // The number of rounds with each length alone, from each place: what the draft knows must not matter.
  specula_test::Random random(3);
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<Token> text;
    run.start(prompt, {.max_new_tokens = 160}, 1);
    std::int64_t plain_rounds =
        turn == 0 ? 90 : 0;  // at first, so that the draft has to catch up by a long pass
    while (!run.finished()) {
      const std::int32_t length = plain_rounds-- > 0 ? 0 : random.below(5);
      const Tokens part = run.step(length);
      text.insert(text.end(), part.begin(), part.end());
    }
    CHECK(text == plain);
  }
  // Rounds that draft after k plain ones accept what they accept if the draft has read everything.
  constexpr int kRounds = 6;
  const auto accepted_after = [&](int plain_rounds, const std::vector<Token>& from) {
    run.start(from, {.max_new_tokens = 100}, 1);
    for (int i = 0; i < plain_rounds; ++i) run.step(0);
    for (int i = 0; i < kRounds; ++i) run.step(4);
    run.drain();
    return run.text().size() - from.size() - static_cast<std::size_t>(plain_rounds);
  };
  int drafted = 0;
  for (const int k : {1, 2, 3, 15, 17, 70}) {
    std::vector<Token> longer = prompt;
    longer.insert(longer.end(), plain.begin(), plain.begin() + k);
    const std::size_t accepted = accepted_after(k, prompt);
    CHECK(accepted == accepted_after(0, longer));
    drafted += accepted > kRounds;
  }
  CHECK(drafted > 0);
}

TEST_CASE("a stop token at every place of a round, and limits within one") {
  Models on;
  auto chain = round_of(on, Chain<>{.length = 4});
  auto tree = round_of(on, small_tree());
  const std::vector<Token> prompt = random_tokens(9, 4);
  const std::vector<Token> plain = text_of(chain, prompt, {.max_new_tokens = 24}, 0);
  specula::Generated how;
  for (std::size_t place = 0; place < plain.size(); ++place) {
    const Token stop = plain[place];
    const auto first = static_cast<std::size_t>(std::find(plain.begin(), plain.end(), stop) - plain.begin());
    const std::vector<Token> stops{kVocab - 1, stop},
        expected(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    CHECK(text_of(chain, prompt, {.max_new_tokens = 24, .stop = stops}, 4, &how) == expected);
    CHECK(how.reason == FinishReason::stop_token);
    if (place % 4 == 0)
      CHECK(text_of(tree, prompt, {.max_new_tokens = 24, .stop = stops}, 3).size() == expected.size());
  }
  for (const int limit : {1, 2, 3, 5, 23}) {
    const std::vector<Token> expected(plain.begin(), plain.begin() + limit);
    CHECK(text_of(chain, prompt, {.max_new_tokens = limit}, 4, &how) == expected);
    CHECK(how.reason == FinishReason::limit);
    CHECK(how.tokens == limit);
  }
  CHECK(text_of(chain, prompt, {.max_new_tokens = 0}, 4).empty());
  chain.start(prompt, {.max_new_tokens = 0}, 1);
  chain.step();
  CHECK(chain.drain().empty());
  // A sink that ends it.
  int calls = 0;
  CHECK(chain.generate(prompt, {.max_new_tokens = 24}, 1, [&](Tokens) { return ++calls < 2; }).reason ==
        FinishReason::cancelled);
}

TEST_CASE("prompts shorter than what the draft reads again") {
  Models on;
  auto chain = round_of(on, Chain<>{.length = 4});
  auto tree = round_of(on, small_tree());
  for (int size = 1; size <= 6; ++size) {
    const std::vector<Token> prompt = random_tokens(size, 11);
    const std::vector<Token> plain = text_of(chain, prompt, {.max_new_tokens = 12}, 0);
    CHECK(text_of(chain, prompt, {.max_new_tokens = 12}, 4) == plain);
    CHECK(text_of(tree, prompt, {.max_new_tokens = 12}, 0) == plain);
    CHECK(text_of(tree, prompt, {.max_new_tokens = 12}, 3).size() == 12);
  }
}

TEST_CASE("a full context ends a text where the host's rounds end it, and says so") {
  constexpr int kCapacity = 30;
  Models on;
  cuda::Model target(on.device, on.target, {.capacity = kCapacity}),
      draft(on.device, on.draft, {.capacity = kCapacity});
  const std::vector<Token> long_prompt = random_tokens(kCapacity + 1, 12);
  const auto check = [&](const auto& shape, std::vector<int> sizes, bool same_rounds) {
    specula::Speculator host{specula::TreeVerifier{target, Greedy{}, SamplingParams{.temperature = 0}},
                             specula::ModelDrafter{draft}, shape};
    cuda::Round run(on.device, on.target, on.draft, shape, Greedy{}, {.capacity = kCapacity});
    auto roomy = round_of(on, shape);
    for (const int size : sizes) {
      const std::vector<Token> prompt(long_prompt.begin(), long_prompt.begin() + size);
      const int room = kCapacity + 1 - size;
      for (const int limit : {256, room}) {
        CAPTURE(size);
        CAPTURE(limit);
        std::vector<Token> expected;
        host.reset_stats();
        const specula::Generated ends =
            host.generate(prompt, {.max_new_tokens = limit}, specula::PhiloxRandom{1},
                          [&](Tokens part) { expected.insert(expected.end(), part.begin(), part.end()); });
        CHECK(ends.reason == (limit > room ? FinishReason::context_full : FinishReason::limit));
        specula::Generated how;
        CHECK(text_of(run, prompt, {.max_new_tokens = limit}, run.longest(), &how) == expected);
        CHECK(how == ends);
        CHECK(run.status() == Status::ok);
        if (same_rounds)
          CHECK(run.rounds() == host.stats().rounds);
        else if (limit > room) {  // as many as a context with room takes for these tokens
          CHECK(text_of(roomy, prompt, {.max_new_tokens = room}, roomy.longest()) == expected);
          CHECK(run.rounds() == roomy.rounds());
        }
        if (limit > room) continue;
        CHECK(text_of(run, prompt, {.max_new_tokens = limit}, 0, &how) == expected);
        CHECK(how == ends);
      }
    }
  };
  check(Chain<>{.length = 4}, {24, 25, 30}, true);
  // The host's last trees are smaller. Nodes that count have slots beyond the text's last one.
  check(specula::DynamicTree{.top_k = 4, .expansions = 3, .total = 12}, {20, 22, 24, 26}, false);
  // These have fewer nodes than the draft runs.
  check(specula::DynamicTree{.top_k = 4, .expansions = 3, .total = 4}, {24, 30}, false);
  check(specula::Cape{.length = 6, .budget = 3}, {24, 30}, false);

  // A sink that ends the text where it is full; rounds after the end.
  cuda::Round run(on.device, on.target, on.draft, Chain<>{.length = 4}, Greedy{}, {.capacity = kCapacity});
  const std::vector<Token> prompt(long_prompt.begin(), long_prompt.end() - 1);
  CHECK(run.generate(prompt, {}, 1, [](Tokens) { return false; }).reason == FinishReason::cancelled);
  for (int i = 0; i < 40; ++i) CHECK(run.step(0).empty());
  const int replays = on.device.replays;
  CHECK(run.step(4).empty());
  CHECK(on.device.replays == replays + 1);  // nothing is read for a round that is idle
  CHECK(run.drain().empty());
}

TEST_CASE("between two rounds the host launches a graph, and waits for nothing") {
  Models on;
  auto run = round_of(on, Chain<>{.length = 3});
  run.start(random_tokens(9, 4), {.max_new_tokens = 120}, 1);
  for (int warm = 0; warm < 4; ++warm) run.step();
  const int waits = on.device.waits, replays = on.device.replays, apart = on.device.launched_apart;
  for (int round = 0; round < 20; ++round) run.step();
  CHECK(on.device.waits == waits);
  CHECK(on.device.replays == replays + 20);
  CHECK(on.device.launched_apart == apart);
  CHECK(on.device.recordings >= 2);  // one for each of the host's two results
}

TEST_CASE("a row of the target that is no distribution ends the text with its status") {
  EmulatedDevice device;
  bigram_model::Table table;
  for (auto& row : table) row = {0.1, 0.2, 0.3, 0.4};
  table[0] = {0.01, 0.01, 0.97, 0.01}, table[2] = {0.01, 0.97, 0.01, 0.01},
  table[3] = {0.97, 0.01, 0.01, 0.01};
  const auto target = bigram_model::weights_of(device, table, 64, 1),
             draft = bigram_model::weights_of(device, table, 64);
  cuda::Round run(device, target, draft, Chain<>{.length = 2}, Greedy{}, {.capacity = 64});
  CHECK(text_of(run, {3}, {.max_new_tokens = 20}, 2) == std::vector<Token>{0, 2, 1});
  CHECK(run.finished());
  CHECK(run.status() == Status::not_a_number);
  CHECK(text_of(run, {0}, {.max_new_tokens = 2}, 1) ==
        std::vector<Token>{2, 1});  // the next text is not affected
  CHECK(run.status() == Status::ok);
}

TEST_CASE("bad input is refused, and nothing is enqueued") {
  Models on;
  auto run = round_of(on, Chain<>{.length = 4});
  const auto refused = [&](auto call, const char* what) {
    CHECK_THROWS_WITH_AS(call(), what, std::invalid_argument);
  };
  CHECK_THROWS_WITH_AS(run.step(), "cuda::Round::step: no text; call start() first", std::logic_error);
  const int launches = on.device.launches;
  refused([&] { run.start({}, {}, 1); }, "cuda::Round::start: an empty prompt");
  const std::vector<Token> bad{3, kVocab}, good{3, 4};
  refused([&] { run.start(bad, {.max_new_tokens = 4}, 1); },
          "cuda::Round::start: token 200, must be 0 to 199");
  refused([&] { run.start(random_tokens(161, 1), {.max_new_tokens = 4}, 1); },
          "cuda::Round::start: the prompt has 161 tokens, RoundOptions::capacity is 160");
  const std::vector<Token> stops(65, 1);
  refused([&] { run.start(good, {.max_new_tokens = 4, .stop = stops}, 1); },
          "cuda::Round::start: 65 stop tokens, must be at most 64");
  CHECK(on.device.launches == launches);
  run.start(good, {.max_new_tokens = 4}, 1);
  refused([&] { run.step(5); }, "cuda::Round::step: length 5, must be 0 or 1 to 4");
  auto tree = round_of(on, small_tree());
  tree.start(good, {.max_new_tokens = 4}, 1);
  refused([&] { tree.step(2); }, "cuda::Round::step: length 2, must be 0 or 3");

  const auto make = [&](const auto& shape, cuda::RoundOptions options = {.capacity = 160}) {
    cuda::Round(on.device, on.target, on.draft, shape, Greedy{}, options);
  };
  const int held = on.device.held();
  refused([&] { make(Chain<>{.length = 64}); }, "cuda::Round: Chain::length is 64, must be 1 to 63");
  refused(
      [&] { make(Chain<>{.length = 4, .exit_below = 0.1f}); },
      "cuda::Round: a chain ends by Chain::exit_below on the CPU alone: 0, or a Speculator over cuda::Model");
  refused([&] { make(specula::Cape{.length = 0}); }, "cuda::Round: Cape::length is 0, must be 1 to 63");
  refused([&] { make(specula::DynamicTree{.top_k = 33}); },
          "cuda::Round: DynamicTree::top_k is 33, must be 1 to 32");
  refused([&] { make(Chain<>{.length = 4}, {.capacity = 161}); },
          "cuda::Round: the target's positions is 160, must be 161 to 16777216");
  auto other = on.draft;
  other.vocab = 100;
  refused([&] { cuda::Round(on.device, on.target, other, Chain<>{}, Greedy{}, {.capacity = 160}); },
          "cuda::Round: the draft's vocabulary is 100, must be 200 to 200");
  CHECK(on.device.held() == held);  // what is not made leaves nothing behind
}

TEST_CASE("what ends gives its own memory back, in any order") {
  Models on;
  using Run = decltype(round_of(on, Chain<>{.length = 2}));
  const auto make = [&] {
    return std::make_unique<Run>(on.device, on.target, on.draft, Chain<>{.length = 2}, Greedy{},
                                 cuda::RoundOptions{.capacity = 160});
  };
  const std::vector<Token> prompt = random_tokens(9, 4);
  const int held = on.device.held();
  auto first = make();
  const int of_first = on.device.held() - held;
  auto second = make();
  const std::vector<Token> text = text_of(*first, prompt, {.max_new_tokens = 8}, 2);
  first.reset();
  CHECK(on.device.held() == held + of_first);
  CHECK(text_of(*second, prompt, {.max_new_tokens = 8}, 2) == text);
  second.reset();
  CHECK(on.device.held() == held);
}

TEST_CASE("an error of the device keeps the tokens that the host has read") {
  Models on;
  const std::vector<Token> prompt = random_tokens(9, 4);
  std::vector<Token> plain;
  {
    auto run = round_of(on, Chain<>{.length = 3});
    plain = text_of(run, prompt, {.max_new_tokens = 40}, 3);
  }
  for (const int later : {1, 40, 400}) {
    auto run = round_of(on, Chain<>{.length = 3});
    on.device.fail_after(later);
    bool failed = false;
    try {
      text_of(run, prompt, {.max_new_tokens = 40}, 3);
    } catch (const cuda::DeviceError&) {
      failed = true;
    }
    on.device.failing_launch = -1;
    CHECK(failed);
    if (run.text().empty()) continue;
    run.drain();  // the round before the one that failed
    const Tokens fresh = run.text().subspan(prompt.size());
    CHECK(fresh.size() < 40);
    CHECK(std::equal(fresh.begin(), fresh.end(), plain.begin()));
  }
}
