// SPDX-License-Identifier: MIT
// labels: threads
// A Llama decoder that skips some of its blocks in its own KV cache, and the similarity of its attention
// blocks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "all_parts.hpp"
#include "count_allocations.hpp"
#include "naive_llama.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/policy/concepts.hpp"
#include "thread_sanitizer.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using specula_test::Random;

static_assert(SkipsLayers<Decoder<float>> && SkipsLayers<Decoder<double>>);

DecoderConfig config_of(std::int32_t layers, std::vector<std::int32_t> exits = {}) {
  DecoderConfig c;
  c.vocab_size = 53, c.hidden_size = 37, c.intermediate_size = 45, c.layers = layers;
  c.heads = 6, c.kv_heads = 2, c.head_dim = 6, c.tied_head = true;
  c.exits = std::move(exits);
  return c;
}

template <class Real = float>
std::shared_ptr<const DecoderWeights<Real>> weights_of(const DecoderConfig& config) {
  return std::make_shared<const DecoderWeights<Real>>(
      random_decoder_weights<Real>(config, 7, WeightType::bf16));
}

std::vector<Token> random_tokens(Random& random, std::int32_t count) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(53));
  return tokens;
}

/// All keys and values of the tokens [0, tokens), as stored.
std::vector<float> bytes_of(const KeyValuesView<float>& view) {
  std::vector<float> all;
  const auto& cache = view.cache();
  for (std::int32_t l = 0; l < cache.layers(); ++l)
    for (std::int32_t h = 0; h < cache.heads(); ++h)
      for (std::int32_t slot = 0; slot < view.size(); ++slot)
        for (std::int32_t d = 0; d < cache.head_dim(); ++d) {
          const auto keys = cache.keys(l, h);
          const auto values = cache.values(l, h, slot);
          all.push_back(keys.w[slot / 16 * keys.panel + d * keys.column + slot % 16]);
          all.push_back(values.w[d / 16 * values.panel + d % 16]);
        }
  return all;
}

std::vector<float> logits_of(Decoder<float>& model, std::int32_t row) {
  const auto logits = model.logits(row);
  return {logits.begin(), logits.end()};
}

}  // namespace

UNTHREADED_TEST_CASE(
    "skipping nothing gives the model; skipping attention and MLP of a layer gives the model without it") {
  Random random(1);
  const auto weights = weights_of(config_of(4));
  const std::vector<Token> text = random_tokens(random, 30), draft_tokens = random_tokens(random, 5);
  const std::vector<NodeId> parents{kNoParent, 0, 0, 1, 3};
  Decoder<float> model(weights), plain(weights);
  for (auto* m : {&model, &plain}) m->append(text);
  SkippedBlocks skipped(4);
  model.extend_skipping(draft_tokens, parents, skipped);
  plain.extend(draft_tokens, parents);
  for (std::int32_t r = 0; r < 5; ++r) CHECK(logits_of(model, r) == logits_of(plain, r));

  // Layer 3 skipped: its keys are not read, so a model without it gives the same rows.
  DecoderWeights<float> three = *weights;
  three.layers.erase(three.layers.begin() + 2);
  three.config.layers = 3;
  // The layers below agree; above, the context of one model was computed with layer 3, the other's without.
  // Without context both agree.
  Decoder<float> without(std::make_shared<const DecoderWeights<float>>(three));
  skipped.attention[2] = skipped.mlp[2] = 1;
  CHECK(skipped.count() == 2);
  model.truncate(0);
  model.extend_skipping(draft_tokens, parents, skipped);
  without.extend(draft_tokens, parents);
  for (std::int32_t r = 0; r < 5; ++r) CHECK(logits_of(model, r) == logits_of(without, r));
}

