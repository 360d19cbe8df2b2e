// labels: light
// Processed: a model with a logit processor.
#include <specula/processed_model.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "exact_distribution.hpp"

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using namespace specula_test;

namespace {
using List = std::vector<Token>;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

/// A repetition penalty, and a grammar in which no token follows itself.
struct Rules {
  void operator()(Tokens path, std::span<float> row) const {
    for (const Token token : path) row[static_cast<std::size_t>(token)] -= 0.4f;
    row[static_cast<std::size_t>(path.back())] = kMasked;
  }
};

/// The expected distribution: the model's own row after the whole text, processed.
struct Oracle {
  const ToyModel& model;
};
std::vector<double> distribution_after(const Oracle& oracle, const List& text, const SamplingParams& params) {
  std::vector<float> row(static_cast<std::size_t>(oracle.model.vocab_size()));
  oracle.model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
  Rules{}(text, row);
  return plain_distribution(row, params);
}

template <class Rule, class Shape>
void check_distribution(Rule rule, Shape shape, bool draft_too) {
  ToyModel inner(3, 4), small(3, 5);
  Processed target{inner, Rules{}}, processed_draft{small, Rules{}};
  const SamplingParams params{.temperature = 0.9f};
  const List prompt = {0, 2, 1};
  const auto distribution = [&](auto drafter) {
    Speculator run{TreeVerifier{target, rule, params}, std::move(drafter), shape};
    return composed_distribution(run, Oracle{inner}, params, prompt, 3).error;
  };
  CHECK((draft_too ? distribution(ModelDrafter{processed_draft}) : distribution(ModelDrafter{small})) <
        1e-12);
  Speculator raw{TreeVerifier{inner, rule, params}, ModelDrafter{small}, shape};
  CHECK(composed_distribution(raw, Oracle{inner}, params, prompt, 3).error >
        0.01);  // the processor has an effect
}

}  // namespace

TEST_CASE("the text's distribution is that of the processed model") {
  check_distribution(Sampling{}, Cape{.length = 2, .budget = 6, .extras = CapeExtras::fixed(1)}, false);
  check_distribution(Sampling{}, Chain<Draw::sampled>{.length = 2}, false);
  check_distribution(Rejection{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 1}}, true);
}

TEST_CASE("one seed gives the text of plain decoding with the same processor") {
  constexpr std::int32_t kVocab = 12;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ToyModel inner(kVocab, seed), small(kVocab, seed, 1.5f);
    Processed target{inner, Rules{}}, draft{small, Rules{}};
    const List prompt = {1, 2};
    const auto text = [&](auto drafter, auto shape) {
      List out;
      Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0.8f}}, std::move(drafter), shape};
      run.generate(prompt, {.max_new_tokens = 30}, PhiloxRandom{seed},
                   [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
      return std::pair(out, run.stats().accepted[0]);
    };
    const auto [plain, none] = text(NoDrafter{kVocab}, Chain<>{});
    const auto [tree, accepted] = text(ModelDrafter{draft}, Cape{});
    CHECK(plain == tree);
    CHECK(accepted > 0);
    for (std::size_t i = 1; i < plain.size(); ++i) CHECK(plain[i] != plain[i - 1]);
  }
}

TEST_CASE("the processor receives each node's own path, and the model's rows are not modified") {
  ToyModel inner(6, 1);
  std::vector<List> paths;
  Processed model{inner, [&](Tokens path, std::span<float> row) {
                    paths.emplace_back(path.begin(), path.end());
                    row[0] = static_cast<float>(path.size());
                  }};
  model.append(List{5, 4});
  const LogitsView rows = model.extend(List{3, 2, 1}, std::vector<NodeId>{-1, 0, 0});
  model.extend(List{0}, std::vector<NodeId>{2});
  CHECK(paths == std::vector<List>{{5, 4, 3}, {5, 4, 3, 2}, {5, 4, 3, 1}, {5, 4, 3, 1, 0}});
  CHECK(rows.rows == 3);
  model.commit(std::vector<NodeId>{0, 2});
  paths.clear();
  CHECK(model.extend(List{2}, std::vector<NodeId>{-1}).row(0)[0] == 5.0f);
  CHECK(paths == std::vector<List>{{5, 4, 3, 1, 2}});
  model.truncate(1);
  CHECK(model.extend(List{2}, std::vector<NodeId>{-1}).row(0)[0] == 2.0f);
  CHECK(inner.cache() == List{5});
}

