// SPDX-License-Identifier: MIT
// Processed: a model with a logit processor.
#include <specula/model/processed.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <specula/runtime/any_model.hpp>

#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "hash_gram.hpp"

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
  // With trees of a draft that knows no processor, nodes lie below excluded tokens.
  check_distribution(Traversal{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 1}}, false);
  check_distribution(Traversal{}, SampledTree<ProposalKind::sampled_iid>{.widths = {1, 2}}, false);
}

namespace {

/// A grammar over 6 tokens: neither a token itself nor the one after it may follow. Counts its calls, and
/// those for a path with a token that it excludes itself (in the prompt anything goes).
struct Grammar {
  struct Calls {
    std::int64_t all = 0, beyond = 0;
  };
  Calls* calls;
  std::size_t prompt;

  static bool excludes(Token before, Token next) { return next == before || next == (before + 1) % 6; }
  void operator()(Tokens path, std::span<float> row) const {
    ++calls->all;
    bool beyond = false;
    for (std::size_t i = prompt; i < path.size(); ++i) beyond |= excludes(path[i - 1], path[i]);
    calls->beyond += beyond;
    for (std::size_t x = 0; x < row.size(); ++x)
      if (excludes(path.back(), static_cast<Token>(x))) row[x] = kMasked;
  }
};

/// The target under the grammar, by one pass per tree or per path; the draft without it or with it too.
/// Returns the calls for the target's rows, and their number without the exclusion.
template <class Rule, class Shape, class MakeDrafter>
std::pair<Grammar::Calls, std::int64_t> grammar_calls(bool paths, Rule rule, const Shape& shape,
                                                      const SamplingParams& params,
                                                      MakeDrafter make_drafter) {
  const List prompt = {0, 2, 5};
  ToyModel inner(6, 1, 2.0f, 200);
  Grammar::Calls calls;
  Processed target{inner, Grammar{&calls, prompt.size()}};
  std::int64_t nodes = 0;
  const auto generate = [&](auto verifier) {
    Speculator run{std::move(verifier), make_drafter(prompt.size()), shape};
    run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{3}, [](Tokens) {});
    CHECK(run.stats().failed_drafts == 0);
    nodes = run.stats().target.nodes;
  };
  if (paths)
    generate(PathVerifier{target, rule, params});
  else
    generate(TreeVerifier{target, rule, params});
  return {calls, nodes};
}

}  // namespace

TEST_CASE("the processor is never called below a token that it has excluded, under any shape and draft") {
  const SamplingParams greedy{.temperature = 0}, warm{};
  ToyModel one(6, 2, 2.0f, 200), two(6, 3, 2.0f, 200), twin(6, 1, 2.0f, 200);
  Grammar::Calls draft_calls;
  std::int64_t saved = 0;
  const auto check = [&](auto rule, const auto& shape, const SamplingParams& params, auto make_drafter) {
    for (const bool paths : {false, true}) {
      const auto [calls, nodes] = grammar_calls(paths, rule, shape, params, make_drafter);
      CHECK(calls.beyond == 0);
      CHECK(calls.all > 20);
      CHECK(calls.all <= nodes);
      saved += nodes - calls.all;
    }
  };
  const auto drafts = [&](auto rule, const auto& shape, const SamplingParams& params) {
    check(rule, shape, params, [&](std::size_t) { return ModelDrafter{one}; });
    check(rule, shape, params, [&](std::size_t) { return ModelDrafter{twin}; });
    Processed<ToyModel, Grammar> masked{one, Grammar{&draft_calls, 3}};
    check(rule, shape, params, [&](std::size_t) { return ModelDrafter{masked}; });
  };
  drafts(Greedy{}, Chain<>{.length = 4}, greedy);
  drafts(Sampling{}, Chain<>{.length = 4}, warm);
  drafts(Block{}, Chain<Draw::sampled>{.length = 4}, warm);
  drafts(accept_lossy(Lenient{3.0}), Chain<Draw::sampled>{.length = 4}, warm);
  drafts(Sampling{}, DynamicTree{.top_k = 4, .expansions = 2, .total = 20}, warm);
  drafts(Rejection{}, SampledTree<ProposalKind::sampled_distinct>{}, warm);
  for_every_shape([&](const auto& shape, Enumerable) { drafts(Traversal{}, shape, warm); });
  for (const double silent : {0.0, 0.4})
    check(Sampling{}, Chain<>{.length = 6}, warm, [&](std::size_t) { return HashGram(6, 5, silent); });
  check(Sampling{}, Chain<>{.length = 6}, warm, [&](std::size_t) { return MaxGram(6, {.past_end = true}); });
  const auto stack = [&](auto rule, const auto& shape) {
    check(rule, shape, warm, [&](std::size_t) {
      return Stack{ModelDrafter{one}, ModelDrafter{two}, MaxGram(6, {.past_end = true})};
    });
    Processed<ToyModel, Grammar> masked{one, Grammar{&draft_calls, 3}};
    check(rule, shape, warm, [&](std::size_t) {
      return Stack{ModelDrafter{masked}, ModelDrafter{two}, MaxGram(6)};
    });
  };
  stack(Block{}, Vertical<3, Draw::sampled>{.reviews = 2, .length = 3, .lenience = 3});
  stack(Rejection{}, Cascade<3, Draw::sampled>{.limits = {{{4, 2, 3}, {0, 1, 3}, {0, 0, 3}}}});
  stack(Sampling{}, Horizontal<3>{.counts = {2, 2, 3}});
  CHECK(saved > 1000);            // nodes below excluded tokens
  CHECK(draft_calls.all > 1000);  // as a reviewer, a draft has such nodes too
  CHECK(draft_calls.beyond == 0);
}

