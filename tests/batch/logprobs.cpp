// SPDX-License-Identifier: MIT
// Log-probabilities of texts in a batch: bitwise those alone, of the emitted tokens, in the result and in a
// sink.
#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"

using namespace specula;
using specula_test::BatchModels;

namespace {

template <class Rule, class Shape>
void same_logprobs(Rule rule, Shape shape, float temperature, bool processed) {
  std::vector<TextRequest> all = specula_test::scene_requests(9, temperature);
  for (TextRequest& request : all) request.logprobs->processed = processed;
  for (const std::int32_t slots : {1, 3}) {
    BatchModels<> models(slots, 4);
    BatchSpeculator batch(slots, models.each(rule, shape), models.draft, models.target);
    for (const TextRequest& request : all) batch.join(request);
    const auto texts = write_all(batch, [&](int step) {  // pauses keep them
      const TextId id = static_cast<TextId>(step) % all.size() + 1;
      if (step < 30 && batch.pause(id)) CHECK(batch.resume(id));
    });
    REQUIRE(texts.size() == all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& text = texts.at(i + 1);
      CHECK(text == specula_test::written_alone(all[i], rule, shape));
      CHECK(text.logprobs.size() == text.tokens.size() * static_cast<std::size_t>(1 + all[i].logprobs->top));
    }
  }
}

}  // namespace

TEST_CASE("a text's log-probabilities are those alone, bit for bit, cut at its end") {
  for (const bool processed : {false, true}) {
    same_logprobs(Sampling{}, Chain<>{.length = 4}, 0, processed);
    same_logprobs(Rejection{}, Chain<Draw::sampled>{.length = 4}, 0.8f, processed);
    same_logprobs(Sampling{}, DynamicTree{.top_k = 2, .expansions = 2, .total = 5}, 0.8f, processed);
  }
}

TEST_CASE(
    "within a sink they are those of the tokens that it is given; a sink that ends the text, or throws, "
    "keeps them") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 3}), models.draft, models.target);
  const auto write = [&](int rounds, bool throws) {
    TextId id = 0;
    std::size_t given = 0;
    int calls = 0;
    std::vector<double> seen;
    TextRequest request{.prompt = {1, 2}, .max_new_tokens = 20, .params = {.temperature = 0}, .seed = 1};
    request.logprobs = LogprobOptions{};
    request.sink = [&](Tokens fresh) {
      const Logprobs logprobs = batch.logprobs(id);
      REQUIRE(logprobs.size() == fresh.size());
      for (std::size_t i = 0; i < fresh.size(); ++i) CHECK(logprobs[i].token == fresh[i]);
      if (++calls == rounds && throws) throw std::runtime_error("no disk");
      for (std::size_t i = 0; i < fresh.size(); ++i) seen.push_back(logprobs[i].logprob);
      given += fresh.size();
      return calls != rounds;
    };
    id = batch.join(request);
    TextResult result;
    while (!batch.empty())
      for (const TextResult& text : batch.step()) result = text;
    CHECK((result.failure != nullptr) == throws);
    CHECK(result.tokens.size() == given);
    REQUIRE(result.logprobs.size() == given);
    for (std::size_t i = 0; i < given; ++i) {
      CHECK(result.logprobs[i].token == result.tokens[i]);
      CHECK(result.logprobs[i].logprob == seen[i]);
    }
  };
  write(-1, false);
  write(2, false);
  write(2, true);
  CHECK(batch.logprobs(1).size() == 0);  // it has ended
}

TEST_CASE("a text that did not ask for them has none") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 3}), models.draft, models.target);
  TextRequest request{.prompt = {1, 2}, .max_new_tokens = 5};
  request.logprobs = LogprobOptions{};
  batch.join(request);
  request.logprobs.reset();
  request.sink = [&](Tokens) {
    CHECK(batch.logprobs(2).size() == 0);  // of the text before it in the slot
    return true;
  };
  batch.join(request);
  const auto texts = write_all(batch);
  CHECK(texts.at(1).logprobs.size() == 5);
  CHECK(texts.at(2).logprobs.empty());
}

TEST_CASE("a list keeps rounds of one width") {
  const std::vector<TokenLogprob> one{{1, -0.5}, {1, -0.5}}, other{{2, -1.0}};
  LogprobList list;
  list.add(Logprobs(one, 1));
  list.add({});
  CHECK_THROWS_AS(list.add(Logprobs(other, 0)), std::invalid_argument);
  REQUIRE(list.size() == 1);
  CHECK(list.top(0)[0].logprob == -0.5);
}
