// SPDX-License-Identifier: MIT
// labels: optimised
// Census of optional members: each is a concept with a row in the table of docs/design.md and a cell for
// every wrapper.
#include <specula/any.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/accept/lossy.hpp>
#include <specula/model/batched.hpp>
#include <specula/runtime/run_time_pipeline.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "conditioned_models.hpp"
#include "text_of.hpp"
#include "toy_batch.hpp"

using namespace specula;
using namespace specula_test;

namespace capabilities {  // not unnamed: clang warns of members there that are not defined

// ---- contents of wrappers, with every optional member and with none ----

struct FullModel : AbleModel<true, true> {
  using AbleModel::AbleModel;
  using TargetKeyValues = ToyKeyValues;
  using TargetFeatures = FeaturesView<float>;
  void set_target_state(const ToyKeyValues&);
  void set_target_state(const FeaturesView<float>&);
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
  LogitsView raw_rows() const;
  const void* cache_id() const;
  PassRequest begin_pass(Tokens, Nodes);
  LogitsView end_pass(const LogitsView&);
};
using BareModel = AbleModel<false, false>;
/// Only what makes one of them the draft of a wrapper.
struct BareSkips : AbleModel<false, false> {
  using AbleModel::AbleModel;
  std::int32_t layers() const;
  std::int32_t node_count() const;
  LogitsView extend_skipping(Tokens, Nodes, const SkippedBlocks&);
  std::span<const double> attention_similarity();
};
struct BareExits : AbleModel<false, false> {
  using AbleModel::AbleModel;
  std::int32_t exits() const;
  std::int32_t layers_to(std::int32_t) const;
  LogitsView extend_to_exit(Tokens, Nodes, std::int32_t);
  LogitsView resume_to_exit(std::span<const std::int32_t>, std::int32_t);
};

struct FullBatch : ToyBatch {
  using ToyBatch::ToyBatch;
  using TargetKeyValues = ToyKeyValues;
  using TargetFeatures = FeaturesView<float>;
  void set_target_state(std::int32_t, const ToyKeyValues&);
  void set_target_state(std::int32_t, const FeaturesView<float>&);
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
  ToyKeyValues key_values(std::int32_t);
  FeaturesView<float> features(std::int32_t);
};
struct BareBatch {
  std::int32_t vocab_size() const;
  std::int32_t slots() const;
  std::int32_t size(std::int32_t) const;
  std::int32_t capacity(std::int32_t) const;
  std::int32_t queued(std::int32_t) const;
  std::int32_t chunk() const;
  void append(std::int32_t, Tokens);
  LogitsView extend(std::span<const SlotNodes>);
  void commit(std::int32_t, Nodes);
  void truncate(std::int32_t, std::int32_t);
};
/// A draft that reads one state of the target: it names one view.
struct KeyValuesBatch : BareBatch {
  using TargetKeyValues = ToyKeyValues;
  void set_target_state(std::int32_t, const ToyKeyValues&);
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
};
struct FeaturesBatch : BareBatch {
  using TargetFeatures = FeaturesView<float>;
  void set_target_state(std::int32_t, const FeaturesView<float>&);
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
};

struct BareDrafter {
  std::int32_t vocab_size() const;
  std::int32_t capacity() const;
  void truncate(std::int32_t);
  void sync(Tokens, Tokens);
  PointMasses extend(Tokens, Nodes);
};
struct FullDrafter : BareDrafter {
  LogitsView extend(Tokens, Nodes);
  void reserve(const Sizes&);
  Usage usage() const noexcept;
  const void* cache_id() const;
  PassRequest begin_pass(Tokens, Nodes);
  LogitsView end_pass(const LogitsView&);
};

struct BareShape {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  NodeCounts nodes() const;
  template <class D, class C>
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&);
};
struct FullShape : BareShape {
  void reserve(const Sizes&);
  void validate() const;
  void learn(const TokenTree&, const VerifyResult&, const Timing&);
  void reset();
  std::span<const Reviews> reviewed() const;
};

using Shift = void (*)(Tokens, std::span<float>);

// ---- the table ----

/// A wrapper over a content that has everything, and over one that has nothing.
template <class OverFull, class OverBare>
struct Wrapper {
  using Full = OverFull;
  using Bare = OverBare;
};

