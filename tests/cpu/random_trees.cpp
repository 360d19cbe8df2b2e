// SPDX-License-Identifier: MIT
// labels: long
// Random trees on a tiny Llama: a tree equals its paths, a commit equals a prefill, and the KV cache may be
// full.
#include "random_trees.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <specula/specula.hpp>

#include "all_parts.hpp"
#include "model_findings.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

namespace {

using List = std::vector<Token>;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Grouped queries, one KV head, as many KV heads as heads; odd sizes; all optional parts.
std::vector<DecoderConfig> configs() {
  const auto config = [](int vocab, int hidden, int intermediate, int layers, int heads, int kv_heads,
                         int head_dim, bool tied) {
    DecoderConfig c;
    c.vocab_size = vocab, c.hidden_size = hidden, c.intermediate_size = intermediate, c.layers = layers;
    c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim, c.tied_head = tied;
    return c;
  };
  return {config(48, 32, 48, 2, 4, 2, 8, true), with_all_parts(config(21, 19, 23, 3, 6, 2, 6, false)),
          config(9, 16, 17, 2, 3, 1, 18, true), config(40, 24, 32, 2, 4, 4, 4, false)};
}

template <class Real>
using Weights = std::shared_ptr<const DecoderWeights<Real>>;

template <class Real>
Weights<Real> weights_of(const DecoderConfig& config, std::uint64_t seed = 7,
                         WeightType type = WeightType::bf16) {
  return std::make_shared<const DecoderWeights<Real>>(random_decoder_weights<Real>(config, seed, type));
}

/// Weights in blocks are for float only; half of the configurations have them.
template <class Real>
WeightType type_of(std::size_t config) {
  return std::is_same_v<Real, float> && config % 2 == 1 ? WeightType::blocks : WeightType::bf16;
}

DecoderOptions options_of(std::int32_t capacity, std::int32_t max_nodes = 64) {
  return {.capacity = capacity, .max_nodes = max_nodes};
}

List random_tokens(Random& random, std::int32_t count, std::int32_t vocab) {
  List tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}

template <class Real>
using Row = std::vector<Real>;

/// The logits of the last extend(), unrounded.
template <class Real>
std::vector<Row<Real>> rows_of(Decoder<Real>& model, std::int32_t count) {
  std::vector<Row<Real>> out;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto logits = model.logits(i);
    out.emplace_back(logits.begin(), logits.end());
  }
  return out;
}

template <class Real>
std::vector<Row<Real>> extend(Decoder<Real>& model, const RandomTree& tree) {
  model.extend(tree.tokens, tree.parents);
  return rows_of(model, tree.size());
}

template <class Real>
bool same(const Row<Real>& a, const Row<Real>& b) {
  return !a.empty() && a == b;
}
template <class Real>
bool same(const std::vector<Row<Real>>& a, const std::vector<Row<Real>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Row<Real>& x, const Row<Real>& y) { return same<Real>(x, y); });
}

/// The logits of `tree` by a model whose context was appended.
template <class Real>
std::vector<Row<Real>> fresh_rows(Weights<Real> weights, const List& context, const RandomTree& tree,
                                  std::int32_t capacity, std::int32_t max_nodes = 64) {
  Decoder<Real> model(std::move(weights), options_of(capacity, max_nodes));
  model.append(context);
  return extend(model, tree);
}

/// Every row of `tree` against those of its branches, each of them alone after the same context.
template <class Real>
bool is_its_paths(Decoder<Real>& branches, const RandomTree& tree, const std::vector<Row<Real>>& rows) {
  for (const NodeId leaf : tree.leaves()) {
    const std::vector<NodeId> path = tree.path_to(leaf);
    branches.truncate(branches.size());
    const auto want = extend(branches, tree.branch(leaf));
    for (std::size_t d = 0; d < path.size(); ++d)
      if (!same<Real>(rows[at(path[d])], want[d])) return false;
  }
  return true;
}

}  // namespace

TEST_CASE_TEMPLATE("one forward pass over a tree equals a pass over each of its paths", Real, float, double) {
  Random random(1);
  for (std::size_t c = 0; c < configs().size(); ++c) {
    const DecoderConfig config = configs()[c];
    const Weights<Real> weights = weights_of<Real>(config, 7, type_of<Real>(c));
    Decoder<Real> whole(weights, options_of(128)), pieces(weights, options_of(128)),
        branches(weights, options_of(128));
    for (int round = 0; round < 50; ++round) {
      const List context = random_tokens(random, random.below(40), config.vocab_size);
      const RandomTree tree = random_tree(random, config.vocab_size, 64);
      CAPTURE(tree.size());
      for (Decoder<Real>* model : {&whole, &pieces, &branches}) model->truncate(0), model->append(context);
      const auto rows = extend(whole, tree);
      REQUIRE(is_its_paths(branches, tree, rows));
      for (std::int32_t done = 0; done < tree.size();) {
        const std::int32_t count = std::min(tree.size() - done, 1 + random.below(20));
        pieces.extend(Tokens(tree.tokens).subspan(at(done), at(count)),
                      Nodes(tree.parents).subspan(at(done), at(count)));
        const auto part = rows_of(pieces, count);
        for (std::int32_t i = 0; i < count; ++i) REQUIRE(same<Real>(part[at(i)], rows[at(done + i)]));
        done += count;
      }
    }
  }
}

