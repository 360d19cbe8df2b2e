// The table of pipelines: from a text to a pipeline, before and after its models are loaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/pipeline/error.hpp"
#include "specula/pipeline/models.hpp"
#include "specula/pipeline/pipeline.hpp"
#include "specula/pipeline/spec.hpp"
#include "specula/sampling_params.hpp"

namespace specula {

/// A pipeline before its models are loaded: the name is understood, its values are in range.
struct PipelineFactory {
  std::vector<std::string> drafts;    // models that it needs besides the target, as whole models
  std::vector<std::string> exits;     // models that it needs as drafts with exits
  std::vector<std::string> drafters;  // its drafters, best first: models, or kMaxGram, ...
  std::int32_t max_nodes = 1;         // of its proposals, root included
  std::int32_t draft_nodes = 1;       // that a draft holds beside the context
  bool lossy = false;                 // its text does not have the target's distribution
  bool measures = false;              // wants to know how much the target's blocks change
  /// Throws PipelineError naming the pipeline where the models cannot do what it asks for.
  std::function<std::unique_ptr<Pipeline>(PipelineModels&, const SamplingParams&)> build;
};

/// The names of all models that the pipelines need besides the target, drafts with exits included. A name may
/// stand several times.
inline std::vector<std::string> draft_names(std::span<const PipelineFactory> factories) {
  std::vector<std::string> names;
  for (const auto& factory : factories)
    for (const auto* some : {&factory.drafts, &factory.exits})
      names.insert(names.end(), some->begin(), some->end());
  return names;
}

/// What a model must hold.
struct PipelineRoom {
  std::int32_t capacity = 0;   // tokens and nodes
  std::int32_t max_nodes = 1;  // the largest proposal
};
/// For prompts of at most `longest_prompt` tokens.
inline PipelineRoom room_for(std::span<const PipelineFactory> factories, std::size_t longest_prompt,
                             std::int32_t max_new_tokens) {
  std::int32_t nodes = 1;
  for (const auto& factory : factories) nodes = std::max({nodes, factory.max_nodes, factory.draft_nodes});
  // The last round may begin before the limit's last token and accept everything.
  return {static_cast<std::int32_t>(longest_prompt) + max_new_tokens + 2 * nodes, nodes};
}

struct PipelineEntry {
  const char* name;
  const char* usage;
  const char* summary;
  PipelineFactory (*prepare)(PipelineSpec&);
};

inline constexpr char kDefaultDraft[] = "small";
inline constexpr const char* kMaxGram = "max-gram";  // a drafter that is no model
// Drafts of the pack that are conditioned on the target.
inline constexpr char kGlide[] = "glide", kEagle[] = "eagle", kHass[] = "hass";
inline constexpr char kEarlyExitDraft[] = "s2d";    // a draft with exits
inline constexpr char kTheTarget[] = "the target";  // which drafts for itself
// What the programs run where no pipeline is named: with the pack, the fastest of those that the section
// `main` of scripts/paper_tables searches; with a target or draft of the user's own, a chain of that draft.
inline constexpr char kDefaultPipeline[] = "cost-aware:chain:small";
inline constexpr char kDefaultDraftPipeline[] = "cost-aware:chain";
// Chosen by racing a few on the shipped prompts and models: where a length is not asked for, the greedy chain
// also ends after a draft token that the draft itself doubts.
inline constexpr std::int32_t kDefaultChainLength = 4;
inline constexpr double kDefaultExit = 0.6;
inline constexpr std::int32_t kDefaultSampledChainLength = 2;

namespace detail {

/// All pipelines. Defined by make_pipeline.hpp, which one file of a program includes: the only template of
/// which that file's copy serves the others.
template <class Library>
struct CompiledPipelines {
  static std::span<const PipelineEntry> entries();
};
extern template struct CompiledPipelines<void>;

}  // namespace detail

/// All that prepare_pipeline() knows.
inline std::span<const PipelineEntry> pipeline_entries() {
  return detail::CompiledPipelines<void>::entries();
}

/// The grammar and the known pipelines, a line each, for help texts.
inline std::string pipeline_help() {
  std::string text;
  for (const auto& entry : pipeline_entries())
    text += std::string("  ") + entry.usage + "\n      " + entry.summary + "\n";
  return text +
         "  Where a rule R is not lossless for the proposals, as typical and lenient=L never are, lossy=yes "
         "lets "
         "it pass.\n";
}

/// Throws PipelineError if `text` names no known pipeline, its parts are not what that pipeline takes, or its
/// rule is not lossless for its proposals and it does not say lossy=yes.
inline PipelineFactory prepare_pipeline(std::string_view text) {
  PipelineSpec spec(text);
  for (const auto& entry : pipeline_entries())
    if (spec.name() == entry.name) {
      PipelineFactory factory = entry.prepare(spec);
      spec.done(entry.usage);
      factory.build = [build = std::move(factory.build), spec](PipelineModels& models,
                                                               const SamplingParams& params) {
        try {
          return build(models, params);
        } catch (const PipelineError& error) {
          spec.fail(error.what());
        }
      };
      return factory;
    }
  std::vector<std::string> names;
  for (const auto& entry : pipeline_entries()) names.emplace_back(entry.name);
  throw PipelineError(unknown_pipeline(spec.text(), spec.name(), names));
}

/// The pipeline that `text` names, say "cost-aware:chain:small:4". The models are referenced and must outlive
/// it. Throws as prepare_pipeline(), PipelineError naming the pipeline where a model cannot do what it asks
/// for, and what Speculator's constructor throws.
inline std::unique_ptr<Pipeline> make_pipeline(std::string_view text, PipelineModels& models,
                                               const SamplingParams& params = {}) {
  return prepare_pipeline(text).build(models, params);
}

}  // namespace specula
