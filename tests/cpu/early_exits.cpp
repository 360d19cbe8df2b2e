// SPDX-License-Identifier: MIT
// labels: threads
// A Llama decoder with early exits: the rows of an exit are those of a model that ends there, for any earlier
// exits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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
using specula_test::with_all_parts;

static_assert(ExitsEarly<Decoder<float>> && ExitsEarly<Decoder<double>>);

DecoderConfig config_of(std::vector<std::int32_t> exits) {
  DecoderConfig c;
  c.vocab_size = 53, c.hidden_size = 37, c.intermediate_size = 45, c.layers = exits.back();
  c.heads = 6, c.kv_heads = 2, c.head_dim = 6, c.tied_head = true;
  c.exits = std::move(exits);
  return c;
}

/// A draft over the embedding of a target of hidden size 28, with a draft vocabulary.
DecoderConfig draft_of(std::vector<std::int32_t> exits) {
  DecoderConfig c = config_of(std::move(exits));
  c.target_hidden_size = 28, c.draft_vocab_size = 19, c.tied_head = false;
  return c;
}

template <class Real>
DecoderWeights<Real> weights_of(const DecoderConfig& config, WeightType type = WeightType::bf16) {
  if (!config.borrows_embedding()) return random_decoder_weights<Real>(config, 7, type);
  DecoderConfig target = config_of({1});
  target.hidden_size = config.target_hidden_size;
  return random_decoder_weights<Real>(
      config, 7, type,
      std::make_shared<const DecoderWeights<Real>>(random_decoder_weights<Real>(target, 8, type)));
}

/// The model that ends at an exit, made of the same weights.
template <class Real>
std::shared_ptr<const DecoderWeights<Real>> cut(DecoderWeights<Real> weights, std::int32_t exit) {
  weights.config.layers = weights.config.exits[static_cast<std::size_t>(exit)];
  weights.config.exits.clear();
  weights.layers.resize(static_cast<std::size_t>(weights.config.layers));
  return std::make_shared<const DecoderWeights<Real>>(std::move(weights));
}

std::vector<Token> random_tokens(Random& random, std::int32_t count, std::int32_t vocab) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}

constexpr std::int32_t kNodes = 12;

/// A model with exits and, for each of them, a model that ends there and is always run from the beginning.
template <class Real>
class Twins {
 public:
  Twins(const DecoderConfig& config, DecoderOptions options, WeightType type = WeightType::bf16) {
    options.max_nodes = kNodes;
    options.capacity = 160;
    const DecoderWeights<Real> weights = weights_of<Real>(config, type);
    model = std::make_unique<Decoder<Real>>(std::make_shared<const DecoderWeights<Real>>(weights), options);
    for (std::int32_t exit = 0; exit < model->exits(); ++exit)
      ends_.push_back(std::make_unique<Decoder<Real>>(cut(weights, exit), options));
  }

  void append(const std::vector<Token>& tokens) {
    model->append(tokens);
    text.insert(text.end(), tokens.begin(), tokens.end());
    nodes.clear();
  }
  void extend(const std::vector<Token>& tokens, const std::vector<NodeId>& parents, std::int32_t exit) {
    first = static_cast<NodeId>(nodes.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) nodes.push_back({tokens[i], parents[i], exit});
    check(model->extend_to_exit(tokens, parents, exit));
  }
  void resume_to_exit(const std::vector<std::int32_t>& rows, std::int32_t exit) {
    for (const std::int32_t row : rows) node(first + row).exit = exit;
    check(model->resume_to_exit(rows, exit));
  }
  void commit(NodeId last) {
    std::vector<NodeId> path;
    for (; last != kNoParent; last = node(last).parent) path.insert(path.begin(), last);
    for (const NodeId n : path) text.push_back(node(n).token);
    model->commit(path);
    nodes.clear();
  }
  void truncate(std::int32_t n) {
    model->truncate(n);
    text.resize(static_cast<std::size_t>(n));
    nodes.clear();
  }

  struct Node {
    Token token;
    NodeId parent;
    std::int32_t exit;  // that its row is of
  };
  Node& node(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }

