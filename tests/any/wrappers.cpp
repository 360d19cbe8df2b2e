// A wrapper answers as its content does: every wrapper times every optional capability, over a content that
// has it and one that has not.
#include <specula/any.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <specula/pipeline/assemble.hpp>
#include <specula/pipeline/named_models.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "conditioned_models.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 6;
using Able = AbleModel<true, true>;      // every capability of a model
using Unable = AbleModel<false, false>;  // none

const std::vector<Token> kContext{1, 2, 3}, kRoot{4}, kPair{4, 5};
const std::vector<NodeId> kNone{kNoParent}, kChain{kNoParent, 0};

/// A processor that changes every row.
const auto kShift = [](Tokens path, std::span<float> row) {
  row[static_cast<std::size_t>(path.back())] += 2;
};
template <class M>
using ProcessedModel = Processed<M, std::remove_const_t<decltype(kShift)>>;

std::vector<float> rows_of(const LogitsView& rows) {
  std::vector<float> out;
  for (std::int32_t i = 0; i < rows.rows; ++i) out.insert(out.end(), rows.row(i).begin(), rows.row(i).end());
  return out;
}

/// `rows` after kPair below kContext, rewritten by the processor.
std::vector<float> shifted(std::vector<float> rows) {
  for (std::size_t i = 0; i < kPair.size(); ++i) rows[i * kVocab + static_cast<std::size_t>(kPair[i])] += 2;
  return rows;
}

/// Every model and what wraps one: calls f(wrapper, model), where each model is new.
template <class F>
void over_models(F f) {
  const auto over = [&](auto model_type) {
    using M = typename decltype(model_type)::type;
    {
      M model(kVocab);
      AnyModel any(model);
      f(any, model);
    }
    {
      HeldModel<M> held(kVocab);
      f(held.any, held.model);
    }
    {
      M model(kVocab);
      NamedModels named("target", model);
      f(named.target(), model);
    }
    {
      M target(kVocab), model(kVocab);
      NamedModels named("target", target);
      f(named.add("draft", model).draft("draft"), model);
    }
    {
      M model(kVocab);
      ProcessedModel<M> processed{model, kShift};
      f(processed, model);
    }
    {
      M model(kVocab);
      ProcessedModel<M> processed{model, kShift};
      AnyModel any(processed);
      f(any, model);
    }
  };
  over(std::type_identity<Able>{});
  over(std::type_identity<Unable>{});
}
template <class W>
constexpr bool is_any = std::same_as<W, AnyModel>;

// ---- models ----

void counts_changes() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    const auto counts = [](auto& asked) {
      if constexpr (!CountsChanges<std::remove_cvref_t<decltype(asked)>>)
        return false;
      else
        return std::optional<std::uint64_t>(asked.change_count()).has_value();
    };
    CHECK(counts(wrapper) == CountsChanges<M>);
    TreeVerifier tree{wrapper, Greedy{}};
    PathVerifier path{wrapper, Greedy{}};
    CHECK(counts(wrapper) == CountsChanges<M>);
    if constexpr (CountsChanges<M>) {
      CHECK(std::optional(tree.change_count()) == std::optional(model.change_count()));
      CHECK(std::optional(path.change_count()) == std::optional(model.change_count()));
      const auto before = model.change_count();
      wrapper.append(kContext);
      CHECK(model.change_count() == before + 1);
      CHECK(std::optional(wrapper.change_count()) == std::optional(model.change_count()));
      model.set_weights(2);
      CHECK(std::optional(wrapper.change_count()) == std::optional(before + 2));
    } else {
      CHECK(!tree.change_count());
      CHECK(!path.change_count());
    }
  });
}

