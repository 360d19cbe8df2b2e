// SPDX-License-Identifier: MIT
// The texts of earlier versions are errors that name the text in their place.
#include <specula/pipeline/old_texts.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>

using specula::PipelineError;

namespace {

/// Each entry of the earlier table and each of its other forms, beside what it is written as now.
const std::vector<std::pair<std::string, std::string>> kRenamed{
    {"autoregressive:small:rule=gumbel", "autoregressive:rule=gumbel@small"},
    {"chain:small:6:exit=0.3", "chain:6:exit=0.3@small"},
    {"chain:6:exit=0.3:small", "chain:6:exit=0.3@small"},
    {"sampled-chain", "chain:2:draw=sampled"},
    {"sampled-chain:base:4:rule=token", "chain:4:draw=sampled:rule=token@base"},
    {"shared-chain", "chain:2:draw=shared"},
    {"cape:base:3:budget=5", "cape:3:budget=5@base"},
    {"beam:base:3:2", "beam:3:2@base"},
    {"dynamic-tree:base:3:4:9", "dynamic-tree:3:4:9@base"},
    {"static-tree:hass:draw=sampled", "static-tree:draw=sampled@hass"},
    {"sampled-tree:base:widths=3-2", "sampled-tree:widths=3-2@base"},
    {"iid-tree:widths=3-2", "sampled-tree:draw=iid:widths=3-2"},
    {"cost-aware", "cost-aware:cape"},
    {"cost-aware:base", "cost-aware:cape@base"},
    {"cost-aware:7", "cost-aware:cape:7"},
    {"cost-aware:chain:small:4", "cost-aware:chain:4@small"},
    {"cost-aware:base:beam:2:3", "cost-aware:beam:2:3@base"},
    {"cost-aware:sampled-chain", "cost-aware:chain:draw=sampled"},
    {"cost-aware:20:max-gram:min=3", "cost-aware:chain:20:min=3@max-gram"},
    {"cost-aware:max-gram", "cost-aware:chain:10@max-gram"},
    {"cost-aware:cascade:base:small", "cost-aware:cascade@base,small"},
    {"cost-aware:s2d", "cost-aware:chain:exits=0.5-0@s2d"},
    {"cost-aware:asd:alike=0.9", "cost-aware:chain:alike=0.9@layer-skip"},
    {"max-gram", "chain:10@max-gram"},
    {"max-gram:3:min=1:bigram=none", "chain:3:min=1:bigram=none@max-gram"},
    {"prompt-lookup:6:ngram=1", "chain:6:ngram=1@prompt-lookup"},
    {"horizontal:base:small:3:2", "horizontal:3:2@base,small"},
    {"sampled-horizontal", "horizontal:draw=sampled"},
    {"vertical:base:small:max-gram", "vertical@base,small,max-gram"},
    {"sampled-vertical:base:small:2:3:lenience=2", "vertical:2:3:draw=sampled:lenience=2@base,small"},
    {"cascade:base:small:limits=3-2-4", "cascade:limits=3-2-4@base,small"},
    {"sampled-cascade:rule=token", "cascade:draw=sampled:rule=token"},
    {"glide", "chain@glide"},
    {"glide:other:7", "chain:7@other"},
    {"glide+cape:5:counts=2-2-1-0", "cape:5:counts=2-2-1-0@glide"},
    {"glide+beam4:8:4", "beam:8:4@glide"},
    {"glide+max-gram", "horizontal@glide,max-gram"},
    {"glide+max-gram:glide:small:2:3", "horizontal:2:3@glide,small"},
    {"eagle2:4:4:11", "dynamic-tree:4:4:11@eagle"},
    {"hass", "dynamic-tree@hass"},
    {"hass:small:4", "dynamic-tree:4@small"},
    {"adaptive-chain:base:6:end=heuristic", "adaptive-chain:6:end=heuristic@base"},
    {"s2d", "chain:4:exits=0.5-0@s2d"},
    {"s2d:other:6:thresholds=0.5-0.7-2:draw=sampled", "chain:6:exits=0.5-0.7-2:draw=sampled@other"},
    {"s2d:3:thresholds=2-0:end=heuristic", "adaptive-chain:3:exits=2-0:end=heuristic@s2d"},
    {"s2d:exits=1", "chain:4:exits=0@s2d"},
    {"s2d:exits=2", "chain:4:exits=2@s2d"},
    {"s2d:exits=1-3", "chain:4:exits=0.5-2@s2d"},
    {"s2d:exits=1-2-4:thresholds=0.4-0.6", "chain:4:exits=0.4-0.6-2@s2d"},
    {"asd", "adaptive-chain:end=paper@layer-skip"},
    {"asd:2:alike=2:every=2", "adaptive-chain:2:end=paper:alike=2:every=2@layer-skip"},
    {"asd:end=fixed:mlp=4", "chain:4:mlp=4@layer-skip"},
    {"asd:end=threshold", "adaptive-chain:end=threshold@layer-skip"},
};

}  // namespace

TEST_CASE("each text of earlier versions is an error that names the text in its place, which is one") {
  for (const auto& pair : kRenamed) {  // doctest's lambdas cannot capture a binding
    const std::string old = pair.first, now = pair.second;
    CAPTURE(old);
    CHECK_THROWS_WITH_AS(specula::prepare_pipeline(old),
                         ("pipeline '" + old + "' is written '" + now + "'").c_str(), PipelineError);
    CHECK_NOTHROW(specula::prepare_pipeline(now));
  }
  for (const specula::detail::OldPipeline& entry : specula::detail::kOldPipelines) {
    const std::string with_drafter = std::string(entry.name) + ":base";
    CAPTURE(with_drafter);
    CHECK_THROWS_WITH_AS(specula::prepare_pipeline(with_drafter), doctest::Contains("is written '"),
                         PipelineError);
  }
  CHECK(specula::detail::kOldPipelines.size() == 27);  // and cost-aware
}

TEST_CASE("what earlier versions wrote in the same way is no error, nor is it another pipeline") {
  for (const std::string same :
       {"autoregressive", "autoregressive:rule=gumbel", "chain", "chain:6:exit=0.3", "cape:3:budget=5",
        "beam:3", "dynamic-tree", "static-tree:draw=sampled", "sampled-tree:widths=3-2", "horizontal:3:2",
        "vertical:2:3", "cascade:limits=3-2-4", "adaptive-chain:6:end=heuristic", "cost-aware:chain:4",
        "cost-aware:dynamic-tree"}) {
    CAPTURE(same);
    CHECK(specula::detail::renamed_pipeline(same).empty());
    CHECK_NOTHROW(specula::prepare_pipeline(same));
  }
  for (const std::string other : {"", ":", "nonsense:small", "chain@small:4", "chain:4@small", "cost"}) {
    CAPTURE(other);
    CHECK(specula::detail::renamed_pipeline(other).empty());
  }
}
