// SPDX-License-Identifier: MIT
// A wrapper of a drafter, a shape, a rule or a whole pipeline answers as its content does: every wrapper
// times every optional capability, over a content that has it and one that has not.
// tests/policy/capabilities.cpp has the list.
#include <specula/any.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <specula/model/batched.hpp>
#include <specula/runtime/assemble.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "text_of.hpp"
#include "toy_batch.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace policy_wrappers {  // not unnamed: g++ warns of coroutines whose frames have such types

constexpr std::int32_t kVocab = 6;
using Able = AbleModel<true, true>;
const std::vector<Token> kContext{1, 2, 3}, kPair{4, 5};
const std::vector<NodeId> kChain{kNoParent, 0};

/// A shape with every optional member, which counts its calls; and one with none.
struct Calls {
  int reserve = 0, reset = 0, learn = 0, validate = 0;
};
struct FullShape {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  Calls* calls;
  std::vector<Reviews> reviews{2};
  NodeCounts nodes() const { return {.most = 4, .least = 3, .drafted = 9}; }
  void validate() const { ++calls->validate; }
  void reserve(const Sizes& sizes) { calls->reserve = sizes.nodes; }
  void reset() { ++calls->reset; }
  void learn(const TokenTree&, const VerifyResult&, const Timing&) { ++calls->learn; }
  std::span<const Reviews> reviewed() const { return reviews; }
  template <class D, class C>
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&) {}
};
struct BareShape {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  NodeCounts nodes() const { return {4}; }
  template <class D, class C>
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&) {}
};
using ErasedShape = AnyShape<AnyDrafter, ProposalKind::sampled>;

/// Each optional member of a shape through AnyShape.
template <class F>
void over_shapes(F f) {
  Calls full, none;
  ErasedShape with{FullShape{&full}}, without{BareShape{}};
  f(with, full, true);
  f(without, none, false);
  static_assert(ErasedShape::kind == ProposalKind::sampled);
  static_assert(!std::constructible_from<AnyShape<AnyDrafter, ProposalKind::mixed>, FullShape>);
}
/// A drafter with every optional member, and one with none.
struct Full {
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t capacity() const { return 7; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) {}
  LogitsView extend(Tokens, Nodes) { return {}; }
  void reserve(const Sizes& sizes) { *reserved = sizes.tokens; }
  Usage usage() const noexcept { return {.calls = 3}; }
  std::int32_t* reserved;
};
struct Bare {
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t capacity() const { return 7; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) {}
  LogitsView extend(Tokens, Nodes) { return {}; }
};

void reserves() {
  std::int32_t alone = 0, erased = 0, first = 0, last = 0;
  AnyDrafter any{Full{&erased}}, bare{Bare{}};
  any.reserve({.tokens = 5}), bare.reserve({.tokens = 5});
  CHECK(erased == 5);
  Stack one{Full{&alone}};
  Stack two{Full{&first}, Bare{}, Full{&last}};
  Stack none{Bare{}};
  one.reserve({.tokens = 6}), two.reserve({.tokens = 6}), none.reserve({.tokens = 6});
  CHECK(alone == 6);
  CHECK(first == 6);
  CHECK(last == 6);
  over_shapes([](auto& shape, Calls& calls, bool has) {
    shape.reserve({.nodes = 4});
    CHECK(calls.reserve == (has ? 4 : 0));
  });
}
void reports_room() {
  std::int32_t unused = 0;  // Full and Bare have room for 7
  CHECK(Stack{Bare{}}.room(2) == 5);
  CHECK(Stack{AnyDrafter{Bare{}}, Full{&unused}}.room(2) == 5);
  CHECK(Stack{Bare{}, MaxGram{kVocab}}.room(7) == MaxGram{kVocab}.capacity() - 7);
}
void reports_usage() {
  std::int32_t unused = 0;
  CHECK(AnyDrafter(Full{&unused}).usage().calls == 3);
  CHECK(AnyDrafter(Bare{}).usage().calls == 0);
  CHECK(Stack{Full{&unused}, Bare{}, Full{&unused}}.usage().calls == 6);
  CHECK(Stack{Bare{}}.usage().calls == 0);
  Able target(kVocab), draft(kVocab);
  AnyModel any(target);
  TreeVerifier verifier{any, Greedy{}};
  Speculator run{verifier, Stack{ModelDrafter{draft}, MaxGram{kVocab}}, Chain<>{.length = 2}};
  PhiloxRandom rng(1);
  run.start(kContext), run.step(rng);
  CHECK(run.verifier().usage().calls == 1);
}
void reports_member_usage() {
  std::int32_t unused = 0;
  const Stack two{Bare{}, Full{&unused}};
  CHECK(two.usage(0).calls == 0);
  CHECK(two.usage(1).calls == 3);
}
void has_members() {
  static_assert(Stack<Bare>::kMembers == 1 && Stack<Bare, Full>::kMembers == 2);
  static_assert(!HasMembers<AnyDrafter> && !HasMembers<ModelDrafter<Able>>);  // AnyDrafter takes no Stack
}
void rows_or_point_masses() {
  static_assert(LogitsDrafter<AnyDrafter> && !std::constructible_from<AnyDrafter, MaxGram>);
  static_assert(LogitsDrafter<Stack<Bare, MaxGram>> && !LogitsDrafter<Stack<MaxGram, Bare>>);
  static_assert(Drafter<Stack<MaxGram, Bare>>);
}

