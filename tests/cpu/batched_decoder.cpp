// SPDX-License-Identifier: MIT
// labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/base/stopwatch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/model/batched.hpp>
#include <specula/policy/concepts.hpp>

#include "attention_scores.hpp"
#include "model_findings.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"

using namespace specula;
using namespace specula::cpu;
using specula_test::Random;

static_assert(BatchedLanguageModel<Decoder<float>> && Decoder<float>::kBatchInvariant);
static_assert(LanguageModel<SlotOf<Decoder<float>>> && MergesPasses<SlotOf<Decoder<float>>>);
static_assert(CountsChanges<SlotOf<Decoder<float>>> && TimesItself<SlotOf<Decoder<float>>>);
static_assert(ExposesKeyValues<SlotOf<Decoder<float>>> && ExposesFeatures<SlotOf<Decoder<float>>>);
static_assert(TargetConditioned<SlotOf<Decoder<float>>>);

namespace {

DecoderConfig config_of(std::int32_t layers = 2) {
  DecoderConfig config;
  config.vocab_size = 61, config.hidden_size = 48, config.intermediate_size = 80, config.layers = layers;
  config.heads = 4, config.kv_heads = 2, config.head_dim = 12;
  return config;
}
template <class Real>
std::shared_ptr<const DecoderWeights<Real>> weights_of(WeightType type,
                                                       float scores = specula_test::kRandom) {
  return std::make_shared<const DecoderWeights<Real>>(
      specula_test::with_scores(random_decoder_weights<Real>(config_of(), 7, type), scores));
}
std::vector<Token> tokens_of(Random& random, std::int32_t count) {
  std::vector<Token> out;
  for (std::int32_t i = 0; i < count; ++i) out.push_back(random.below(61));
  return out;
}
std::vector<NodeId> tree_of(Random& random, std::int32_t from, std::int32_t count) {
  std::vector<NodeId> out;
  for (NodeId i = from; i < from + count; ++i)
    out.push_back(i == 0 || random.bernoulli(0.1) ? kNoParent
                  : random.bernoulli(0.5)         ? i - 1
                                                  : random.below(i));
  return out;
}

/// The text of a slot, in a model of its own.
template <class Real>
struct Twin {
  std::unique_ptr<Decoder<Real>> alone;
  std::vector<Token> text, tokens;  // committed; of its nodes
  std::vector<NodeId> parents = {};

