// SPDX-License-Identifier: MIT
// labels: threads
// cpu::Decoder as a language model: trees, paths, commits and appends, against each other and against a naive
// transcription.
#include <specula/cpu/decoder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "all_parts.hpp"
#include "attention_scores.hpp"
#include "naive_llama.hpp"
#include "random.hpp"
#include "specula/accept/exact_rules.hpp"
#include "specula/draft/no_drafter.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/run/speculator.hpp"
#include "specula/shape/chain.hpp"
#include "specula/verify/tree_verifier.hpp"
#include "thread_sanitizer.hpp"
#include "worst.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using specula_test::farthest;
using specula_test::Random;
using specula_test::with_all_parts;

static_assert(LanguageModel<Decoder<float>>);
static_assert(LanguageModel<Decoder<double>>);
static_assert(CountsChanges<Decoder<float>> && TimesItself<Decoder<float>>);

struct Shape {
  std::string name;
  DecoderConfig config;
  float scores = specula_test::kRandom;
};

/// Odd sizes, grouped queries, one KV head, an untied LM head, the parts of other architectures; and other
/// scores.
std::vector<Shape> shapes() {
  const auto config = [](int vocab, int hidden, int intermediate, int layers, int heads, int kv_heads,
                         int head_dim, bool tied) {
    DecoderConfig c;
    c.vocab_size = vocab, c.hidden_size = hidden, c.intermediate_size = intermediate, c.layers = layers;
    c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim, c.tied_head = tied;
    return c;
  };
  DecoderConfig biases = config(40, 32, 48, 2, 4, 2, 16, true);
  biases.qkv_bias = true;
  return {{"even", config(96, 64, 96, 2, 4, 2, 16, true)},
          {"odd", config(53, 37, 45, 3, 6, 2, 6, false)},
          {"one KV head", config(33, 24, 17, 2, 3, 1, 34, true)},
          {"no groups", config(40, 32, 64, 2, 4, 4, 8, false)},
          {"one of all", config(1, 1, 1, 1, 1, 1, 2, true)},
          {"all parts", with_all_parts(config(53, 37, 45, 2, 6, 2, 10, false))},
          {"biases as in Qwen2", biases},
          {"flat scores", config(40, 32, 48, 2, 4, 1, 8, true), specula_test::kFlat},
          {"steep scores", config(53, 37, 45, 2, 3, 3, 10, false), specula_test::kSteep},
          {"peaked scores", config(40, 32, 48, 2, 4, 2, 16, true), specula_test::kPeaked}};
}

template <class Real>
std::shared_ptr<const DecoderWeights<Real>> weights_of(const Shape& shape,
                                                       WeightType type = WeightType::bf16) {
  return std::make_shared<const DecoderWeights<Real>>(
      specula_test::with_scores(random_decoder_weights<Real>(shape.config, 7, type), shape.scores));
}

std::vector<Token> random_tokens(Random& random, std::int32_t count, std::int32_t vocab) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}

/// A random tree, often deep; node 0 is below the context, and sometimes others are.
std::vector<NodeId> random_tree(Random& random, std::int32_t nodes) {
  std::vector<NodeId> parents;
  for (NodeId i = 0; i < nodes; ++i)
    parents.push_back(i == 0 || random.bernoulli(0.05) ? kNoParent
                      : random.bernoulli(0.5)          ? i - 1
                                                       : random.below(i));
  return parents;
}

std::vector<NodeId> path_to(const std::vector<NodeId>& parents, NodeId node) {
  std::vector<NodeId> path;
  for (; node != kNoParent; node = parents[static_cast<std::size_t>(node)]) path.insert(path.begin(), node);
  return path;
}

/// Types of weights, and of keys and values, that a model in Real may have.
struct Stored {
  WeightType weights;
  CacheType cache;
};
template <class Real>
std::vector<Stored> kinds_of_storage() {
  if constexpr (std::is_same_v<Real, float>)
    return {{WeightType::bf16, CacheType::full},
            {WeightType::bf16, CacheType::half},
            {WeightType::blocks, CacheType::half}};
  return {{WeightType::bf16, CacheType::full}};
}

template <class Real>
using Row = std::vector<Real>;

template <class Real>
Row<Real> row(Decoder<Real>& model, std::int32_t index) {
  const auto logits = model.logits(index);
  return {logits.begin(), logits.end()};
}

