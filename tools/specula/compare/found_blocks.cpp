// SPDX-License-Identifier: MIT
#include "found_blocks.hpp"

#include "text_table.hpp"

namespace specula_tools {
namespace {

std::string list(const char* key, const std::vector<std::uint8_t>& blocks) {
  std::string text;
  for (std::size_t l = 0; l < blocks.size(); ++l)
    if (blocks[l] != 0) text.append(text.empty() ? "" : "-").append(std::to_string(l + 1));
  return text.empty() ? text : std::string(":").append(key).append("=").append(text);
}

}  // namespace

std::string block_pipeline(std::int32_t length, const specula::SkippedBlocks& blocks) {
  const auto lists = list("attention", blocks.attention) + list("mlp", blocks.mlp);
  return "chain:" + std::to_string(length) + (lists.empty() ? ":every=0:alike=2" : lists) + "@layer-skip";
}

std::vector<std::string> block_pipelines(const specula::FoundBlocks& found) {
  std::vector<std::string> names;
  for (std::int32_t length = 1; length <= found.found().length; ++length)
    names.push_back(block_pipeline(length, found.found().blocks));
  return names;
}

std::string block_table(const specula::FoundBlocks& found) {
  std::vector<std::vector<std::string>> alone{{"layer", "without its attention", "without its MLP"}};
  for (std::size_t l = 0; l < found.attention.size(); ++l)
    alone.push_back({std::to_string(l + 1), fixed(found.attention[l], 3), fixed(found.mlp[l], 3)});
  std::vector<std::vector<std::string>> trials{{"blocks left out", "agreement", "c", "chain", "predicted"}};
  for (const auto& trial : found.trials)
    trials.push_back({std::to_string(trial.blocks.count()), fixed(trial.agreement, 3), fixed(trial.cost, 3),
                      std::to_string(trial.length), fixed(trial.speedup, 2) + "x"});
  const auto& best = found.found();
  return "likeliest token as with all blocks:\n" + text_table(alone) + "\nthe least missed together:\n" +
         text_table(trials) + (best.speedup > 1 ? "\nthe best: " : "\nnone pays; the best: ") +
         block_pipeline(best.length, best.blocks) + "\n";
}

}  // namespace specula_tools
