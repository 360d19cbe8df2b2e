// SPDX-License-Identifier: MIT
// The table of pipelines: a shape is a row of it, with the function that reads its values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/draft/no_drafter.hpp"
#include "specula/draft/stack.hpp"
#include "specula/runtime/assemble.hpp"
#include "specula/runtime/drafters.hpp"
#include "specula/runtime/parse_parts.hpp"
#include "specula/shape/adaptive_chain.hpp"
#include "specula/shape/beam.hpp"
#include "specula/shape/cape.hpp"
#include "specula/shape/cascade.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/cost_aware.hpp"
#include "specula/shape/dynamic_tree.hpp"
#include "specula/shape/either.hpp"
#include "specula/shape/horizontal.hpp"
#include "specula/shape/ranked_tree.hpp"
#include "specula/shape/sampled_tree.hpp"
#include "specula/shape/static_tree.hpp"
#include "specula/shape/vertical.hpp"

namespace specula::detail::pipelines {

/// factory_of(shape), or of CostAware(shape) where the text asks for it. `may`: whether it may.
template <bool may = true, class S, class FactoryOf>
PipelineFactory sized(PipelineSpec& spec, S shape, FactoryOf factory_of) {
  if constexpr (may)
    if (spec.cost_aware()) return factory_of(CostAware(std::move(shape)));
  if (spec.cost_aware()) spec.fail("cost-aware does not go with draw=" + spec.word("draw"));
  return factory_of(std::move(shape));
}

/// Throws PipelineError if the members do not go together.
template <class... D>
Stack<D...> stack(D... members) {
  return of_pipeline([&] { return Stack<D...>{std::move(members)...}; });
}

/// A shape over a single drafter that does not copy; where it is cost-aware, a second one may.
template <bool may_be_cost_aware = true, class S>
PipelineFactory single(PipelineSpec& spec, S shape) {
  const ParsedDrafter drafter = parse_drafter(spec);
  const auto of = [&](auto pipeline_shape, auto make) {
    PipelineFactory factory = factory_for(spec, std::move(pipeline_shape), std::move(make));
    if (!drafter.skips) (drafter.exits ? factory.exits : factory.drafts).assign(1, spec.drafters().front());
    factory.measures = drafter.measures;
    return factory;
  };
  if constexpr (may_be_cost_aware)
    if (spec.drafters().size() == 2)
      return of(Either(std::move(shape)),
                [make = drafter.make, choice = parse_copies(spec)](PipelineModels& m) {
                  return stack(make(m), make_copies(m, choice));
                });
  return sized<may_be_cost_aware>(spec, std::move(shape),
                                  [&](auto sized_shape) { return of(std::move(sized_shape), drafter.make); });
}

inline bool drawn(PipelineSpec& spec) { return spec.is("draw", "sampled"); }

inline PipelineFactory prepare_autoregressive(PipelineSpec& spec) {
  const std::string model = spec.drafters().empty() ? "" : spec.drafters().front(), rule = spec.word("rule");
  PipelineFactory factory;
  factory.drafts = spec.drafters();
  factory.lossy = !model.empty();  // the text is not the target's
  factory.build = [=](PipelineModels& models, const SamplingParams& params) {
    AnyModel& decodes = model.empty() ? models.target() : models.draft(model);
    if (decodes.conditioned_on() != Conditioning::nothing)
      throw PipelineError("'" + model + "' reads the target's " + name_of(decodes.conditioned_on()) +
                          ": it does nothing by itself");
    return assemble(decodes, {rule == "gumbel" ? RuleName::gumbel : RuleName::sampling}, params,
                    NoDrafter{decodes.vocab_size()}, Chain<>{.length = 0}, {});
  };
  return factory;
}

inline PipelineFactory prepare_chain(PipelineSpec& spec) {
  const std::string draw = spec.word("draw");
  if (is_copying(spec.drafters().front())) {
    if (draw != "greedy")
      spec.fail(spec.drafters().front() + " draws nothing: it does not go with draw=" + draw);
    return sized(spec, parse_chain<Draw::greedy>(spec), [&](auto shape) {
      PipelineFactory factory =
          factory_for(spec, std::move(shape),
                      [choice = parse_copies(spec)](PipelineModels& m) { return make_copies(m, choice); });
      factory.draft_nodes = 1;
      return factory;
    });
  }
  if (draw == "shared") return single<false>(spec, parse_chain<Draw::shared>(spec));
  if (draw == "sampled") return single(spec, parse_chain<Draw::sampled>(spec));
  return single(spec, parse_chain<Draw::greedy>(spec));
}

template <Draw mode>
PipelineFactory adaptive_chain(PipelineSpec& spec) {
  const std::string end = spec.word("end");
  const bool carry = spec.is("carry", "yes");
  if (end == "heuristic") {
    HeuristicEnd heuristic;
    if (spec.given("longest")) heuristic.longest = spec.whole("longest");
    heuristic.now = std::min(heuristic.longest, heuristic.now);
    return single<false>(spec, AdaptiveChain<HeuristicEnd, mode>{.end = heuristic, .carry = carry});
  }
  return single<false>(
      spec, AdaptiveChain<ThresholdEnd, mode>{.end = {.longest = spec.whole("longest"),
                                                      .threshold = static_cast<float>(spec.number("exit")),
                                                      .unbounded = end == "paper"},
                                              .carry = carry});
}
inline PipelineFactory prepare_adaptive_chain(PipelineSpec& spec) {
  return drawn(spec) ? adaptive_chain<Draw::sampled>(spec) : adaptive_chain<Draw::greedy>(spec);
}

inline PipelineFactory prepare_cape(PipelineSpec& spec) { return single(spec, parse_cape(spec)); }

inline PipelineFactory prepare_beam(PipelineSpec& spec) {
  return single(spec, Beam{.width = spec.whole("width"), .length = spec.whole("length")});
}

inline PipelineFactory prepare_dynamic_tree(PipelineSpec& spec) {
  return single(spec, parse_dynamic_tree(spec));
}

inline PipelineFactory prepare_static_tree(PipelineSpec& spec) {
  const auto choices = spec.paths("choices");
  const bool distinct = drawn(spec);
  RankedTree form = RankedTree::eagle();
  try {
    if (!choices.empty()) form = RankedTree{std::span<const RankedTree::Choice>(choices)};
    if (distinct) StaticTree<ProposalKind::sampled_distinct>{.form = form}.validate();
  } catch (const std::invalid_argument& error) {
    spec.fail(error.what());
  }
  PipelineFactory factory = distinct ? single(spec, StaticTree<ProposalKind::sampled_distinct>{.form = form})
                                     : single(spec, StaticTree<>{.form = form});
  factory.build = [build = std::move(factory.build), rank = form.most_rank()](PipelineModels& models,
                                                                              const SamplingParams& params) {
    if (const std::int32_t vocab = models.target().vocab_size(); rank >= vocab)
      throw PipelineError("choices has the rank " + std::to_string(rank) + ", must be below the target's " +
                          std::to_string(vocab) + " tokens");
    return build(models, params);
  };
  return factory;
}

template <ProposalKind how>
SampledTree<how> parse_sampled_tree(PipelineSpec& spec) {
  SampledTree<how> shape;
  const auto widths = spec.wholes("widths");
  shape.widths = {};
  std::copy(widths.begin(), widths.end(), shape.widths.begin());
  std::int64_t nodes = 1, level = 1;
  for (const std::int32_t width : widths) nodes += level = std::min<std::int64_t>(level * width, 1 << 20);
  if (nodes > 1025) spec.fail("a tree of more than 1024 draft tokens");
  return shape;
}
inline PipelineFactory prepare_sampled_tree(PipelineSpec& spec) {
  if (spec.is("draw", "iid")) return single<false>(spec, parse_sampled_tree<ProposalKind::sampled_iid>(spec));
  return single(spec, parse_sampled_tree<ProposalKind::sampled_distinct>(spec));
}

/// `shape_of` gives the shape for a number of drafters, as an integral constant.
template <bool may_be_cost_aware = false, class ShapeOf>
PipelineFactory cascade_factory(PipelineSpec& spec, ShapeOf shape_of) {
  const std::vector<std::string> names = spec.drafters();
  const bool copies = is_copying(names.back());
  const CopyChoice choice = copies ? parse_copies(spec) : CopyChoice{};
  const auto of = [&](auto drafters, auto stack_of) {
    return sized<may_be_cost_aware>(spec, shape_of(drafters), [&](auto shape) {
      PipelineFactory factory = factory_for(spec, std::move(shape), stack_of);
      factory.drafts.assign(names.begin(), names.end() - (copies ? 1 : 0));
      return factory;
    });
  };
  const auto two = std::integral_constant<std::size_t, 2>{};
  if (names.size() == 3)
    return of(std::integral_constant<std::size_t, 3>{}, [=](PipelineModels& m) {
      return stack(m.drafter(names[0]), m.drafter(names[1]), make_copies(m, choice));
    });
  if (copies)
    return of(two, [=](PipelineModels& m) { return stack(m.drafter(names[0]), make_copies(m, choice)); });
  return of(two, [=](PipelineModels& m) { return stack(m.drafter(names[0]), m.drafter(names[1])); });
}

template <Draw mode>
PipelineFactory horizontal(PipelineSpec& spec) {
  return cascade_factory(spec, [&](auto drafters) {
    constexpr const char* kCounts[] = {"first", "second", "third"};
    Horizontal<drafters, mode> shape;
    for (std::size_t i = 0; i < drafters; ++i) shape.counts[i] = spec.whole(kCounts[i]);
    return shape;
  });
}
inline PipelineFactory prepare_horizontal(PipelineSpec& spec) {
  return drawn(spec) ? horizontal<Draw::sampled>(spec) : horizontal<Draw::greedy>(spec);
}

template <Draw mode>
PipelineFactory vertical(PipelineSpec& spec) {
  return cascade_factory(spec, [&](auto drafters) {
    Vertical<drafters, mode> shape;
    shape.reviews = spec.whole("reviews");
    shape.length = spec.given("length") || drafters == 2 ? spec.whole("length") : 3;
    shape.lenience = spec.number("lenience");
    return shape;
  });
}
inline PipelineFactory prepare_vertical(PipelineSpec& spec) {
  return drawn(spec) ? vertical<Draw::sampled>(spec) : vertical<Draw::greedy>(spec);
}

template <Draw mode>
PipelineFactory cascade(PipelineSpec& spec) {
  return cascade_factory<mode == Draw::greedy>(spec, [&](auto drafters) {
    Cascade<drafters, mode> shape;
    auto entries = spec.wholes("limits");
    if (drafters == 3 && !spec.given("limits")) entries = {4, 2, 0, 2, 0, 10};
    constexpr std::size_t needed = drafters * (drafters + 1) / 2;
    if (entries.size() != needed)
      spec.fail("limits of " + std::to_string(drafters) + " drafters are " + std::to_string(needed) +
                " numbers, row after row of an upper triangle");
    std::size_t at = 0;
    for (std::size_t row = 0; row < drafters; ++row)
      for (std::size_t i = row; i < drafters; ++i) shape.limits[row][i] = entries[at++];
    shape.lenience = spec.number("lenience");
    return shape;
  });
}
inline PipelineFactory prepare_cascade(PipelineSpec& spec) {
  return drawn(spec) ? cascade<Draw::sampled>(spec) : cascade<Draw::greedy>(spec);
}

inline constexpr PipelineField kDraw{"draw", Kind::word, "greedy|sampled"};
inline constexpr PipelineField kLenience{"lenience", Kind::number, "1", 1, 1000};

inline constexpr std::array kAutoregressive{PipelineField{"rule", Kind::word, "sampling|gumbel"}};
inline constexpr std::array kChain{PipelineField{"length", Kind::size, "4", 1, 256, 1, "8"},
                                   PipelineField{"exit", Kind::number, "0.6", 0, 1},
                                   PipelineField{"draw", Kind::word, "greedy|sampled|shared"}};
inline constexpr std::array kAdaptiveChain{PipelineField{"longest", Kind::size, "12", 1, 64},
                                           PipelineField{"exit", Kind::number, "0.6", 0, 1},
                                           PipelineField{"end", Kind::word, "threshold|paper|heuristic"},
                                           PipelineField{"carry", Kind::word, "yes|no"}, kDraw};
inline constexpr std::array kCape{PipelineField{"length", Kind::size, "4", 1, 64, 1, "8"},
                                  PipelineField{"budget", Kind::whole, "32", 1, 1024, 1, "63"},
                                  PipelineField{"counts", Kind::wholes, "7-5-3-1", 0, 63, 4},
                                  PipelineField{"thresholds", Kind::numbers, "0.3-0.6-0.8", 0, 1, 3},
                                  PipelineField{"fixed", Kind::whole, "", 0, 63, 1, "7"}};
inline constexpr std::array kBeam{PipelineField{"width", Kind::size, "4", 1, 64},
                                  PipelineField{"length", Kind::size, "4", 1, 64}};
inline constexpr std::array kDynamicTree{PipelineField{"top-k", Kind::size, "10", 1, 64, 1, "4"},
                                         PipelineField{"expansions", Kind::size, "5", 0, 63},
                                         PipelineField{"total", Kind::size, "59", 1, 1024}};
inline constexpr std::array kStaticTree{PipelineField{"choices", Kind::paths, "", 0, 1023, 1024}, kDraw};
inline constexpr std::array kSampledTree{PipelineField{"widths", Kind::wholes, "4-2-1", 1, 64, 16},
                                         PipelineField{"draw", Kind::word, "distinct|iid"}};
inline constexpr std::array kHorizontal{PipelineField{"first", Kind::size, "2", 0, 256},
                                        PipelineField{"second", Kind::size, "4", 0, 256},
                                        PipelineField{"third", Kind::size, "4", 0, 256}, kDraw};
inline constexpr std::array kVertical{PipelineField{"reviews", Kind::size, "2", 1, 64},
                                      PipelineField{"length", Kind::size, "4", 1, 64}, kLenience, kDraw};
inline constexpr std::array kCascade{PipelineField{"limits", Kind::wholes, "4-0-10", 0, 256, 6}, kLenience,
                                     kDraw};

inline constexpr char kTwo[] = "small,max-gram";
inline constexpr std::array kPipelines{
    PipelineEntry{"autoregressive", kAutoregressive,
                  "plain decoding, the baseline; @MODEL: plain decoding of that draft, for its speed alone",
                  "", 0, 1, false, false, &prepare_autoregressive},
    PipelineEntry{
        "chain", kChain,
        "the draft's likeliest tokens one after the other, up to one below the probability exit (0 if a "
        "length is given); sampled: drawn from the draft; shared: with the target's own noise, one seed, "
        "one text",
        kDefaultDraft, 1, 1, true, true, &prepare_chain},
    PipelineEntry{
        "adaptive-chain", kAdaptiveChain,
        "a chain that learns where to end: after a draft token of which the draft is less sure than a "
        "threshold, or by how many tokens of the last round were accepted",
        kDefaultDraft, 1, 1, false, false, &prepare_adaptive_chain},
    PipelineEntry{
        "cape", kCape,
        "a greedy spine with runners-up where the draft is unsure: 7 where its confidence is at most 0.3, "
        "...; fixed: as many everywhere",
        kDefaultDraft, 1, 1, false, true, &prepare_cape},
    PipelineEntry{"beam", kBeam, "the best paths of a beam search", kDefaultDraft, 1, 1, false, true,
                  &prepare_beam},
    PipelineEntry{"dynamic-tree", kDynamicTree,
                  "EAGLE-2's tree: the TOTAL likeliest of what the TOP_K best tokens per node grow to",
                  kDefaultDraft, 1, 1, false, true, &prepare_dynamic_tree},
    PipelineEntry{
        "static-tree", kStaticTree,
        "a fixed tree: the draft's tokens of these ranks, 0 the likeliest, by their paths from the root, as "
        "in choices=0-1-0.0; EAGLE-1's 26 nodes if none are given; sampled: drawn without replacement",
        kDefaultDraft, 1, 1, false, true, &prepare_static_tree},
    PipelineEntry{"sampled-tree", kSampledTree, "children drawn without replacement; iid: independently",
                  kDefaultDraft, 1, 1, false, true, &prepare_sampled_tree},
    PipelineEntry{"horizontal", kHorizontal,
                  "a chain, its FIRST draft tokens from the first drafter, the next from the second, ...",
                  kTwo, 2, 3, true, false, &prepare_horizontal},
    PipelineEntry{
        "vertical", kVertical,
        "the first drafter reviews, REVIEWS times, what the others propose, LENGTH tokens at a time", kTwo, 2,
        3, true, false, &prepare_vertical},
    PipelineEntry{"cascade", kCascade, "CS-Drafting: both, under limits (rows of an upper triangle)", kTwo, 2,
                  3, true, true, &prepare_cascade},
};

/// The rules of texts, for help texts.
inline std::string rules_help() {
  std::string text = "  Every shape but autoregressive also takes " + usage_of(rule_fields()) + ":\n";
  for (const NamedRule& rule : kRules) text += std::string("      ") + rule.name + "  " + rule.summary + "\n";
  return text + "      lossy=yes lets a rule pass that is not lossless for the proposals.\n";
}

}  // namespace specula::detail::pipelines