/// The logits after `tokens`, with a call of extend() and commit() for each.
template <class Real>
Row<Real> one_by_one(std::shared_ptr<const DecoderWeights<Real>> weights, const std::vector<Token>& tokens,
                     DecoderOptions options = {}) {
  options.capacity = 256;
  Decoder<Real> model(std::move(weights), options);
  const NodeId parent = kNoParent, node = 0;
  for (const Token& token : tokens) {
    model.extend({&token, 1}, {&parent, 1});
    model.commit({&node, 1});
  }
  return row(model, 0);
}

template <class Real>
bool same(const Row<Real>& a, const Row<Real>& b) {
  return a == b;
}

std::vector<Token> concat(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

UNTHREADED_TEST_CASE("double agrees with a naive transcription of the equations") {
  for (auto shape : shapes())
    for (const float scores : specula_test::kScores) {
      CAPTURE(shape.name);
      CAPTURE(scores);
      shape.scores = scores;
      Random random(1);
      const auto weights = weights_of<double>(shape);
      const auto tokens = random_tokens(random, 21, shape.config.vocab_size);
      Decoder<double> model(weights, {.capacity = 64, .prefill_chunk = 8});
      model.append(Tokens(tokens).first(17));
      const std::vector<NodeId> parents{kNoParent, 0, 1, 2};
      model.extend(Tokens(tokens).subspan(17), parents);
      const auto states = specula_test::naive_states(*weights, tokens);
      for (std::int32_t i = 0; i < 4; ++i)
        CHECK(farthest(row(model, i), states.logits[static_cast<std::size_t>(17 + i)]) <= 1e-12);
      const double peak = specula_test::mean_peak(states);  // the scores are what they are called
      if (scores == specula_test::kFlat) CHECK(specula_test::all_alike(states));
      if (scores == specula_test::kSteep) CHECK((peak > 0.6 && peak < 0.97));
      if (scores == specula_test::kPeaked) CHECK(peak > 0.99);
    }
}

UNTHREADED_TEST_CASE("float agrees with double, for every instruction set and both weight types") {
  for (const auto& shape : shapes()) {
    CAPTURE(shape.name);
    Random random(2);
    const auto tokens = random_tokens(random, 40, shape.config.vocab_size);
    const auto expected = one_by_one(weights_of<double>(shape), tokens);
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
      for (const WeightType type : {WeightType::bf16, WeightType::full}) {
        if (!supported(isa)) continue;
        CAPTURE(static_cast<int>(isa));
        const auto got = one_by_one(weights_of<float>(shape, type), tokens, {.isa = isa});
        CHECK(farthest(got, expected) < 1e-5);
      }
  }
}

UNTHREADED_TEST_CASE_TEMPLATE("a node of any tree has the logits of its path", Real, float, double) {
  for (const auto& shape : shapes())
    for (const Stored& stored : kinds_of_storage<Real>()) {
      const CacheType cache = stored.cache;
      CAPTURE(shape.name);
      CAPTURE(static_cast<int>(cache));
      CAPTURE(static_cast<int>(stored.weights));
      const auto weights = weights_of<Real>(shape, stored.weights);
      Random random(3);
      for (const std::int32_t nodes : {1, 2, 5, 8, 9, 23, 64}) {
        const auto context = random_tokens(random, random.below(40), shape.config.vocab_size);
        const auto tokens = random_tokens(random, nodes, shape.config.vocab_size);
        const auto parents = random_tree(random, nodes);
        Decoder<Real> model(weights, {.capacity = 128, .cache = cache});
        model.append(context);
        const LogitsView rows = model.extend(tokens, parents);
        REQUIRE(rows.rows == nodes);
        REQUIRE(rows.vocab == shape.config.vocab_size);
        for (NodeId node = 0; node < nodes; node += 1 + random.below(5)) {
          auto text = context;
          for (const NodeId n : path_to(parents, node)) text.push_back(tokens[static_cast<std::size_t>(n)]);
          const auto expected = one_by_one(weights, text, {.cache = cache});
          CHECK(same<Real>(row(model, node), expected));
          CHECK(rows.row(node)[0] == static_cast<float>(row(model, node)[0]));
        }
      }
    }
}

UNTHREADED_TEST_CASE_TEMPLATE("several extend() calls equal one", Real, float, double) {
  const auto shape = shapes()[0];
  Random random(4);
  for (int round = 0; round < 10; ++round)
    for (const Stored& stored : kinds_of_storage<Real>()) {
      const CacheType cache = stored.cache;
      const auto weights = weights_of<Real>(shape, stored.weights);
      const auto context = random_tokens(random, 10, shape.config.vocab_size),
                 tokens = random_tokens(random, 30, shape.config.vocab_size);
      const auto parents = random_tree(random, 30);
      const DecoderOptions options{.capacity = 64, .cache = cache};
      Decoder<Real> whole(weights, options), pieces(weights, options);
      whole.append(context);
      pieces.append(context);
      whole.extend(tokens, parents);
      for (std::int32_t done = 0; done < 30;) {
        const std::int32_t count = std::min(30 - done, 1 + random.below(12));
        pieces.extend(
            Tokens(tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)),
            Nodes(parents).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
        for (std::int32_t i = 0; i < count; ++i) CHECK(same<Real>(row(pieces, i), row(whole, done + i)));
        done += count;
      }
      CHECK(pieces.node_count() == 30);
    }
}

UNTHREADED_TEST_CASE_TEMPLATE("rounds of extend, commit, truncate and append give the state of a new model",
                              Real, float, double) {
  for (const auto& shape : shapes())
    for (const Stored& stored : kinds_of_storage<Real>()) {
      const CacheType cache = stored.cache;
      CAPTURE(shape.name);
      CAPTURE(static_cast<int>(cache));
      CAPTURE(static_cast<int>(stored.weights));
      const auto weights = weights_of<Real>(shape, stored.weights);
      const std::int32_t vocab = shape.config.vocab_size;
      Random random(5);
      Decoder<Real> model(weights, {.capacity = 200, .max_nodes = 24, .prefill_chunk = 20, .cache = cache});
      std::vector<Token> text;
      const auto cut = [&](std::int32_t size) { text.erase(text.begin() + size, text.end()); };
      for (int round = 0; round < 30; ++round) {
        if (text.size() > 120)
          cut(random.below(60));
        else if (random.bernoulli(0.3) && !text.empty())
          cut(random.below(static_cast<std::int32_t>(text.size()) + 1));
        model.truncate(static_cast<std::int32_t>(text.size()));
        for (int piece = random.below(3); piece > 0;
             --piece) {  // mostly deferred, sometimes more than may be deferred
          const auto tokens = random_tokens(random, random.bernoulli(0.2) ? 25 : random.below(9), vocab);
          model.append(tokens);
          text = concat(text, tokens);
        }
        if (random.bernoulli(0.2) && !text.empty()) {  // drop some, perhaps deferred ones
          text.resize(text.size() - 1);
          model.truncate(static_cast<std::int32_t>(text.size()));
        }
        REQUIRE(model.size() == static_cast<std::int32_t>(text.size()));
        const std::int32_t nodes = 1 + random.below(12);
        const auto tokens = random_tokens(random, nodes, vocab);
        const auto parents = random_tree(random, nodes);
        model.extend(tokens, parents);
        const NodeId last = random.below(nodes);
        const auto path = path_to(parents, last);
        auto longer = text;
        for (const NodeId node : path) longer.push_back(tokens[static_cast<std::size_t>(node)]);
        CHECK(same<Real>(row(model, last), one_by_one(weights, longer, {.cache = cache})));
        if (random.bernoulli(0.8)) {
          model.commit(path);
          text = longer;
        } else {
          model.commit({});
        }
        REQUIRE(model.size() == static_cast<std::int32_t>(text.size()));
        REQUIRE(model.node_count() == 0);
      }
    }
}

UNTHREADED_TEST_CASE_TEMPLATE("prefill gives the bits of single tokens, on any instructions", Real, float,
                              double) {
  auto shape = shapes()[0];
  Random random(6);
  const auto tokens = random_tokens(random, 100, shape.config.vocab_size);
  for (const float scores : {specula_test::kRandom, specula_test::kPeaked}) {
    shape.scores = scores;
    for (const Isa isa : {Isa::portable, Isa::avx2, best_isa()})
      for (const Stored& stored : kinds_of_storage<Real>()) {
        if (!supported(isa)) continue;
        const CacheType cache = stored.cache;
        const auto weights = weights_of<Real>(shape, stored.weights);
        const auto expected = one_by_one(weights, tokens, {.isa = isa, .cache = cache});
        for (const std::int32_t chunk : {1, 7, 16, 33, 64, 128}) {
          Decoder<Real> model(weights, {.capacity = 128, .prefill_chunk = chunk, .isa = isa, .cache = cache});
          model.append(Tokens(tokens).first(99));
          const NodeId parent = kNoParent;
          model.extend({&tokens[99], 1}, {&parent, 1});
          CHECK(same<Real>(row(model, 0), expected));
        }
      }
  }
}

TEST_CASE("the bits do not depend on the number of threads") {
  for (const auto& shape : shapes())
    for (const Stored& stored : kinds_of_storage<float>()) {
      const CacheType cache = stored.cache;
      const auto weights = weights_of<float>(shape, stored.weights);
      Random random(8);
      const auto context = random_tokens(random, 20, shape.config.vocab_size),
                 tokens = random_tokens(random, 17, shape.config.vocab_size);
      const auto parents = random_tree(random, 17);
      Decoder<float> one(weights, {.capacity = 64, .cache = cache});
      one.append(context);
      one.extend(tokens, parents);
      for (const std::int32_t threads : {2, 3, 5}) {
        Decoder<float> several(weights, {.capacity = 64, .threads = threads, .cache = cache});
        several.append(context);
        several.extend(tokens, parents);
        for (std::int32_t i = 0; i < 17; ++i) CHECK(same<float>(row(several, i), row(one, i)));
      }
    }
}

/// Of the tokens that the logits give.
double total_variation(const Row<float>& a, const Row<float>& b) {
  double sums[2]{}, total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sums[0] += std::exp(double{a[i]}), sums[1] += std::exp(double{b[i]});
  for (std::size_t i = 0; i < a.size(); ++i)
    total += std::abs(std::exp(double{a[i]}) / sums[0] - std::exp(double{b[i]}) / sums[1]) / 2;
  return total;
}

UNTHREADED_TEST_CASE("half floats as keys and values are near floats, and not the same") {
  for (const auto& shape : shapes()) {
    if (shape.config.vocab_size == 1) continue;
    CAPTURE(shape.name);
    const auto weights = weights_of<float>(shape);
    Random random(9);
    const auto tokens = random_tokens(random, 40, shape.config.vocab_size);
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
      if (!supported(isa)) continue;
      CAPTURE(static_cast<int>(isa));
      const auto row = [&](std::optional<CacheType> cache) {
        return one_by_one(weights, tokens, {.isa = isa, .cache = cache});
      };
      const Row<float> full = row(CacheType::full), half = row(CacheType::half);
      CHECK_FALSE(same<float>(full, half));
      CHECK(total_variation(half, full) < 1e-3);
      CHECK(same<float>(row({}), full));
    }
  }
  const auto type_of = [](std::optional<CacheType> cache, WeightType type = WeightType::bf16) {
    Decoder<float> model(weights_of<float>(shapes()[0], type), {.capacity = 16, .cache = cache});
    CHECK(model.options().cache == model.key_values().cache().type());
    return model.options().cache;
  };
  CHECK(type_of({}) == CacheType::full);
  CHECK(type_of(CacheType::full) == CacheType::full);
  CHECK(type_of(CacheType::half) == CacheType::half);
  CHECK(type_of({}, WeightType::blocks) == CacheType::half);
  CHECK(type_of(CacheType::full, WeightType::blocks) == CacheType::full);
}

