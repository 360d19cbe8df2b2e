// SPDX-License-Identifier: MIT
// The blocks that a target can draft without, for the table and as pipelines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <specula/draft/find_skipped.hpp>

namespace specula_tools {

/// The longest text that blocks are searched on, in tokens: of longer ones the end.
inline constexpr std::size_t kSearchedTokens = 160;

/// A chain of this length without these blocks: "chain:2:attention=4-5:mlp=2@layer-skip". If there are none,
/// with the rules that leave none out.
std::string block_pipeline(std::int32_t length, const specula::SkippedBlocks& blocks);

/// Chains of the best set, up to the length that is predicted to be the fastest.
std::vector<std::string> block_pipelines(const specula::FoundBlocks& found);

/// Agreement without each block, the trials, and what the best one is predicted to give.
std::string block_table(const specula::FoundBlocks& found);

}  // namespace specula_tools