template <Conditioning state>
void exposes() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    using W = std::remove_cvref_t<decltype(wrapper)>;
    constexpr bool has = state == Conditioning::key_values ? ExposesKeyValues<M> : ExposesFeatures<M>;
    if constexpr (is_any<W>) {
      CHECK(wrapper.exposes(state) == has);
      std::conditional_t<state == Conditioning::key_values, ToyGlide, ToyHead> draft(kVocab, 9);
      AnyModel any_draft(draft);
      if (has) {
        wrapper.append(kContext);
        AnyDrafter drafter = any_draft.drafter(wrapper);
        drafter.sync(kContext, {});
        drafter.extend(kRoot, kNone);
        CHECK(draft.view_calls > 0);  // it was given views
      } else {
        CHECK_THROWS_AS(any_draft.drafter(wrapper), std::invalid_argument);
      }
    } else if constexpr (state == Conditioning::key_values) {
      static_assert(ExposesKeyValues<W> == has);
      if constexpr (has) CHECK(wrapper.key_values().size() == model.key_values().size());
    } else {
      static_assert(ExposesFeatures<W> == has);
      if constexpr (has) CHECK(wrapper.features().size() == model.features().size());
    }
  });
}

/// Drafts that read the target, and one that does not, behind what wraps a model.
template <class Draft>
void reads_the_target(Conditioning reads) {
  Able target(kVocab);
  AnyModel any_target(target);
  target.append(kContext);
  const auto rows = [&](auto drafter) {
    drafter.sync(kContext, {});
    return rows_of(drafter.extend(kPair, kChain));
  };
  const auto made = [] {
    if constexpr (std::same_as<Draft, Unable>)
      return Draft(kVocab);
    else
      return Draft(kVocab, 9);
  };
  Draft plain = made(), erased = made(), processed = made(), both = made();
  ProcessedModel<Draft> wrapped{processed, kShift}, wrapped_both{both, kShift};
  static_assert(TargetConditioned<ProcessedModel<Draft>> == TargetConditioned<Draft>);
  AnyModel any(erased), any_both(wrapped_both);
  CHECK(any.conditioned_on() == reads);
  CHECK(any_both.conditioned_on() == reads);
  std::vector<float> want;
  if constexpr (std::same_as<Draft, ToyGlide>) {
    static_assert(std::same_as<typename ProcessedModel<Draft>::TargetKeyValues, ToyKeyValues>);
    want = rows(Glide{plain, target});
    CHECK(rows(Glide{wrapped, target}) == shifted(want));
  } else if constexpr (std::same_as<Draft, ToyHead>) {
    static_assert(std::same_as<typename ProcessedModel<Draft>::TargetFeatures, FeaturesView<float>>);
    want = rows(FeatureHead{plain, target});
    CHECK(rows(FeatureHead{wrapped, target}) == shifted(want));
  } else {
    want = rows(ModelDrafter{plain});
    CHECK(rows(ModelDrafter{wrapped}) == shifted(want));
  }
  CHECK(rows(any.drafter(any_target)) == want);
  CHECK(rows(any_both.drafter(any_target)) == shifted(want));
}
void conditioned_on() {
  reads_the_target<ToyGlide>(Conditioning::key_values);
  reads_the_target<ToyHead>(Conditioning::features);
  reads_the_target<Unable>(Conditioning::nothing);
}

/// A draft that keeps what it computed for draft tokens, if `keeps`.
template <bool keeps>
struct Keeping : ToyGlide {
  using ToyGlide::ToyGlide;
  bool keeps_speculation() const { return keeps; }
};
/// The draft's columns that are computed for two rounds, of which the first's tokens are all accepted.
template <class D>
std::size_t columns(const ToyGlide& draft, Able& target, D drafter) {
  target.append(kContext);
  drafter.sync(kContext, {});
  drafter.extend(kPair, kChain);
  std::vector<Token> longer = kContext;
  longer.insert(longer.end(), kPair.begin(), kPair.end());
  target.append(kPair);
  drafter.sync(longer, {});
  drafter.extend(kRoot, kNone);
  return draft.seen.size();
}
template <class Draft>
void keeps_speculation_of(std::size_t want) {
  Able target(kVocab), erased_target(kVocab), processed_target(kVocab);
  AnyModel any_target(erased_target);
  Draft plain(kVocab, 9), erased(kVocab, 9), processed(kVocab, 9);
  ProcessedModel<Draft> wrapped{processed, kShift};
  CHECK(columns(plain, target, Glide{plain, target}) == want);
  CHECK(columns(erased, erased_target, AnyModel(erased).drafter(any_target)) == want);
  CHECK(columns(processed, processed_target, Glide{wrapped, processed_target}) == want);
}
void keeps_speculation() {
  keeps_speculation_of<Keeping<true>>(6);   // 3 of the context, 2 draft tokens, the next root
  keeps_speculation_of<Keeping<false>>(8);  // the draft tokens twice
  keeps_speculation_of<ToyGlide>(8);
}

