// SPDX-License-Identifier: MIT
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
#include "specula/runtime/drafter_names.hpp"
#include "specula/runtime/models.hpp"
#include "specula/runtime/run_time_pipeline.hpp"
#include "specula/runtime/spec.hpp"

namespace specula {

/// A pipeline before its models are loaded: its name is known and its values are in range.
struct PipelineFactory {
  std::vector<std::string> drafts;    ///< required models besides the target, run as a whole
  std::vector<std::string> exits;     ///< required models with early exits
  std::vector<std::string> drafters;  ///< its drafters, best first, as the text names them
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

/// A shape of the table of pipelines: what its texts may have, and how they are read.
struct PipelineEntry {
  const char* name;                           ///< as texts have it
  std::span<const PipelineField> fields;      ///< its values, sizes first
  const char* summary;                        ///< one line for help texts
  const char* drafters;                       ///< those of a text that names none; empty: none
  std::size_t least_drafters;                 ///< number of drafters, at least
  std::size_t most_drafters;                  ///< number of drafters, at most
  bool copies;                                ///< whether the last drafter may copy, as max-gram does
  bool cost_aware;                            ///< whether texts may begin with cost-aware:
  PipelineFactory (*prepare)(PipelineSpec&);  ///< reads the values

  std::string usage() const;  ///< how its texts are written, with all that is optional in brackets
};

/// A kind of drafter of the table of drafters.
struct PipelineDrafter {
  const char* name;                       ///< as texts have it after the @; empty: the name of a model
  std::span<const PipelineField> fields;  ///< the values that it adds to a text
  const char* summary;                    ///< one line for help texts
};

inline constexpr char kDefaultDraft[] = "small";          ///< the draft where none is named
inline constexpr char kMaxGram[] = "max-gram";            ///< a drafter that copies from the text
inline constexpr char kPromptLookup[] = "prompt-lookup";  ///< the same with fewer options
inline constexpr char kLayerSkip[] = "layer-skip";        ///< the target without some of its blocks
/// Default pipeline of the programs with the pack: the fastest of those that the section `main` of
/// scripts/paper_tables searches.
inline constexpr char kDefaultPipeline[] = "cost-aware:chain@small";
/// The same with a target or draft of the user's own: a chain of that draft.
inline constexpr char kDefaultDraftPipeline[] = "cost-aware:chain";
/// A default without a draft model: tokens are copied from the text so far.
inline constexpr char kDefaultCopyingPipeline[] = "cost-aware:chain:10@max-gram";

namespace detail {

/// The tables. Defined by make_pipeline.hpp, which one file of a program includes; the other files link to
/// its instantiation.
template <class Library>
struct CompiledPipelines {
  static std::span<const PipelineEntry> entries();
  static std::span<const PipelineDrafter> drafters();
  static std::string rules();
};
extern template struct CompiledPipelines<void>;

/// "[:LENGTH=4][:draw=greedy|sampled]"
inline std::string usage_of(std::span<const PipelineField> fields) {
  std::string text;
  for (const PipelineField& field : fields) {
    std::string name = field.name;
    if (field.kind == PipelineField::Kind::size)
      for (char& c : name) c = c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');
    text.append("[:").append(name).append("=").append(*field.fallback ? field.fallback : "...").append("]");
  }
  return text;
}

inline bool is_copying(const std::string& drafter) { return drafter == kMaxGram || drafter == kPromptLookup; }

/// Throws PipelineError unless the shape takes these drafters, and cost-aware: where it is written.
inline void check_drafters(const PipelineSpec& spec, const PipelineEntry& entry) {
  const auto& names = spec.drafters();
  const bool either = entry.most_drafters == 1 && entry.cost_aware && names.size() == 2 &&
                      !is_copying(names.front()) && is_copying(names.back());  // Either: a draft, or copies
  if (either && !spec.cost_aware())
    spec.fail(names.front() + " or " + names.back() +
              ", whichever promises more, is a choice of cost-aware:" + entry.name);
  if (names.size() < entry.least_drafters || names.size() > entry.most_drafters + (either ? 1 : 0))
    spec.fail(number(names.size()) + " drafters, must be " + number(entry.least_drafters) +
              (entry.least_drafters == entry.most_drafters ? "" : " to " + number(entry.most_drafters)));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_copying(names[i]) && !entry.copies && !either)
      spec.fail(names[i] + " does not draft for " + entry.name);
    if (is_copying(names[i]) && i + 1 < names.size())
      spec.fail(names[i] + " can only be the last drafter: it cannot review");
    if (names[i] == kLayerSkip && entry.most_drafters != 1)
      spec.fail(names[i] + " does not draft for " + entry.name);
    for (std::size_t j = 0; j < i; ++j)  // one model holds one text
      if (names[j] == names[i]) spec.fail("two drafters are '" + names[i] + "'");
  }
  if (names.size() == 3 && !is_copying(names.back()))
    spec.fail("the last of three drafters must be max-gram or prompt-lookup");
  if (spec.cost_aware() && !entry.cost_aware)
    spec.fail(std::string("cost-aware does not go with ") + entry.name);
}

}  // namespace detail

