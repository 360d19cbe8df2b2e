// SPDX-License-Identifier: MIT
// labels: long
// Pipelines by name of several drafters, some of which have a logits processor: none shows it a path that it
// has excluded.
#include <specula/model/processed.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include <specula/runtime/named_models.hpp>

#include "decode.hpp"
#include "toy_model.hpp"

using namespace specula_tools;
using specula::NamedModels;
using specula::Processed;
using specula_test::ToyModel;

namespace {

constexpr std::int32_t kVocab = 6;
const std::vector<Token> kPrompt{0, 2, 5};

/// Neither a token itself nor the one after it may follow. Throws for a path in which one does.
struct Grammar {
  std::int64_t* calls;
  static bool excludes(Token before, Token next) { return next == before || next == (before + 1) % kVocab; }
  void operator()(Tokens path, std::span<float> row) const {
    ++*calls;
    for (std::size_t i = kPrompt.size(); i < path.size(); ++i)
      if (excludes(path[i - 1], path[i])) throw std::runtime_error("there is no such path");
    for (std::size_t x = 0; x < row.size(); ++x)
      if (excludes(path.back(), static_cast<Token>(x))) row[x] = -std::numeric_limits<float>::infinity();
  }
};

}  // namespace

TEST_CASE("stacks by name, the masked draft in every place") {
  std::int64_t target_calls = 0, calls = 0;
  ToyModel inner(kVocab, 1, 2.0f, 400), plain(kVocab, 2, 2.0f, 400), small(kVocab, 3, 2.0f, 400);
  Processed target{inner, Grammar{&target_calls}}, masked{small, Grammar{&calls}};
  NamedModels models("target", target);
  models.add("plain", plain).add("masked", masked);
  for (const float temperature : {0.0f, 1.0f}) {
    const specula::SamplingParams params{.temperature = temperature};
    const auto text = [&](const std::string& name) {
      CAPTURE(name);
      const auto pipeline = specula::prepare_pipeline(name).build(models, params);
      const Decoded run =
          decode(*pipeline, kPrompt, {.max_new_tokens = 120, .seed = 3});  // throws if a draft fails
      CHECK(run.stats.failed_drafts == 0);
      return run.tokens;
    };
    const std::vector<Token> want = text("autoregressive");
    for (const std::string two : {"plain,masked", "masked,plain"}) {
      for (const std::string shape : {"horizontal@", "vertical@", "cascade@", "cost-aware:cascade@"})
        for (const char* last : {"", ",max-gram"}) CHECK(text(shape + two + last) == want);
      CHECK(text("cascade:limits=3-2-4@" + two) == want);
    }
    for (const std::string one : {"masked", "plain"})
      for (const char* name :
           {"horizontal@", "vertical@", "cascade@", "cost-aware:chain:4@", "cost-aware:cape:4@"})
        CHECK(text(name + one + ",max-gram") == want);
  }
  CHECK(calls > 5000);
}
