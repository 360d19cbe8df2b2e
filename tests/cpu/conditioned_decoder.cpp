// SPDX-License-Identifier: MIT
// labels: threads
// Llama decoders conditioned on a target's keys and values (GLIDE) or features (EAGLE), against a naive
// transcription.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "all_parts.hpp"
#include "attention_scores.hpp"
#include "count_allocations.hpp"
#include "naive_llama.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/policy/concepts.hpp"
#include "thread_sanitizer.hpp"
#include "worst.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using specula_test::farthest;
using specula_test::Random;
using specula_test::with_all_parts;

static_assert(ExposesKeyValues<Decoder<float>> && ExposesFeatures<Decoder<double>>);
static_assert(TargetConditioned<Decoder<float>> && TargetConditioned<Decoder<double>>);
static_assert(std::same_as<Decoder<float>::TargetKeyValues, KeyValuesView<float>> &&
              std::same_as<Decoder<float>::TargetFeatures, FeaturesView<float>>);

DecoderConfig config_of(int vocab, int hidden, int intermediate, int layers, int heads, int kv_heads,
                        int head_dim) {
  DecoderConfig c;
  c.vocab_size = vocab, c.hidden_size = hidden, c.intermediate_size = intermediate, c.layers = layers;
  c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim, c.tied_head = true;
  return c;
}

DecoderConfig glide_of(DecoderConfig draft, const DecoderConfig& target) {
  draft.conditioned_on = Conditioning::key_values;
  static_cast<AttentionShape&>(draft.target) = target;
  draft.target.layers = target.layers;
  return draft;
}
DecoderConfig head_of(DecoderConfig draft, std::vector<std::int32_t> feature_layers = {}) {
  draft.conditioned_on = Conditioning::features;
  draft.feature_layers = std::move(feature_layers);
  return draft;
}

template <class Real>
using Weights = std::shared_ptr<const DecoderWeights<Real>>;

template <class Real>
Weights<Real> weights_of(const DecoderConfig& config, std::uint64_t seed, Weights<Real> target = {},
                         float scores = specula_test::kRandom) {
  return std::make_shared<const DecoderWeights<Real>>(specula_test::with_scores(
      random_decoder_weights<Real>(config, seed, WeightType::bf16, target), scores));
}

struct Pair {
  std::string name;
  DecoderConfig target, draft;
};

/// Drafts of one and two layers, wider and narrower than the target, with different heads; and targets with
/// grouped queries, with one KV head, with another base of the rotary angles.
std::vector<Pair> pairs() {
  const DecoderConfig plain = config_of(53, 32, 40, 3, 4, 2, 8);
  DecoderConfig odd = config_of(41, 37, 45, 2, 6, 1, 6);
  odd.rope_theta = 500;
  odd.tied_head = false;
  DecoderConfig lowest = glide_of(config_of(53, 24, 33, 1, 3, 3, 10), plain);
  lowest.target.reads = {0};
  lowest.tied_head = false;
  DecoderConfig crossed = glide_of(config_of(53, 40, 20, 2, 4, 1, 4), plain);
  crossed.target.reads = {2, 0};
  DecoderConfig deeper = glide_of(config_of(41, 16, 20, 3, 2, 1, 8), odd);  // than its target
  deeper.target.reads = {1, 1, 0};
  const auto some_tokens = [](DecoderConfig config, std::int32_t tokens) {
    config.draft_vocab_size = tokens;
    return config;
  };
  const auto projecting = [](DecoderConfig config, const DecoderConfig& target) {
    config.target_hidden_size = target.hidden_size;
    config.tied_head = false;
    return config;
  };
  const DecoderConfig parts = with_all_parts(config_of(53, 32, 40, 3, 4, 2, 10));
  return {
      {"glide, one layer", plain, glide_of(config_of(53, 24, 33, 1, 3, 3, 10), plain)},
      {"glide, two layers", plain, glide_of(config_of(53, 40, 20, 2, 4, 1, 4), plain)},
      {"glide, another target", odd, glide_of(config_of(41, 16, 20, 2, 2, 1, 8), odd)},
      {"glide on the lowest layer, a head of its own", plain, lowest},
      {"glide on two layers, the last first", plain, crossed},
      {"glide of more layers than the target", odd, deeper},
      {"head on three layers", plain, head_of(config_of(53, 32, 25, 1, 2, 2, 12), {1, 2})},
      {"head of two layers on two layers", odd, head_of(config_of(41, 37, 30, 2, 6, 3, 4), {1})},
      {"glide on a target of all parts", parts, glide_of(config_of(53, 24, 33, 2, 3, 3, 10), parts)},
      {"glide of all parts", plain, glide_of(with_all_parts(config_of(53, 24, 33, 1, 3, 3, 10)), plain)},
      {"head on two layers of a target of all parts", parts,
       head_of(config_of(53, 32, 25, 1, 2, 2, 12), {1})},
      {"head of all parts", plain, head_of(with_all_parts(config_of(53, 32, 25, 1, 2, 2, 12)))},
      {"head with a draft vocabulary", plain, some_tokens(head_of(config_of(53, 32, 25, 1, 2, 2, 12)), 17)},
      {"head on a layer with a draft vocabulary", odd,
       some_tokens(head_of(config_of(41, 37, 30, 2, 6, 3, 4), {1}), 40)},
      {"glide with a draft vocabulary", plain, some_tokens(lowest, 20)},
      {"glide over the target's embedding", plain,
       projecting(glide_of(config_of(53, 24, 33, 1, 3, 3, 10), plain), plain)},
      {"glide over the target's embedding with a draft vocabulary", odd,
       some_tokens(projecting(glide_of(config_of(41, 19, 20, 2, 2, 1, 8), odd), odd), 1)},
      {"head", plain, head_of(config_of(53, 32, 25, 1, 2, 2, 12))},
      {"head of two layers", odd, head_of(config_of(41, 37, 30, 2, 6, 3, 4))}};
}