TEST_CASE("an exception of the processor names the node, and the next round works") {
  ToyModel inner(6, 1);
  bool broken = false;
  Processed model{inner, [&](Tokens path, std::span<float>) {
                    if (broken && path.size() == 3) throw std::invalid_argument("no rule for this token");
                  }};
  model.append(List{5});
  model.extend(List{4}, std::vector<NodeId>{-1});
  broken = true;
  CHECK_THROWS_WITH_AS(model.extend(List{3, 2}, std::vector<NodeId>{-1, 0}),
                       "Processed: the processor threw at node 2: no rule for this token",
                       std::runtime_error);
  broken = false;
  model.extend(List{1}, std::vector<NodeId>{2});  // numbered as in the model
  model.commit(std::vector<NodeId>{0, 2, 3});
  CHECK(inner.cache() == List{5, 4, 2, 1});

  Speculator run{TreeVerifier{model, Sampling{}}, NoDrafter{6}, Chain<>{}};
  PhiloxRandom rng(1);
  run.start(List{1, 2, 3});
  broken = true;
  CHECK_THROWS_WITH(run.step(rng), "Processed: the processor threw at node 0: no rule for this token");
  broken = false;
  CHECK(run.step(rng).size() == 1);
}

TEST_CASE("a wrapper whose model was changed by another caller is an error until both are truncated") {
  struct Midway : ToyModel {
    using ToyModel::ToyModel;
    bool fails = false;
    void append(Tokens tokens) {
      ToyModel::append(tokens.first(fails ? 1 : tokens.size()));
      if (fails) throw std::runtime_error("append failed midway");
    }
  } inner(6, 1);
  Processed model{inner, Rules{}};
  const std::vector<NodeId> root{-1}, first{0};
  const auto refuses = [&](auto& wrapper, const std::string& sizes) {
    const std::string what =
        "Processed: the model holds " + sizes +
        ": something else used the model, the wrapper was copied or moved from, or a call "
        "of the model threw midway; truncate(0) begins anew";
    CHECK_THROWS_WITH_AS(wrapper.extend(List{1}, root), what.c_str(), std::logic_error);
    CHECK_THROWS_WITH_AS(wrapper.append(List{1}), what.c_str(), std::logic_error);
    CHECK_THROWS_WITH_AS(wrapper.commit({}), what.c_str(), std::logic_error);
  };
  model.append(List{1, 2});
  inner.fails = true;
  CHECK_THROWS_AS(model.append(List{3, 4}), std::runtime_error);
  inner.fails = false;
  refuses(model, "3 tokens, this wrapper knows 2");
  model.truncate(2);
  CHECK_THROWS_WITH_AS(model.commit(first), "Processed::commit: node 0 of 0", std::invalid_argument);
  model.extend(List{4}, root);
  CHECK_THROWS_WITH_AS(model.commit(std::vector<NodeId>{-1}), "Processed::commit: node -1 of 1",
                       std::invalid_argument);
  auto other = model;
  model.commit(first);
  refuses(other, "3 tokens, this wrapper knows 2");
  auto moved = std::move(model);
  refuses(model, "3 tokens, this wrapper knows 0");  // NOLINT(bugprone-use-after-move): the test
  moved.extend(List{3}, root);
}

TEST_CASE("a wrong number of rows, or overlapping rows, are errors") {
  struct Spoilt : ToyModel {
    using ToyModel::ToyModel;
    std::int32_t more = 0;
    std::ptrdiff_t stride = 6;
    LogitsView extend(Tokens tokens, Nodes parents) {
      const LogitsView rows = ToyModel::extend(tokens, parents);
      return {rows.data, rows.rows + more, rows.vocab, stride};
    }
  } inner(6, 1);
  Processed model{inner, Rules{}};
  const std::vector<NodeId> chain{-1, 0};
  for (const std::int32_t more : {-3, -1, 1}) {
    inner.more = more;
    CHECK_THROWS_WITH_AS(model.extend(List{1, 2}, chain),
                         ("Processed: the model gave " + std::to_string(2 + more) +
                          " rows of 6 logits for 2 nodes over 6 tokens")
                             .c_str(),
                         std::invalid_argument);
    model.truncate(0);
  }
  inner.more = 0, inner.stride = 0;
  CHECK_THROWS_WITH_AS(model.extend(List{1, 2}, chain),
                       "Processed: the model's rows of 6 logits are 0 floats apart: they overlap",
                       std::invalid_argument);
}

TEST_CASE("rounds allocate nothing; properties of the model are forwarded; sizes are checked") {
  ToyModel inner(50, 1, 2.0f, 400);
  ToyModel small(50, 2, 2.0f, 400);
  Processed target{inner, Rules{}};
  static_assert(LanguageModel<decltype(target)>);
  CHECK(target.change_count() == inner.change_count());
  static_assert(CountsChanges<decltype(target)>);
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{small}, Cape{.length = 4, .budget = 20}};
  run.start(List{1, 2});
  PhiloxRandom rng(1);
  const AllocationCount counted;
  for (int round = 0; round < 30; ++round) run.step(rng);
  CHECK(counted.count() == 0);
  CHECK_THROWS_WITH_AS((Processed{inner, Rules{}, 0}), "Processed: max_nodes is 0, must be in [1, 16777215]",
                       std::invalid_argument);
}