void times_itself() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    using W = std::remove_cvref_t<decltype(wrapper)>;
    if constexpr (!is_any<W>) static_assert(TimesItself<W> == TimesItself<M>);
    ModelDrafter drafter{wrapper};
    drafter.sync(kContext, {});
    Speculator run{TreeVerifier{wrapper, Greedy{}}, NoDrafter{kVocab}, Chain<>{.length = 0}};
    PhiloxRandom rng(1);
    run.start(kContext), run.step(rng);
    const double by_target = run.verifier().usage().seconds;
    CHECK((by_target > 50) == TimesItself<M>);
    CHECK((drafter.usage().seconds > 50) == TimesItself<M>);
    const auto seconds = [](auto draft) {
      draft.sync({}, {});
      draft.extend(kRoot, kNone);
      return draft.usage().seconds;
    };
    wrapper.truncate(0);
    if constexpr (is_any<W>) {
      if (SkipsLayers<M>) CHECK(seconds(wrapper.layer_skip(SkipRules{})) > 50);
    } else if constexpr (SkipsLayers<M>) {
      CHECK(seconds(LayerSkip{wrapper}) > 50);
    }
  });
}

void keeps_raw_rows() {
  over_models([](auto& wrapper, auto& model) {
    using W = std::remove_cvref_t<decltype(wrapper)>;
    static_assert(KeepsRawRows<W> && !KeepsRawRows<std::remove_cvref_t<decltype(model)>>);
    wrapper.append(kContext);
    const auto rows = rows_of(wrapper.extend(kPair, kChain));
    const LogitsView raw = wrapper.raw_rows();
    const std::vector<float> before = raw.data ? rows_of(raw) : rows;
    wrapper.truncate(3);
    CHECK(before == rows_of(model.extend(kPair, kChain)));
    CHECK(rows == (raw.data ? shifted(before) : before));
    if (!is_any<W>) CHECK(raw.data);  // an AnyModel over a model that rewrites nothing has none
  });
}

void counts_layers() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    using W = std::remove_cvref_t<decltype(wrapper)>;
    const auto layers = [](auto drafter) {
      drafter.sync(kContext, {});
      drafter.extend(kPair, kChain);
      return drafter.usage().layers;
    };
    const double want = SkipsLayers<M> ? 6 : 0;  // two nodes of three layers
    if constexpr (is_any<W>) {
      CHECK(layers(wrapper.drafter()) == want);
    } else {
      static_assert(SkipsLayers<W> == SkipsLayers<M>);
      CHECK(layers(ModelDrafter{wrapper}) == want);
    }
  });
}

void skips_layers() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    using W = std::remove_cvref_t<decltype(wrapper)>;
    const BlockLists blocks{.attention = {1}, .mlp = {2}};
    const auto drafts = [](auto drafter) {
      drafter.sync({}, {});
      drafter.extend(kRoot, kNone);
      return drafter.usage().layers == 2;  // of three, without two blocks
    };
    if constexpr (is_any<W>) {
      CHECK(wrapper.skips_layers() == SkipsLayers<M>);
      if (SkipsLayers<M>)
        CHECK(drafts(wrapper.layer_skip(blocks)));
      else
        CHECK_THROWS_AS(wrapper.layer_skip(blocks), std::invalid_argument);
      const std::vector<std::vector<Token>> texts{{1, 2, 3}};
      if (SkipsLayers<M>)
        CHECK(wrapper.find_skipped(texts).attention.size() == 3);
      else
        CHECK_THROWS_AS(wrapper.find_skipped(texts), std::invalid_argument);
    } else {
      static_assert(SkipsLayers<W> == SkipsLayers<M>);
      if constexpr (SkipsLayers<M>) {
        const SkippedBlocks skipped = SkippedBlocks::given(3, blocks.attention, blocks.mlp);
        CHECK(drafts(LayerSkip{wrapper, skipped}));
        model.truncate(0), wrapper.truncate(0);
        const auto want = shifted(rows_of(model.extend_skipping(kPair, kChain, skipped)));
        model.truncate(0);
        CHECK(rows_of(wrapper.extend_skipping(kPair, kChain, skipped)) == want);
        CHECK(wrapper.node_count() == 2);
      }
    }
  });
}