/// A row: a capability with what each wrapper makes of it:
///
///   "passes on"   it has it if its content has it
///   "by value"    always; the answer is empty, or the call does nothing, where the content has it not
///   "own"         always, whatever the content has
///   "no: ..."     never, for this reason
struct Row {
  std::string capability, problem;
};
template <class Wrappers>
struct Table;
template <class... W>
struct Table<std::tuple<W...>> {
  /// `has` says whether a type has the capability. A wrapper without a cell has an empty one, which is wrong.
  template <class Has>
  Row operator()(const char* capability, Has has, const std::array<std::string, sizeof...(W)>& cells) const {
    const std::array<bool, sizeof...(W)> full{has.template operator()<typename W::Full>()...};
    const std::array<bool, sizeof...(W)> bare{has.template operator()<typename W::Bare>()...};
    Row row{capability, {}};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string& cell = cells[i];
      const bool right = cell == "passes on"                   ? full[i] && !bare[i]
                         : cell == "by value" || cell == "own" ? full[i] && bare[i]
                         : cell.starts_with("no: ") && cell[4] ? !full[i] && !bare[i]
                                                               : false;
      if (!right) row.problem += " wrapper " + std::to_string(i) + ": '" + cell + "'";
    }
    return row;
  }
};

/// What wraps a model, or holds one.
using ModelWrappers =
    std::tuple<Wrapper<Processed<FullModel, Shift>, Processed<BareModel, Shift>>, Wrapper<AnyModel, AnyModel>,
               Wrapper<ModelDrafter<FullModel>, ModelDrafter<BareModel>>,
               Wrapper<Glide<FullModel, FullModel>, Glide<ToyGlide, SeenModel>>,
               Wrapper<FeatureHead<FullModel, FullModel>, FeatureHead<ToyHead, SeenModel>>,
               Wrapper<EarlyExitDrafter<FullModel>, EarlyExitDrafter<BareExits>>,
               Wrapper<LayerSkip<FullModel>, LayerSkip<BareSkips>>,
               Wrapper<TreeVerifier<FullModel, Greedy>, TreeVerifier<BareModel, Greedy>>,
               Wrapper<PathVerifier<FullModel, Greedy>, PathVerifier<BareModel, Greedy>>>;

std::vector<Row> of_models() {
  constexpr Table<ModelWrappers> row;
  const std::string drafts = "no: a drafter", sees = "no: its sync() throws if the count is not its own",
                    looks = "no: Speculator asks its required change_count()",
                    times = "no: usage() has these seconds",
                    passes = "no: its layers are not those of extend()";
  const std::string draft = "no: what reads the target is a draft model, this is a drafter",
                    target = "no: drafts read the model", verifies = "no: a verifier",
                    layers = "no: Usage::layers is counted from it", tells = "no: sync() tells the model";
  return {
      row("CountsChanges", []<class W> { return CountsChanges<W>; },
          {"passes on", "by value", sees, sees, sees, sees, "no: Speculator sees changes of the target",
           looks, looks}),
      row("TimesItself", []<class W> { return TimesItself<W>; },
          {"passes on", "by value", times, times, times, times, times, times, times}),
      row("KeepsRawRows", []<class W> { return KeepsRawRows<W>; },
          {"own", "by value", drafts, drafts, drafts, drafts, drafts, "no: logprobs() are of raw rows",
           "no: logprobs() are of raw rows"}),
      row("TakesContext", []<class W> { return TakesContext<W>; },
          {"own", "by value", tells, tells, tells, tells, tells, verifies, verifies}),
      row("ExposesKeyValues", []<class W> { return ExposesKeyValues<W>; },
          {"passes on", "no: drafter(target) makes the Glide, which gets the view", drafts, drafts, drafts,
           drafts, target, target, target}),
      row("ExposesFeatures", []<class W> { return ExposesFeatures<W>; },
          {"passes on", "no: drafter(target) makes the FeatureHead, which gets the view", drafts, drafts,
           drafts, drafts, target, target, target}),
      row("TargetConditioned", []<class W> { return TargetConditioned<W>; },
          {"passes on", "no: drafter(target) makes the drafter, which gives the view",
           "no: drafts without the target", draft, draft, "no: drafts without the target", draft,
           "no: a target reads no target", "no: a target reads no target"}),
      row("SkipsLayers", []<class W> { return SkipsLayers<W>; },
          {"passes on", "no: layer_skip() makes the drafter", layers, layers, layers, layers,
           "no: it is the drafter that skips", verifies, verifies}),
      row("ExitsEarly", []<class W> { return ExitsEarly<W>; },
          {"passes on", "no: early_exit() makes the drafter", layers, layers, layers,
           "no: it is the drafter that exits", drafts, verifies, verifies}),
      row("NamesItsCache", []<class W> { return NamesItsCache<W>; },
          {"own", "own", "own", "own", "own", "own", "no: it may draft in its target's cache", "own", "own"}),
      row("MergesPasses", []<class W> { return MergesPasses<W>; },
          {"passes on", "by value", "passes on", "passes on", "passes on", passes, passes, "no: MergesRounds",
           "no: it runs a pass for each path"}),
      row("MergesRounds", []<class W> { return MergesRounds<W>; },
          {"no: a model", "no: a model", drafts, drafts, drafts, drafts, drafts, "passes on",
           "no: it runs a pass for each path"}),
  };
}