TEST_CASE("rows below an excluded token are the model's own, in one call or in several") {
  ToyModel inner(6, 1);
  Grammar::Calls calls;
  Processed model{inner, Grammar{&calls, 1}};
  model.append(List{5});
  const auto raw_row = [&](Token before, Token last) {
    std::vector<float> row(6);
    inner.row(before, last, row.data());
    return row;
  };
  const auto row = [&](const LogitsView& rows, std::int32_t i) {
    return std::vector<float>(rows.row(i).begin(), rows.row(i).end());
  };
  const LogitsView rows = model.extend(List{2, 3, 4, 0, 5}, std::vector<NodeId>{-1, 0, 0, 1, 2});
  CHECK(calls.all == 2);  // 2; 2 4. Not 2 3 nor 2 3 0; and 5 follows 4
  CHECK(row(rows, 1) == raw_row(2, 3));
  CHECK(row(rows, 3) == raw_row(3, 0));
  CHECK(row(rows, 4) == raw_row(4, 5));
  CHECK(rows.row(0)[3] == kMasked);
  CHECK(row(model.raw_rows(), 0) == raw_row(5, 2));
  const LogitsView more = model.extend(List{1, 1}, std::vector<NodeId>{2, 3});
  CHECK(calls.all == 3);  // 2 4 1, but not 2 3 0 1
  CHECK(more.row(0)[2] == kMasked);
  CHECK(row(more, 1) == raw_row(0, 1));
  CHECK(row(model.raw_rows(), 0) == raw_row(4, 1));
  CHECK(calls.beyond == 0);
}

namespace {

/// ln of the softmax of a row, in long double.
std::vector<long double> plain_logs(const std::vector<float>& row, long double temperature) {
  const auto top = static_cast<long double>(*std::max_element(row.begin(), row.end()));
  long double sum = 0;
  std::vector<long double> logs;
  for (const float logit : row) logs.push_back((static_cast<long double>(logit) - top) / temperature);
  for (const long double log : logs) sum += std::exp(log);
  for (long double& log : logs) log -= std::log(sum);
  return logs;
}

}  // namespace

TEST_CASE("raw log-probabilities are the model's own, processed ones those of the processor's row") {
  const auto penalty = [](Tokens path, std::span<float> row) {
    for (const Token token : path) row[static_cast<std::size_t>(token)] -= 1.5f;
    row[static_cast<std::size_t>(path.back())] = kMasked;
  };
  ToyModel inner(6, 1, 3.0f, 100), small(6, 2, 3.0f, 100);
  const List prompt = {0, 2, 1};
  const SamplingParams params{.temperature = 0.7f};
  double apart = 0;  // by the penalty
  std::int64_t checked = 0;
  const auto texts = [&](auto& model, bool paths, bool processed) {
    const auto generate = [&](auto verifier) {
      verifier.report_logprobs({.top = 6, .processed = processed});
      Speculator run{std::move(verifier), ModelDrafter{small},
                     SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2}}};
      List text = prompt;
      run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{7}, [&](Tokens fresh) {
        const Logprobs got = run.logprobs();
        REQUIRE(got.size() == fresh.size());
        for (std::size_t i = 0; i < fresh.size(); ++i) {
          std::vector<float> raw(6);
          inner.row(text[text.size() - 2], text.back(), raw.data());
          std::vector<float> changed = raw;
          penalty(text, changed);
          const auto want = processed ? plain_logs(changed, 0.7f) : plain_logs(raw, 1);
          const auto token = static_cast<std::size_t>(fresh[i]);
          CHECK(got[i].logprob == doctest::Approx(static_cast<double>(want[token])).epsilon(2e-6));
          apart = std::max(apart, std::abs(static_cast<double>(plain_logs(changed, 1)[token] -
                                                               plain_logs(raw, 1)[token])));
          REQUIRE(got.top(i).size() == (processed ? 5 : 6));  // the excluded token is likely for the model
          for (const TokenLogprob& likely : got.top(i)) {
            const auto at = static_cast<std::size_t>(likely.token);
            CHECK(likely.logprob == doctest::Approx(static_cast<double>(want[at])).epsilon(2e-6));
            ++checked;
          }
          text.push_back(fresh[i]);
        }
      });
    };
    if (paths)
      generate(PathVerifier{model, Rejection{}, params});
    else
      generate(TreeVerifier{model, Rejection{}, params});
  };
  for (const bool paths : {false, true})
    for (const bool processed : {false, true}) {
      CAPTURE(paths);
      CAPTURE(processed);
      {
        Processed target{inner, penalty};
        static_assert(KeepsRawRows<decltype(target)> && !KeepsRawRows<ToyModel>);
        texts(target, paths, processed);
        target.truncate(0);
        AnyModel any{target};
        texts(any, paths, processed);
      }
      Processed nothing{inner, [](Tokens, std::span<float>) {}};
      Processed outer{nothing, penalty};
      texts(outer, paths, processed);
    }
  CHECK(checked > 3000);
  CHECK(apart > 0.5);
  // A model that rewrites nothing: the rows themselves.
  AnyModel plain{inner};
  CHECK(plain.raw_rows().data == nullptr);
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