  void drop_nodes() { tokens.clear(), parents.clear(); }
};

/// Random calls on random slots: after each pass the rows are those of models alone, bit for bit.
template <class Real>
void play(WeightType type, std::int32_t slots, const DecoderOptions& given, std::uint64_t seed, int rounds) {
  const auto weights = weights_of<Real>(type, specula_test::kScores[seed % 4]);
  DecoderOptions options = given;
  options.slots = slots;
  Decoder<Real> batch(weights, options);
  options.slots = 1;
  options.threads = 1;
  std::vector<Twin<Real>> twins(static_cast<std::size_t>(slots));
  for (auto& twin : twins) twin.alone = std::make_unique<Decoder<Real>>(weights, options);
  const auto twin_of = [&](std::int32_t slot) -> Twin<Real>& {
    return twins[static_cast<std::size_t>(slot)];
  };
  Random random(seed);

  const auto change = [&](std::int32_t slot) {
    Twin<Real>& twin = twin_of(slot);
    if (options.capacity - batch.size(slot) < 50 || random.bernoulli(0.2)) {
      const std::int32_t n = random.below(batch.size(slot) + 1);
      batch.truncate(slot, n), twin.alone->truncate(n);
      twin.text.resize(static_cast<std::size_t>(n)), twin.drop_nodes();
    }
    if (random.bernoulli(0.4)) {
      const auto more = tokens_of(random, random.bernoulli(0.2) ? 30 : random.below(6));
      batch.append(slot, more), twin.alone->append(more);
      twin.text.insert(twin.text.end(), more.begin(), more.end()), twin.drop_nodes();
    }
    if (slots > 1 && random.bernoulli(0.1)) {
      const std::int32_t from = (slot + 1 + random.below(slots - 1)) % slots;
      const std::int32_t n = random.below(batch.size(from) - batch.queued(from) + 1);
      twin.text.assign(twin_of(from).text.begin(), twin_of(from).text.begin() + n), twin.drop_nodes();
      twin.alone->truncate(0), twin.alone->append(twin.text);
      batch.truncate(slot, 0), batch.append(slot, twin.text);
      const auto changes = batch.change_count(slot);
      batch.fork(from, slot, n);
      CHECK(batch.queued(slot) == 0);
      CHECK(batch.change_count(slot) == changes);
    }
    REQUIRE(batch.size(slot) == twin.alone->size());
  };
  const auto extend = [&] {
    std::vector<std::vector<Token>> tokens(twins.size());
    std::vector<std::vector<NodeId>> parents(twins.size());
    std::vector<SlotNodes> nodes;
    for (std::int32_t s = 0; s < slots; ++s) {
      if (random.bernoulli(0.2)) continue;
      const auto at = static_cast<std::size_t>(s);
      const auto held = static_cast<std::int32_t>(twins[at].parents.size());
      const std::int32_t count = std::min(random.below(5), options.max_nodes - held);
      tokens[at] = tokens_of(random, count), parents[at] = tree_of(random, held, count);
      nodes.insert(nodes.begin() + random.below(static_cast<std::int32_t>(nodes.size()) + 1),
                   SlotNodes{s, tokens[at], parents[at]});
    }
    const LogitsView rows = batch.extend(nodes);
    std::int32_t row = 0;
    for (const SlotNodes& slot_nodes : nodes) {
      if (slot_nodes.tokens.empty()) continue;
      Twin<Real>& twin = twin_of(slot_nodes.slot);
      CHECK(batch.queued(slot_nodes.slot) == 0);
      const LogitsView want = twin.alone->extend(slot_nodes.tokens, slot_nodes.parents);
      twin.parents.insert(twin.parents.end(), slot_nodes.parents.begin(), slot_nodes.parents.end());
      twin.tokens.insert(twin.tokens.end(), slot_nodes.tokens.begin(), slot_nodes.tokens.end());
      for (std::int32_t i = 0; i < want.rows; ++i, ++row) {
        const auto a = rows.row(row), b = want.row(i);
        CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
      }
    }
    CHECK(row == rows.rows);
  };
  const auto commit = [&](std::int32_t slot) {
    Twin<Real>& twin = twin_of(slot);
    if (twin.parents.empty()) return;
    std::vector<NodeId> path;
    for (NodeId node = random.below(static_cast<std::int32_t>(twin.parents.size())); node != kNoParent;
         node = twin.parents[static_cast<std::size_t>(node)])
      path.insert(path.begin(), node);
    batch.commit(slot, path), twin.alone->commit(path);
    for (const NodeId node : path) twin.text.push_back(twin.tokens[static_cast<std::size_t>(node)]);
    twin.drop_nodes();
  };
  for (int round = 0; round < rounds; ++round) {
    for (std::int32_t s = 0; s < slots; ++s) change(s);
    extend();
    if (random.bernoulli(0.3)) extend();
    for (std::int32_t s = 0; s < slots; ++s)
      if (random.bernoulli(0.6)) commit(s);
  }
}

}  // namespace