/// What makes a model of a slot: it has what the model of many texts has for each slot.
std::vector<Row> of_batched_models() {
  constexpr Table<std::tuple<Wrapper<SlotOf<FullBatch>, SlotOf<BareBatch>>>> slot;
  constexpr Table<std::tuple<Wrapper<SlotOf<FullBatch>, SlotOf<BareBatch>>,
                             Wrapper<SlotOf<KeyValuesBatch>, SlotOf<BareBatch>>,
                             Wrapper<SlotOf<FeaturesBatch>, SlotOf<BareBatch>>>>
      draft;
  return {
      slot("CountsChanges", []<class W> { return CountsChanges<W>; }, {"passes on"}),
      slot("TimesItself", []<class W> { return TimesItself<W>; }, {"passes on"}),
      slot("ExposesKeyValues", []<class W> { return ExposesKeyValues<W>; }, {"passes on"}),
      slot("ExposesFeatures", []<class W> { return ExposesFeatures<W>; }, {"passes on"}),
      draft("TargetConditioned", []<class W> { return TargetConditioned<W>; },
            {"passes on", "passes on", "passes on"}),
      draft("TargetConditioned", []<class W> { return detail::TakesKeyValues<W>; },
            {"passes on", "passes on", "no: it reads features"}),
      draft("TargetConditioned", []<class W> { return detail::TakesFeatures<W>; },
            {"passes on", "no: it reads keys and values", "passes on"}),
      slot("ForksTexts", []<class W> { return ForksTexts<W>; },
           {"no: BatchSpeculator calls the model of many texts"}),
      slot("NamesItsCache", []<class W> { return NamesItsCache<W>; }, {"own"}),
      slot("MergesPasses", []<class W> { return MergesPasses<W>; }, {"own"}),
      slot("KeepsRawRows", []<class W> { return KeepsRawRows<W>; }, {"no: it rewrites no rows"}),
      slot("TakesContext", []<class W> { return TakesContext<W>; }, {"no: it rewrites no rows"}),
      slot("SkipsLayers", []<class W> { return SkipsLayers<W>; }, {"no: passes of all texts run all layers"}),
      slot("ExitsEarly", []<class W> { return ExitsEarly<W>; }, {"no: passes of all texts run all layers"}),
  };
}

template <class V, class D, class S>
using Run = Speculator<V, D, S>;
using Target = TreeVerifier<BareModel, Greedy>;

/// What wraps a drafter, or holds one.
std::vector<Row> of_drafters() {
  constexpr Table<
      std::tuple<Wrapper<Stack<FullDrafter, BareDrafter>, Stack<BareDrafter, BareDrafter>>,
                 Wrapper<Stack<FullDrafter>, Stack<BareDrafter>>, Wrapper<AnyDrafter, AnyDrafter>,
                 Wrapper<Run<Target, FullDrafter, BareShape>, Run<Target, BareDrafter, BareShape>>>>
      row;
  const std::string asks = "no: stats() has it", calls = "no: its constructor calls it";
  return {
      row("Reserves", []<class W> { return Reserves<W>; }, {"by value", "by value", "by value", calls}),
      row("ReportsUsage", []<class W> { return ReportsUsage<W>; },
          {"by value", "by value", "by value", asks}),
      row("HasMembers", []<class W> { return HasMembers<W>; },
          {"own", "own", "no: it takes no Stack", "no: it has one drafter, which may be a Stack"}),
      row("NamesItsCache", []<class W> { return NamesItsCache<W>; },
          {"no: cache_id(i) names each member's", "no: cache_id(i) names each member's", "by value",
           "no: its constructor compares the caches"}),
      row("LogitsDrafter", []<class W> { return LogitsDrafter<W>; },
          {"passes on", "passes on", "own", "no: a run"}),
      row("MergesPasses", []<class W> { return MergesPasses<W>; },
          {"passes on", "passes on", "by value", "no: a round waits: want()"}),
  };
}