  std::unique_ptr<Decoder<Real>> model;
  std::vector<Token> text;
  std::vector<Node> nodes;
  NodeId first = 0;  // of the last extend

 private:
  void check(const LogitsView& rows) {
    REQUIRE(rows.rows == static_cast<std::int32_t>(nodes.size()) - first);
    for (std::int32_t r = 0; r < rows.rows; ++r) {
      std::vector<Token> path;
      for (NodeId at = first + r; at != kNoParent; at = node(at).parent)
        path.insert(path.begin(), node(at).token);
      std::vector<Token> all = text;
      all.insert(all.end(), path.begin(), path.end());
      Decoder<Real>& end = *ends_[static_cast<std::size_t>(node(first + r).exit)];
      end.truncate(0);
      end.append(Tokens(all).first(all.size() - 1));
      const NodeId root = kNoParent;
      end.extend({&all.back(), 1}, {&root, 1});
      const auto want = end.logits(0), got = model->logits(r);
      CAPTURE(r);
      CHECK(std::equal(want.begin(), want.end(), got.begin(), got.end()));
    }
  }
  std::vector<std::unique_ptr<Decoder<Real>>> ends_;
};

template <class Real>
void play(const DecoderConfig& config, const DecoderOptions& options, std::uint64_t seed, int rounds,
          WeightType type = WeightType::bf16) {
  Random random(seed);
  Twins<Real> twins(config, options, type);
  const auto exits = twins.model->exits();
  twins.append(random_tokens(random, 20, config.vocab_size));
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    if (random.bernoulli(0.15) && twins.text.size() < 100)
      twins.append(random_tokens(random, random.bernoulli(0.5) ? 3 : 18, config.vocab_size));
    if (random.bernoulli(0.1)) twins.truncate(random.below(static_cast<std::int32_t>(twins.text.size())));
    for (int call = random.below(4) + 1; call > 0; --call) {
      const auto count = static_cast<std::int32_t>(
          std::min<std::size_t>(static_cast<std::size_t>(random.below(3) + 1), kNodes - twins.nodes.size()));
      std::vector<NodeId> parents;
      for (std::int32_t i = 0; i < count; ++i) {
        const auto there = static_cast<NodeId>(twins.nodes.size()) + i;
        parents.push_back(there == 0 || random.bernoulli(0.1) ? kNoParent
                          : random.bernoulli(0.7)             ? there - 1
                                                              : random.below(there));
      }
      std::int32_t exit = random.bernoulli(0.6) ? 0 : random.below(exits);
      twins.extend(random_tokens(random, count, config.vocab_size), parents, exit);
      while (exit + 1 < exits && random.bernoulli(0.4)) {
        exit += 1 + random.below(exits - exit - 1);
        std::vector<std::int32_t> rows;
        for (std::int32_t r = 0; r < count; ++r)
          if (random.bernoulli(0.6)) rows.push_back(r);
        twins.resume_to_exit(rows, exit);
      }
    }
    if (twins.text.size() < 130)
      twins.commit(random.below(static_cast<std::int32_t>(twins.nodes.size())));
    else
      twins.truncate(10);
  }
}

}  // namespace

UNTHREADED_TEST_CASE("the rows of an exit are those of the model that ends there") {
  play<float>(config_of({1, 3, 4}), {}, 1, 60);
  play<float>(with_all_parts(config_of({2, 3})), {.prefill_chunk = 4}, 2, 40);
  play<float>(config_of({1, 2, 3, 4}), {.isa = Isa::portable}, 3, 30);
  play<float>(config_of({1, 2, 3}), {.prefill_chunk = 1}, 4, 30);
  play<double>(with_all_parts(config_of({1, 3})), {}, 5, 20);
  play<float>(config_of({2}), {}, 6, 20);
  play<float>(draft_of({1, 2, 4}), {}, 12, 30);
  play<float>(config_of({1, 3, 4}), {.cache = CacheType::half}, 15, 10);
  play<double>(draft_of({1, 2}), {}, 13, 20);
  play<float>(with_all_parts(config_of({1, 3, 4})), {}, 16, 10, WeightType::blocks);
  play<float>(config_of({1, 3}), {.isa = Isa::portable}, 17, 6, WeightType::blocks);
  play<float>(draft_of({1, 2, 4}), {.inputs = Inputs::int8}, 18, 8, WeightType::blocks);
}