UNTHREADED_TEST_CASE("each skipped block is the identity, against the naive transcription") {
  Random random(2);
  const DecoderConfig config = specula_test::with_all_parts(config_of(5));
  const auto weights = weights_of<double>(config);
  for (int trial = 0; trial < 6; ++trial) {
    CAPTURE(trial);
    SkippedBlocks skipped(5);
    DecoderWeights<double> zeros = *weights;
    for (std::size_t l = 0; l < 5; ++l) {
      if (random.bernoulli(0.4)) {
        skipped.attention[l] = 1;
        zeros.layers[l].attention.output = PanelMatrix<double>(37, 36, WeightType::full);
        zeros.layers[l].attention.output_bias.clear();
      }
      if (random.bernoulli(0.4)) {
        skipped.mlp[l] = 1;
        zeros.layers[l].mlp.down = PanelMatrix<double>(37, 45, WeightType::full);
      }
    }
    // Blocks whose last matrix is zero add nothing. There is no context, since the whole model would compute
    // it.
    Decoder<double> model(weights), textbook(std::make_shared<const DecoderWeights<double>>(zeros));
    const std::vector<Token> draft_tokens = random_tokens(random, 6);
    const std::vector<NodeId> parents{kNoParent, 0, 1, 1, 2, 4};
    model.extend_skipping(draft_tokens, parents, skipped);
    textbook.extend(draft_tokens, parents);
    for (std::int32_t r = 0; r < 6; ++r)
      for (std::size_t x = 0; x < 53; ++x)
        CHECK(model.logits(r)[x] == doctest::Approx(textbook.logits(r)[x]));
  }
}

UNTHREADED_TEST_CASE("committed slots have the same bytes before and after, and so have later rows") {
  Random random(3);
  const auto weights = weights_of(config_of(4));
  Decoder<float> model(weights), undisturbed(weights);
  for (auto* m : {&model, &undisturbed}) m->append(random_tokens(random = Random(3), 45));
  SkippedBlocks skipped(4);
  skipped.attention[0] = skipped.attention[2] = skipped.mlp[2] = 1;
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> before = bytes_of(model.key_values());
    NodeId last = kNoParent;
    for (int i = 0; i < 6; ++i, last = i - 1) {
      const Token token = random.below(53);
      model.extend_skipping({&token, 1}, {&last, 1}, skipped);
    }
    CHECK(model.node_count() == 6);
    model.truncate(model.size());
    CHECK(bytes_of(model.key_values()) == before);
    const std::vector<Token> tokens = random_tokens(random, 3);
    const std::vector<NodeId> chain{kNoParent, 0, 1}, path{0, 1};
    for (auto* m : {&model, &undisturbed}) m->extend(tokens, chain);
    for (std::int32_t r = 0; r < 3; ++r) CHECK(logits_of(model, r) == logits_of(undisturbed, r));
    for (auto* m : {&model, &undisturbed}) m->commit(path);
  }
}

UNTHREADED_TEST_CASE("tokens that append() deferred are computed first") {
  Random random(4);
  const auto weights = weights_of(config_of(3));
  const std::vector<Token> text = random_tokens(random, 7);
  const Token token = 5;
  const NodeId root = kNoParent;
  SkippedBlocks skipped(3);
  skipped.mlp[1] = 1;
  Decoder<float> waiting(weights), ready(weights);
  waiting.append(text), ready.append(text);
  ready.key_values();
  waiting.extend_skipping({&token, 1}, {&root, 1}, skipped);
  ready.extend_skipping({&token, 1}, {&root, 1}, skipped);
  CHECK(logits_of(waiting, 0) == logits_of(ready, 0));
}

UNTHREADED_TEST_CASE("several calls after any number of tokens equal one call") {
  Random random(8);
  const auto weights = weights_of(config_of(3));
  SkippedBlocks none(3), some(3);
  some.attention[1] = some.mlp[0] = 1;
  const std::vector<Token> draft_tokens = random_tokens(random, 5);
  const std::vector<NodeId> parents{kNoParent, 0, 0, 1, 3};
  for (std::int32_t tokens = 0; tokens < 36; ++tokens) {
    CAPTURE(tokens);
    const std::vector<Token> text = random_tokens(random, tokens);
    for (const SkippedBlocks* skipped : {&none, &some}) {
      Decoder<float> at_once(weights), in_pieces(weights), plain(weights);
      for (auto* m : {&at_once, &in_pieces, &plain}) m->append(text);
      at_once.extend_skipping(draft_tokens, parents, *skipped);
      plain.extend(draft_tokens, parents);
      for (std::size_t i = 0; i < 5; ++i) {
        in_pieces.extend_skipping(Tokens(draft_tokens).subspan(i, 1), Nodes(parents).subspan(i, 1), *skipped);
        const auto row = static_cast<std::int32_t>(i);
        CHECK(logits_of(in_pieces, 0) == logits_of(at_once, row));
        if (skipped == &none) CHECK(logits_of(in_pieces, 0) == logits_of(plain, row));
      }
    }
  }
}

