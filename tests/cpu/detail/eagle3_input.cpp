// SPDX-License-Identifier: MIT
// labels: threads
// EAGLE-3 heads in trees, batches and texts: the bits of a row depend only on tokens and states, the first
// token has no row, and no text changes.
#include <specula/cpu/detail/eagle3_input.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <specula/batch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "../eagle3/random_head.hpp"
#include "count_allocations.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 61, kDrafted = 23;
using Rows = std::vector<std::vector<float>>;

std::vector<Token> random_tokens(Random& random, std::int32_t count, std::int32_t vocab = kVocab) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}
void add_rows(const LogitsView& view, Rows& rows) {
  for (std::int32_t r = 0; r < view.rows; ++r) rows.emplace_back(view.row(r).begin(), view.row(r).end());
}

/// A target and a head of each kind.
struct Kinds {
  HeadWeights<float> target = random_weights<float>(small_target(kVocab), 5);
  std::vector<std::pair<std::string, HeadWeights<float>>> heads;
  Kinds() {
    for (const auto& kind : head_kinds(target->config, kDrafted))
      heads.emplace_back(kind.first, random_weights<float>(kind.second, 6, target));
  }
};

DecoderOptions options_for(const HeadWeights<float>& head, std::int32_t slots = 1) {
  return {.capacity = 128, .max_nodes = 32, .slots = slots, .feature_layers = head->config.feature_layers};
}

}  // namespace

TEST_CASE("the bits of a row depend only on tokens and states: not on threads, pieces, calls or the tree") {
  const Kinds kinds;
  for (const auto& kind : kinds.heads) {
    const auto& weights = kind.second;
    CAPTURE(kind.first);
    Decoder<float> target(kinds.target, options_for(weights));
    Random random(2);
    const auto text = random_tokens(random, 40);
    target.append(text);
    const auto tokens = random_tokens(random, 12);
    std::vector<NodeId> parents{kNoParent};
    for (NodeId i = 1; i < 12; ++i)
      parents.push_back(random.bernoulli(0.5) ? i - 1 : random.below(i + 1) - 1);
    const auto rows = [&](std::int32_t threads, std::size_t piece, std::size_t at_once) {
      Decoder<float> head(weights, {.capacity = 100, .max_nodes = 16, .threads = threads});
      head.set_target_state(target.features());
      for (std::size_t at = 0; at < text.size(); at += piece)
        head.append(Tokens(text).subspan(at, std::min(piece, text.size() - at)));
      Rows out;
      for (std::size_t i = 0; i < tokens.size(); i += at_once)
        add_rows(head.extend(Tokens(tokens).subspan(i, at_once), Nodes(parents).subspan(i, at_once)), out);
      return out;
    };
    const Rows expected = rows(1, 40, 1);
    CHECK(rows(1, 40, 12) == expected);
    CHECK(rows(1, 7, 4) == expected);
    CHECK(rows(2, 17, 6) == expected);
    for (std::size_t node = 0; node < tokens.size(); ++node) {  // its path alone
      std::vector<Token> path;
      std::vector<NodeId> chain;
      for (auto up = static_cast<NodeId>(node); up != kNoParent; up = parents[static_cast<std::size_t>(up)])
        path.insert(path.begin(), tokens[static_cast<std::size_t>(up)]);
      for (std::size_t i = 0; i < path.size(); ++i) chain.push_back(static_cast<NodeId>(i) - 1);
      Decoder<float> head(weights, {.capacity = 100, .max_nodes = 16});
      head.set_target_state(target.features());
      head.append(text);
      Rows alone;
      add_rows(head.extend(path, chain), alone);
      CHECK(alone.back() == expected[node]);
    }
  }
}

UNTHREADED_TEST_CASE("rows are of the draft vocabulary, near those in double") {
  const auto target64 = random_weights<double>(small_target(kVocab), 5);
  const auto target32 = random_weights<float>(small_target(kVocab), 5);
  for (const auto& kind : head_kinds(target32->config, kDrafted)) {
    const auto& config = kind.second;
    CAPTURE(kind.first);
    Random random(3);
    const auto text = random_tokens(random, 20), tokens = random_tokens(random, 4);
    const std::vector<NodeId> parents{kNoParent, 0, 0, 2};
    const auto rows = [&]<class Real>(const HeadWeights<Real>& target_weights) {
      Decoder<Real> target(target_weights, {.capacity = 64, .feature_layers = config.feature_layers});
      Decoder<Real> head(random_weights<Real>(config, 6, target_weights), {.capacity = 64});
      target.append(text);
      head.set_target_state(target.features());
      head.append(text);
      Rows out;
      add_rows(head.extend(tokens, parents), out);
      return out;
    };
    const Rows exact = rows(target64), near = rows(target32);
    for (std::size_t r = 0; r < exact.size(); ++r) {
      CHECK(farthest(near[r], exact[r]) < 1e-4);
      CHECK(std::count(near[r].begin(), near[r].end(), -std::numeric_limits<float>::infinity()) ==
            kVocab - config.head_rows());
    }
  }
}