UNTHREADED_TEST_CASE("an empty extend, and a context that is filled to the last token") {
  Decoder<float> model(weights_of<float>(shapes()[0]), {.capacity = 20, .max_nodes = 4});
  CHECK(model.extend({}, {}).rows == 0);
  CHECK(model.capacity() == 20);
  model.append(std::vector<Token>(16, 3));
  const std::vector<Token> tokens(4, 5);
  const std::vector<NodeId> parents{kNoParent, 0, 1, 2}, path{0, 1, 2, 3};
  model.extend(tokens, parents);
  model.commit(path);
  CHECK(model.size() == 20);
  CHECK_THROWS_WITH_AS(
      model.extend(Tokens(tokens).first(1), Nodes(parents).first(1)),
      "Decoder::extend: the context is full: 20 of capacity 20 tokens in use, 1 more asked for",
      std::invalid_argument);
  model.truncate(0);
  model.extend(tokens, parents);
}

UNTHREADED_TEST_CASE("errors name the caller's mistake, and change nothing") {
  const auto weights = weights_of<float>(shapes()[0]);
  Decoder<float> model(weights, {.capacity = 30, .max_nodes = 6});
  const std::vector<Token> context{1, 2, 3}, tokens{4, 5, 6, 7};
  const std::vector<NodeId> parents{kNoParent, 0, 0, 2};
  model.append(context);
  model.extend(tokens, parents);
  const auto before = row(model, 3);

  const auto extend = [&](std::vector<Token> t, std::vector<NodeId> p) { model.extend(t, p); };
  CHECK_THROWS_WITH_AS(extend({96}, {0}), "Decoder::extend or append: token 96, must be 0 to 95",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(extend({-1}, {0}), "Decoder::extend or append: token -1, must be 0 to 95",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(extend({1}, {4}),
                       "Decoder::extend: parent 4 of node 4, must be an earlier node or kNoParent",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(extend({1}, {-2}),
                       "Decoder::extend: parent -2 of node 4, must be an earlier node or kNoParent",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(extend({1, 2}, {0}), "Decoder::extend: 2 tokens and 1 parents", std::invalid_argument);
  CHECK_THROWS_WITH_AS(extend({1, 2, 3}, {0, 0, 0}),
                       "Decoder::extend: 4 nodes and 3 more, but max_nodes is 6", std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      model.append(std::vector<Token>(28, 1)),
      "Decoder::append: the context is full: 3 of capacity 30 tokens in use, 28 more asked for",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.append(std::vector<Token>{1, 100}),
                       "Decoder::extend or append: token 100, must be 0 to 95", std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.commit(std::vector<NodeId>{0, 1, 3}),
                       "Decoder::commit: node 3 is no child of node 1, must be a path from the context down",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      model.commit(std::vector<NodeId>{2}),
      "Decoder::commit: node 2 is no child of the context, must be a path from the context down",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.commit(std::vector<NodeId>{4}), "Decoder::commit: node 4, must be 0 to 3",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.commit(std::vector<NodeId>{-1}), "Decoder::commit: node -1, must be 0 to 3",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.truncate(4), "Decoder::truncate: to 4 tokens, must be 0 to 3",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.truncate(-1), "Decoder::truncate: to -1 tokens, must be 0 to 3",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(model.logits(4)), "Decoder::logits: row 4, must be 0 to 3",
                       std::invalid_argument);

  CHECK(model.size() == 3);
  CHECK(model.node_count() == 4);
  CHECK(same<float>(row(model, 3), before));
  model.commit(std::vector<NodeId>{0, 2});
  extend({7}, {kNoParent});
  CHECK(same<float>(row(model, 0), before));

  CHECK_THROWS_WITH_AS(Decoder<float>(std::shared_ptr<const DecoderWeights<float>>()), "Decoder: no weights",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(Decoder<float>(weights, {.capacity = 0}),
                       doctest::Contains("DecoderOptions::capacity is 0"), std::invalid_argument);
}

UNTHREADED_TEST_CASE_TEMPLATE("a padded vocabulary is cut to the draft's size", Real, float, double) {
  const auto weights = weights_of<Real>(shapes()[0]);  // 96 tokens
  Decoder<Real> whole(weights), cut(weights, {.vocab_size = 53});
  CHECK(whole.vocab_size() == 96);
  CHECK(cut.vocab_size() == 53);
  const std::vector<Token> tokens = {3, 52, 7};
  const std::vector<NodeId> parents = {kNoParent, 0, 0};
  const LogitsView all = whole.extend(tokens, parents), some = cut.extend(tokens, parents);
  REQUIRE(some.rows == 3);
  REQUIRE(some.vocab == 53);
  for (std::int32_t r = 0; r < 3; ++r) {
    CHECK(std::equal(some.row(r).begin(), some.row(r).end(), all.row(r).begin()));
    CHECK(row(cut, r) == Row<Real>(whole.logits(r).begin(), whole.logits(r).begin() + 53));
  }
  CHECK_THROWS_WITH_AS(cut.append(std::vector<Token>{53}),
                       "Decoder::extend or append: token 53, must be 0 to 52", std::invalid_argument);
  CHECK_THROWS_WITH_AS(Decoder<Real>(weights, {.vocab_size = 97}),
                       "DecoderOptions::vocab_size is 97, must be 0 to 96", std::invalid_argument);
  CHECK_THROWS_WITH_AS(Decoder<Real>(weights, {.vocab_size = -1}),
                       "DecoderOptions::vocab_size is -1, must be 0 to 96", std::invalid_argument);
}

TEST_CASE("a pass of one thread takes processor time, which sleep is not; one of a team takes wall time") {
  const auto weights = weights_of<float>(shapes()[0]);
  for (const std::int32_t threads : {1, 2}) {
    CAPTURE(threads);
    const Decoder<float> model(weights, {.capacity = 30, .threads = threads});
    const double before = model.pass_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    CHECK((model.pass_seconds() - before > 0.03) == (threads > 1));
  }
}

TEST_CASE("a model can be moved") {
  const auto weights = weights_of<float>(shapes()[0]);
  const std::vector<Token> tokens{1, 2, 3};
  const NodeId parent = kNoParent;
  Decoder<float> first(weights, {.capacity = 30, .threads = 2});
  first.append(tokens);
  Decoder<float> second(std::move(first));
  second.extend({&tokens[0], 1}, {&parent, 1});
  CHECK(same<float>(row(second, 0), one_by_one(weights, {1, 2, 3, 1})));
}

}  // namespace

UNTHREADED_TEST_CASE(
    "another model in the place of one, or weights that a program changed: no prefix of the old ones") {
  const DecoderConfig config = shapes()[0].config;
  const auto weights = [&](std::uint64_t seed) {
    return std::make_shared<DecoderWeights<float>>(random_decoder_weights<float>(config, seed));
  };
  Random random(3);
  const std::vector<Token> prompt = random_tokens(random, 200, config.vocab_size);
  const DecoderOptions options{.capacity = 256};
  const auto pipeline = [](Decoder<float>& model) {
    auto run = std::make_unique<Speculator<TreeVerifier<Decoder<float>, Sampling>, NoDrafter, Chain<>>>(
        TreeVerifier{model, Sampling{}}, NoDrafter{model.vocab_size()}, Chain<>{.length = 0});
    run->verifier().report_logprobs({});
    return run;
  };
  const auto write = [&](auto& run) {  // the tokens, and the bits of their log-probabilities
    std::vector<double> text;
    PhiloxRandom rng(1);
    run->generate(prompt, {.max_new_tokens = 10}, rng, [&](Tokens fresh) {
      for (std::size_t i = 0; i < fresh.size(); ++i) {
        text.push_back(fresh[i]);
        text.push_back(static_cast<double>(run->logprobs()[i].logprob));
      }
    });
    return text;
  };
  const auto fresh = [&](std::shared_ptr<const DecoderWeights<float>> of) {
    Decoder<float> model(std::move(of), options);
    auto run = pipeline(model);
    return write(run);
  };
  const auto used = weights(1), other = weights(2);
  const auto change = [&] {
    for (float& scale : used->layers[0].attention.norm) scale *= 1.5f;
  };
  Decoder<float> model(used, options);
  auto run = pipeline(model);
  const auto first = write(run);
  CHECK(first == fresh(used));
  CHECK(write(run) == first);  // on the prefix
  model = Decoder<float>(other, options);
  CHECK(write(run) == fresh(other));
  model = Decoder<float>(used, options);
  CHECK(write(run) == first);
  change();
  CHECK(write(run) != fresh(used));  // the model cannot see this,
  change();
  run->forget();  // so the program says it
  CHECK(write(run) == fresh(used));
}

UNTHREADED_TEST_CASE("infinities of one pass do not affect the next, for any padding") {
  DecoderConfig config;
  config.vocab_size = 10, config.hidden_size = 24, config.intermediate_size = 20, config.layers = 2;
  config.heads = 2, config.kv_heads = 1, config.head_dim = 6;
  auto weights = std::make_shared<DecoderWeights<float>>(random_decoder_weights<float>(config, 3));
  const std::vector<float> bad(24, std::numeric_limits<float>::infinity());
  weights->embedding.set_row(7, bad);
  Decoder<float> model(weights, {.capacity = 32});
  const Token good_token = 3, bad_token = 7;
  const NodeId root = kNoParent;
  model.extend({&good_token, 1}, {&root, 1});
  const auto before = row(model, 0);
  model.truncate(0);
  model.extend({&bad_token, 1}, {&root, 1});
  model.truncate(0);
  model.extend({&good_token, 1}, {&root, 1});
  CHECK(row(model, 0)[1] == before[1]);
  CHECK(std::isfinite(row(model, 0)[1]));
}