/// A drafter over a slot asks for a pass, behind what wraps it; one over another model asks for none. Of a
/// stack that is the first member, which a shape for one drafter uses.
void merges_passes() {
  ToyBatch batch(4, kVocab, 1);
  SlotOf<ToyBatch> slot(batch, 0), erased(batch, 1), first(batch, 2), nested(batch, 3);
  ToyModel model(kVocab, 1);
  const auto rows = [](const LogitsView& view) {
    std::vector<float> all;
    for (std::int32_t i = 0; i < view.rows; ++i)
      all.insert(all.end(), view.row(i).begin(), view.row(i).end());
    return all;
  };
  ModelDrafter alone{model};
  alone.sync(kContext, {});
  const std::vector<float> want = rows(alone.extend(kPair, kChain));
  const auto check = [&](auto drafter, std::int32_t place) {
    static_assert(MergesPasses<decltype(drafter)>);
    drafter.sync(kContext, {});
    const PassRequest request = drafter.begin_pass(kPair, kChain);
    REQUIRE(request.batch == &batch);
    CHECK(request.slot == place);
    const SlotNodes nodes{request.slot, request.tokens, request.parents};
    CHECK(rows(drafter.end_pass(batch.extend(std::span(&nodes, 1)))) == want);
  };
  check(ModelDrafter{slot}, 0);
  check(AnyDrafter(ModelDrafter{erased}), 1);
  check(Stack{ModelDrafter{first}}, 2);
  check(Stack{ModelDrafter{nested}, MaxGram{kVocab}}, 3);
  AnyDrafter any{ModelDrafter{model}};
  any.sync(kContext, {});
  CHECK(!any.begin_pass(kPair, kChain).batch);
  CHECK(rows(any.extend(kPair, kChain)) == want);
  static_assert(!MergesPasses<Stack<ModelDrafter<ToyModel>>> && !MergesPasses<Stack<MaxGram, AnyDrafter>>);
}

// ---- shapes ----

void counts_nodes() {
  over_shapes([](auto& shape, Calls&, bool has) {
    CHECK(shape.nodes().most == 4);
    CHECK(shape.nodes().least == (has ? 3 : 2));
    CHECK(shape.nodes().drafted == (has ? 9 : 4));
    CHECK(shape.nodes().held() == (has ? 9 : 4));
  });
}
void validates_fields() {
  over_shapes([](auto& shape, Calls& calls, bool has) {
    shape.validate();
    CHECK(calls.validate == (has ? 1 : 0));
  });
}
void learns_from_rounds() {
  over_shapes([](auto& shape, Calls& calls, bool has) {
    ProposalBuilder tree(kVocab, 4, 0);
    tree.reset(1, 0);
    shape.learn(tree, VerifyResult{}, Timing{});
    CHECK(calls.learn == (has ? 1 : 0));
    CHECK(calls.reset == 0);
    shape.reset();
    CHECK(calls.reset == (has ? 1 : 0));
  });
}
void reviewed() {
  over_shapes([](auto& shape, Calls&, bool has) { CHECK(shape.reviewed().size() == (has ? 2u : 0u)); });
}

// ---- verifiers ----

