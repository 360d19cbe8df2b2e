#include "pipelines.hpp"

#include <algorithm>

namespace specula_examples {

AnyDrafter ModelSource::drafter(const std::string& name) { return draft(name).drafter(); }

AnyDrafter ModelSource::early_exit(const std::string& name, const std::vector<float>& thresholds,
                                   specula::ExitBy by) {
  AnyModel& model = draft(name);
  const std::int32_t exits = model.exits();
  if (exits == 0) throw UsageError("'" + name + "': models of this kind have no exits");
  if (thresholds.size() >= static_cast<std::size_t>(exits))
    throw UsageError("'" + name + "': " + std::to_string(thresholds.size()) +
                     " thresholds, must be fewer than its exits, " + std::to_string(exits));
  return model.early_exit(thresholds, by);
}

AnyDrafter ModelSource::layer_skip(const specula::SkipRules& rules) {
  if (!target().skips_layers()) throw UsageError("the target cannot leave layers out");
  return target().layer_skip(rules);
}

AnyDrafter ModelSource::layer_skip(const BlockLists& blocks) {
  if (!target().skips_layers()) throw UsageError("the target cannot leave layers out");
  try {
    return target().layer_skip(blocks);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("the target: ") + error.what());
  }
}

std::optional<specula::BigramTable> ModelSource::bigram() { return std::nullopt; }

std::vector<std::string> draft_names(std::span<const PipelineFactory> factories) {
  std::vector<std::string> names;
  for (const auto& factory : factories)
    for (const auto* some : {&factory.drafts, &factory.exits})
      names.insert(names.end(), some->begin(), some->end());
  return names;
}

Room room_for(std::span<const PipelineFactory> factories, std::size_t longest_prompt,
              std::int32_t max_new_tokens) {
  std::int32_t nodes = 1;
  for (const auto& factory : factories) nodes = std::max({nodes, factory.max_nodes, factory.draft_nodes});
  // The last round may begin before the limit's last token and accept everything.
  return {static_cast<std::int32_t>(longest_prompt) + max_new_tokens + 2 * nodes, nodes};
}

std::string describe_pipelines() {
  std::string text;
  for (const auto& entry : registry())
    text += std::string("  ") + entry.usage + "\n      " + entry.summary + "\n";
  return text;
}

PipelineFactory prepare_pipeline(const std::string& name) {
  PipelineSpec spec(name);
  for (const auto& entry : registry())
    if (spec.name() == entry.name) {
      PipelineFactory factory = entry.prepare(spec);
      spec.done(entry.usage);
      return factory;
    }
  std::vector<std::string> names;
  for (const auto& entry : registry()) names.emplace_back(entry.name);
  throw UsageError(unknown_pipeline(name, spec.name(), names));
}

}  // namespace specula_examples
