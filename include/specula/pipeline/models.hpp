// Where the models of a pipeline come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/any/any_drafter.hpp"
#include "specula/any/any_model.hpp"
#include "specula/draft/bigram.hpp"
#include "specula/pipeline/error.hpp"

namespace specula {

/// What an engine implements for make_pipeline(): its target, and its drafts by name. The models must outlive
/// the pipelines.
class PipelineModels {
 public:
  virtual ~PipelineModels() = default;
  virtual AnyModel& target() = 0;
  /// Throws PipelineError, or what suits the program, where there is no such draft.
  virtual AnyModel& draft(const std::string& name) = 0;
  /// The draft as it drafts for the target: one that is conditioned on it is a Glide or a FeatureHead.
  virtual AnyDrafter drafter(const std::string& name) { return draft(name).drafter(); }
  /// A draft with exits, by thresholds. Throws PipelineError where the model has none.
  virtual AnyDrafter early_exit(const std::string& name, const std::vector<float>& thresholds, ExitBy by) {
    AnyModel& model = draft(name);
    const std::int32_t exits = model.exits();
    if (exits == 0) throw PipelineError("the draft '" + name + "' has no exits");
    if (thresholds.size() >= static_cast<std::size_t>(exits))
      throw PipelineError("the draft '" + name + "': " + std::to_string(thresholds.size()) +
                          " thresholds, must be fewer than its exits, " + std::to_string(exits));
    return model.early_exit(thresholds, by);
  }
  /// The target without some of its blocks. Throws PipelineError where it cannot leave any out.
  virtual AnyDrafter layer_skip(const SkipRules& rules) { return skipping_target().layer_skip(rules); }
  /// The same of blocks that are given. Throws PipelineError also for layers that the target does not have.
  virtual AnyDrafter layer_skip(const BlockLists& blocks) {
    AnyModel& model = skipping_target();
    try {
      return model.layer_skip(blocks);
    } catch (const std::invalid_argument& error) {
      throw PipelineError(std::string("the target: ") + error.what());
    }
  }
  /// The next token after each one, for Max-Gram where it finds nothing to copy; the target's own text
  /// teaches it where there is none.
  virtual std::optional<BigramTable> bigram() { return std::nullopt; }

 private:
  AnyModel& skipping_target() {
    if (!target().skips_layers()) throw PipelineError("the target cannot leave layers out");
    return target();
  }
};

}  // namespace specula
