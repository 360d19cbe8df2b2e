// Many texts at once, by a pipeline over the models of a pack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include <specula/run/batch_speculator.hpp>

#include "model_pack.hpp"

namespace specula_examples {

/// A specula::BatchSpeculator, whose drafts are known when it is made. `cost-aware:` pipelines share one
/// budget.
class TextBatch {
 public:
  /// `texts` at once, by the pipeline `name`; the pack has at least as many slots. Throws UsageError for a
  /// pipeline whose draft runs a part of its layers, which is one text at a time, and what building it
  /// throws.
  TextBatch(ModelPack& models, const std::string& name, const specula::SamplingParams& params,
            std::int32_t texts);
  ~TextBatch();

  specula::TextId join(specula::TextRequest request);  ///< see BatchSpeculator::join()
  const std::vector<specula::TextResult>& step();      ///< see BatchSpeculator::step()
  bool empty() const;                                  ///< see BatchSpeculator::empty()
  std::int32_t waiting() const;                        ///< texts that are written or queued
  /// Seconds that passes have taken so far, of the target and of all drafts.
  double pass_seconds() const;

 private:
  struct Base;
  template <class... Models>
  struct Of;
  std::unique_ptr<Base> batch_;
};

}  // namespace specula_examples