UNTHREADED_TEST_CASE("the first token has no row: what it is changes no later one, only its states do") {
  const Kinds kinds;
  for (const auto& kind : kinds.heads) {
    const auto& weights = kind.second;
    CAPTURE(kind.first);
    Decoder<float> target(kinds.target, options_for(weights));
    Random random(4);
    auto text = random_tokens(random, 6);
    target.append(text);
    const auto rows = [&](Token first) {
      auto changed = text;
      changed[0] = first;
      Decoder<float> head(weights, {.capacity = 64});
      head.set_target_state(target.features());
      head.append(changed);
      Rows out;
      add_rows(head.extend(std::vector<Token>{7, 9}, std::vector<NodeId>{kNoParent, 0}), out);
      return out;
    };
    CHECK(rows(1) == rows(2));
    const Rows before = rows(1);
    target.truncate(0);
    text[0] = (text[0] + 1) % kVocab;  // the target's states change
    target.append(text);
    CHECK(rows(1) != before);
  }
}

UNTHREADED_TEST_CASE("states 0 and L are a token's embedding and what the final norm takes") {
  const auto weights = random_weights<double>(small_target(kVocab), 5);
  Decoder<double> target(weights, {.capacity = 64, .feature_layers = {0, 2, 4}});
  const std::vector<Token> text{5, 9, 60, 5};
  target.append(text);
  const auto features = target.features();
  for (std::int32_t i = 0; i < 4; ++i) {
    std::vector<double> embedding(24);
    weights->embedding.get_row(text[static_cast<std::size_t>(i)], embedding.data());
    CHECK(farthest(features.hidden_state(i, 0), embedding) == 0);
    const auto last = features.hidden_state(i, 2);
    double square = 0;
    for (const double x : last) square += x * x / 24;
    std::vector<double> normed;
    for (std::size_t k = 0; k < 24; ++k)
      normed.push_back(last[k] / std::sqrt(square + weights->config.rms_norm_eps) * weights->final_norm[k]);
    CHECK(farthest(features.row(i), normed) < 1e-13);
  }
}

namespace {

/// The greedy or sampled text of a pipeline; it must have drafted without an error.
template <class Shape>
std::vector<Token> text_of(const HeadWeights<float>& target_weights, const HeadWeights<float>& weights,
                           Shape shape, const std::vector<Token>& prompt, float temperature) {
  Decoder<float> target(target_weights, options_for(weights));
  Decoder<float> head(weights, {.capacity = 128, .max_nodes = 32});
  FeatureHead drafter{head, target};
  Speculator run{TreeVerifier{target, Sampling{}, {.temperature = temperature}}, drafter, shape};
  run.start(prompt);
  PhiloxRandom rng(1);
  while (run.text().size() < prompt.size() + 24) run.step(rng);
  CHECK(run.draft_error().empty());
  CHECK(run.stats().proposed > 0);
  return {run.text().begin(), run.text().begin() + static_cast<std::ptrdiff_t>(prompt.size()) + 24};
}

}  // namespace

UNTHREADED_TEST_CASE("greedy text is the target's under every shape, from prompts of one token on") {
  const Kinds kinds;
  Random random(8);
  for (const std::int32_t length : {1, 2, 12}) {
    const auto prompt = random_tokens(random, length);
    Decoder<float> target(kinds.target, {.capacity = 128});
    Speculator run{TreeVerifier{target, Greedy{}, {.temperature = 0}}, NoDrafter{kVocab}, Chain<>{}};
    run.start(prompt);
    PhiloxRandom rng(1);
    while (run.text().size() < prompt.size() + 24) run.step(rng);
    const std::vector<Token> plain(run.text().begin(), run.text().end());
    for (const auto& kind : kinds.heads) {
      const auto& weights = kind.second;
      CAPTURE(kind.first);
      const auto same = [&](auto shape) { CHECK(text_of(kinds.target, weights, shape, prompt, 0) == plain); };
      same(Chain<>{.length = 5});
      same(DynamicTree{.top_k = 3, .expansions = 3, .total = 12});
      same(Cape{.length = 3, .budget = 6});
      same(StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}, {1, 0}}});
      text_of(kinds.target, weights, Chain<Draw::sampled>{.length = 4}, prompt, 1);
      text_of(kinds.target, weights, SampledTree<ProposalKind::sampled_distinct>{.widths = {3, 1}}, prompt,
              1);
    }
  }
}

