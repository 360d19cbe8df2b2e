// prepare_pipeline() and make_pipeline(): from a text to a pipeline, before and after its models are loaded.
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

#include "specula/base/sampling_params.hpp"
#include "specula/pipeline/models.hpp"
#include "specula/pipeline/run_time_pipeline.hpp"
#include "specula/pipeline/spec.hpp"

namespace specula {

/// A pipeline before its models are loaded: its name is known and its values are in range.
struct PipelineFactory {
  std::vector<std::string> drafts;    ///< required models besides the target, run as a whole
  std::vector<std::string> exits;     ///< required models with early exits
  std::vector<std::string> drafters;  ///< its drafters, best first: models, or kMaxGram, ...
  std::int32_t max_nodes = 1;         ///< of its proposals, root included
  std::int32_t draft_nodes = 1;       ///< maximum in a draft's KV cache besides the context
  bool lossy = false;                 ///< its text does not have the target's distribution
  bool measures = false;              ///< uses measured similarities of the target's blocks
  /// Throws PipelineError naming the pipeline if the models do not support it.
  std::function<std::unique_ptr<Pipeline>(PipelineModels&, const SamplingParams&)> build;
};

/// The names of all models that the pipelines require besides the target, drafts with exits included. A name
/// may occur several times.
inline std::vector<std::string> draft_names(std::span<const PipelineFactory> factories) {
  std::vector<std::string> names;
  for (const auto& factory : factories)
    for (const auto* some : {&factory.drafts, &factory.exits})
      names.insert(names.end(), some->begin(), some->end());
  return names;
}

/// Required capacity of a model.
struct PipelineRoom {
  std::int32_t capacity = 0;   ///< tokens and nodes
  std::int32_t max_nodes = 1;  ///< the largest proposal
};
/// For prompts of at most `longest_prompt` tokens.
inline PipelineRoom room_for(std::span<const PipelineFactory> factories, std::size_t longest_prompt,
                             std::int32_t max_new_tokens) {
  std::int32_t nodes = 1;
  for (const auto& factory : factories) nodes = std::max({nodes, factory.max_nodes, factory.draft_nodes});
  // The last round may begin one token before the limit and accept all draft tokens.
  return {static_cast<std::int32_t>(longest_prompt) + max_new_tokens + 2 * nodes, nodes};
}

/// A kind of pipeline that prepare_pipeline() knows.
struct PipelineEntry {
  const char* name;                           ///< the first part of a pipeline's text
  const char* usage;                          ///< syntax of the parts after the name
  const char* summary;                        ///< one line for help texts
  PipelineFactory (*prepare)(PipelineSpec&);  ///< reads the parts
  /// The same for cost-aware:NAME; null if there is none.
  PipelineFactory (*prepare_cost_aware)(PipelineSpec&) = nullptr;
};

inline constexpr char kDefaultDraft[] = "small";     ///< the draft where none is named
inline constexpr const char* kMaxGram = "max-gram";  ///< a drafter without a model
// Drafts of the pack that are conditioned on the target.
inline constexpr char kGlide[] = "glide",           ///< on its keys and values
    kEagle[] = "eagle",                             ///< on its features
    kHass[] = "hass";                               ///< on its features
inline constexpr char kEarlyExitDraft[] = "s2d";    ///< a draft with exits
inline constexpr char kTheTarget[] = "the target";  ///< the target as its own draft
/// Default pipeline of the programs with the pack: the fastest of those that the section `main` of
/// scripts/paper_tables searches.
inline constexpr char kDefaultPipeline[] = "cost-aware:chain:small";
/// The same with a target or draft of the user's own: a chain of that draft.
inline constexpr char kDefaultDraftPipeline[] = "cost-aware:chain";
/// Draft tokens of a greedy chain, chosen by benchmarks on the shipped prompts and models. Without a given
/// length it also ends after a draft token of low confidence.
inline constexpr std::int32_t kDefaultChainLength = 4;
inline constexpr double kDefaultExit = 0.6;  ///< threshold of the confidence after which that chain ends
inline constexpr std::int32_t kDefaultSampledChainLength = 2;  ///< draft tokens of a sampled chain

namespace detail {

/// All pipelines. Defined by make_pipeline.hpp, which one file of a program includes; the other files link to
/// its instantiation.
template <class Library>
struct CompiledPipelines {
  static std::span<const PipelineEntry> entries();
};
extern template struct CompiledPipelines<void>;

}  // namespace detail

/// All pipelines of prepare_pipeline().
inline std::span<const PipelineEntry> pipeline_entries() {
  return detail::CompiledPipelines<void>::entries();
}

/// The grammar and the known pipelines, one line per pipeline, for help texts.
inline std::string pipeline_help() {
  std::string text, shapes;
  for (const auto& entry : pipeline_entries()) {
    text += std::string("  ") + entry.usage + "\n      " + entry.summary + "\n";
    if (entry.prepare_cost_aware) shapes.append(shapes.empty() ? "" : ", ").append(entry.name);
  }
  return text + "  SHAPE of cost-aware is one of " + shapes + ".\n" +
         "  Where a rule R is not lossless for the proposals, as typical and lenient=L never are, lossy=yes "
         "lets "
         "it pass.\n";
}

/// Throws PipelineError if `text` names no known pipeline, that pipeline does not accept its parts, or its
/// rule is not lossless for its proposals and the text lacks lossy=yes.
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

/// The pipeline that `text` names, for example "cost-aware:chain:small:4". The models are referenced and must
/// outlive it. Throws as prepare_pipeline(), PipelineError naming the pipeline if a model does not support
/// it, and what Speculator's constructor throws.
inline std::unique_ptr<Pipeline> make_pipeline(std::string_view text, PipelineModels& models,
                                               const SamplingParams& params = {}) {
  return prepare_pipeline(text).build(models, params);
}

}  // namespace specula