TEST_CASE("the same bits with threads") {
  play<float>(with_all_parts(config_of({1, 3, 4})), {.threads = 3}, 7, 15);
  play<float>(draft_of({1, 3}), {.threads = 3}, 14, 15);
  play<float>(config_of({1, 3}), {.threads = 3}, 19, 6, WeightType::blocks);
}

UNTHREADED_TEST_CASE("any number of tokens that left early can be pending") {
  Random random(8);
  Twins<float> twins(config_of({1, 3}), {.prefill_chunk = 8});
  twins.append(random_tokens(random, 5, 53));
  for (int i = 0; i < 50; ++i) {
    twins.extend(random_tokens(random, 1, 53), {kNoParent}, 0);
    twins.commit(0);
  }
  twins.extend(random_tokens(random, 2, 53), {kNoParent, 0}, 0);
  twins.resume_to_exit({1}, 1);  // fifty and the one before it catch up
  twins.commit(1);
  twins.extend(random_tokens(random, 1, 53), {kNoParent}, 1);
}

UNTHREADED_TEST_CASE("pending tokens together with the largest number of nodes") {
  Random random(11);
  const auto weights = weights_of<float>(config_of({1, 3}));
  const auto model = std::make_shared<const DecoderWeights<float>>(weights);
  const std::vector<NodeId> chain{kNoParent, 0, 1, 2, 3, 4, 5, 6};
  const NodeId root = kNoParent, first = 0;
  for (std::int32_t tokens = 12; tokens < 36; ++tokens) {
    CAPTURE(tokens);
    Decoder<float> early(model, {.max_nodes = 8, .prefill_chunk = 4}), whole(cut(weights, 1));
    const std::vector<Token> text = random_tokens(random, tokens, 53),
                             draft_tokens = random_tokens(random, 8, 53);
    for (const Token t : text) early.extend_to_exit({&t, 1}, {&root, 1}, 0), early.commit({&first, 1});
    whole.append(text);
    early.extend_to_exit(draft_tokens, chain, 1);
    whole.extend(draft_tokens, chain);
    for (std::int32_t r = 0; r < 8; ++r) {
      const auto got = early.logits(r), want = whole.logits(r);
      CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
    }
  }
}

UNTHREADED_TEST_CASE("continuing to a later exit makes views stale") {
  Decoder<float> model(std::make_shared<const DecoderWeights<float>>(weights_of<float>(config_of({1, 3}))));
  model.append(std::vector<Token>{1, 2, 3});
  const Token token = 1;
  const NodeId root = kNoParent;
  const std::int32_t row = 0;
  model.extend_to_exit({&token, 1}, {&root, 1}, 0);
  const auto view = model.key_values();
  CHECK_NOTHROW(view.cache());
  model.resume_to_exit({&row, 1}, 1);
  CHECK_THROWS_WITH_AS(view.cache(), "KeyValuesView is stale: the model was called since", std::logic_error);
}

UNTHREADED_TEST_CASE("a model without exits has one exit, its end") {
  Decoder<float> plain(cut(weights_of<float>(config_of({1, 3})), 1));
  CHECK(plain.exits() == 1);
  CHECK(plain.layers_to(0) == 3);
  Decoder<float> model(std::make_shared<const DecoderWeights<float>>(weights_of<float>(config_of({1, 3}))));
  CHECK(model.exits() == 2);
  CHECK(model.layers_to(0) == 1);
}

