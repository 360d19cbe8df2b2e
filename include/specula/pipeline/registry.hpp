// Registry of pipelines by name. A new one is an entry in registry() and its function.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/draft/no_drafter.hpp"
#include "specula/pipeline/assemble.hpp"
#include "specula/pipeline/cascade_pipelines.hpp"
#include "specula/pipeline/self_pipelines.hpp"
#include "specula/shape/beam.hpp"
#include "specula/shape/cape.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/cost_aware.hpp"
#include "specula/shape/dynamic_tree.hpp"
#include "specula/shape/ranked_tree.hpp"
#include "specula/shape/sampled_tree.hpp"
#include "specula/shape/static_tree.hpp"

namespace specula::detail::pipelines {

/// The target state that a pipeline's drafts read, by its default draft.
inline Conditioning read_by(const std::string& fallback) {
  return fallback == kGlide                      ? Conditioning::key_values
         : fallback == kEagle || fallback == kHass ? Conditioning::features
                                               : Conditioning::nothing;
}

/// The factory's build throws PipelineError unless the draft reads the state `reads` (if not nothing).
template <class S>
PipelineFactory factory_for(S shape, std::string draft, ParsedRule rule,
                            Conditioning reads = Conditioning::nothing) {
  PipelineFactory factory;
  factory.drafts = factory.drafters = {draft};
  factory.max_nodes = shape.nodes().most;
  factory.draft_nodes = shape.nodes().held();
  factory.lossy = rule.lossy;
  factory.build = [=](PipelineModels& models, const SamplingParams& params) {
    if (reads != Conditioning::nothing && models.draft(draft).conditioned_on() != reads)
      throw PipelineError("the draft '" + draft + "' does not read the target's " + name_of(reads));
    return assemble(models.target(), rule, params, models.drafter(draft), shape, {draft});
  };
  return factory;
}

inline PipelineFactory prepare_autoregressive(PipelineSpec& spec) {
  const std::string model = spec.word(""), rule = spec.choice("rule", "sampling", {"sampling", "gumbel"});
  PipelineFactory factory;
  if (!model.empty()) factory.drafts = {model};
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

template <Draw mode, const char* fallback = kDefaultDraft>
PipelineFactory prepare_chain(PipelineSpec& spec) {
  const std::string draft = spec.word(fallback);
  Chain<mode> shape;
  constexpr bool greedy = mode == Draw::greedy;
  const std::int32_t asked = spec.size("length", 0, 1, 64);
  shape.length = asked ? asked : greedy ? kDefaultChainLength : kDefaultSampledChainLength;
  shape.exit_below = static_cast<float>(spec.option("exit", greedy && !asked ? kDefaultExit : 0, 0, 1));
  return factory_for(shape, draft, parse_rule(spec, shape.kind), read_by(fallback));
}

/// Numbers of runners-up by confidence: counts= in the bins between thresholds=, or fixed= everywhere.
inline CapeExtras parse_extras(PipelineSpec& spec, const CapeExtras& fallback) {
  const auto counts = spec.sizes("counts", {}, fallback.counts.size(), 0, 63);
  const auto thresholds = spec.numbers("thresholds", {}, fallback.thresholds.size(), 0, 1);
  const std::int32_t fixed = spec.count("fixed", -1, 0, 63);
  if (fixed >= 0) {
    if (!counts.empty() || !thresholds.empty())
      spec.fail("fixed is one number for every confidence: it does not go with counts or thresholds");
    return CapeExtras::fixed(fixed);
  }
  if (counts.empty() && thresholds.empty()) return fallback;
  CapeExtras extras;
  if (!counts.empty() && counts.size() != extras.counts.size())
    spec.fail("counts are " + std::to_string(extras.counts.size()) +
              " numbers, one for each bin of confidence");
  if (!thresholds.empty() && thresholds.size() != extras.thresholds.size())
    spec.fail("thresholds are " + std::to_string(extras.thresholds.size()) +
              " numbers, the ends of all bins of confidence but the last");
  if (!std::is_sorted(thresholds.begin(), thresholds.end())) spec.fail("thresholds must ascend");
  std::copy(counts.begin(), counts.end(), extras.counts.begin());
  std::copy(thresholds.begin(), thresholds.end(), extras.thresholds.begin());
  return extras;
}
inline Cape parse_cape(PipelineSpec& spec, std::int32_t length, std::int32_t budget,
                       const CapeExtras& extras) {
  Cape shape;
  shape.length = spec.size("length", length, 1, 64);
  shape.budget = spec.count("budget", budget, 1, 1024);
  shape.extras = parse_extras(spec, extras);
  return shape;
}
inline Beam parse_beam(PipelineSpec& spec) {
  Beam shape;
  shape.width = spec.size("width", 4, 1, 64);
  shape.length = spec.size("length", 4, 1, 64);
  return shape;
}
inline DynamicTree parse_dynamic_tree(PipelineSpec& spec, std::int32_t top_k, std::int32_t expansions,
                                      std::int32_t total) {
  DynamicTree shape;
  shape.top_k = spec.size("top-k", top_k, 1, 64);
  shape.expansions = spec.size("expansions", expansions, 0, 63);
  shape.total = spec.size("total", total, 1, 1024);
  return shape;
}

template <const char* fallback = kDefaultDraft>
PipelineFactory prepare_cape(PipelineSpec& spec) {
  const std::string draft = spec.word(fallback);
  const Cape shape = parse_cape(spec, 4, 32, {});
  return factory_for(shape, draft, parse_rule(spec, shape.kind), read_by(fallback));
}
template <const char* fallback = kDefaultDraft>
PipelineFactory prepare_beam(PipelineSpec& spec) {
  const std::string draft = spec.word(fallback);
  const Beam shape = parse_beam(spec);
  return factory_for(shape, draft, parse_rule(spec, shape.kind), read_by(fallback));
}
template <const char* fallback = kDefaultDraft>
PipelineFactory prepare_dynamic_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(fallback);
  const DynamicTree shape = parse_dynamic_tree(spec, 10, 5, 59);
  return factory_for(shape, draft, parse_rule(spec, shape.kind), read_by(fallback));
}
/// factory_of() for the static tree of the text's options.
template <class FactoryOf>
PipelineFactory with_static_tree(PipelineSpec& spec, FactoryOf factory_of) {
  const bool drawn = spec.choice("draw", "greedy", {"greedy", "sampled"}) == "sampled";
  const auto choices = spec.paths("choices", {}, 1024, 1023);
  RankedTree form = RankedTree::eagle();
  try {
    if (!choices.empty()) form = RankedTree{std::span<const RankedTree::Choice>(choices)};
    if (drawn) StaticTree<ProposalKind::sampled_distinct>{.form = form}.validate();
  } catch (const std::invalid_argument& error) {
    spec.fail(error.what());
  }
  PipelineFactory factory = drawn ? factory_of(StaticTree<ProposalKind::sampled_distinct>{.form = form})
                                  : factory_of(StaticTree<>{.form = form});
  factory.build = [build = std::move(factory.build), rank = form.most_rank()](PipelineModels& models,
                                                                              const SamplingParams& params) {
    if (const std::int32_t vocab = models.target().vocab_size(); rank >= vocab)
      throw PipelineError("choices has the rank " + std::to_string(rank) + ", must be below the target's " +
                          std::to_string(vocab) + " tokens");
    return build(models, params);
  };
  return factory;
}
inline PipelineFactory prepare_static_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return with_static_tree(
      spec, [&](auto shape) { return factory_for(shape, draft, parse_rule(spec, shape.kind)); });
}
template <ProposalKind how>
PipelineFactory prepare_sampled_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  SampledTree<how> shape;
  const auto widths = spec.sizes("widths", {4, 2, 1}, shape.widths.size(), 1, 64);
  shape.widths = {};
  std::copy(widths.begin(), widths.end(), shape.widths.begin());
  std::int64_t nodes = 1, level = 1;
  for (const std::int32_t width : widths) nodes += level = std::min<std::int64_t>(level * width, 1 << 20);
  if (nodes > 1025) spec.fail("a tree of more than 1024 draft tokens");
  return factory_for(shape, draft, parse_rule(spec, shape.kind));
}

