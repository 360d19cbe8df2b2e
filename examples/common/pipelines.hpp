// The pipelines that the programs know, by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "any_drafter.hpp"
#include "errors.hpp"
#include "pipeline.hpp"
#include "pipeline_spec.hpp"

namespace specula_examples {

/// Where the models of a pipeline come from.
template <specula::LanguageModel M>
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual M& target() = 0;
  virtual M& draft(const std::string& name) = 0;
  /// The draft as it drafts for the target: one that looks into it is a Glide or a FeatureHead.
  virtual AnyDrafter drafter(const std::string& name) {
    return AnyDrafter(specula::ModelDrafter{draft(name)});
  }
  /// A draft with exits, by thresholds. Throws UsageError where models have none.
  virtual AnyDrafter sorted(const std::string& name, const std::vector<float>& thresholds,
                            specula::ExitBy by) {
    if constexpr (specula::ExitsEarly<M>) {
      M& model = draft(name);
      if (thresholds.size() >= static_cast<std::size_t>(model.exits()))
        throw UsageError("'" + name + "': " + std::to_string(thresholds.size()) +
                         " thresholds, must be fewer than its exits, " + std::to_string(model.exits()));
      return AnyDrafter(specula::Sorted{model, thresholds, by});
    }
    static_cast<void>(thresholds), static_cast<void>(by);
    throw UsageError("'" + name + "': models of this kind have no exits");
  }
  /// The target without some of its blocks. Throws UsageError where it cannot leave any out.
  virtual AnyDrafter layer_skip(const specula::SkipRules& rules) {
    if constexpr (specula::SkipsLayers<M>) return AnyDrafter(specula::LayerSkip{target(), rules});
    static_cast<void>(rules);
    throw UsageError("the target cannot leave layers out");
  }
  /// The next token after each one, for Max-Gram where it finds nothing to copy; the target's own text
  /// teaches it where there is none.
  virtual std::optional<specula::BigramTable> bigram() { return std::nullopt; }
};

/// A pipeline before its models are loaded: the name is understood, its values are in range.
template <class M>
struct Recipe {
  std::vector<std::string> drafts;    // models that it needs besides the target
  std::vector<std::string> drafters;  // its drafters, best first: models, or kMaxGram, ...
  std::int32_t max_nodes = 1;         // of its proposals, root included
  std::int32_t draft_nodes = 1;       // that a draft holds beside the context
  bool lossy = false;
  bool measures = false;  // wants to know how much the target's blocks change
  std::function<std::unique_ptr<Pipeline>(ModelSource<M>&, const specula::SamplingParams&)> build;
};

/// What a model must hold.
struct Room {
  std::int32_t capacity = 0;   // tokens and nodes
  std::int32_t max_nodes = 1;  // the largest proposal
};
/// For prompts of at most `longest_prompt` tokens.
template <class M>
Room room_for(std::span<const Recipe<M>> recipes, std::size_t longest_prompt, std::int32_t max_new_tokens) {
  std::int32_t nodes = 1;
  for (const auto& recipe : recipes) nodes = std::max({nodes, recipe.max_nodes, recipe.draft_nodes});
  // The last round may begin before the limit's last token and accept everything.
  return {static_cast<std::int32_t>(longest_prompt) + max_new_tokens + 2 * nodes, nodes};
}

template <class M>
struct RegistryEntry {
  const char* name;
  const char* usage;
  const char* summary;
  Recipe<M> (*prepare)(PipelineSpec&);
};

inline constexpr char kDefaultDraft[] = "small";
inline constexpr const char* kMaxGram = "max-gram";  // a drafter that is no model
// Drafts of the pack that look into the target.
inline constexpr char kGlide[] = "glide", kEagle[] = "eagle", kHass[] = "hass";
inline constexpr char kSorted[] = "sorted";         // a draft with exits
inline constexpr char kTheTarget[] = "the target";  // which drafts for itself
// Chosen by racing a few on the shipped prompts and models: where a length is not asked for, the greedy chain
// also ends after a guess that the draft itself doubts.
inline constexpr std::int32_t kDefaultChainLength = 4;
inline constexpr double kDefaultExit = 0.6;
inline constexpr std::int32_t kDefaultSampledChainLength = 2;

/// All of them. Defined in pipeline_registry.hpp, which compiles every pipeline: include that in one file for
/// each type of model, with an explicit instantiation (model_pack.cpp has the one for the CPU model).
template <class M>
std::span<const RegistryEntry<M>> registry();

/// The known pipelines, a line each, for help texts.
template <class M>
std::string describe_pipelines() {
  std::string text;
  for (const auto& entry : registry<M>())
    text += std::string("  ") + entry.usage + "\n      " + entry.summary + "\n";
  return text;
}

/// Throws UsageError if `name` is no known pipeline, or its parts are not what that pipeline takes.
template <class M>
Recipe<M> prepare_pipeline(const std::string& name) {
  PipelineSpec spec(name);
  for (const auto& entry : registry<M>())
    if (spec.name() == entry.name) {
      Recipe<M> recipe = entry.prepare(spec);
      spec.done(entry.usage);
      return recipe;
    }
  std::vector<std::string> names;
  for (const auto& entry : registry<M>()) names.emplace_back(entry.name);
  throw UsageError(unknown_pipeline(name, spec.name(), names));
}

}  // namespace specula_examples
