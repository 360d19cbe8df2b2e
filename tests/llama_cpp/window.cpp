// SPDX-License-Identifier: MIT
// labels: optimised
// Models with sliding windows inside llama.cpp: tokens outside the window are available again after a
// truncation.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include <specula/llama_cpp/model.hpp>

#include "pack.hpp"
#include "random.hpp"
#include "random_gguf.hpp"
#include "random_trees.hpp"

using namespace specula;
using namespace specula_test;
using llama_cpp::Model;

namespace {

constexpr std::int32_t kWindow = 16, kWidth = 64, kVocab = 64;

/// Three layers of four have a sliding window.
std::shared_ptr<llama_model> random_model() {
  return specula_test::random_model({.architecture = "cohere2",
                                     .width = kWidth,
                                     .layers = 4,
                                     .heads = 2,
                                     .vocab = kVocab,
                                     .window = kWindow});
}

llama_cpp::Options options(std::int32_t capacity) {
  llama_cpp::Options out = exact_options(capacity, kWindow);
  out.adjust = [exact = out.adjust](llama_context_params& params) {
    exact(params);
    params.swa_full = false;  // which the adapter overrides
  };
  return out;
}

}  // namespace

TEST_CASE("random rounds and truncations: rows are those of a context without trees") {
  quiet();
  const auto weights = random_model();
  REQUIRE(llama_model_n_swa(weights.get()) == kWindow);
  Model model(weights, options(200)), fresh(weights, options(200));
  Random random(2);
  std::vector<Token> text;
  const auto tokens_of = [&](std::int32_t count) {
    std::vector<Token> tokens;
    for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(kVocab));
    return tokens;
  };
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    if (text.size() > 150 || random.bernoulli(0.1)) {
      text.resize(static_cast<std::size_t>(random.below(static_cast<std::int32_t>(text.size()) + 1)));
      model.truncate(static_cast<std::int32_t>(text.size()));
    }
    if (text.size() < 120 && random.bernoulli(0.2)) {
      const auto more = tokens_of(random.below(40));
      model.append(more);
      text.insert(text.end(), more.begin(), more.end());
    }
    const RandomTree tree = random_tree(random, kVocab, kWindow);
    const LogitsView rows = model.extend(tree.tokens, tree.parents);
    const auto path = tree.path_to(random.bernoulli(0.5) ? tree.size() - 1 : random.below(tree.size()));
    const auto row = rows.row(path.back());
    if (round % 4 == 0) {
      std::vector<Token> all = text;
      for (const Token token : tree.tokens_of(path)) all.push_back(token);
      fresh.truncate(0);
      fresh.append(Tokens(all).first(all.size() - 1));
      const NodeId none = kNoParent;
      const double most = difference(row, fresh.extend(Tokens(all).last(1), {&none, 1}).row(0));
      CHECK(most < 1e-3);
    }
    model.commit(path);
    for (const Token token : tree.tokens_of(path)) text.push_back(token);
  }
}

TEST_CASE("a tree of more nodes than the window is refused") {
  quiet();
  llama_cpp::Options more = options(200);
  more.max_nodes = kWindow + 1;
  CHECK_THROWS_WITH_AS(Model(random_model(), more), "llama_cpp::Model: max_nodes is 17, must be 1 to 16",
                       std::invalid_argument);
}

TEST_CASE("tokens removed from the cache by another caller are detected") {
  quiet();
  Model model(random_model(), options(64));
  const std::vector<Token> text(30, 5);
  const NodeId none = kNoParent;
  model.append(text);
  REQUIRE(llama_memory_seq_rm(llama_get_memory(model.context()), 0, 0, 4));
  CHECK_THROWS_WITH_AS(model.extend(Tokens(text).first(1), {&none, 1}),
                       "libllama's cache holds positions 4 to 29 of the context, not 0 to 29",
                       std::runtime_error);
}