/// Skips layers and measures nothing.
struct Unmeasured : Able {
  using Able::Able;
  std::span<const double> attention_similarity() { return {}; }
};
void measures_similarity() {
  const auto asked = [](auto drafter, auto& model) {
    drafter.sync({}, {});
    drafter.extend(kRoot, kNone);
    return model.asked > 0;
  };
  {
    Able a(kVocab), b(kVocab), c(kVocab);
    ProcessedModel<Able> processed{b, kShift}, both{c, kShift};
    CHECK(asked(AnyModel(a).layer_skip(SkipRules{}), a));
    CHECK(asked(LayerSkip{processed}, b));
    CHECK(asked(AnyModel(both).layer_skip(SkipRules{}), c));
  }
  {
    Unmeasured a(kVocab), b(kVocab);
    ProcessedModel<Unmeasured> processed{b, kShift};
    CHECK(processed.attention_similarity().empty());
    SkippedBlocks by_rules(3);
    choose_skipped({}, {.every = 2, .keep_last = 0}, by_rules);
    const auto by_them = [](auto draft) {
      draft.sync({}, {}), draft.extend(kRoot, kNone);
      return draft.skipped();
    };
    CHECK(by_them(LayerSkip{a, {.every = 2, .keep_last = 0}}) == by_rules);
    CHECK(by_them(LayerSkip{processed, {.every = 2, .keep_last = 0}}) == by_rules);
  }
}

void exits_early() {
  over_models([](auto& wrapper, auto& model) {
    using M = std::remove_cvref_t<decltype(model)>;
    using W = std::remove_cvref_t<decltype(wrapper)>;
    const auto layers = [](auto drafter) {
      drafter.sync({}, {});
      drafter.extend(kRoot, kNone);
      return drafter.usage().layers;
    };
    if constexpr (is_any<W>) {
      CHECK(wrapper.exits() == (ExitsEarly<M> ? 2 : 0));
      if (ExitsEarly<M>) {
        CHECK(layers(wrapper.early_exit({0.0f}, ExitBy::confidence)) == 2);
        CHECK(layers(wrapper.early_exit({1.0f}, ExitBy::confidence)) == 3);
      } else {
        CHECK_THROWS_AS(wrapper.early_exit({}, ExitBy::confidence), std::invalid_argument);
      }
    } else {
      static_assert(ExitsEarly<W> == ExitsEarly<M>);
      if constexpr (ExitsEarly<M>) {
        CHECK(layers(EarlyExitDrafter{wrapper, {0.0f}}) == 2);
        wrapper.truncate(0);
        const std::vector<std::int32_t> second{1};
        const auto early = shifted(rows_of(model.extend_to_exit(kPair, kChain, 0)));
        const auto later = shifted(rows_of(model.resume_to_exit(second, 1)));
        REQUIRE(early != later);
        model.truncate(0);
        CHECK(rows_of(wrapper.extend_to_exit(kPair, kChain, 0)) == early);
        CHECK(rows_of(wrapper.resume_to_exit(second, 1)) == later);
      }
    }
  });
}

