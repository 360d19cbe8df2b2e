// SPDX-License-Identifier: MIT
// labels: threads
// Drafts that predict some of their target's tokens: bits as those of a whole LM head, drafts over the
// target's embedding, and the text of pipelines.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "naive_llama.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/specula.hpp"
#include "thread_sanitizer.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using specula_test::Random;

template <class Real>
using Weights = std::shared_ptr<const DecoderWeights<Real>>;

constexpr std::int32_t kVocab = 530;  // two tiles of a row

DecoderConfig config_of(std::int32_t hidden, std::int32_t layers, bool tied) {
  DecoderConfig c;
  c.vocab_size = kVocab, c.hidden_size = hidden, c.intermediate_size = 40, c.layers = layers;
  c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.tied_head = tied;
  return c;
}
DecoderConfig head_of(std::int32_t draft_tokens) {
  DecoderConfig c = config_of(32, 1, true);
  c.conditioned_on = Conditioning::features, c.draft_vocab_size = draft_tokens;
  return c;
}
/// A draft of hidden size 24 over the embedding of the target.
DecoderConfig draft_of(std::int32_t draft_tokens, std::vector<std::int32_t> exits = {}) {
  DecoderConfig c = config_of(24, 2, false);
  c.target_hidden_size = 32, c.draft_vocab_size = draft_tokens, c.exits = std::move(exits);
  return c;
}
DecoderConfig glide_of(std::int32_t draft_tokens) {
  DecoderConfig c = draft_of(draft_tokens);
  c.conditioned_on = Conditioning::key_values;
  static_cast<AttentionShape&>(c.target) = config_of(32, 3, true);
  c.target.layers = 3;
  return c;
}

template <class Real>
Weights<Real> weights_of(const DecoderConfig& config, std::uint64_t seed, Weights<Real> target = {},
                         WeightType stored = WeightType::bf16) {
  return std::make_shared<const DecoderWeights<Real>>(
      random_decoder_weights<Real>(config, seed, stored, target));
}

/// `weights`, which predict all tokens, cut to `tokens`. What random weights cannot be: their LM head differs
/// with the size of the draft vocabulary.
Weights<float> cut_to(const Weights<float>& weights, std::vector<std::int32_t> tokens) {
  auto cut = *weights;
  cut.config.draft_vocab_size = static_cast<std::int32_t>(tokens.size());
  cut.separate_head = weights->head().select(tokens);
  cut.draft_tokens = std::move(tokens);
  return std::make_shared<const DecoderWeights<float>>(std::move(cut));
}

std::vector<Token> random_tokens(Random& random, std::int32_t count) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(kVocab));
  return tokens;
}

/// Rows of a tree after a text of random tokens, which the target has seen.
std::vector<std::vector<float>> rows_of(const Weights<float>& target_weights, const Weights<float>& weights,
                                        const DecoderOptions& options = {}) {
  Decoder<float> target(target_weights), draft(weights, options);
  Random random(3);
  const auto text = random_tokens(random, 20), tokens = random_tokens(random, 5);
  const std::vector<NodeId> parents{kNoParent, 0, 0, 1, 2};
  target.append(text);
  if (draft.conditioned_on() == Conditioning::features) draft.set_target_state(target.features());
  if (draft.conditioned_on() == Conditioning::key_values) draft.set_target_state(target.key_values());
  draft.append(text);
  std::vector<std::vector<float>> rows;
  for (const std::size_t first : {0, 2}) {
    const std::size_t count = first == 0 ? 2 : 3;
    const LogitsView view =
        draft.extend(Tokens(tokens).subspan(first, count), Nodes(parents).subspan(first, count));
    CHECK(view.vocab == kVocab);
    for (std::int32_t r = 0; r < view.rows; ++r) rows.emplace_back(view.row(r).begin(), view.row(r).end());
  }
  return rows;
}

}  // namespace

TEST_CASE("logits of draft tokens have the bits of a whole LM head, others are minus infinity") {
  const auto target = weights_of<float>(config_of(32, 3, false), 5);
  std::vector<std::int32_t> all(kVocab), some{0, 1, 17, 300, 511, 512, 529};
  std::iota(all.begin(), all.end(), 0);
  for (const DecoderConfig& config : {head_of(0), draft_of(0), glide_of(0), draft_of(0, {1, 2})})
    for (const DecoderOptions& options : {DecoderOptions{}, DecoderOptions{.threads = 3}}) {
      const auto weights = weights_of<float>(config, 6, target);
      const auto whole = rows_of(target, weights, options);
      CHECK(rows_of(target, cut_to(weights, all), options) == whole);
      const auto cut = rows_of(target, cut_to(weights, some), options);
      for (std::size_t r = 0; r < whole.size(); ++r)
        for (Token token = 0; token < kVocab; ++token) {
          const auto at = static_cast<std::size_t>(token);
          if (std::binary_search(some.begin(), some.end(), token))
            REQUIRE(cut[r][at] == whole[r][at]);
          else
            REQUIRE(cut[r][at] == -std::numeric_limits<float>::infinity());
        }
    }
}

