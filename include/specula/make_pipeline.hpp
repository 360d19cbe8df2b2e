// Instantiates all pipelines for make_pipeline(): include this in exactly one source file of a program, and
// specula/pipeline.hpp in the others.
#pragma once

#include <span>

#include "specula/pipeline.hpp"
#include "specula/pipeline/registry.hpp"

namespace specula::detail {

template <class Library>
std::span<const PipelineEntry> CompiledPipelines<Library>::entries() {
  return pipelines::registry();
}
template struct CompiledPipelines<void>;

}  // namespace specula::detail