void names_its_cache() {
  over_models([](auto& wrapper, auto& model) {
    const void* const cache = &model;
    CHECK(wrapper.cache_id() == cache);
    CHECK(TreeVerifier{wrapper, Greedy{}}.cache_id() == cache);
    CHECK(PathVerifier{wrapper, Greedy{}}.cache_id() == cache);
    ModelDrafter drafter{wrapper};
    CHECK(drafter.cache_id() == cache);
    CHECK(AnyDrafter(drafter).cache_id() == cache);
    Stack stack{MaxGram{kVocab}, drafter};
    CHECK(stack.cache_id(0) == nullptr);
    CHECK(stack.cache_id(1) == cache);
    // By whatever names: one model is not target and draft, nor two drafters of a stack.
    const auto refused = [&](auto one, auto other) {
      using One = decltype(one);
      using Other = decltype(other);
      CHECK_THROWS_AS((Stack<One, Other>(std::move(one), std::move(other))), std::invalid_argument);
    };
    refused(ModelDrafter{wrapper}, ModelDrafter{model});
    refused(ModelDrafter{model}, ModelDrafter{wrapper});
    refused(AnyDrafter(ModelDrafter{wrapper}), ModelDrafter{model});
    refused(AnyDrafter(ModelDrafter{wrapper}), AnyDrafter(ModelDrafter{model}));
    const auto refused_as_draft = [&](auto& target, auto draft) {
      using V = TreeVerifier<std::remove_reference_t<decltype(target)>, Greedy>;
      using D = decltype(draft);
      CHECK_THROWS_AS((Speculator<V, D, Chain<>>(V(target, Greedy{}), std::move(draft), Chain<>{})),
                      std::invalid_argument);
    };
    refused_as_draft(wrapper, ModelDrafter{model});
    refused_as_draft(model, ModelDrafter{wrapper});
    refused_as_draft(wrapper, AnyDrafter(ModelDrafter{model}));
    refused_as_draft(model, Stack{MaxGram{kVocab}, ModelDrafter{wrapper}});
    refused_as_draft(model, Stack{MaxGram{kVocab}, AnyDrafter(ModelDrafter{wrapper})});
  });
  ToyGlide draft(kVocab, 9);
  Able target(kVocab);
  ProcessedModel<ToyGlide> wrapped{draft, kShift};
  CHECK(Glide{wrapped, target}.cache_id() == &draft);
  CHECK(AnyDrafter(LayerSkip{target}).cache_id() == nullptr);  // it may be in its target's cache
}

// ---- what drafters and shapes may have ----

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

// ---- verifiers ----

void reports_size() {
  over_models([](auto& wrapper, auto& model) {
    TreeVerifier tree{wrapper, Greedy{}};
    PathVerifier path{wrapper, Greedy{}};
    wrapper.append(kContext);
    CHECK(wrapper.size() == model.size());
    CHECK(tree.size() == 3);
    CHECK(path.size() == 3);
    CHECK(tree.room() == model.capacity() - 3);
  });
}
/// The log-probabilities of a round are those of the wrapped rule and model.
void logprobs() {
  const auto first = [](auto& target, auto rule) {
    Speculator run{TreeVerifier{target, rule}, NoDrafter{kVocab}, Chain<>{.length = 0}};
    run.verifier().report_logprobs({});
    PhiloxRandom rng(1);
    run.start(kContext), run.step(rng);
    REQUIRE(run.logprobs().size() == 1);
    return run.logprobs()[0].logprob;
  };
  Able plain(kVocab), erased(kVocab);
  AnyModel any(erased);
  CHECK(first(any, AnyRule<ProposalKind::deterministic>(RuleName::sampling)) == first(plain, Sampling{}));
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
    {"CountsChanges", counts_changes},
    {"ExposesKeyValues", exposes<Conditioning::key_values>},
    {"ExposesFeatures", exposes<Conditioning::features>},
    {"TargetConditioned", conditioned_on},
    {"TargetConditioned: keeps_speculation", keeps_speculation},
    {"TimesItself", times_itself},
    {"KeepsRawRows", keeps_raw_rows},
    {"SkipsLayers", skips_layers},
    {"SkipsLayers: layers", counts_layers},
    {"SkipsLayers: attention_similarity", measures_similarity},
    {"ExitsEarly", exits_early},
    {"NamesItsCache", names_its_cache},
    {"Reserves", reserves},
    {"ReportsUsage", reports_usage},
    {"HasMembers", has_members},
    {"HasMembers: room", reports_room},
    {"HasMembers: usage(i)", reports_member_usage},
    {"LogitsDrafter", rows_or_point_masses},
    {"Verifier: size", reports_size},
    {"Verifier: logprobs", logprobs},
    {"ProposalShape: nodes", counts_nodes},
    {"ValidatesFields", validates_fields},
    {"LearnsFromRounds", learns_from_rounds},
    {"CountsReviews", reviewed},
    {"Lossless", lossless},
};