UNTHREADED_TEST_CASE("a model with exits computes all layers that its committed tokens lack") {
  Random random(5);
  const auto weights = weights_of(config_of(4, {1, 4}));
  DecoderWeights<float> bare = *weights;  // the same without exits
  bare.config.exits.clear();
  const std::vector<Token> text = random_tokens(random, 5);
  const Token token = 5;
  const NodeId root = kNoParent, first = 0;
  const std::int32_t row = 0;
  SkippedBlocks skipped(4);
  skipped.attention[1] = 1;
  Decoder<float> early(weights), whole(std::make_shared<const DecoderWeights<float>>(bare));
  whole.append(text);
  for (const Token t : text) early.extend_to_exit({&t, 1}, {&root, 1}, 0), early.commit({&first, 1});
  for (auto* m : {&early, &whole}) m->extend_skipping({&token, 1}, {&root, 1}, skipped);
  CHECK(logits_of(early, 0) == logits_of(whole, 0));
  CHECK_THROWS_WITH_AS(early.resume_to_exit({&row, 1}, 1),
                       doctest::Contains("Decoder::resume_to_exit: row 0, must be of"),
                       std::invalid_argument);
}

UNTHREADED_TEST_CASE(
    "nodes with different skipped blocks cannot be mixed, and such nodes cannot be committed") {
  Decoder<float> model(weights_of(config_of(3)));
  const Token token = 1;
  const NodeId root = kNoParent, first = 0;
  SkippedBlocks one(3), other(3);
  one.mlp[0] = 1;
  model.extend_skipping({&token, 1}, {&root, 1}, one);
  CHECK_THROWS_WITH_AS(
      model.extend_skipping({&token, 1}, {&first, 1}, other),
      "Decoder::extend_skipping: there are nodes that do not skip these blocks; truncate() first",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.extend({&token, 1}, {&first, 1}),
                       "Decoder::extend: there are nodes of extend_skipping(); truncate() first",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.commit({&first, 1}),
                       "Decoder::commit: nodes of extend_skipping() cannot be committed",
                       std::invalid_argument);
  CHECK(model.node_count() == 1);
  model.extend_skipping({&token, 1}, {&first, 1}, one);
  model.commit({});
  model.extend({&token, 1}, {&root, 1});
  CHECK_THROWS_WITH_AS(
      model.extend_skipping({&token, 1}, {&first, 1}, one),
      "Decoder::extend_skipping: there are nodes that do not skip these blocks; truncate() first",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.extend_skipping({&token, 1}, {&first, 1}, SkippedBlocks(2)),
                       "Decoder::extend_skipping: blocks of 2 layers, the model has 3",
                       std::invalid_argument);
  model.commit({&first, 1});
  CHECK(model.size() == 1);
  model.extend({&token, 1}, {&root, 1});
  model.truncate(1);
  model.extend_skipping({&token, 1}, {&root, 1}, one);
  model.truncate(1);
  model.extend({&token, 1}, {&root, 1});
  CHECK(model.node_count() == 1);
}

UNTHREADED_TEST_CASE("similarity is the mean cosine around each attention block, and around each MLP block") {
  Random random(6);
  const std::vector<Token> text = random_tokens(random, 50);
  const auto in_double = weights_of<double>(config_of(3));
  Decoder<double> model(in_double, {.measure_similarity = true, .measure_mlp_similarity = true});
  model.append(text);
  const auto got = model.attention_similarity(), got_mlp = model.mlp_similarity();
  REQUIRE(got.size() == 3);
  REQUIRE(got_mlp.size() == 3);
  const auto mean_cosine = [&](const auto& x, const auto& y) {
    double mean = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      double xx = 0, xy = 0, yy = 0;
      for (std::size_t d = 0; d < x[i].size(); ++d)
        xx += x[i][d] * x[i][d], xy += x[i][d] * y[i][d], yy += y[i][d] * y[i][d];
      mean += xy / std::sqrt(xx * yy) / 50;
    }
    return mean;
  };
  // The residual stream before and after a block, from models that end there: features without a final norm.
  for (std::int32_t l = 0; l < 3; ++l) {
    const auto stream = [&](std::int32_t layers, bool attention) {
      DecoderWeights<double> cut = *in_double;
      cut.layers.resize(static_cast<std::size_t>(layers + (attention ? 1 : 0)));
      cut.config.layers = static_cast<std::int32_t>(cut.layers.size());
      if (attention) cut.layers.back().mlp.down = PanelMatrix<double>(37, 45, WeightType::full);
      cut.final_norm = {};
      Decoder<double> end(std::make_shared<const DecoderWeights<double>>(cut));
      end.append(text);
      std::vector<std::vector<double>> rows;
      const auto features = end.features();
      for (std::int32_t i = 0; i < features.size(); ++i)
        rows.emplace_back(features.row(i).begin(), features.row(i).end());
      return rows;
    };
    const auto middle = stream(l, true), after = stream(l + 1, false);
    CHECK(got_mlp[static_cast<std::size_t>(l)] == doctest::Approx(mean_cosine(middle, after)).epsilon(1e-9));
    if (l == 0) continue;  // there is no model without layers
    CHECK(got[static_cast<std::size_t>(l)] ==
          doctest::Approx(mean_cosine(stream(l, false), middle)).epsilon(1e-9));
  }
}

