// SPDX-License-Identifier: MIT
// PipelineModels: the interface from which make_pipeline() takes its models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/draft/bigram.hpp"
#include "specula/model/language_model.hpp"
#include "specula/runtime/any_drafter.hpp"
#include "specula/runtime/any_model.hpp"
#include "specula/runtime/spec.hpp"

namespace specula {

/// An engine implements this for make_pipeline(): its target, and its drafts by name. The models must outlive
/// the pipelines.
class PipelineModels {
 public:
  virtual ~PipelineModels() = default;
  virtual AnyModel& target() = 0;  ///< the model that verifies
  /// Throws PipelineError, or another exception of the program's choice, if there is no such draft.
  virtual AnyModel& draft(const std::string& name) = 0;
  /// The target's name in error messages; may be empty.
  virtual std::string target_name() const { return {}; }
  /// The draft as a drafter for the target: see AnyModel::drafter(). Throws PipelineError if the target does
  /// not expose the state that the draft reads, or if they are incompatible.
  virtual AnyDrafter drafter(const std::string& name) {
    AnyModel& model = draft(name);
    const Conditioning reads = model.conditioned_on();
    if (model.cache_id() == target().cache_id())
      throw PipelineError("the draft '" + name + "' is the target itself: a model holds one text");
    if (reads != Conditioning::nothing && !target().exposes(reads))
      throw PipelineError(the_target() + " does not expose " + name_of(reads) + ", which the draft '" + name +
                          "' reads");
    try {
      return model.drafter(target());
    } catch (const std::logic_error& error) {  // also thrown by models that keep features only on request
      throw PipelineError("the draft '" + name + "' for " + the_target() + ": " + error.what());
    }
  }
  /// A draft with early exits and their thresholds. Throws PipelineError if the model has no exits.
  virtual AnyDrafter early_exit(const std::string& name, const std::vector<float>& thresholds, ExitBy by) {
    AnyModel& model = draft(name);
    const std::int32_t exits = model.exits();
    if (exits == 0) throw PipelineError("the draft '" + name + "' has no exits");
    if (thresholds.size() >= static_cast<std::size_t>(exits))
      throw PipelineError("the draft '" + name + "': " + std::to_string(thresholds.size()) +
                          " thresholds, must be fewer than its exits, " + std::to_string(exits));
    return model.early_exit(thresholds, by);
  }
  /// The target without some of its blocks. Throws PipelineError if it cannot skip blocks.
  virtual AnyDrafter layer_skip(const SkipRules& rules) { return skipping_target().layer_skip(rules); }
  /// The same with given blocks. Throws PipelineError also for layers that the target does not have.
  virtual AnyDrafter layer_skip(const BlockLists& blocks) {
    AnyModel& model = skipping_target();
    try {
      return model.layer_skip(blocks);
    } catch (const std::invalid_argument& error) {
      throw PipelineError(the_target() + ": " + error.what());
    }
  }
  /// Bigram table (V): the next token after each one, which Max-Gram uses without a match. Empty: Max-Gram
  /// learns bigrams from the text only.
  virtual std::optional<BigramTable> bigram() { return std::nullopt; }

  /// "the target", with its name if it has one.
  std::string the_target() const {
    const std::string name = target_name();
    return name.empty() ? "the target" : "the target '" + name + "'";
  }

 private:
  AnyModel& skipping_target() {
    if (!target().skips_layers()) throw PipelineError(the_target() + " cannot leave layers out");
    return target();
  }
};

}  // namespace specula