const std::filesystem::path kHeaders = SPECULA_MODELS_DIR "/../../include/specula";

std::string text_of(const std::filesystem::path& header) {
  std::ifstream file(kHeaders / header);
  REQUIRE(file.good());
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}
/// What the first group of `expression` matches, everywhere.
std::set<std::string> found(const std::string& text, const char* expression) {
  std::set<std::string> names;
  const std::regex name(expression);
  for (auto at = std::sregex_iterator(text.begin(), text.end(), name); at != std::sregex_iterator(); ++at)
    names.insert((*at)[1]);
  return names;
}
/// The names of the concepts in a header.
std::set<std::string> concepts_of(const std::string& header) {
  return found(text_of(header), "\nconcept (\\w+)");
}
/// The names of the public member functions of a class.
std::set<std::string> members_of(const std::string& header, const std::string& name) {
  std::string text = text_of(header);
  text = text.substr(text.find("\nclass " + name + " "));
  const std::size_t end = std::min(text.find("\n protected:"), text.find("\n private:"));
  return found(text.substr(0, end),
               "\n  (?:virtual |static |constexpr )*[A-Za-z][A-Za-z0-9_:<>]*(?: [A-Za-z]+)*[&*]? (\\w+)\\(");
}

// ---- pipelines ----

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
    add(stats.rounds), add(stats.new_tokens), add(stats.proposed), add(stats.failed_drafts);
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

}  // namespace

TEST_CASE("a wrapper answers as its content does") {
  for (const Row& row : kRows) {
    CAPTURE(row.capability);
    row.check();
  }
}

TEST_CASE("every capability has a row, and there are no more than 15") {
  // What every model, drafter, shape, rule and verifier has, and so each wrapper.
  const std::set<std::string> required{"LanguageModel", "Drafter", "ProposalShape", "AcceptanceRule",
                                       "Verifier"};
  // What extend() returns, and what a rule and a shape are for each other: no members that one may lack.
  const std::set<std::string> others{"LogitsDrafter", "Lossless"};
  const std::set<std::string> parts{"TakesKeyValues", "TakesFeatures"};  // of TargetConditioned
  std::set<std::string> seen, optional;
  for (const Row& row : kRows) seen.insert(row.capability);
  for (const char* header : {"policy/concepts.hpp", "policy/optional_members.hpp", "model/language_model.hpp",
                             "base/fields.hpp"}) {
    const auto names = concepts_of(header);
    CHECK(!names.empty());
    for (const std::string& name : names) {
      if (parts.contains(name)) continue;
      CAPTURE(name);
      CHECK(seen.contains(name) != required.contains(name));
      if (!required.contains(name) && !others.contains(name)) optional.insert(name);
    }
  }
  CHECK(optional.size() <= 15);
}

TEST_CASE("no header asks for a member that has no concept") {
  for (const auto& file : std::filesystem::recursive_directory_iterator(kHeaders)) {
    if (file.path().extension() != ".hpp") continue;
    CAPTURE(file.path().string());
    const std::string text = text_of(file.path());
    CHECK(text.find("if constexpr (requires") == std::string::npos);
    CHECK(text.find("requires requires(const ") == std::string::npos);
  }
}

TEST_CASE("a pipeline has what Speculator has, but for its policies") {
  std::set<std::string> members = members_of("run/speculator.hpp", "Speculator");
  members.merge(members_of("run/run_record.hpp", "RunRecord"));
  for (const char* policy : {"verifier", "drafter", "shape"}) CHECK(members.erase(policy) == 1);
  CHECK(members.size() > 14);
  const auto pipeline = members_of("pipeline/run_time_pipeline.hpp", "Pipeline");
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
