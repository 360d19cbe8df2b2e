// SPDX-License-Identifier: MIT
// Instantiates all pipelines for make_pipeline(): include this in exactly one source file of a program, and
// specula/pipeline.hpp in the others.
#pragma once

#include <span>
#include <string>

#include "specula/pipeline.hpp"
#include "specula/runtime/registry.hpp"

namespace specula::detail {

template <class Library>
std::span<const PipelineEntry> CompiledPipelines<Library>::entries() {
  return pipelines::kPipelines;
}
template <class Library>
std::span<const PipelineDrafter> CompiledPipelines<Library>::drafters() {
  return pipelines::kDrafters;
}
template <class Library>
std::string CompiledPipelines<Library>::rules() {
  return pipelines::rules_help();
}
template struct CompiledPipelines<void>;

}  // namespace specula::detail
