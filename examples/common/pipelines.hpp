// The pipelines that the programs know, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "any_drafter.hpp"
#include "any_model.hpp"
#include "errors.hpp"
#include "pipeline.hpp"
#include "pipeline_spec.hpp"

namespace specula_examples {

/// Where the models of a pipeline come from.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual AnyModel& target() = 0;
  virtual AnyModel& draft(const std::string& name) = 0;
  /// The draft as it drafts for the target: one that is conditioned on it is a Glide or a FeatureHead.
  virtual AnyDrafter drafter(const std::string& name);
  /// A draft with exits, by thresholds. Throws UsageError where models have none.
  virtual AnyDrafter early_exit(const std::string& name, const std::vector<float>& thresholds,
                                specula::ExitBy by);
  /// The target without some of its blocks. Throws UsageError where it cannot leave any out.
  virtual AnyDrafter layer_skip(const specula::SkipRules& rules);
  /// The same of blocks that are given. Throws UsageError also for layers that the target does not have.
  virtual AnyDrafter layer_skip(const BlockLists& blocks);
  /// The next token after each one, for Max-Gram where it finds nothing to copy; the target's own text
  /// teaches it where there is none.
  virtual std::optional<specula::BigramTable> bigram();
};

/// A pipeline before its models are loaded: the name is understood, its values are in range.
struct PipelineFactory {
  std::vector<std::string> drafts;    // models that it needs besides the target, as whole models
  std::vector<std::string> exits;     // models that it needs as drafts with exits
  std::vector<std::string> drafters;  // its drafters, best first: models, or kMaxGram, ...
  std::int32_t max_nodes = 1;         // of its proposals, root included
  std::int32_t draft_nodes = 1;       // that a draft holds beside the context
  bool lossy = false;
  bool measures = false;  // wants to know how much the target's blocks change
  std::function<std::unique_ptr<Pipeline>(ModelSource&, const specula::SamplingParams&)> build;
};

/// The names of all models that the recipes need besides the target, drafts with exits included. A name may
/// stand several times.
std::vector<std::string> draft_names(std::span<const PipelineFactory> factories);

/// What a model must hold.
struct Room {
  std::int32_t capacity = 0;   // tokens and nodes
  std::int32_t max_nodes = 1;  // the largest proposal
};
/// For prompts of at most `longest_prompt` tokens.
Room room_for(std::span<const PipelineFactory> factories, std::size_t longest_prompt,
              std::int32_t max_new_tokens);

struct RegistryEntry {
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

/// All of them.
std::span<const RegistryEntry> registry();

/// The known pipelines, a line each, for help texts.
std::string describe_pipelines();

/// Throws UsageError if `name` is no known pipeline, or its parts are not what that pipeline takes.
PipelineFactory prepare_pipeline(const std::string& name);

}  // namespace specula_examples