TEST_CASE("several texts in a pass have the rows that each has alone") {
  play<float>(WeightType::bf16, 1, {.capacity = 160, .max_nodes = 12}, 1, 12);
  play<float>(WeightType::bf16, 3, {.capacity = 160, .max_nodes = 12, .prefill_chunk = 20}, 2, 25);
  play<float>(WeightType::full, 5, {.capacity = 300, .max_nodes = 12, .threads = 3}, 3, 20);
  play<float>(WeightType::bf16, 4, {.capacity = 300, .max_nodes = 12, .threads = 2, .cache = CacheType::half},
              7, 20);
  play<float>(WeightType::blocks, 4, {.capacity = 300, .max_nodes = 12, .threads = 2}, 9, 20);
}
UNTHREADED_TEST_CASE(
    "several texts in a pass have the rows that each has alone: in double, on any instructions") {
  play<double>(WeightType::bf16, 4, {.capacity = 160, .max_nodes = 12}, 4, 15);
  play<float>(WeightType::full, 4, {.capacity = 160, .max_nodes = 12, .isa = Isa::portable}, 5, 15);
  play<float>(WeightType::bf16, 40, {.capacity = 160, .max_nodes = 12}, 6,
              4);  // more columns than a pass has
  for (const Isa isa : {Isa::portable, Isa::avx2})
    if (supported(isa)) {
      play<float>(WeightType::full, 4,
                  {.capacity = 160, .max_nodes = 12, .isa = isa, .cache = CacheType::half}, 8, 15);
      play<float>(WeightType::blocks, 3, {.capacity = 160, .max_nodes = 12, .isa = isa}, 10, 10);
      play<float>(WeightType::blocks, 3,
                  {.capacity = 160, .max_nodes = 12, .isa = isa, .inputs = Inputs::int8, .vnni = false}, 11,
                  10);
    }
  play<float>(WeightType::blocks, 40, {.capacity = 160, .max_nodes = 12, .inputs = Inputs::int8}, 12, 4);
}

UNTHREADED_TEST_CASE("check_batched_model() finds nothing") {
  for (const WeightType type : {WeightType::full, WeightType::bf16, WeightType::blocks}) {
    Decoder<float> model(weights_of<float>(type), {.capacity = 48, .max_nodes = 12, .slots = 3});
    CHECK(specula_test::words(check_batched_model(model)) == "");
  }
}
UNTHREADED_TEST_CASE("a fork goes on as the text that it was") {
  for (const CacheType cache : {CacheType::full, CacheType::half}) {
    const auto weights = weights_of<float>(WeightType::bf16);
    Decoder<float> batch(weights, {.capacity = 400, .max_nodes = 4, .slots = 3, .cache = cache}),
        alone(weights, {.capacity = 400, .max_nodes = 4, .cache = cache});
    Random random(9);
    const auto text = tokens_of(random, 333), more = tokens_of(random, 2);
    const std::vector<NodeId> parents{kNoParent, 0};
    batch.append(0, text);
    CHECK_THROWS_AS(batch.fork(0, 1, 5), std::invalid_argument);  // it has not run
    while (batch.queued(0) > 0) {
      const std::vector<SlotNodes> queued{{0}};
      CHECK(batch.extend(queued).rows == 0);
    }
    batch.append(1, text), batch.append(2, Tokens(text).first(300));
    batch.fork(0, 1, 333), batch.fork(0, 2, 280);
    CHECK(batch.queued(1) == 0);
    CHECK(batch.queued(2) == 20);
    batch.fork(1, 2, 290), batch.fork(1, 2, 290), batch.fork(0, 2, 10);
    CHECK(batch.queued(2) == 10);
    const std::vector<SlotNodes> nodes{{2, more, parents}, {1, more, parents}};
    const LogitsView rows = batch.extend(nodes);
    const auto same = [&](std::int32_t from, std::int32_t length) {
      alone.truncate(0);
      alone.append(Tokens(text).first(static_cast<std::size_t>(length)));
      const LogitsView want = alone.extend(more, parents);
      for (std::int32_t i = 0; i < 2; ++i) {
        const auto a = rows.row(from + i), b = want.row(i);
        CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
      }
    };
    same(0, 300), same(2, 333);
    CHECK_THROWS_AS(batch.fork(0, 0, 1), std::invalid_argument);
    CHECK_THROWS_AS(batch.fork(0, 1, 334), std::invalid_argument);
    CHECK_THROWS_AS(batch.fork(0, 2, 301), std::invalid_argument);
    CHECK_THROWS_AS(batch.fork(0, 2, 1), std::invalid_argument);  // it has nodes
  }
}