/// The weights of both.
struct PairWeights {
  explicit PairWeights(const Pair& pair)
      : target(weights_of<float>(pair.target, 5)), draft(weights_of<float>(pair.draft, 6, target)) {}
  Weights<float> target, draft;
};

template <class Real>
void look(Decoder<Real>& draft, Decoder<Real>& target) {
  if (draft.config().conditioned_on == Conditioning::key_values)
    draft.set_target_state(target.key_values());
  else
    draft.set_target_state(target.features());
}

std::vector<Token> random_tokens(Random& random, std::int32_t count, std::int32_t vocab) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}

UNTHREADED_TEST_CASE(
    "a target exposes features, keys and values of its committed tokens, appended or committed") {
  const auto weights = weights_of<double>(config_of(53, 32, 40, 3, 4, 2, 8), 3);
  Decoder<double> model(weights, {.capacity = 64, .max_nodes = 8, .feature_layers = {1, 2}});
  Random random(1);
  std::vector<Token> text = random_tokens(random, 20, 53);
  model.append(text);
  const std::vector<Token> draft_tokens{3, 7, 9, 11, 2};
  const std::vector<NodeId> parents{kNoParent, 0, 0, 2, 3}, path{0, 2, 3};
  model.extend(draft_tokens, parents);
  CHECK(model.features().size() == 20);  // nodes are not committed
  model.commit(path);
  for (const NodeId node : path) text.push_back(draft_tokens[static_cast<std::size_t>(node)]);
  model.append(std::vector<Token>{1, 2});  // deferred
  text.insert(text.end(), {1, 2});

  const auto expected = specula_test::naive_states(*weights, text);
  const auto features = model.features();
  const auto key_values = model.key_values();
  REQUIRE(features.size() == 25);
  REQUIRE(key_values.size() == 25);
  const auto& cache = key_values.cache();
  double key_error = 0, value_error = 0;
  REQUIRE(std::vector(features.layers().begin(), features.layers().end()) == std::vector{1, 2});
  for (std::int32_t t = 0; t < 25; ++t) {
    const auto at = static_cast<std::size_t>(t);
    CHECK(farthest(features.row(t), expected.features[at]) < 1e-12);
    for (std::size_t k = 0; k < 2; ++k)
      CHECK(farthest(features.hidden_state(t, k), expected.hidden[k][at]) < 1e-12);
    for (std::int32_t l = 0; l < 3; ++l)
      for (std::int32_t h = 0; h < 2; ++h)
        for (std::int32_t d = 0; d < 8; ++d) {
          const auto index = static_cast<std::size_t>(h * 8 + d);
          const double key = cache.keys(l, h).w[t / 16 * 16 * 8 + d * 16 + t % 16];
          const double value = cache.values(l, h, t).w[d];
          key_error = specula_test::worse(
              key_error, std::abs(key - expected.keys[static_cast<std::size_t>(l)][at][index]));
          value_error = specula_test::worse(
              value_error, std::abs(value - expected.values[static_cast<std::size_t>(l)][at][index]));
        }
  }
  CHECK(key_error < 1e-12);
  CHECK(value_error < 1e-12);
  CHECK_NOTHROW(features.row(0));  // requesting one view does not end the other
}

