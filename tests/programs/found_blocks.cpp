// SPDX-License-Identifier: MIT
// labels: long
// Blocks that a target can draft without, as text and as pipelines.
#include "found_blocks.hpp"

#include <doctest/doctest.h>

#include <vector>

#include <specula/make_pipeline.hpp>

using namespace specula_tools;

namespace {

specula::FoundBlocks found(double speedup, std::int32_t length) {
  specula::FoundBlocks out{.attention = {0.5, 0.9}, .mlp = {0.25, 0.75}, .trials = {}};
  out.trials.push_back({.blocks = specula::SkippedBlocks::given(2, std::vector<std::int32_t>{1, 2},
                                                                std::vector<std::int32_t>{2}),
                        .agreement = 0.8,
                        .cost = 0.7,
                        .length = length,
                        .speedup = speedup});
  return out;
}

}  // namespace

TEST_CASE("blocks are what pipelines take") {
  CHECK(block_pipeline(1, specula::SkippedBlocks(3)) == "chain:1:every=0:alike=2@layer-skip");
  for (const auto& name : block_pipelines(found(1.1, 2))) specula::prepare_pipeline(name);
  specula::prepare_pipeline(block_pipeline(1, specula::SkippedBlocks(3)));
  CHECK(block_pipelines(found(1.1, 2)) == std::vector<std::string>{"chain:1:attention=1-2:mlp=2@layer-skip",
                                                                   "chain:2:attention=1-2:mlp=2@layer-skip"});
}

TEST_CASE("the table says whether the best set pays") {
  const auto pays = block_table(found(1.25, 2)), none = block_table(found(0.9, 1));
  CHECK(pays.find("1.25x") != pays.npos);
  CHECK(pays.find("the best: chain:2:attention=1-2:mlp=2@layer-skip") != pays.npos);
  CHECK(pays.find("none pays") == pays.npos);
  CHECK(none.find("none pays; the best: chain:1:attention") != none.npos);
}