// Shapes of cost-aware size, in their own order of sizes.
template <class S>
PipelineFactory cost_aware(PipelineSpec& spec, const std::string& draft, S shape) {
  return factory_for(CostAware(shape), draft, parse_rule(spec, shape.kind));
}
template <Draw mode>
PipelineFactory cost_aware_chain(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return cost_aware(spec, draft, Chain<mode>{.length = spec.size("length", 8, 1, 64)});
}
inline PipelineFactory cost_aware_cape(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return cost_aware(spec, draft, parse_cape(spec, 8, 63, CapeExtras::fixed(7)));
}
inline PipelineFactory cost_aware_beam(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return cost_aware(spec, draft, parse_beam(spec));
}
inline PipelineFactory cost_aware_dynamic_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return cost_aware(spec, draft, parse_dynamic_tree(spec, 4, 5, 59));
}
inline PipelineFactory cost_aware_static_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return with_static_tree(spec, [&](auto shape) { return cost_aware(spec, draft, shape); });
}
inline PipelineFactory cost_aware_sampled_tree(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  return cost_aware(spec, draft, SampledTree<ProposalKind::sampled_distinct>{});
}

inline std::span<const PipelineEntry> registry();

inline PipelineFactory prepare_cost_aware(PipelineSpec& spec) {
  std::vector<std::string> shapes;
  for (const PipelineEntry& entry : registry())
    if (entry.prepare_cost_aware) shapes.emplace_back(entry.name);
  const std::string shape = spec.keyword("cape", shapes);
  return std::find_if(registry().begin(), registry().end(), [&](const auto& e) { return shape == e.name; })
      ->prepare_cost_aware(spec);
}