UNTHREADED_TEST_CASE("a head's own draft vocabulary is rows of the target's LM head, tied or not") {
  for (const bool tied : {false, true})
    for (const WeightType stored : {WeightType::bf16, WeightType::full}) {
      const auto target = weights_of<float>(config_of(32, 3, tied), 5, {}, stored);
      const auto whole = weights_of<float>(head_of(0), 6, target),
                 head = weights_of<float>(head_of(100), 6, target);
      CHECK(&whole->head() == &target->head());
      REQUIRE(head->head().rows() == 100);
      CHECK(head->head().type() == stored);
      CHECK(rows_of(target, head) == rows_of(target, cut_to(whole, head->draft_tokens)));
    }
}

UNTHREADED_TEST_CASE("a draft over its target's embedding agrees with a naive transcription") {
  const auto target = weights_of<double>(config_of(32, 3, true), 5);
  for (const DecoderConfig& config : {draft_of(0), draft_of(77)}) {
    const auto weights = weights_of<double>(config, 6, target);
    Decoder<double> draft(weights, {.capacity = 64});
    CHECK(draft.conditioned_on() == Conditioning::nothing);
    Random random(4);
    auto text = random_tokens(random, 30);
    draft.append(Tokens(text).first(29));
    const NodeId root = kNoParent;
    draft.extend(Tokens(text).last(1), {&root, 1});
    const auto expected = specula_test::naive_states(*weights, text).logits.back();
    const auto logits = draft.logits(0);
    std::int32_t finite = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const bool drafted = std::isfinite(expected[i]);
      finite += drafted;
      CHECK((logits[i] == expected[i] || (drafted && std::abs(logits[i] - expected[i]) < 1e-10)));
    }
    CHECK(finite == config.head_rows());
  }
}

UNTHREADED_TEST_CASE("what does not fit together is an error") {
  const auto target = weights_of<float>(config_of(32, 3, true), 5);
  const auto error = [&](const DecoderConfig& config, const Weights<float>& lender) -> std::string {
    try {
      weights_of<float>(config, 6, lender);
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
    return "";
  };
  CHECK(error(draft_of(5), {}) ==
        "DecoderConfig: a draft over its target's embedding is loaded with its target's weights");
  CHECK(error(draft_of(5), weights_of<float>(config_of(48, 1, true), 1)) ==
        "DecoderConfig: target_hidden_size is 32, the target's hidden_size is 48: the draft is made for "
        "another target");
  auto larger = draft_of(5);
  larger.vocab_size = 531;
  CHECK(error(larger, target) == "DecoderConfig: vocab_size is 531, the target's is 530");
  auto over_draft = draft_of(5);
  over_draft.target_hidden_size = 24;
  CHECK(error(over_draft, weights_of<float>(draft_of(0), 1, target)) ==
        "DecoderConfig: its target is a draft itself, expected a model with an embedding and an LM head");
  CHECK(error(draft_of(5), target).empty());
  const auto draft = cut_to(weights_of<float>(draft_of(0), 6, target), {300, 400});
  CHECK_THROWS_WITH_AS(Decoder<float>(draft, {.vocab_size = 300}),
                       "DecoderOptions::vocab_size is 300, must be above 300, the first token of the draft "
                       "vocabulary",
                       std::invalid_argument);
  CHECK_NOTHROW(Decoder<float>(draft, {.vocab_size = 301}));
}

UNTHREADED_TEST_CASE("greedy text is the target's, and sampled text ends without an error of the draft") {
  const auto target_weights = weights_of<float>(config_of(32, 3, true), 5);
  Random random(8);
  const auto prompt = random_tokens(random, 12);
  const auto text_of = [&](auto make_drafter, auto shape, const SamplingParams& params) {
    Decoder<float> target(target_weights, {.capacity = 128});
    auto drafter = make_drafter(target);
    Speculator run{TreeVerifier{target, Sampling{}, params}, drafter, shape};
    run.start(prompt);
    PhiloxRandom rng(1);
    while (run.text().size() < prompt.size() + 30) run.step(rng);
    CHECK(run.draft_error().empty());
    return std::vector<Token>(run.text().begin(), run.text().begin() + 42);
  };
  const SamplingParams greedy{.temperature = 0};
  const auto plain = text_of([](auto&) { return NoDrafter{kVocab}; }, Chain<>{}, greedy);
  const auto compare = [&](auto make_drafter) {
    CHECK(text_of(make_drafter, Chain<>{.length = 4}, greedy) == plain);
    CHECK(text_of(make_drafter, DynamicTree{}, greedy) == plain);
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 2, .top_k = 50},
                                         SamplingParams{.temperature = 0.5f, .top_p = 0.9f}}) {
      text_of(make_drafter, Chain<Draw::sampled>{.length = 4}, params);
      text_of(make_drafter, SampledTree<ProposalKind::sampled_distinct>{.widths = {8, 1}}, params);
    }
  };
  for (const std::int32_t tokens : {1, 5, 200}) {
    CAPTURE(tokens);
    Decoder<float> draft(weights_of<float>(draft_of(tokens), 6, target_weights), {.capacity = 128});
    Decoder<float> exits(weights_of<float>(draft_of(tokens, {1, 2}), 6, target_weights), {.capacity = 128});
    Decoder<float> head(weights_of<float>(head_of(tokens), 6, target_weights), {.capacity = 128});
    Decoder<float> glide(weights_of<float>(glide_of(tokens), 6, target_weights), {.capacity = 128});
    compare([&](auto&) { return ModelDrafter{draft}; });
    compare([&](auto&) { return EarlyExitDrafter{exits, {0.5f}}; });
    compare([&](auto& target) { return FeatureHead{head, target}; });
    compare([&](auto& target) { return Glide{glide, target}; });
  }
}