TEST_CASE("similarity depends on the context only, not on calls, threads or instruction sets") {
  Random random(7);
  const std::vector<Token> text = random_tokens(random, 60);
  for (const std::vector<std::int32_t>& exits : {std::vector<std::int32_t>{}, {1, 3}}) {
    const auto weights = weights_of(config_of(3, exits));
    Decoder<float> model(weights, {.measure_similarity = true, .measure_mlp_similarity = true});
    CHECK(model.attention_similarity().empty());
    model.append(text);
    const auto copy = [](std::span<const double> values) {
      return std::vector<double>(values.begin(), values.end());
    };
    const std::vector<double> whole = copy(model.attention_similarity()), mlp = copy(model.mlp_similarity());
    REQUIRE(whole.size() == 3);
    REQUIRE(mlp.size() == 3);
    for (const double cosine : whole) CHECK(std::abs(cosine) < 1);

    Decoder<float> pieces(
        weights,
        {.threads = 3, .prefill_chunk = 7, .measure_similarity = true, .measure_mlp_similarity = true});
    for (std::size_t i = 0; i < 50; i += 5) pieces.append(Tokens(text).subspan(i, 5));
    // As accepted draft tokens with siblings between them, drafted first without some blocks.
    SkippedBlocks skipped(3);
    skipped.attention[1] = 1;
    for (std::size_t i = 50; i < 60; i += 2) {
      const std::vector<Token> tokens{1, text[i], 2, text[i + 1]};
      const std::vector<NodeId> parents{kNoParent, kNoParent, 1, 1}, path{1, 3};
      pieces.extend_skipping(tokens, parents, skipped);
      pieces.truncate(pieces.size());
      if (exits.empty())
        pieces.extend(tokens, parents);
      else
        pieces.extend_to_exit(tokens, parents, 0);
      pieces.commit(path);
    }
    CHECK(copy(pieces.attention_similarity()) == whole);
    CHECK(copy(pieces.mlp_similarity()) == mlp);
    // Truncated, then other tokens.
    pieces.append(random_tokens(random, 5));
    pieces.truncate(20);
    pieces.append(Tokens(text).subspan(20));
    CHECK(copy(pieces.attention_similarity()) == whole);

    Decoder<float> portable(weights, {.isa = Isa::portable, .measure_similarity = true});
    portable.append(text);
    Decoder<double> exact(weights_of<double>(config_of(3, exits)), {.measure_similarity = true});
    exact.append(text);
    for (std::size_t l = 0; l < 3; ++l) {
      CHECK(portable.attention_similarity()[l] == doctest::Approx(whole[l]).epsilon(1e-4));
      CHECK(exact.attention_similarity()[l] == doctest::Approx(whole[l]).epsilon(1e-4));
    }
    Decoder<float> unmeasured(weights);
    unmeasured.append(text);
    CHECK(unmeasured.attention_similarity().empty());
    CHECK(unmeasured.mlp_similarity().empty());
  }
}

UNTHREADED_TEST_CASE("drafting allocates nothing") {
  Decoder<float> model(weights_of(config_of(3)), {.measure_similarity = true});
  SkippedBlocks skipped(3);
  skipped.mlp[1] = 1;
  const Token token = 1;
  const NodeId root = kNoParent, first = 0;
  model.append(std::vector<Token>(20, 3));
  specula_test::AllocationCount allocated;
  for (int i = 0; i < 20; ++i) {
    model.extend_skipping({&token, 1}, {&root, 1}, skipped);
    model.extend_skipping({&token, 1}, {&first, 1}, skipped);
    model.truncate(model.size());
    model.extend({&token, 1}, {&root, 1});
    model.commit({&first, 1});
    model.attention_similarity();
  }
  const auto n = allocated.count();
  CHECK(n == 0);
}