UNTHREADED_TEST_CASE("a view ends with the target's next call") {
  Decoder<float> target(weights_of<float>(config_of(53, 32, 40, 3, 4, 2, 8), 3), {.capacity = 64});
  const std::vector<Token> one{5};
  const std::vector<NodeId> root{kNoParent};
  target.append(one);
  const auto stale = [&](auto change) {
    const auto features = target.features();
    const auto key_values = target.key_values();
    CHECK_NOTHROW(features.row(0));
    CHECK_NOTHROW(key_values.cache());
    const std::uint64_t before = target.change_count();
    change();
    CHECK(target.change_count() > before);
    CHECK_THROWS_WITH_AS(features.row(0), "FeaturesView is stale: the model was called since",
                         std::logic_error);
    CHECK_THROWS_AS(key_values.cache(), std::logic_error);
  };
  stale([&] { target.append(one); });
  stale([&] { target.extend(one, root); });
  stale([&] { target.commit({}); });
  stale([&] { target.truncate(1); });

  const auto pair = pairs().front();
  Decoder<float> draft(weights_of<float>(pair.draft, 4), {.capacity = 64});
  CHECK_THROWS_WITH_AS(draft.extend(one, root), doctest::Contains("no model gave it"), std::logic_error);
  look(draft, target);
  CHECK_NOTHROW(draft.extend(one, root));
  target.append(one);
  CHECK_THROWS_WITH_AS(draft.extend(one, root), doctest::Contains("stale"), std::logic_error);
  CHECK(draft.node_count() == 1);  // nothing changed
  CHECK_THROWS_WITH_AS(draft.append(one), doctest::Contains("stale"), std::logic_error);
  CHECK(draft.size() == 0);
  look(draft, target);
  CHECK_NOTHROW(draft.extend(one, root));
}