inline std::string PipelineEntry::usage() const {
  const std::string drafters_or = *drafters ? drafters : "DRAFTER";
  return (cost_aware ? "[cost-aware:]" : "") + std::string(name) + detail::usage_of(fields) + "[@" +
         drafters_or + "]";
}

/// All shapes of prepare_pipeline().
inline std::span<const PipelineEntry> pipeline_entries() {
  return detail::CompiledPipelines<void>::entries();
}
/// All kinds of drafters of prepare_pipeline().
inline std::span<const PipelineDrafter> pipeline_drafters() {
  return detail::CompiledPipelines<void>::drafters();
}

/// Shapes, drafters and rules, for help texts.
inline std::string pipeline_help() {
  std::string text =
      "  [cost-aware:]SHAPE[:SIZE...][:KEY=VALUE...][@DRAFTER[,DRAFTER...]], with these shapes, their values "
      "and "
      "drafters if none are given:\n";
  for (const auto& entry : pipeline_entries())
    text += "  " + entry.usage() + "\n      " + entry.summary + "\n";
  text +=
      "  cost-aware: as large as pays by the measured cost of nodes; of a single drafter, with ,max-gram "
      "after it, "
      "too: copies instead where they promise more\n";
  for (const auto& drafter : pipeline_drafters())
    text += std::string("  @") + (*drafter.name ? drafter.name : "MODEL") + " with " +
            detail::usage_of(drafter.fields) + "\n      " + drafter.summary + "\n";
  return text + detail::CompiledPipelines<void>::rules();
}

/// Throws PipelineError if `text` names no known pipeline, that pipeline does not accept its parts, or its
/// rule is not lossless for its proposals and the text lacks lossy=yes.
inline PipelineFactory prepare_pipeline(std::string_view text) {
  PipelineSpec spec(text);
  std::vector<std::string> names;
  for (const auto& entry : pipeline_entries()) {
    names.emplace_back(entry.name);
    if (spec.shape() != entry.name) continue;
    if (spec.drafters().empty() && *entry.drafters) spec.draft_by(entry.drafters);
    detail::check_drafters(spec, entry);
    spec.know(entry.fields);
    PipelineFactory factory = entry.prepare(spec);
    spec.done(entry.usage());
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
  std::string message = "unknown pipeline " + detail::quoted(spec.text());
  if (const std::string pipeline(detail::pipeline_of_drafter(spec.shape())); !pipeline.empty())
    throw PipelineError(message + "; " + pipeline.substr(pipeline.find('@')) + " is a drafter: " + pipeline);
  const char* before = "; the nearest are ";
  for (const std::string& closest : nearest(spec.shape(), names, 3))
    message += std::exchange(before, ", ") + closest;
  throw PipelineError(message);
}

/// The pipeline that `text` names, for example "cost-aware:chain:4@small". The models are referenced and must
/// outlive it. Throws as prepare_pipeline(), PipelineError naming the pipeline if a model does not support
/// it, and what Speculator's constructor throws.
inline std::unique_ptr<Pipeline> make_pipeline(std::string_view text, PipelineModels& models,
                                               const SamplingParams& params = {}) {
  return prepare_pipeline(text).build(models, params);
}

}  // namespace specula