inline std::span<const PipelineEntry> registry() {
  static constexpr std::array kEntries{
      PipelineEntry{"autoregressive", "autoregressive[:MODEL][:rule=gumbel]",
                    "plain decoding, the baseline; with MODEL: plain decoding of that draft, for its speed alone",
                    &prepare_autoregressive},
      PipelineEntry{"chain", "chain[:DRAFT][:LENGTH][:exit=PROB][:rule=R|:lenient=L]",
                    "the draft's likeliest tokens one after the other", &prepare_chain<Draw::greedy>,
                    &cost_aware_chain<Draw::greedy>},
      PipelineEntry{
          "sampled-chain", "sampled-chain[:DRAFT][:LENGTH][:exit=PROB][:rule=R|:lenient=L]",
          "tokens drawn from the draft; rules: sampling (block verification), token, match, typical",
          &prepare_chain<Draw::sampled>, &cost_aware_chain<Draw::sampled>},
      PipelineEntry{"shared-chain", "shared-chain[:DRAFT][:LENGTH][:exit=PROB]",
                    "tokens drawn from the draft with the target's own noise: one seed, one text",
                    &prepare_chain<Draw::shared>},
      PipelineEntry{
          "cape",
          "cape[:DRAFT][:LENGTH][:budget=N][:counts=7-5-3-1][:thresholds=0.3-0.6-0.8][:fixed=K][:rule=R]",
          "a greedy spine with runners-up where the draft is unsure: 7 where its confidence is at most 0.3, "
          "...; fixed=K: as many everywhere",
          &prepare_cape, &cost_aware_cape},
      PipelineEntry{"beam", "beam[:DRAFT][:WIDTH][:LENGTH][:rule=R]", "the best paths of a beam search",
                    &prepare_beam, &cost_aware_beam},
      PipelineEntry{"dynamic-tree", "dynamic-tree[:DRAFT][:TOP_K][:EXPANSIONS][:TOTAL][:rule=R]",
                    "EAGLE-2's tree: the TOTAL likeliest of what TOP_K best tokens a node grow to",
                    &prepare_dynamic_tree, &cost_aware_dynamic_tree},
      PipelineEntry{
          "static-tree", "static-tree[:DRAFT][:choices=0-1-0.0-0.1][:draw=sampled][:rule=R]",
          "a fixed tree: the draft's tokens of these ranks, 0 the likeliest, by their paths from the "
          "root; EAGLE-1's 26 nodes if no choices are given; sampled: drawn without replacement",
          &prepare_static_tree, &cost_aware_static_tree},
      PipelineEntry{"sampled-tree", "sampled-tree[:DRAFT][:widths=4-2-1][:rule=R]",
                    "children drawn without replacement; rules: sampling (traversal), token, match, typical",
                    &prepare_sampled_tree<ProposalKind::sampled_distinct>, &cost_aware_sampled_tree},
      PipelineEntry{"iid-tree", "iid-tree[:DRAFT][:widths=4-2-1][:rule=R]",
                    "children drawn independently; rules also: k-seq",
                    &prepare_sampled_tree<ProposalKind::sampled_iid>},
      PipelineEntry{"cost-aware", "cost-aware[:SHAPE][:DRAFT][:SIZES][:rule=R]",
                    "as large as pays by the measured cost of nodes; SHAPE, with its parts: cape if none is "
                    "given",
                    &prepare_cost_aware},
      PipelineEntry{"max-gram",
                    "max-gram[:LENGTH][:exit=PROB][:min=N][:bigram=both|table|text|none][:past-end=yes|no]",
                    "copied from the text itself, after its longest suffix that occurred before",
                    &prepare_max_gram, &prepare_cost_aware_max_gram},
      PipelineEntry{"prompt-lookup", "prompt-lookup[:LENGTH][:ngram=N]",
                    "the same with suffixes of N tokens at most, and no bigrams", &prepare_prompt_lookup},
      PipelineEntry{
          "horizontal", "horizontal[:DRAFTER...][:COUNT...]",
          "a chain, its first COUNT draft tokens from the first DRAFTER, the next from the second, ...; the "
          "last may be max-gram",
          [](PipelineSpec& spec) { return prepare_horizontal(spec, Draw::greedy); }},
      PipelineEntry{"sampled-horizontal", "sampled-horizontal[:DRAFTER...][:COUNT...]",
                    "the same with drawn tokens",
                    [](PipelineSpec& spec) { return prepare_horizontal(spec, Draw::sampled); }},
      PipelineEntry{
          "vertical", "vertical[:DRAFTER...][:REVIEWS][:LENGTH][:lenience=L]",
          "the first DRAFTER reviews, REVIEWS times, what the others propose, LENGTH tokens at a time",
          [](PipelineSpec& spec) { return prepare_vertical(spec, Draw::greedy); }},
      PipelineEntry{"sampled-vertical", "sampled-vertical[:DRAFTER...][:REVIEWS][:LENGTH][:lenience=L]",
                    "the same with drawn tokens",
                    [](PipelineSpec& spec) { return prepare_vertical(spec, Draw::sampled); }},
      PipelineEntry{"cascade", "cascade[:DRAFTER...][:limits=8-5-10-1-10-10][:lenience=L]",
                    "CS-Drafting: both, under limits (rows of an upper triangle)",
                    [](PipelineSpec& spec) { return prepare_cascade(spec, Draw::greedy); },
                    &prepare_cost_aware_cascade},
      PipelineEntry{"sampled-cascade", "sampled-cascade[:DRAFTER...][:limits=8-5-10-1-10-10][:lenience=L]",
                    "the same with drawn tokens",
                    [](PipelineSpec& spec) { return prepare_cascade(spec, Draw::sampled); }},
      PipelineEntry{"glide", "glide[:DRAFT][:LENGTH][:exit=PROB][:rule=R|:lenient=L]",
                    "chain of a draft that reads the target's keys and values",
                    &prepare_chain<Draw::greedy, kGlide>},
      PipelineEntry{"glide+cape",
                    "glide+cape[:DRAFT][:LENGTH][:budget=N][:counts=7-5-3-1][:thresholds=0.3-0.6-0.8][:fixed="
                    "K][:rule=R]",
                    "cape of that draft", &prepare_cape<kGlide>},
      PipelineEntry{"glide+beam4", "glide+beam4[:DRAFT][:WIDTH][:LENGTH][:rule=R]", "beam of that draft",
                    &prepare_beam<kGlide>},
      PipelineEntry{"glide+max-gram", "glide+max-gram[:DRAFTER...][:COUNT...]",
                    "horizontal of that draft and Max-Gram",
                    [](PipelineSpec& spec) { return prepare_horizontal(spec, Draw::greedy, kGlide); }},
      PipelineEntry{"eagle2", "eagle2[:DRAFT][:TOP_K][:EXPANSIONS][:TOTAL][:rule=R]",
                    "dynamic-tree of a head on the target's features", &prepare_dynamic_tree<kEagle>},
      PipelineEntry{"hass", "hass[:DRAFT][:TOP_K][:EXPANSIONS][:TOTAL][:rule=R]",
                    "the same of a head that was trained on what it sees when it drafts",
                    &prepare_dynamic_tree<kHass>},
      PipelineEntry{
          "adaptive-chain",
          "adaptive-chain[:DRAFT][:LONGEST][:exit=PROB][:end=threshold|paper|heuristic][:carry=yes|no]"
          "[:draw=sampled][:rule=R]",
          "a chain that learns where to end: after a draft token of which the draft is less sure than "
          "a threshold, or "
          "by how many tokens of the last round were accepted",
          &prepare_adaptive_chain},
      PipelineEntry{
          "s2d",
          "s2d[:DRAFT][:LENGTH][:thresholds=0.5-0][:exits=1-3][:leave=confidence|sample][:end=fixed|"
          "threshold|paper|heuristic][:draw="
          "sampled][:rule=R]",
          "a chain of a draft with exits: drafting of a token stops at the first exit whose "
          "confidence reaches its threshold; exits: of "
          "these alone, counted from 1, each with a threshold but the last",
          &prepare_s2d, &prepare_cost_aware_s2d},
      PipelineEntry{
          "asd",
          "asd[:LONGEST][:alike=0.985][:every=3][:last=2][:attention=2-5][:mlp=4][:end=paper|threshold|fixed|"
          "heuristic][:draw=sampled][:"
          "rule=R]",
          "a chain of the target itself without attention that changes little and every third layer, but the "
          "last two; chosen for each text; or without given blocks: attention and mlp of these layers, "
          "counted from "
          "1",
          &prepare_layer_skip, &prepare_cost_aware_layer_skip},
  };
  return kEntries;
}

}  // namespace specula::detail::pipelines