TEST_CASE_TEMPLATE("committing any path gives the state of a prefill of its tokens", Real, float, double) {
  Random random(2);
  std::int32_t moved = 0;
  for (std::size_t c = 0; c < configs().size(); ++c) {
    const DecoderConfig config = configs()[c];
    const Weights<Real> weights = weights_of<Real>(config, 7, type_of<Real>(c));
    Decoder<Real> model(weights, options_of(160));
    for (int round = 0; round < 30; ++round) {
      const List context = random_tokens(random, random.below(50), config.vocab_size);
      const RandomTree tree = random_tree(random, config.vocab_size, 64),
                       probe = random_tree(random, config.vocab_size, 4);
      const std::vector<NodeId> longest = tree.path_to(random.below(tree.size()));
      // The empty path, the root alone, and longer ones; not every length of a long path.
      const std::size_t step = 1 + longest.size() / 6;
      for (std::size_t length = 0; length <= longest.size(); length += length < 2 ? 1 : step) {
        const std::vector<NodeId> path(longest.begin(),
                                       longest.begin() + static_cast<std::ptrdiff_t>(length));
        moved += length > 0 && path.back() >= static_cast<NodeId>(length);
        model.truncate(0);
        model.append(context);
        model.extend(tree.tokens, tree.parents);
        model.commit(path);
        List text = context;
        for (const NodeId n : path) text.push_back(tree.token(n));
        REQUIRE(model.size() == static_cast<std::int32_t>(text.size()));
        REQUIRE(model.node_count() == 0);
        REQUIRE(same<Real>(extend(model, probe), fresh_rows(weights, text, probe, 160)));

        // And after a truncation within the path or before it.
        text.resize(at(random.below(model.size() + 1)));
        model.truncate(static_cast<std::int32_t>(text.size()));
        REQUIRE(same<Real>(extend(model, probe), fresh_rows(weights, text, probe, 160)));
        // Then with deferred tokens, some of which are truncated before the next pass.
        const List more = random_tokens(random, random.below(20), config.vocab_size);
        model.append(more);
        text.insert(text.end(), more.begin(), more.end());
        text.resize(text.size() - at(random.below(1 + static_cast<std::int32_t>(more.size()))));
        model.truncate(static_cast<std::int32_t>(text.size()));
        REQUIRE(same<Real>(extend(model, probe), fresh_rows(weights, text, probe, 160)));
      }
    }
  }
  CHECK(moved > 100);  // paths with gaps
}

TEST_CASE_TEMPLATE("check_model() finds nothing", Real, float, double) {
  for (std::size_t c = 0; c < configs().size(); ++c) {
    Decoder<Real> model(weights_of<Real>(configs()[c], 7, type_of<Real>(c)), options_of(128, 70));
    CHECK(words(check_model(model, {.nodes = 70})) == "");
  }
}

TEST_CASE_TEMPLATE("a tree of more than 64 nodes", Real, float, double) {
  Random random(3);
  for (const std::size_t c : {std::size_t{0}, std::size_t{3}}) {
    const DecoderConfig config = configs()[c];
    const Weights<Real> weights = weights_of<Real>(config, 7, type_of<Real>(c));
    Decoder<Real> model(weights, options_of(300, 200)), branches(weights, options_of(300, 200));
    for (std::int32_t i = 0; i < kTreeProfiles; ++i) {
      const std::int32_t nodes = i == 0 ? 200 : 65 + random.below(136);
      const RandomTree tree = random_tree(random, nodes, config.vocab_size, static_cast<TreeProfile>(i)),
                       probe = random_tree(random, config.vocab_size, 4);
      const List context = random_tokens(random, 20, config.vocab_size);
      for (Decoder<Real>* m : {&model, &branches}) m->truncate(0), m->append(context);
      CAPTURE(i);
      REQUIRE(is_its_paths(branches, tree, extend(model, tree)));
      const std::vector<NodeId> path = tree.path_to(nodes - 1);
      model.commit(path);
      List text = context;
      for (const NodeId n : path) text.push_back(tree.token(n));
      REQUIRE(same<Real>(extend(model, probe), fresh_rows(weights, text, probe, 300, 200)));
    }
  }
}

