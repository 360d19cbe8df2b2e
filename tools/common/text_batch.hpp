// SPDX-License-Identifier: MIT
// Many texts at once, by a pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <specula/batch/batch_speculator.hpp>
#include <specula/pipeline.hpp>

namespace specula_tools {

/// What the programs need of a specula::BatchSpeculator, whose drafts are known when it is made.
class TextBatch {
 public:
  virtual ~TextBatch() = default;
  virtual specula::TextId join(specula::TextRequest request) = 0;  ///< see BatchSpeculator::join()
  virtual bool cancel(specula::TextId id) = 0;                     ///< see BatchSpeculator::cancel()
  virtual const std::vector<specula::TextResult>& step() = 0;      ///< see BatchSpeculator::step()
  virtual bool empty() const = 0;                                  ///< see BatchSpeculator::empty()
  virtual std::int32_t waiting() const = 0;                        ///< texts that are written or queued
  /// What ended drafting in a text that has written a token; empty if nothing did.
  virtual std::string draft_error(specula::TextId id) const = 0;
  /// Seconds that passes have taken so far, of the target and of all drafts.
  virtual double pass_seconds() const = 0;
};

/// prepare_pipeline(). Throws UsageError for one that make_text_batch() does not make: its draft runs a part
/// of its layers, which is one text at a time, or it has more than two draft models.
specula::PipelineFactory batched_factory(const std::string& pipeline);

}  // namespace specula_tools