UNTHREADED_TEST_CASE("a view that does not match the draft is an error") {
  const auto all = pairs();
  Decoder<float> target(weights_of<float>(all[0].target, 3), {.capacity = 64});
  Decoder<float> other(weights_of<float>(all[2].target, 3), {.capacity = 64});
  Decoder<float> glide(weights_of<float>(all[0].draft, 4), {.capacity = 64});
  const DecoderConfig& head_config = all[all.size() - 2].draft;
  Decoder<float> head(weights_of<float>(head_config, 4, target.weights()), {.capacity = 64});
  CHECK_THROWS_WITH_AS(target.set_target_state(target.key_values()),
                       doctest::Contains("does not look at keys"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(glide.set_target_state(target.features()),
                       doctest::Contains("does not look at features"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(glide.set_target_state(other.key_values()),
                       doctest::Contains("num_hidden_layers 3, given one with 2"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(head.set_target_state(other.features()), doctest::Contains("features of width 37"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(weights_of<float>(head_config, 4), doctest::Contains("with its target's weights"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(weights_of<float>(head_config, 4, other.weights()),
                       doctest::Contains("hidden_size is 32, the target's is 37"), std::runtime_error);
}

UNTHREADED_TEST_CASE("double agrees with a naive transcription of the equations, round after round") {
  const auto all = pairs();
  for (const Pair& pair : all)
    for (const float scores : specula_test::kScores) {
      CAPTURE(pair.name);
      CAPTURE(scores);
      const auto target_weights = weights_of<double>(pair.target, 5, {}, scores);
      const auto draft_weights = weights_of<double>(pair.draft, 6, target_weights, scores);
      Decoder<double> target(target_weights,
                             {.capacity = 128, .max_nodes = 16, .feature_layers = pair.draft.feature_layers});
      Decoder<double> draft(draft_weights, {.capacity = 128, .max_nodes = 16});
      Random random(9);
      std::vector<Token> text = random_tokens(random, 9, pair.target.vocab_size);
      target.append(text);
      for (int round = 0; round < 3; ++round) {
        look(draft, target);
        draft.append(Tokens(text).subspan(static_cast<std::size_t>(draft.size())));
        const auto seen = specula_test::naive_states(*target_weights, text);

        // Draft tokens between the context and the root, then a tree in two calls, one of them of parents and
        // children.
        std::vector<Token> line = text;
        if (round % 2 == 1) {
          const auto draft_tokens = random_tokens(random, 2, pair.target.vocab_size);
          draft.append(draft_tokens);
          line.insert(line.end(), draft_tokens.begin(), draft_tokens.end());
        }
        const auto tokens = random_tokens(random, 6, pair.target.vocab_size);
        const std::vector<NodeId> parents{kNoParent, 0, 0, 1, 2, 4};
        std::vector<std::vector<Token>> paths;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          auto path = parents[i] == kNoParent ? line : paths[static_cast<std::size_t>(parents[i])];
          path.push_back(tokens[i]);
          paths.push_back(path);
        }
        const auto check = [&](std::size_t first, std::size_t count) {
          draft.extend(Tokens(tokens).subspan(first, count), Nodes(parents).subspan(first, count));
          for (std::size_t i = 0; i < count; ++i) {
            const auto expected = specula_test::naive_states(*draft_weights, paths[first + i], &seen);
            CHECK(farthest(draft.logits(static_cast<std::int32_t>(i)), expected.logits.back()) < 1e-11);
            if (scores == specula_test::kFlat) CHECK(specula_test::all_alike(expected));
            if (scores == specula_test::kPeaked) CHECK(specula_test::mean_peak(expected) > 0.99);
          }
        };
        check(0, 2);
        check(2, 4);

        // The target continues with another text; the draft drops all nodes that are not context.
        const auto next = random_tokens(random, 3, pair.target.vocab_size);
        target.append(next);
        draft.truncate(static_cast<std::int32_t>(text.size()));
        text.insert(text.end(), next.begin(), next.end());
      }
    }
}

UNTHREADED_TEST_CASE("a draft reads the layer of the target that its config names") {
  const DecoderConfig plain = config_of(53, 32, 40, 3, 4, 2, 8);
  Decoder<double> target(weights_of<double>(plain, 5), {.capacity = 64});
  Random random(7);
  const auto text = random_tokens(random, 12, 53);
  target.append(text);
  const auto row = [&](std::vector<std::int32_t> reads) {
    DecoderConfig config = glide_of(config_of(53, 24, 33, 1, 3, 3, 10), plain);
    config.target.reads = std::move(reads);
    Decoder<double> draft(weights_of<double>(config, 6), {.capacity = 64});
    look(draft, target);
    draft.append(text);
    const std::vector<NodeId> root{kNoParent};
    draft.extend(Tokens(text).first(1), root);
    const auto logits = draft.logits(0);
    return std::vector<double>(logits.begin(), logits.end());
  };
  CHECK(row({}) == row({2}));
  CHECK(row({1}) != row({2}));
  CHECK(row({0}) != row({1}));
  CHECK_THROWS_WITH_AS(row({3}), doctest::Contains("layers_read has 3, expected 0 to 2"), std::runtime_error);
  CHECK_THROWS_WITH_AS(row({0, 1}), doctest::Contains("layers_read names 2 layers"), std::runtime_error);
}

UNTHREADED_TEST_CASE("a head finds the layers that it reads among those that a target keeps") {
  const DecoderConfig plain = config_of(53, 32, 40, 4, 4, 2, 8);
  const auto target_weights = weights_of<double>(plain, 5);
  Random random(7);
  const auto text = random_tokens(random, 12, 53);
  const auto row = [&](std::vector<std::int32_t> reads, std::vector<std::int32_t> shown) {
    Decoder<double> target(target_weights, {.capacity = 64, .feature_layers = std::move(shown)});
    target.append(text);
    const auto config = head_of(config_of(53, 32, 25, 1, 2, 2, 12), std::move(reads));
    Decoder<double> head(weights_of<double>(config, 6, target_weights), {.capacity = 64});
    look(head, target);
    head.append(text);
    const std::vector<NodeId> root{kNoParent};
    head.extend(Tokens(text).first(1), root);
    const auto logits = head.logits(0);
    return std::vector<double>(logits.begin(), logits.end());
  };
  CHECK(row({2}, {2}) == row({2}, {1, 2, 3}));
  CHECK(row({1, 3}, {1, 3}) == row({1, 3}, {1, 2, 3}));
  CHECK(row({2}, {2}) != row({3}, {3}));
  CHECK(row({}, {}) == row({}, {1, 3}));
  CHECK_THROWS_WITH_AS(
      row({1, 2}, {1, 3}),
      "Decoder::set_target_state: the target does not show the hidden state after layer 2: make it "
      "with this model's config().feature_layers in its options",
      std::invalid_argument);
  CHECK_NOTHROW(row({1, 2}, {1, 2}));
  CHECK_THROWS_WITH_AS(row({1, 4}, {}),
                       doctest::Contains("'feature_layers': expected numbers below the "
                                         "target's num_hidden_layers 4"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(row({2, 2}, {}), doctest::Contains("'feature_layers': expected ascending numbers"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(row({}, {3, 1}), "DecoderOptions::feature_layers is 1, must be 4 to 4",
                       std::invalid_argument);
  CHECK(row({}, {0, 4}) == row({}, {}));
  CHECK_THROWS_WITH_AS(row({}, {5}), "DecoderOptions::feature_layers is 5, must be 0 to 4",
                       std::invalid_argument);
  auto decoder = plain;
  decoder.feature_layers = {1};
  CHECK_THROWS_WITH_AS(weights_of<double>(decoder, 1),
                       doctest::Contains("only a head on a target's features"), std::runtime_error);
}

/// Types of the keys and values of a target and of its draft.
struct Caches {
  CacheType target, draft;
};
constexpr Caches kCaches[] = {{CacheType::full, CacheType::full},
                              {CacheType::half, CacheType::full},
                              {CacheType::full, CacheType::half},
                              {CacheType::half, CacheType::half}};

TEST_CASE("the bits of a draft's rows depend only on tokens and view") {
  std::size_t tried = 0;
  for (const Pair& pair : pairs()) {
    const Caches caches = kCaches[tried++ % std::size(kCaches)];
    CAPTURE(pair.name);
    const PairWeights weights(pair);
    Decoder<float> target(
        weights.target,
        {.capacity = 128, .threads = 2, .cache = caches.target, .feature_layers = pair.draft.feature_layers});
    Random random(2);
    const auto text = random_tokens(random, 40, pair.target.vocab_size);
    target.append(text);
    const auto draft_tokens = random_tokens(random, 5, pair.target.vocab_size);
    const std::vector<NodeId> chain{kNoParent, 0, 1, 2, 3};
    const auto rows = [&](std::int32_t threads, std::size_t piece, bool one_by_one) {
      DecoderOptions options{.capacity = 100, .threads = threads, .cache = caches.draft};
      if (threads == 0) options.team = target.team();
      Decoder<float> draft(weights.draft, options);
      if (threads == 0) CHECK((draft.team() == target.team() && draft.options().threads == 2));
      look(draft, target);
      for (std::size_t at = 0; at < text.size(); at += piece)
        draft.append(Tokens(text).subspan(at, std::min(piece, text.size() - at)));
      std::vector<std::vector<float>> out;
      for (std::size_t i = 0; i < draft_tokens.size(); i += one_by_one ? 1 : draft_tokens.size()) {
        const std::size_t count = one_by_one ? 1 : draft_tokens.size();
        const LogitsView view =
            draft.extend(Tokens(draft_tokens).subspan(i, count), Nodes(chain).subspan(i, count));
        for (std::int32_t r = 0; r < view.rows; ++r) out.emplace_back(view.row(r).begin(), view.row(r).end());
      }
      return out;
    };
    const auto expected = rows(1, 40, true);
    CHECK(rows(1, 40, false) == expected);
    CHECK(rows(1, 7, false) == expected);
    CHECK(rows(2, 17, true) == expected);
    CHECK(rows(0, 17, true) == expected);  // with the target's threads
  }
}

UNTHREADED_TEST_CASE(
    "half floats in a target's cache and in the draft's own: each is near floats, and not the same") {
  for (const Pair& pair : pairs()) {
    if (pair.draft.conditioned_on != Conditioning::key_values) continue;
    CAPTURE(pair.name);
    const PairWeights weights(pair);
    Random random(4);
    const auto text = random_tokens(random, 40, pair.target.vocab_size);
    std::vector<std::vector<float>> rows;
    for (const Caches caches : kCaches) {
      Decoder<float> target(weights.target, {.capacity = 64, .cache = caches.target}),
          draft(weights.draft, {.capacity = 64, .cache = caches.draft});
      target.append(text);
      look(draft, target);
      draft.append(text);
      const std::vector<NodeId> root{kNoParent};
      draft.extend(Tokens(text).first(1), root);
      const auto logits = draft.logits(0);
      for (const auto& others : rows) CHECK(std::vector<float>(logits.begin(), logits.end()) != others);
      rows.emplace_back(logits.begin(), logits.end());
      CHECK(farthest(rows.back(), rows.front()) < 3e-3);
    }
  }
}

UNTHREADED_TEST_CASE("kept nodes give the same rows as recomputed ones; only a one-layer draft keeps nodes") {
  for (const Pair& pair : pairs()) {
    CAPTURE(pair.name);
    const PairWeights weights(pair);
    Decoder<float> target(weights.target, {.capacity = 128, .feature_layers = pair.draft.feature_layers});
    Random random(3);
    const auto text = random_tokens(random, 20, pair.target.vocab_size);
    const auto row = [&](bool keep) {
      Decoder<float> draft(weights.draft, {.capacity = 100});
      const std::vector<NodeId> chain{kNoParent, 0, 1};
      target.truncate(0);
      target.append(Tokens(text).first(16));
      look(draft, target);
      draft.append(Tokens(text).first(16));
      draft.extend(Tokens(text).subspan(16, 3), chain);
      target.append(Tokens(text).subspan(16, 3));
      if (keep)
        draft.commit(std::vector<NodeId>{0, 1, 2});
      else
        draft.truncate(16);
      look(draft, target);
      if (!keep) draft.append(Tokens(text).subspan(16, 3));
      const LogitsView rows = draft.extend(Tokens(text).last(1), Nodes(chain).first(1));
      return std::vector<float>(rows.row(0).begin(), rows.row(0).end());
    };
    const bool one_layer = pair.draft.conditioned_on == Conditioning::key_values && pair.draft.layers == 1;
    CHECK(Decoder<float>(weights.draft).keeps_speculation() == one_layer);
    CHECK((row(true) == row(false)) == one_layer);
  }
}

UNTHREADED_TEST_CASE("a round with a draft that is conditioned on its target allocates nothing") {
  for (const Pair& pair : pairs())
    for (const CacheType cache : {CacheType::full, CacheType::half}) {
      CAPTURE(pair.name);
      const PairWeights weights(pair);
      Decoder<float> target(
          weights.target,
          {.capacity = 128, .max_nodes = 16, .cache = cache, .feature_layers = pair.draft.feature_layers});
      Decoder<float> draft(weights.draft, {.capacity = 128, .max_nodes = 16, .cache = cache});
      const std::vector<Token> tokens{1, 2, 3, 4};
      const std::vector<NodeId> tree{kNoParent, 0, 0, 1}, path{0, 1};
      target.append(tokens);
      const auto round = [&] {
        const std::int32_t known = draft.size();
        look(draft, target);
        draft.append(Tokens(tokens).first(static_cast<std::size_t>(target.size() - known)));
        draft.extend(tokens, tree);
        draft.truncate(target.size());
        target.extend(tokens, tree);
        target.commit(path);
      };
      round();
      const specula_test::AllocationCount allocated;
      for (int i = 0; i < 4; ++i) round();
      const auto count = allocated.count();
      CHECK(count == 0);
    }
}

}  // namespace