/// What wraps a shape, or holds one.
std::vector<Row> of_shapes() {
  using Drafters = Stack<BareDrafter, BareDrafter>;
  constexpr Table<std::tuple<
      Wrapper<CostAware<FullShape>, CostAware<BareShape>>, Wrapper<Either<FullShape>, Either<BareShape>>,
      Wrapper<AnyShape<Drafters, ProposalKind::deterministic>,
              AnyShape<Drafters, ProposalKind::deterministic>>,
      Wrapper<Run<Target, BareDrafter, FullShape>, Run<Target, BareDrafter, BareShape>>>>
      row;
  const std::string calls = "no: its constructor calls it";
  return {
      row("Reserves", []<class W> { return Reserves<W>; }, {"own", "own", "by value", calls}),
      row("ValidatesFields", []<class W> { return ValidatesFields<W>; },
          {"by value", "own", "by value", calls}),
      row("LearnsFromRounds", []<class W> { return LearnsFromRounds<W>; },
          {"own", "own", "by value", "no: a round calls it"}),
      row("CountsReviews", []<class W> { return CountsReviews<W>; },
          {"by value", "no: one of its drafters at a time, and none reviews", "by value",
           "no: shape().reviewed()"}),
  };
}

/// What wraps a verifier or a rule, or holds one.
std::vector<Row> of_verifiers() {
  using OverSlot = TreeVerifier<SlotOf<ToyBatch>, Greedy>;
  constexpr Table<
      std::tuple<Wrapper<Run<OverSlot, BareDrafter, BareShape>, Run<Target, BareDrafter, BareShape>>,
                 Wrapper<Pipeline, Pipeline>>>
      runs;
  using Lossy = decltype(accept_lossy(Typical{}));
  constexpr Table<
      std::tuple<Wrapper<AnyRule<ProposalKind::deterministic>, AnyRule<ProposalKind::deterministic>>,
                 Wrapper<Lossy, Lossy>>>
      rules;
  return {
      runs("MergesRounds", []<class W> { return MergesRounds<W>; },
           {"no: a round waits: want()", "no: a round waits: want()"}),
      // A rule has no optional member: it has what every rule has.
      rules("AcceptanceRule", []<class W> { return AcceptanceRule<W>; }, {"own", "own"}),
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> all;
  for (const auto& rows : {of_models(), of_batched_models(), of_drafters(), of_shapes(), of_verifiers()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

// ---- what the sources have ----

/// The headers without the device's, with their text.
std::map<std::string, std::string> headers() {
  std::map<std::string, std::string> all;
  const std::filesystem::path root = kProject / "include/specula";
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    const std::string name = std::filesystem::relative(file.path(), root).generic_string();
    if (file.path().extension() == ".hpp" && !name.starts_with("cuda/")) all[name] = text_of(file.path());
  }
  return all;
}
/// What the first group of `expression` matches, everywhere.
std::multiset<std::string> found(const std::string& text, const char* expression) {
  std::multiset<std::string> names;
  const std::regex name(expression);
  for (auto at = std::sregex_iterator(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at)
    names.insert((*at)[1]);
  return names;
}
/// `text` without the definitions of concepts.
std::string without_concepts(std::string text) {
  const std::regex concept_of("\\bconcept \\w+\\s*=");
  std::smatch at;
  while (std::regex_search(text, at, concept_of)) {
    const auto from = static_cast<std::size_t>(at.position());
    std::size_t to = from;
    for (int depth = 0; depth > 0 || text[to] != ';'; ++to)
      depth += (text[to] == '{' || text[to] == '(') - (text[to] == '}' || text[to] == ')');
    text.erase(from, to - from);
  }
  return text;
}

/// Concepts of what has no optional member, or is none: each with the reason.
const std::map<std::string, std::string> kOthers{
    {"LanguageModel", "every model"},
    {"BatchedLanguageModel", "every model of many texts"},
    {"Drafter", "every drafter"},
    {"ProposalShape", "every shape"},
    {"AcceptanceRule", "every rule"},
    {"Verifier", "every verifier"},
    {"OtherTokens", "every list of integers that are no tokens, which an error names"},
    {"TextRun", "every run that generate() takes"},
    {"TokenSink", "every sink"},
    {"RandomSource", "every random source"},
    {"DrawWeights", "every row that a source draws from"},
    {"LogitsDrafter", "what extend() returns, one of two"},
    {"Lossless", "a rule for a shape"},
    {"StackOf", "a drafter for a cascade"},
    {"ReviewingStackOf", "a drafter for a cascade that reviews"},
    {"TakesView", "a part of TargetConditioned"},
    {"TakesKeyValues", "a part of TargetConditioned"},
    {"TakesFeatures", "a part of TargetConditioned"},
    {"NamesKeyValues", "a part of TargetConditioned"},
    {"NamesFeatures", "a part of TargetConditioned"},
};
/// Optional members that nothing wraps.
const std::set<std::string> kUnwrapped{"NoiseSource"};  // of a random source
/// Members that are looked for, but belong to no capability.
const std::set<std::string> kOtherMembers{"steps_arena"};  // which parameter of a coroutine has its memory

std::set<std::string> optional_concepts() {
  std::set<std::string> all = kUnwrapped;
  for (const Row& row : all_rows())
    if (!kOthers.contains(row.capability)) all.insert(row.capability);
  return all;
}
/// The table of optional members in docs/design.md.
std::string page_table() {
  const std::string page = text_of(kProject / "docs/design.md");
  const std::size_t from = page.find("| of | concept | members |"), to = page.find("\n\n", from);
  REQUIRE(from != std::string::npos);
  return page.substr(from, to - from);
}

}  // namespace capabilities

using namespace capabilities;

TEST_CASE("every cell of the table is right") {
  for (const Row& row : all_rows()) {
    CAPTURE(row.capability);
    CHECK(row.problem.empty());
    CAPTURE(row.problem);
  }
}

TEST_CASE("every concept of every header is in the table, or is no optional member") {
  std::multiset<std::string> defined;
  for (const auto& [name, text] : headers()) defined.merge(found(text, "\\bconcept (\\w+)\\s*="));
  CHECK(defined.size() > 30);
  const std::set<std::string> optional = optional_concepts();
  for (const std::string& name : defined) {
    CAPTURE(name);
    CHECK(optional.contains(name) != kOthers.contains(name));
  }
  for (const std::string& name : optional) {
    CAPTURE(name);
    CHECK(defined.count(name) == 1);
  }
  for (const auto& other : kOthers) {
    CAPTURE(other.first);
    CHECK(defined.count(other.first) == 1);
    CHECK(!other.second.empty());
  }
}

TEST_CASE("docs/design.md has a row for every optional member, and their number") {
  const std::set<std::string> optional = optional_concepts();
  std::set<std::string> rows;
  for (const std::string& name : found(page_table(), "\n\\| [^|]*\\| `(\\w+)` \\|")) rows.insert(name);
  CHECK(rows == optional);
  const auto count = found(text_of(kProject / "docs/design.md"), "\nA test counts them: (\\d+)\\.");
  CHECK(count == std::multiset<std::string>{std::to_string(optional.size())});
}

TEST_CASE("every member that a header looks for is one of a capability") {
  const std::string table = page_table();
  std::multiset<std::string> members;
  for (const auto& [name, text] : headers()) members.merge(found(text, "\n *SPECULA_HAS_MEMBER\\((\\w+)\\)"));
  CHECK(members.size() > 20);
  for (const std::string& name : members) {
    CAPTURE(name);
    const bool has = std::regex_search(table, std::regex("`" + name + "(\\(\\w*\\))?`"));
    CHECK(has != kOtherMembers.contains(name));
  }
}

TEST_CASE("no header looks for a member without a concept") {
  // requires-expressions outside a concept that say nothing of an optional member
  const std::map<std::string, std::size_t> known{
      {"base/has_member.hpp", 5},  // the tool itself
      {"model/batched.hpp", 2},    // what a model has for each slot, of which SlotOf makes a capability
      {"model/detail/check_members.hpp", 6},  // the same
      {"model/processed.hpp", 1},             // whether the processor can be called
  };
  for (const auto& header : headers()) {
    const std::string& name = header.first;
    CAPTURE(name);
    const auto asked =
        found(without_concepts(header.second), "[^/]\\b(requires ?(\\([^()]*\\w ?& ?\\w[^()]*\\))? ?\\{)");
    const auto at = known.find(name);
    CHECK(asked.size() == (at == known.end() ? 0 : at->second));
  }
}

TEST_CASE("every capability that a wrapper passes on has a test of what it answers") {
  std::multiset<std::string> tested;
  for (const char* file : {"tests/runtime/model_wrappers.cpp", "tests/runtime/policy_wrappers.cpp"})
    tested.merge(found(text_of(kProject / file), "\n    \\{\"(\\w+)[\":]"));
  // of a slot alone: tests/batch/shared_prefix.cpp
  const std::set<std::string> slots{"ForksTexts"};
  for (const std::string& name : optional_concepts()) {
    CAPTURE(name);
    if (!kUnwrapped.contains(name) && !slots.contains(name)) CHECK(tested.contains(name));
  }
}