UNTHREADED_TEST_CASE("texts in a batch are bitwise those alone") {
  const Kinds kinds;
  for (const auto& kind : kinds.heads) {
    const auto& weights = kind.second;
    CAPTURE(kind.first);
    for (const float temperature : {0.0f, 1.0f}) {
      const auto options = options_for(weights, 3);
      Decoder<float> target(kinds.target, options),
          head(weights, {.capacity = 128, .max_nodes = 32, .slots = 3});
      std::vector<SlotOf<Decoder<float>>> targets, heads;
      for (std::int32_t s = 0; s < 3; ++s) targets.emplace_back(target, s), heads.emplace_back(head, s);
      const Chain<Draw::sampled> shape{.length = 3};
      BatchSpeculator batch(
          3,
          [&](std::int32_t slot) {
            const auto s = static_cast<std::size_t>(slot);
            return Speculator{TreeVerifier{targets[s], Sampling{}}, FeatureHead{heads[s], targets[s]}, shape};
          },
          head, target);
      Random random(5);
      std::map<TextId, TextRequest> asked;
      for (std::int32_t length = 1; length <= 5; ++length) {
        TextRequest request;
        request.prompt = random_tokens(random, length == 5 ? 40 : length);
        request.max_new_tokens = 4 * length, request.params.temperature = temperature;
        request.seed = 3, request.sequence = static_cast<std::uint32_t>(length);
        asked.emplace(batch.join(request), request);
      }
      std::size_t compared = 0;
      while (!batch.empty())
        for (const TextResult& text : batch.step()) {
          const TextRequest& request = asked.at(text.id);
          Decoder<float> target_alone(kinds.target, options_for(weights)),
              head_alone(weights, {.capacity = 128, .max_nodes = 32});
          Speculator run{TreeVerifier{target_alone, Sampling{}, request.params},
                         FeatureHead{head_alone, target_alone}, shape};
          PhiloxRandom rng{request.seed.value(), request.sequence.value()};
          std::vector<Token> want;
          run.generate(request.prompt, {request.max_new_tokens, {}}, rng,
                       [&](Tokens fresh) { want.insert(want.end(), fresh.begin(), fresh.end()); });
          CHECK(text.tokens == want);
          CHECK(text.stats.proposed == run.stats().proposed);
          CHECK(text.stats.accepted == run.stats().accepted);
          ++compared;
        }
      CHECK(compared == 5);
    }
  }
}

UNTHREADED_TEST_CASE("a round allocates nothing") {
  const Kinds kinds;
  for (const auto& kind : kinds.heads) {
    const auto& weights = kind.second;
    CAPTURE(kind.first);
    Decoder<float> target(kinds.target, options_for(weights)),
        head(weights, {.capacity = 128, .max_nodes = 16});
    const std::vector<Token> tokens{1, 2, 3, 4};
    const std::vector<NodeId> tree{kNoParent, 0, 0, 1}, path{0, 1};
    target.append(tokens);
    const auto round = [&] {
      const std::int32_t known = head.size();
      head.set_target_state(target.features());
      head.append(Tokens(tokens).first(static_cast<std::size_t>(target.size() - known)));
      head.extend(tokens, tree);
      head.truncate(target.size());
      target.extend(tokens, tree);
      target.commit(path);
    };
    round(), round();
    const AllocationCount allocated;
    for (int i = 0; i < 4; ++i) round();
    const auto count = allocated.count();
    CHECK(count == 0);
  }
}

UNTHREADED_TEST_CASE("a view that lacks a state, or of another target, is an error") {
  const Kinds kinds;
  Decoder<float> head(kinds.heads[0].second, {.capacity = 64});
  Decoder<float> fewer(kinds.target, {.capacity = 64, .feature_layers = {0, 3}});
  CHECK_THROWS_WITH_AS(head.set_target_state(fewer.features()),
                       doctest::Contains("does not show the hidden state after layer 4"),
                       std::invalid_argument);
  Decoder<float> other(random_weights<float>(small_target(kVocab, 30), 1), {.capacity = 64});
  CHECK_THROWS_WITH_AS(head.set_target_state(other.features()), doctest::Contains("features of width 30"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(head.extend(std::vector<Token>{1}, std::vector<NodeId>{kNoParent}),
                       doctest::Contains("no model gave it"), std::logic_error);
}
