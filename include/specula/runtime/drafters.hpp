// SPDX-License-Identifier: MIT
// The drafters of a pipeline's text: models, drafts with exits, copies, and the target without some blocks.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "specula/draft/bigram.hpp"
#include "specula/draft/early_exit_drafter.hpp"
#include "specula/draft/layer_skip.hpp"
#include "specula/draft/max_gram.hpp"
#include "specula/runtime/factory.hpp"
#include "specula/runtime/spec.hpp"

namespace specula::detail::pipelines {

using Kind = PipelineField::Kind;

inline constexpr std::array kExitFields{
    PipelineField{"exits", Kind::numbers, "", 0, 2, 15},
    PipelineField{"leave", Kind::word, "confidence|sample"},
};
inline constexpr std::array kMaxGramFields{
    PipelineField{"min", Kind::whole, "2", 1, 64},
    PipelineField{"bigram", Kind::word, "both|table|text|none"},
    PipelineField{"past-end", Kind::word, "yes|no"},
};
inline constexpr std::array kPromptLookupFields{PipelineField{"ngram", Kind::whole, "3", 1, 64}};
inline constexpr std::array kLayerSkipFields{
    PipelineField{"alike", Kind::number, "0.985", -1, 2},
    PipelineField{"every", Kind::whole, "3", 0, 1024},
    PipelineField{"last", Kind::whole, "2", 0, 1024},
    PipelineField{"attention", Kind::wholes, "", 1, 1024, 1024},
    PipelineField{"mlp", Kind::wholes, "", 1, 1024, 1024},
};
inline constexpr std::array kDrafters{
    PipelineDrafter{
        "", kExitFields,
        "a draft model, also one that reads the target's state (GLIDE, EAGLE, HASS); exits: of one with "
        "exits (S2D), the confidences at which a token stops at the first, the second, ..."},
    PipelineDrafter{
        kMaxGram, kMaxGramFields,
        "copies from the text itself, after its longest suffix that occurred before; alone for greedy "
        "chains, and last in cascades"},
    PipelineDrafter{kPromptLookup, kPromptLookupFields,
                    "the same with suffixes of ngram tokens at most, and no bigrams"},
    PipelineDrafter{
        kLayerSkip, kLayerSkipFields,
        "the target itself without attention that changes little and every third layer, but the last "
        "two (ASD), chosen for each text; or without given blocks: attention and mlp of these layers, "
        "counted from 1"},
};

/// Options of a drafter that copies. The paper's are min=1:bigram=table:past-end=no.
struct CopyChoice {
  MaxGramOptions options;
  std::string bigram = "none";  // without a match: table, text, both or none
};

inline CopyChoice parse_copies(PipelineSpec& spec) {
  CopyChoice choice{.options = {.min_match = 1}};
  if (spec.drafters().back() == kPromptLookup) {
    spec.know(kPromptLookupFields);
    choice.options.max_match = spec.whole("ngram");
    choice.options.past_end = false;
    return choice;
  }
  spec.know(kMaxGramFields);
  choice.options.min_match = spec.whole("min");
  choice.options.past_end = spec.is("past-end", "yes");
  choice.bigram = spec.word("bigram");
  return choice;
}

inline MaxGram make_copies(PipelineModels& models, const CopyChoice& choice) {
  const std::int32_t vocab = models.target().vocab_size();
  if (choice.bigram == "none") return MaxGram(vocab, choice.options);
  if (choice.bigram == "text") return MaxGram(Bigram::online(vocab), choice.options);
  const auto table = models.bigram();
  if (choice.bigram == "both")
    return MaxGram(table ? Bigram::online(*table) : Bigram::online(vocab), choice.options);
  if (!table)
    throw PipelineError(
        "bigram=table: there is no table of bigrams for this target; write one with specula bigram, or take "
        "bigram=text or bigram=none, which need none");
  return MaxGram(Bigram(*table), choice.options);
}

/// A drafter with rows, and what PipelineFactory says of it.
struct ParsedDrafter {
  std::function<AnyDrafter(PipelineModels&)> make;
  bool exits = false, skips = false, measures = false;
};

inline ParsedDrafter parse_layer_skip(PipelineSpec& spec) {
  spec.know(kLayerSkipFields);
  const BlockLists blocks{.attention = spec.wholes("attention"), .mlp = spec.wholes("mlp")};
  if (!blocks.attention.empty() || !blocks.mlp.empty())
    return {.make = [=](PipelineModels& models) { return models.layer_skip(blocks); }, .skips = true};
  SkipRules rules;
  rules.alike = spec.number("alike");
  rules.every = spec.whole("every");
  rules.keep_last = spec.whole("last");
  return {.make = [=](PipelineModels& models) { return models.layer_skip(rules); },
          .skips = true,
          .measures = true};
}

/// The only drafter of a text, which does not copy.
inline ParsedDrafter parse_drafter(PipelineSpec& spec) {
  const std::string name = spec.drafters().front();
  if (name == kLayerSkip) return parse_layer_skip(spec);
  spec.know(kExitFields);
  if (!spec.given("exits")) return {.make = [=](PipelineModels& models) { return models.drafter(name); }};
  const auto by = spec.is("leave", "sample") ? ExitBy::sample : ExitBy::confidence;
  return {.make = [=, thresholds = spec.numbers("exits")](
                      PipelineModels& models) { return models.early_exit(name, thresholds, by); },
          .exits = true};
}

}  // namespace specula::detail::pipelines