UNTHREADED_TEST_CASE("the time of the products alone: of any exit, and the model stays as it is") {
  for (const DecoderConfig& config : {config_of({1, 3}), draft_of({1, 3})})
    for (const WeightType type : {WeightType::bf16, WeightType::blocks}) {
      Decoder<float> model(std::make_shared<const DecoderWeights<float>>(weights_of<float>(config, type)),
                           {.max_nodes = 4});
      model.append(std::vector<Token>{1, 2, 3});
      const Token token = 1;
      const NodeId root = kNoParent;
      const LogitsView rows = model.extend({&token, 1}, {&root, 1});
      const std::vector<float> before(rows.row(0).begin(), rows.row(0).end());
      const auto count = model.change_count();
      for (std::int32_t exit = 0; exit < 2; ++exit)
        for (const std::int32_t nodes : {1, 4}) {
          const double seconds = model.product_seconds(nodes, exit);
          CHECK(seconds > 0);
          CHECK(seconds < 10);
        }
      CHECK(model.change_count() == count);
      CHECK(std::equal(before.begin(), before.end(), rows.row(0).begin()));
      CHECK_THROWS_WITH_AS(model.product_seconds(0, 0), "Decoder::product_seconds: 0 nodes, must be 1 to 4",
                           std::invalid_argument);
      CHECK_THROWS_WITH_AS(model.product_seconds(5, 0), "Decoder::product_seconds: 5 nodes, must be 1 to 4",
                           std::invalid_argument);
      CHECK_THROWS_WITH_AS(model.product_seconds(1, 2), "Decoder::exit 2, must be 0 to 1",
                           std::invalid_argument);
    }
}

UNTHREADED_TEST_CASE("bad calls are refused and change nothing") {
  Random random(9);
  Twins<float> twins(config_of({1, 3}), {});
  twins.append(random_tokens(random, 5, 53));
  auto& model = *twins.model;
  const Token token = 1;
  const NodeId parent = kNoParent;
  CHECK_THROWS_WITH_AS(model.extend_to_exit({&token, 1}, {&parent, 1}, 2), "Decoder::exit 2, must be 0 to 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.extend_to_exit({&token, 1}, {&parent, 1}, -1),
                       "Decoder::exit -1, must be 0 to 1", std::invalid_argument);
  twins.extend({4, 5}, {kNoParent, 0}, 0);
  const std::vector<std::int32_t> beyond{2}, twice{0, 0}, backwards{1, 0}, first{0};
  for (const auto& [rows, bad] : {std::pair(&beyond, 2), std::pair(&twice, 0), std::pair(&backwards, 0)})
    CHECK_THROWS_WITH_AS(model.resume_to_exit(*rows, 1),
                         ("Decoder::resume_to_exit: row " + std::to_string(bad) +
                          ", must be of the last extend_to_exit(), ascending")
                             .c_str(),
                         std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.resume_to_exit(first, 2), "Decoder::exit 2, must be 0 to 1",
                       std::invalid_argument);
  twins.resume_to_exit({0, 1}, 1);
  CHECK_THROWS_WITH_AS(model.resume_to_exit(first, 1), "Decoder::resume_to_exit: row 0 is beyond exit 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.resume_to_exit(first, 0), "Decoder::resume_to_exit: row 0 is beyond exit 0",
                       std::invalid_argument);
  twins.commit(1);
  CHECK_THROWS_WITH_AS(model.resume_to_exit(first, 1),
                       "Decoder::resume_to_exit: row 0, must be of the last extend_to_exit(), ascending",
                       std::invalid_argument);
  twins.extend({4}, {kNoParent}, 1);
}

UNTHREADED_TEST_CASE("rounds allocate nothing") {
  for (const WeightType type : {WeightType::bf16, WeightType::blocks}) {
    Random random(10);
    Decoder<float> model(
        std::make_shared<const DecoderWeights<float>>(weights_of<float>(config_of({1, 2, 3}), type)));
    model.append(random_tokens(random, 40, 53));
    const Token token = 1;
    const NodeId root = kNoParent, first = 0;
    const std::int32_t row = 0;
    const auto round = [&](bool deep) {
      model.extend_to_exit({&token, 1}, {&root, 1}, 0);
      model.extend_to_exit({&token, 1}, {&first, 1}, 0);
      if (deep) model.resume_to_exit({&row, 1}, 1), model.resume_to_exit({&row, 1}, 2);
      model.commit({&first, 1});
    };
    const specula_test::AllocationCount allocated;
    for (int i = 0; i < 30; ++i) round(i % 7 == 0);
    const auto n = allocated.count();
    CHECK(n == 0);
  }
}
