// SPDX-License-Identifier: MIT
// Sampling many texts at once: each is what it would be alone, and what the model says of its rows.
#include "sampler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

Tensor tokens_of(const st::Document& text) {
  return torch::tensor(std::vector<std::int64_t>(text.begin(), text.end())).unsqueeze(0);
}

struct Texts {
  std::map<std::uint32_t, st::Document> texts;
  std::map<std::uint32_t, st::TextPlan> plans;
};

Texts sample(st::Llama& model, const st::SamplerOptions& options, const std::vector<st::TextPlan>& plans) {
  Texts out;
  std::size_t next = 0;
  st::sample_texts(
      model, torch::kFloat32, options,
      [&]() -> std::optional<st::TextPlan> {
        if (next == plans.size()) return {};
        return plans[next++];
      },
      [&](const st::TextPlan& plan, st::Document text) {
        CHECK(out.texts.emplace(plan.number, std::move(text)).second);
        out.plans[plan.number] = plan;
      },
      [](std::int64_t) { return false; });
  return out;
}

std::vector<st::TextPlan> plans_of_many_lengths() {
  std::vector<st::TextPlan> plans;
  for (std::uint32_t i = 0; i < 11; ++i) {
    st::TextPlan plan{.number = i, .begin = {}};
    for (std::uint32_t t = 0; t < 1 + i * 7; ++t)
      plan.begin.push_back(static_cast<st::Token>((i * 5 + t * 3) % kVocab));
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace

TEST_CASE("features of texts that grow together are those of whole rows") {
  for (const auto& config : {tiny_target(), other_target(), qwen3_target()}) {
    torch::manual_seed(1);
    st::Llama model(config);
    enlarge(*model);
    const auto rows = random_rows(5, 140);  // more than two blocks of keys
    const auto whole = model->features(rows, torch::kFloat32);
    auto cache = model->text_cache(5, 141, torch::kFloat32),
         plain = model->text_cache(5, 141, torch::kFloat32);
    // Text b begins b passes late, in a place that another text has used.
    std::vector<std::int64_t> at(5, 0);
    for (std::int64_t pass = 0; pass < 140; ++pass) {
      auto now = torch::zeros({5}, torch::kInt64);
      for (std::int64_t b = 0; b < 5; ++b) {
        if (pass == b * 30) cache.lengths[b] = at[static_cast<std::size_t>(b)] = 0;
        now[b] = rows[b][at[static_cast<std::size_t>(b)]];
      }
      const auto features = model->go_on(now, cache, torch::kFloat32);
      for (std::int64_t b = 0; b < 5; ++b) {
        auto& place = at[static_cast<std::size_t>(b)];
        CAPTURE(pass);
        CHECK(torch::allclose(features[b], whole[b][place], 1e-3, 1e-4));
        ++place;
      }
    }
    // The same after beginnings that are read at once.
    for (const std::int64_t begun : {1, 64, 100, 139}) {
      auto cached = model->text_cache(5, 141, torch::kFloat32);
      for (std::int64_t b = 0; b < 5; ++b)
        model->begin_text(rows[b].narrow(0, 0, begun), b, cached, torch::kFloat32);
      CAPTURE(begun);
      CHECK(torch::allclose(model->go_on(rows.select(1, begun), cached, torch::kFloat32),
                            whole.select(1, begun), 1e-3, 1e-4));
    }
    // The same in ATen, as on other devices.
    auto other = model->text_cache(5, 141, torch::kFloat32);
    for (std::int64_t t = 0; t < 130; ++t) {
      const auto q = torch::randn({config.kv_heads, config.heads / config.kv_heads * 5, config.head_dim()});
      const st::KeyValues keys{torch::randn({config.kv_heads, 5, config.head_dim()}),
                               torch::randn({config.kv_heads, 5, config.head_dim()})};
      const auto lengths = torch::clamp_min(torch::full({5}, t) - torch::arange(5) * 20, 0);
      CHECK(torch::allclose(st::attend_texts(q, keys, other.layers[0], lengths),
                            st::plain::attend_texts(q, keys, plain.layers[0], lengths), 1e-4, 1e-5));
    }
  }
}

TEST_CASE("a text that is as long as the cache is refused") {
  st::Llama model(tiny_target());
  auto cache = model->text_cache(2, 64, torch::kFloat32);
  for (int t = 0; t < 64; ++t) model->go_on(torch::zeros({2}, torch::kInt64), cache, torch::kFloat32);
  CHECK_THROWS_AS(model->go_on(torch::zeros({2}, torch::kInt64), cache, torch::kFloat32),
                  std::invalid_argument);
  CHECK_THROWS_AS(model->begin_text(torch::zeros({65}, torch::kInt64), 0, cache, torch::kFloat32),
                  std::invalid_argument);
  CHECK_THROWS_AS(model->text_cache(2, st::kMaxPositions + 1, torch::kFloat32), std::invalid_argument);
}

TEST_CASE("a frozen model is the same one") {
  torch::manual_seed(1);
  st::Llama model(qwen3_target());
  const auto rows = random_rows(3, 12);
  for (auto& parameter : model->parameters()) parameter.requires_grad_(false);
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    const auto before = model->features(rows, type), logits = model->head(before);
    model->freeze(type);
    CHECK(torch::allclose(model->features(rows, type).to(torch::kFloat32), before.to(torch::kFloat32), 2e-2,
                          2e-2));
    CHECK(torch::allclose(model->head(before).to(torch::kFloat32), logits.to(torch::kFloat32), 1e-5, 1e-6));
  }
}

TEST_CASE("greedy texts are the model's likeliest tokens, whatever else is in their passes") {
  torch::manual_seed(1);
  st::Llama model(tiny_target());
  enlarge(*model);
  const auto plans = plans_of_many_lengths();
  const st::SamplerOptions options{.texts = 4, .longest = 100, .part = 20, .temperatures = {0}, .ends = {3}};
  const auto all = sample(model, options, plans);
  REQUIRE(all.texts.size() == plans.size());
  for (const auto& [number, text] : all.texts) {
    CAPTURE(number);
    const auto& begin = all.plans.at(number).begin;
    REQUIRE(text.size() > begin.size());
    CHECK(std::equal(begin.begin(), begin.end(), text.begin()));
    const auto logits = model->head(model->features(tokens_of(text), torch::kFloat32))[0];
    for (auto at = begin.size(); at < text.size(); ++at) {
      const auto row = logits[static_cast<std::int64_t>(at) - 1];
      CHECK(row[text[at]].item<double>() >= row.max().item<double>() - 1e-4);
      CHECK((text[at] == 3) ==
            (at + 1 == text.size() && text.size() < begin.size() + 20 && text.size() < 100));
    }
  }
  auto one = options;
  one.texts = 1;
  CHECK(sample(model, one, plans).texts == all.texts);
}

TEST_CASE("draws are of the seed, the number and the position, and have the model's distribution") {
  torch::manual_seed(1);
  st::Llama model(tiny_target());
  enlarge(*model);
  st::SamplerOptions options{.texts = 64, .longest = 8, .part = 1, .temperatures = {0.7F, 1.3F}, .ends = {}};
  std::vector<st::TextPlan> plans;
  for (std::uint32_t i = 0; i < 8000; ++i) plans.push_back({.number = i, .begin = {1, 2, 5}});
  const auto all = sample(model, options, plans);
  REQUIRE(all.texts.size() == plans.size());
  const auto row = model->head(model->features(tokens_of({1, 2, 5}), torch::kFloat32))[0][2];
  for (const auto t : {0, 1}) {
    const auto expected = torch::softmax(row / (t == 0 ? 0.7F : 1.3F), 0);
    std::vector<double> counts(kVocab, 0);
    for (const auto& [number, text] : all.texts)
      if (number % 2 == static_cast<std::uint32_t>(t))
        counts[static_cast<std::size_t>(text.back())] += 1.0 / 4000;
    double chi = 0;
    for (std::int64_t x = 0; x < kVocab; ++x) {
      const auto p = expected[x].item<double>(), difference = counts[static_cast<std::size_t>(x)] - p;
      chi += 4000 * difference * difference / p;
    }
    CHECK(chi < 95);  // 49 degrees of freedom: above it once in 10,000 times
  }
  options.texts = 5;
  plans.resize(40);
  std::swap(plans[0], plans[39]);
  for (const auto& [number, text] : sample(model, options, plans).texts) CHECK(text == all.texts.at(number));
  options.seed = 2;
  CHECK(sample(model, options, plans).texts != all.texts);
}

TEST_CASE("what follows an end is put there, and the text goes on") {
  torch::manual_seed(1);
  st::Llama model(tiny_target());
  enlarge(*model);
  std::vector<st::Token> ends;
  for (st::Token x = 0; x < 25; ++x) ends.push_back(x);  // half of the tokens: parts are short
  const st::SamplerOptions options{.texts = 3, .longest = 60, .part = 10, .temperatures = {1}, .ends = ends};
  std::vector<st::TextPlan> plans;
  for (std::uint32_t i = 0; i < 50; ++i)
    plans.push_back({.number = i, .begin = {40}, .then = {{41, 42, 43}, {44, 45}}});
  int whole = 0;
  for (const auto& [number, text] : sample(model, options, plans).texts) {
    CAPTURE(number);
    std::size_t at = 1, parts = 0;
    while (at < text.size()) {
      std::size_t fresh = 0;
      while (at < text.size() && text[at] >= 25 && fresh < 10) ++at, ++fresh;
      if (at == text.size() || fresh == 10) break;  // cut off
      ++at;
      ++parts;
      if (parts > 2) break;
      const auto& then = plans[0].then[parts - 1];
      REQUIRE(std::equal(then.begin(), then.end(), text.begin() + static_cast<std::ptrdiff_t>(at)));
      at += then.size();
    }
    CHECK(at == text.size());
    whole += parts == 3;
  }
  CHECK(whole > 25);
}

TEST_CASE("greedy texts that ask have questions of their own, and greedy answers") {
  torch::manual_seed(1);
  st::Llama model(tiny_target());
  enlarge(*model);
  std::vector<st::Token> ends;
  for (st::Token x = 0; x < 25; ++x) ends.push_back(x);
  const st::SamplerOptions options{.texts = 8, .longest = 60, .part = 10, .temperatures = {0}, .ends = ends};
  std::vector<st::TextPlan> plans;
  for (std::uint32_t i = 0; i < 60; ++i)
    plans.push_back({.number = i, .begin = {40}, .then = {{41, 42, 43}}, .asks = true});
  std::set<st::Document> questions;
  std::size_t answers = 0;
  for (const auto& [number, text] : sample(model, options, plans).texts) {
    CAPTURE(number);
    const auto end = std::find_if(text.begin() + 1, text.end(), [](st::Token x) { return x < 25; });
    questions.insert(st::Document(text.begin(), std::min(end + 1, text.end())));
    const auto logits = model->head(model->features(tokens_of(text), torch::kFloat32))[0];
    for (auto at = end - text.begin() + 4; at < static_cast<std::ptrdiff_t>(text.size()); ++at, ++answers) {
      const auto row = logits[at - 1];
      CHECK(row[text[static_cast<std::size_t>(at)]].item<double>() >= row.max().item<double>() - 1e-4);
    }
  }
  CHECK(questions.size() > 30);
  CHECK(answers > 30);
}

TEST_CASE("texts without a beginning, or without room to go on, are refused; stopped texts are dropped") {
  st::Llama model(tiny_target());
  const st::SamplerOptions options{.texts = 2, .longest = 4, .part = 4, .temperatures = {0}};
  CHECK_THROWS_AS(sample(model, options, {{.number = 0, .begin = {}}}), std::invalid_argument);
  CHECK_THROWS_AS(sample(model, options, {{.number = 0, .begin = {1, 2, 3, 4}}}), std::invalid_argument);
  int texts = 0;
  std::uint32_t number = 0;
  st::sample_texts(
      model, torch::kFloat32, options,
      [&] { return std::optional(st::TextPlan{.number = number++, .begin = {1}}); },
      [&](const st::TextPlan&, const st::Document&) { ++texts; },
      [](std::int64_t passes) { return passes == 4; });
  CHECK(texts == 2);
}
