// SPDX-License-Identifier: MIT
// Names of drafters and methods, which newcomers take for pipelines: each is told with one that can be run.
#include <specula/runtime/drafter_names.hpp>
#include <specula/runtime/factory.hpp>

#include <doctest/doctest.h>

#include <string>

using specula::detail::kDrafterNames;
using specula::detail::pipeline_of_drafter;

namespace {

std::string complaint(const std::string& text) {
  try {
    specula::prepare_pipeline(text);
  } catch (const specula::PipelineError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("every pipeline that is named for a drafter or a method is one") {
  for (const auto& drafter : kDrafterNames) {
    CAPTURE(drafter.name);
    CHECK_NOTHROW(specula::prepare_pipeline(drafter.pipeline));
    CHECK(pipeline_of_drafter(drafter.name) == drafter.pipeline);
  }
}

TEST_CASE("capitals and what joins the parts of a name do not count") {
  for (const char* name : {"layer-skip", "LayerSkip", "layer_skip", "LAYER SKIP"})
    CHECK(pipeline_of_drafter(name) == "adaptive-chain@layer-skip");
  CHECK(pipeline_of_drafter("chian").empty());
  CHECK(pipeline_of_drafter("").empty());
}

TEST_CASE("the error names the drafter and a pipeline of it") {
  CHECK(complaint("EAGLE") == "unknown pipeline 'EAGLE'; @eagle is a drafter: dynamic-tree@eagle");
  CHECK(complaint("eagle:4") == "unknown pipeline 'eagle:4'; @eagle is a drafter: dynamic-tree@eagle");
  CHECK(complaint("layer-skip") ==
        "unknown pipeline 'layer-skip'; @layer-skip is a drafter: adaptive-chain@layer-skip");
  CHECK(complaint("ASD") == "unknown pipeline 'ASD'; @layer-skip is a drafter: adaptive-chain@layer-skip");
}