/// A pipeline by name waits for the target's pass where its Speculator does.
void merges_rounds() {
  ToyBatch batch(2, kVocab, 1);
  SlotOf<ToyBatch> slot(batch, 0), same(batch, 1);
  Speculator run{TreeVerifier{slot, Greedy{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
  PipelineOf<TreeVerifier<SlotOf<ToyBatch>, Greedy>, NoDrafter, Chain<>> of(
      TreeVerifier{same, Greedy{}}, NoDrafter{kVocab}, Chain<>{.length = 0}, {});
  PhiloxRandom rng(1);
  const auto check = [&](auto& pipeline, std::int32_t place) {
    pipeline.start(kContext);
    pipeline.begin(rng);
    REQUIRE(pipeline.want());
    CHECK(pipeline.want()->batch == &batch);
    CHECK(pipeline.want()->slot == place);
    const SlotNodes nodes{place, pipeline.want()->tokens, pipeline.want()->parents};
    pipeline.give(batch.extend(std::span(&nodes, 1)));
    CHECK(pipeline.end().size() == 1);
  };
  check(run, 0);
  check(static_cast<Pipeline&>(of), 1);
  static_assert(MergesRounds<TreeVerifier<SlotOf<ToyBatch>, Greedy>>);
  CHECK(run.verifier().batch() == &batch);
  AnyModel any_slot(slot);
  ToyModel model(kVocab, 1);
  AnyModel any_model(model);
  CHECK(TreeVerifier{any_slot, Greedy{}}.batch() == &batch);
  CHECK(TreeVerifier{any_model, Greedy{}}.batch() == nullptr);
  static_assert(!MergesRounds<PathVerifier<SlotOf<ToyBatch>, Greedy>>);
  static_assert(!MergesRounds<TreeVerifier<ToyModel, Greedy>>);
}

// ---- rules ----

template <ProposalKind kind>
void lossless_for_one_kind() {
  using Rule = AnyRule<kind>;
  constexpr std::array kKinds{ProposalKind::deterministic, ProposalKind::sampled,
                              ProposalKind::sampled_iid,   ProposalKind::sampled_distinct,
                              ProposalKind::mixed,         ProposalKind::shared};
  for (const ProposalKind other : kKinds) CHECK(Rule::lossless_for(other) == (other == kind));
  const auto takes = [](RuleName name, auto rule) {
    CAPTURE(name_of(name));
    CAPTURE(static_cast<int>(kind));
    CHECK(is_lossless(name, kind) == rule.lossless_for(kind));
    if (rule.lossless_for(kind))
      CHECK_NOTHROW(Rule(name, 2));
    else
      CHECK_THROWS_WITH_AS(Rule(name, 2),
                           doctest::Contains((std::string(name_of(name)) + ": this rule does not keep the "
                                                                           "target's distribution")
                                                 .c_str()),
                           std::invalid_argument);
    CHECK_NOTHROW(Rule::accept_lossy(name, 2));
  };
  takes(RuleName::sampling, Sampling{});
  takes(RuleName::token, Rejection{});
  takes(RuleName::block, Block{});
  takes(RuleName::traversal, Traversal{});
  takes(RuleName::match, SampleAndMatch{});
  takes(RuleName::k_seq, KSeq{});
  takes(RuleName::gumbel, GumbelCoupling{});
  takes(RuleName::lenient, Lenient{2});
  takes(RuleName::typical, Typical{});
  CHECK_THROWS_AS(Rule::accept_lossy(RuleName::lenient, 0.5), std::invalid_argument);
}
void lossless() {
  lossless_for_one_kind<ProposalKind::deterministic>();
  lossless_for_one_kind<ProposalKind::sampled>();
  lossless_for_one_kind<ProposalKind::sampled_iid>();
  lossless_for_one_kind<ProposalKind::sampled_distinct>();
  lossless_for_one_kind<ProposalKind::mixed>();
  lossless_for_one_kind<ProposalKind::shared>();
  using V = TreeVerifier<AnyModel, AnyRule<ProposalKind::sampled>>;
  static_assert(Lossless<V, FullShape> && !Lossless<V, Chain<>> && !Lossless<V, Chain<Draw::shared>>);
}

struct Row {
  std::string capability;  // a concept, and for a row of its own a member of it
  void (*check)();
};
const std::vector<Row> kRows{
    {"Reserves", reserves},
    {"ReportsUsage", reports_usage},
    {"HasMembers", has_members},
    {"HasMembers: room", reports_room},
    {"HasMembers: usage(i)", reports_member_usage},
    {"LogitsDrafter", rows_or_point_masses},
    {"MergesPasses", merges_passes},
    {"ProposalShape: nodes", counts_nodes},
    {"ValidatesFields", validates_fields},
    {"LearnsFromRounds", learns_from_rounds},
    {"CountsReviews", reviewed},
    {"MergesRounds", merges_rounds},
    {"Lossless", lossless},
};

// ---- pipelines ----

/// What the first group of `expression` matches, everywhere.
std::set<std::string> found(const std::string& text, const char* expression) {
  std::set<std::string> names;
  const std::regex name(expression);
  for (auto at = std::sregex_iterator(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at)
    names.insert((*at)[1]);
  return names;
}
/// The names of the public member functions of a class.
std::set<std::string> members_of(const std::string& header, const std::string& name) {
  std::string text = text_of(kProject / "include/specula" / header);
  text = text.substr(text.find("\nclass " + name + " "));
  const std::size_t end = std::min(text.find("\n protected:"), text.find("\n private:"));
  return found(text.substr(0, end),
               "\n  (?:virtual |static |constexpr )*[A-Za-z][A-Za-z0-9_:<>]*(?: [A-Za-z]+)*[&*]? (\\w+)\\(");
}

/// What a Speculator and a pipeline of it answer, as numbers. Of a Speculator `settings` is the verifier.
template <class Run, class Settings>
std::vector<double> answers(Run& run, Settings& settings, ToyModel& draft) {
  std::vector<double> all;
  const auto note = [&] {
    const auto add = [&](auto value) { all.push_back(static_cast<double>(value)); };
    for (const Token token : run.text()) add(token);
    add(run.vocab_size()), add(run.room()), add(run.emitted());
    add(run.proposal().size()), add(run.result().accepted.size()), add(run.result().next_token);
    const Stats& stats = run.stats();
    add(stats.rounds), add(stats.new_tokens), add(stats.proposed), add(stats.failed_drafts),
        add(stats.untimed_rounds);
    for (const auto* counts : {&stats.offered, &stats.accepted})
      for (const std::int64_t count : *counts) add(count);
    add(stats.target.calls), add(stats.drafters.at(0).nodes);
    add(run.draft_error().size()), add(settings.params().temperature);
    add(run.logprobs().size());
    for (std::size_t i = 0; i < run.logprobs().size(); ++i)
      add(run.logprobs()[i].logprob), add(run.logprobs().top(i).size());
  };
  PhiloxRandom rng(3);
  const auto step = [&] { run.step(rng), note(); };
  run.start(kContext), step(), step();
  run.count_emitted(1), note();
  settings.set_params({.temperature = 0}), step(), step();
  settings.report_logprobs({.top = 2}), step();
  CHECK(run.logprobs().size() > 0);
  settings.report_no_logprobs(), step();
  CHECK(run.logprobs().size() == 0);
  run.reset_stats(), note(), step();
  draft.throw_call = draft.calls + 1, step();
  CHECK(run.draft_error() == "extend failed");
  const Token stop = 4;
  const Generated done =
      run.generate(kContext, {.max_new_tokens = 40, .stop = {&stop, 1}}, PhiloxRandom(5), [&](Tokens fresh) {
        all.push_back(static_cast<double>(fresh.size()));
        CHECK_THROWS_AS(run.start(kContext), std::logic_error);
        CHECK_THROWS_AS(run.forget(), std::logic_error);
        note();
      });
  all.push_back(done.tokens), all.push_back(static_cast<double>(done.reason));
  run.forget();
  CHECK(run.text().empty());
  return all;
}

}  // namespace policy_wrappers

using namespace policy_wrappers;

TEST_CASE("a wrapper answers as its content does") {
  for (const Row& row : kRows) {
    CAPTURE(row.capability);
    row.check();
  }
}

TEST_CASE("a pipeline has what Speculator has, but for its policies") {
  std::set<std::string> members = members_of("run/speculator.hpp", "Speculator");
  members.merge(members_of("run/run_record.hpp", "RunRecord"));
  for (const char* policy : {"verifier", "drafter", "shape"}) CHECK(members.erase(policy) == 1);
  CHECK(members.size() > 14);
  const auto pipeline = members_of("runtime/run_time_pipeline.hpp", "Pipeline");
  for (const std::string& name : members) {
    CAPTURE(name);
    CHECK(pipeline.contains(name));
  }
}

TEST_CASE("a pipeline answers as its Speculator does") {
  ToyModel target(kVocab, 1, 2.0f, 200), draft(kVocab, 2, 2.0f, 200), same(kVocab, 1, 2.0f, 200),
      same_draft(kVocab, 2, 2.0f, 200);
  const Chain<Draw::sampled> chain{.length = 3};
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, chain};
  PipelineOf<TreeVerifier<ToyModel, Sampling>, ModelDrafter<ToyModel>, Chain<Draw::sampled>> of(
      TreeVerifier{same, Sampling{}}, ModelDrafter{same_draft}, chain, {"small"});
  Pipeline& pipeline = of;
  const auto want = answers(run, run.verifier(), draft);
  CHECK(want.size() > 300);
  CHECK(answers(pipeline, pipeline, same_draft) == want);
  CHECK(pipeline.drafts().at(0).model == "small");
  CHECK(pipeline.drafts().at(0).usage.calls == run.stats().drafters.at(0).calls);
}
