// SPDX-License-Identifier: MIT
#include "text_batch.hpp"

#include "errors.hpp"

namespace specula_tools {

specula::PipelineFactory batched_factory(const std::string& pipeline) {
  constexpr std::size_t kMostDrafts = 2;
  specula::PipelineFactory factory = specula::prepare_pipeline(pipeline);
  if (!factory.exits.empty() || factory.measures || pipeline.find("layer-skip") != std::string::npos)
    throw UsageError("pipeline '" + pipeline +
                     "': a draft that runs a part of its layers is run text by text, without --batch");
  if (factory.drafts.size() > kMostDrafts)
    throw UsageError("pipeline '" + pipeline + "': --batch takes two draft models at most");
  return factory;
}

}  // namespace specula_tools