TEST_CASE("draft tokens of another drafter: excluded once known, until they are dropped; the text never is") {
  ToyModel inner(6, 1);
  std::vector<List> paths;
  bool broken = false;
  Processed model{inner, [&](Tokens path, std::span<float> row) {
                    if (broken) throw std::invalid_argument("no rule");
                    paths.emplace_back(path.begin(), path.end());
                    row[static_cast<std::size_t>(path.back())] = kMasked;  // no token follows itself
                  }};
  static_assert(TakesContext<decltype(model)> && TakesContext<AnyModel> && !TakesContext<ToyModel>);
  const std::vector<NodeId> root{-1};
  const auto is_own = [&](Token before, Token last) {
    const LogitsView rows = model.extend(List{last}, root);
    std::vector<float> raw(6);
    inner.row(before, last, raw.data());
    return std::equal(raw.begin(), raw.end(), rows.row(0).begin());
  };
  const auto asked = [&] { return std::exchange(paths, {}); };
  model.append(List{1, 1, 2, 3, 4});  // a prompt is no path of this grammar
  model.set_context(2);               // 2 is the root, 3 and 4 are draft tokens
  CHECK_FALSE(is_own(4, 5));
  CHECK(asked() == std::vector<List>{{1, 1, 2}, {1, 1, 2, 3}, {1, 1, 2, 3, 4}, {1, 1, 2, 3, 4, 5}});
  CHECK(is_own(4, 4));  // excluded by the last answer, which is kept
  CHECK(asked().empty());
  model.truncate(4);
  model.append(List{3, 5});
  model.set_context(2);
  CHECK(is_own(5, 0));  // below the second 3
  CHECK(is_own(5, 1));
  CHECK(asked() == std::vector<List>{{1, 1, 2, 3}});
  model.truncate(4);
  model.set_context(2);
  CHECK_FALSE(is_own(3, 0));
  CHECK(asked() == std::vector<List>{{1, 1, 2, 3}, {1, 1, 2, 3, 0}});
  // Committed nodes that are draft tokens keep what their rows said.
  model.commit(std::vector<NodeId>{0});
  model.set_context(2);
  CHECK_FALSE(is_own(0, 2));
  CHECK(asked() == std::vector<List>{{1, 1, 2, 3, 0}, {1, 1, 2, 3, 0, 2}});
  model.extend(List{2}, std::vector<NodeId>{0});
  model.commit(std::vector<NodeId>{0, 1});  // an excluded one
  model.set_context(5);
  CHECK(is_own(2, 1));
  CHECK(asked() == std::vector<List>{{1, 1, 2, 3, 0, 2}});
  model.set_context(7);  // as text it counts as allowed
  CHECK_FALSE(is_own(2, 1));
  model.append(List{1});
  CHECK_FALSE(is_own(1, 1));
  CHECK(asked() == std::vector<List>{{1, 1, 2, 3, 0, 2, 2, 1}, {1, 1, 2, 3, 0, 2, 2, 1, 1}});
  // A processor that throws when it is asked.
  model.truncate(2);
  model.append(List{2, 3});
  model.set_context(2);
  broken = true;
  CHECK_THROWS_WITH_AS(model.extend(List{4}, root),
                       "Processed: the processor threw after token 0 of the proposal: no rule",
                       std::runtime_error);
  broken = false;
  CHECK_FALSE(is_own(3, 4));
  CHECK_THROWS_WITH_AS(model.set_context(5), "Processed::set_context: n is 5, must be in [0, 4]",
                       std::invalid_argument);
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
  auto anew = other;
  auto moved = std::move(model);
  refuses(model, "3 tokens, this wrapper knows 0");  // NOLINT(bugprone-use-after-move): the test
  moved.extend(List{3}, root);
  anew.truncate(0);
  anew.append(List{1});
  anew.extend(List{2}, root);
  CHECK(inner.size() == 1);
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
