// SPDX-License-Identifier: MIT
// A wrapper of a model answers as its model does: every wrapper times every optional capability of a model,
// over one that has it and one that has not. tests/policy/capabilities.cpp has the list.
#include <specula/any.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <specula/model/batched.hpp>
#include <specula/runtime/named_models.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "conditioned_models.hpp"
#include "toy_batch.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 6;
using Able = AbleModel<true, true>;      // every capability of a model
using Unable = AbleModel<false, false>;  // none

const std::vector<Token> kContext{1, 2, 3}, kRoot{4}, kPair{4, 5};
const std::vector<NodeId> kNone{kNoParent}, kChain{kNoParent, 0}, kPath{0, 1};

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

void takes_context() {
  over_models([](auto& wrapper, auto& model) {
    using W = std::remove_cvref_t<decltype(wrapper)>;
    static_assert(TakesContext<W> && !TakesContext<std::remove_cvref_t<decltype(model)>>);
    wrapper.append(kContext);
    wrapper.set_context(1);  // nothing to a model that does not take it
    CHECK(wrapper.size() == 3);
  });
  // All the way down, and by a drafter's sync().
  struct Taking : Able {
    using Able::Able;
    std::int32_t told = -1;
    void set_context(std::int32_t n) { told = n; }
  } model(kVocab);
  ProcessedModel<Taking> processed{model, kShift};
  AnyModel any(processed);
  ProcessedModel<AnyModel> outer{any, kShift};
  outer.append(kContext);
  outer.set_context(2);
  CHECK(model.told == 2);
  outer.truncate(0);
  ModelDrafter drafter{outer};
  drafter.sync(kContext, kPair);
  CHECK(model.told == 3);
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

/// The rows of a pass in two halves are those of extend(), behind what wraps a slot of a model of many texts.
/// Another model has no halves, or none that ask for anything.
void merges_passes() {
  over_models([](auto& wrapper, auto& model) {
    using W = std::remove_cvref_t<decltype(wrapper)>;
    static_assert(MergesPasses<W> == is_any<W>);
    if constexpr (is_any<W>) {
      wrapper.append(kContext);
      const auto before = wrapper.change_count();
      CHECK(!wrapper.begin_pass(kPair, kChain).batch);
      CHECK(wrapper.change_count() == before);
    }
    CHECK(wrapper.size() == model.size());
  });
  ToyModel alone(kVocab, 1);
  alone.append(kContext);
  const std::vector<float> rows = rows_of(alone.extend(kPair, kChain));
  ToyBatch batch(4, kVocab, 1);
  SlotOf<ToyBatch> slot(batch, 0), erased(batch, 1), rewritten(batch, 2), both(batch, 3);
  ProcessedModel<SlotOf<ToyBatch>> processed{rewritten, kShift}, inner{both, kShift};
  AnyModel any(erased), any_both(inner);
  const auto check = [&](auto& wrapper, std::int32_t place, const std::vector<float>& want) {
    wrapper.append(kContext);
    const PassRequest request = wrapper.begin_pass(kPair, kChain);
    REQUIRE(request.batch == &batch);
    CHECK(request.slot == place);
    const SlotNodes nodes{request.slot, request.tokens, request.parents};
    CHECK(rows_of(wrapper.end_pass(batch.extend(std::span(&nodes, 1)))) == want);
    wrapper.commit(kPath);
    CHECK(wrapper.size() == 5);
  };
  check(slot, 0, rows);
  check(any, 1, rows);
  check(processed, 2, shifted(rows));
  check(any_both, 3, shifted(rows));
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
    {"TakesContext", takes_context},
    {"SkipsLayers", skips_layers},
    {"SkipsLayers: layers", counts_layers},
    {"SkipsLayers: attention_similarity", measures_similarity},
    {"ExitsEarly", exits_early},
    {"NamesItsCache", names_its_cache},
    {"MergesPasses", merges_passes},
    {"Verifier: size", reports_size},
    {"Verifier: logprobs", logprobs},
};

}  // namespace

TEST_CASE("a wrapper answers as its model does") {
  for (const Row& row : kRows) {
    CAPTURE(row.capability);
    row.check();
  }
}