UNTHREADED_TEST_CASE("the memory of a slot grows with its text, nodes and features included") {
  for (const CacheType cache : {CacheType::full, CacheType::half}) {
    const auto weights = weights_of<float>(WeightType::bf16);
    Decoder<float> batch(weights, {.capacity = 700, .max_nodes = 60, .slots = 2, .cache = cache}),
        alone(weights, {.capacity = 700, .max_nodes = 60, .cache = cache});
    Random random(11);
    const auto beside = tokens_of(random, 20);
    batch.append(0, beside);
    const auto grow = [&](std::int32_t text, std::int32_t first, std::int32_t second) {
      const auto more = tokens_of(random, text), nodes = tokens_of(random, first + second);
      const auto parents = tree_of(random, 0, first + second);
      batch.append(1, more), alone.append(more);
      for (const bool later : {false, true}) {  // memory may grow while there are nodes
        const auto from = static_cast<std::size_t>(later ? first : 0),
                   count = static_cast<std::size_t>(later ? second : first);
        const std::span added = std::span(nodes).subspan(from, count);
        const std::span above = std::span(parents).subspan(from, count);
        const std::vector<SlotNodes> pass{{1, added, above}};
        const LogitsView rows = batch.extend(pass), want = alone.extend(added, above);
        for (std::int32_t i = 0; i < want.rows; ++i) {
          const auto a = rows.row(i), b = want.row(i);
          CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
        }
      }
      const std::vector<NodeId> path{0};
      batch.commit(1, path), alone.commit(path);
      const auto features = SlotOf(batch, 1).features(), same = alone.features();
      for (std::int32_t t = 0; t < batch.size(1); ++t)
        CHECK(std::equal(features.row(t).begin(), features.row(t).end(), same.row(t).begin()));
    };
    grow(100, 3, 50);   // beyond what a slot has at first
    grow(140, 40, 20);  // and beyond twice that
    grow(300, 1, 1);
    CHECK(batch.size(0) == 20);
  }
}

UNTHREADED_TEST_CASE("the seconds of a pass are shared by the tokens and nodes of the texts in it") {
  const auto weights = weights_of<float>(WeightType::bf16);
  Decoder<float> batch(weights, {.capacity = 100, .max_nodes = 8, .slots = 3});
  Random random(12);
  const auto one = tokens_of(random, 1), two = tokens_of(random, 2);
  const std::vector<NodeId> root{kNoParent}, roots(2, kNoParent);
  batch.append(1, tokens_of(random, 6));
  const std::vector<SlotNodes> nodes{{0, one, root}, {1, two, roots}};
  double spent = 0;
  {
    const specula::detail::Stopwatch watch(spent);
    batch.extend(nodes);
  }
  CHECK(batch.pass_seconds(0) > 0);
  CHECK(batch.pass_seconds(1) == doctest::Approx(8 * batch.pass_seconds(0)));
  CHECK(batch.pass_seconds(2) == 0);
  CHECK(batch.pass_seconds(0) + batch.pass_seconds(1) <= spent);
}

UNTHREADED_TEST_CASE("a slot's mistakes change nothing, in any slot") {
  const auto weights = weights_of<float>(WeightType::bf16);
  Decoder<float> batch(weights, {.capacity = 20, .max_nodes = 3, .slots = 2});
  const std::vector<Token> one{1}, bad{61}, many(21, 1), four(4, 1);
  const std::vector<NodeId> root{kNoParent}, after{0}, roots(4, kNoParent);
  batch.append(0, one);
  const auto changes = batch.change_count(0), others = batch.change_count(1);
  const auto refuses = [&](std::vector<SlotNodes> nodes) {
    CHECK_THROWS_AS(batch.extend(nodes), std::invalid_argument);
    CHECK(batch.change_count(0) == changes);
    CHECK(batch.change_count(1) == others);
  };
  refuses({{0, one, root}, {0, one, root}});
  refuses({{0, one, root}, {2, one, root}});
  refuses({{0, one, root}, {-1, one, root}});
  refuses({{0, one, root}, {1, bad, root}});
  refuses({{0, one, root}, {1, one, after}});
  refuses({{0, one, root}, {1, four, roots}});
  refuses({{0, one, root}, {1, one, {}}});
  CHECK_THROWS_AS(batch.append(1, many), std::invalid_argument);
  CHECK_THROWS_AS(batch.truncate(1, 1), std::invalid_argument);
  CHECK_THROWS_AS(batch.size(2), std::invalid_argument);
  CHECK_THROWS_AS(batch.commit(1, after), std::invalid_argument);
  CHECK(batch.change_count(1) == others);
  CHECK(batch.queued(0) == 1);
}