TEST_CASE_TEMPLATE("more nodes than max_nodes or than the room: an error, and nothing is lost", Real, float,
                   double) {
  Random random(4);
  const DecoderConfig config = configs()[0];
  const Weights<Real> weights = weights_of<Real>(config);
  for (int round = 0; round < 20; ++round) {
    const List context = random_tokens(random, random.below(40), config.vocab_size);
    const RandomTree first = random_tree(random, config.vocab_size, 20);
    const auto expected = fresh_rows(weights, context, first, 100);
    for (const bool full : {false, true}) {
      // Room for `first` and 10 nodes more, by max_nodes or by the capacity.
      const std::int32_t most = first.size() + 10, room = static_cast<std::int32_t>(context.size()) + most;
      Decoder<Real> model(weights, full ? options_of(room, 200) : options_of(200, most));
      model.append(context);
      const auto too_many = [&](std::int32_t nodes) {
        const RandomTree tree = random_tree(random, nodes, config.vocab_size, TreeProfile::any);
        const std::int32_t size = model.size(), held = model.node_count();
        CHECK_THROWS_AS(model.extend(tree.tokens, tree.parents), std::invalid_argument);
        CHECK(model.size() == size);
        CHECK(model.node_count() == held);
      };
      too_many(most + 1 + random.below(20));
      REQUIRE(same<Real>(extend(model, first), expected));
      too_many(11);  // after existing nodes
      const RandomTree rest = random_tree(random, 10, config.vocab_size, TreeProfile::any);
      extend(model, rest);
      too_many(1);
      model.commit({});
      REQUIRE(same<Real>(extend(model, first), expected));
      too_many(most);
      model.commit(first.path_to(first.size() - 1));
      List text = context;
      for (const Token t : first.tokens_of(first.path_to(first.size() - 1))) text.push_back(t);
      const RandomTree probe = random_tree(random, config.vocab_size, 4);
      REQUIRE(same<Real>(extend(model, probe), fresh_rows(weights, text, probe, 200)));
    }
  }
}

namespace {

/// Plain decoding: a token per pass, until the cache of `capacity` tokens is full.
List plainly(Weights<float> weights, List text, std::int32_t capacity, const SamplingParams& params,
             std::uint64_t seed) {
  Decoder<float> model(weights, options_of(capacity));
  specula::detail::RowScan scan(model.vocab_size());
  PhiloxRandom rng(seed);
  model.append(Tokens(text).first(text.size() - 1));
  while (model.size() < capacity) {
    const NodeId parent = kNoParent, node = 0;
    const Distribution distribution =
        scan.distribution(model.extend({&text.back(), 1}, {&parent, 1}).row(0), params);
    const RandomKey key{static_cast<std::int32_t>(text.size()), 0, RandomStream::sample, 0};
    model.commit({&node, 1});
    text.push_back(distribution.is_point() ? distribution.point : rng.draw(scan.weights(distribution), key));
  }
  return text;
}

}  // namespace

TEST_CASE("proposals shrink with the remaining room: the text is plain decoding's to the last token") {
  const DecoderConfig config = configs()[2];
  const auto weights = weights_of<float>(config),
             draft_weights = weights_of<float>(config, 8, WeightType::blocks);
  Random random(5);
  std::int32_t trimmed = 0;
  const auto generate = [&](auto shape, const SamplingParams& params) {
    for (const std::int32_t capacity : {5, 9, 30, 61}) {
      const List prompt = random_tokens(random, 4, config.vocab_size);
      const auto seed = static_cast<std::uint64_t>(capacity);
      Decoder<float> target(weights, options_of(capacity)), draft(draft_weights, options_of(80));
      Speculator run{TreeVerifier{target, SampleAndMatch{}, params}, ModelDrafter{draft}, shape};
      PhiloxRandom rng(seed);
      run.start(prompt);
      while (run.room() > 0) {
        const std::int32_t room = run.room();
        run.step(rng);
        REQUIRE(run.proposal().size() <= std::min(room, shape.nodes().most));
        trimmed += room < shape.nodes().most && run.proposal().size() == room && room > 1;
      }
      CHECK(target.size() == capacity);
      const List text(run.text().begin(), run.text().end());
      CHECK(text == plainly(weights, prompt, capacity, params, seed));
      CHECK_THROWS_AS(run.step(rng), std::length_error);
      CHECK(List(run.text().begin(), run.text().end()) == text);
    }
  };
  const SamplingParams warm{.temperature = 0.5f, .top_p = 0.9f};
  generate(IidPair{.depth = 4}, warm);
  generate(DistinctTriple{.depth = 3}, warm);
  generate(ChosenTwice{.depth = 3, .pick = 2}, warm);
  generate(IidPair{.depth = 4}, {.temperature = 0});
  CHECK(trimmed >= 8);
}

TEST_CASE("a shape larger than the model's max_nodes: an error of the round, and the text is kept") {
  const DecoderConfig config = configs()[2];
  Decoder<float> target(weights_of<float>(config), options_of(200)),
      draft(weights_of<float>(config, 8), options_of(200, 200));
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft},
                 DistinctTriple{.depth = 4}};  // 121 nodes
  PhiloxRandom rng(1);
  run.start(List{1, 2, 3});
  CHECK_THROWS_WITH_AS(run.step(rng), "Decoder::extend: 0 nodes and 121 more, but max_nodes is 64",
                       std::invalid_argument);
  CHECK(List(run.text().begin(), run.text().end()) == List{1, 2, 3});
  CHECK(target.size() == 2);
  CHECK(run.room() == 198);
}
