// SPDX-License-Identifier: MIT
// Many texts at once, by a pipeline over the models of a pack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/batch/batch_speculator.hpp>

namespace specula_examples {

class ModelPack;

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

/// Throws UsageError for a pipeline that make_text_batch() does not make: its draft runs a part of its
/// layers, which is one text at a time, or it has more than two draft models.
void check_batched(const std::string& pipeline);

/// `texts` at once; the pack has at least as many slots. `cost-aware:` pipelines share one budget. Throws as
/// check_batched(), and what building the pipeline throws.
std::unique_ptr<TextBatch> make_text_batch(ModelPack& models, const std::string& pipeline,
                                           const specula::SamplingParams& params, std::int32_t texts);

}  // namespace specula_examples
