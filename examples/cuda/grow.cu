// SPDX-License-Identifier: MIT
#include <specula/cuda/api/grow.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // The host knows capacities only. Outside of graph capture.
  constexpr int kSequences = 2, kVocab = 32000;
  DynamicTreeCapacity
      capacity;  // the rest as published: the 10 best tokens of a row, 5 levels, 59 draft tokens
  capacity.sequences = kSequences;
  capacity.vocab = kVocab;
  DynamicTreePlan<BFloat16> plan;
  if (make_dynamic_tree_plan(&plan, capacity, /*device*/ 0) != cudaSuccess) return 1;

  // The draft's inputs, level by level, (E, B, K).
  Roots roots{on_device<Token>({17, 4}), on_device<std::int32_t>({120, 33})};
  roots.sequence_count = on_device<std::int32_t>({2});  // a captured graph serves fewer, too
  const auto rows_of_level = static_cast<std::size_t>(kSequences * plan.top_k);
  const auto slots = rows_of_level * static_cast<std::size_t>(plan.expansions);
  const DraftLevels calls{zeros<Token>(slots), zeros<NodeId>(slots), zeros<std::int32_t>(slots),
                          zeros<std::uint64_t>(slots * static_cast<std::size_t>(plan.draft_words))};

  // The proposals.
  const auto nodes = static_cast<std::size_t>(kSequences * plan.width);
  GrownTrees trees{zeros<Token>(nodes), zeros<NodeId>(nodes)};
  trees.begin = zeros<std::int32_t>(kSequences + 1);
  trees.size = zeros<std::int32_t>(kSequences);
  trees.reach = zeros<double>(nodes);

  // The draft's head writes here: (B, V) after the roots, then (B, K, V) after each level. Zeros stand for
  // its logits.
  const DraftRows<BFloat16> rows{zeros<BFloat16>(rows_of_level * kVocab), kVocab};
  const std::size_t bytes = workspace_bytes(plan);
  void* const workspace = zeros<unsigned char>(bytes);
  for (int level = 0; level <= plan.expansions; ++level) {
    // Here the draft runs: on the roots at level 0, then on level - 1 of `calls`.
    if (dynamic_tree_step(plan, level, roots, rows, calls, workspace, bytes, nullptr) != cudaSuccess)
      return 1;
  }
  Status* const status = zeros<Status>(kSequences);
  if (dynamic_tree_rerank(plan, roots, trees, status, workspace, bytes, nullptr) != cudaSuccess) return 1;

  // The target has room for 40 draft tokens of both sequences: the likeliest. (With a budget of each sequence
  // alone this step is left out, and growth writes links and masks itself.)
  const Proposals grown{
      trees.begin,         trees.token, trees.parent, trees.reach, on_device<std::int32_t>({40}),
      roots.sequence_count};
  const SelectedNodes kept{zeros<std::int32_t>(kSequences + 1), zeros<Token>(nodes), zeros<NodeId>(nodes),
                           zeros<std::int32_t>(nodes)};
  if (select_nodes(kSequences, grown, kept, nullptr) != cudaSuccess) return 1;

  // Depths and masks for tree attention; begin, token and parent are what verification takes.
  TreeLinks links;
  links.depth = zeros<std::int32_t>(nodes);
  links.ancestors = zeros<std::uint64_t>(nodes * static_cast<std::size_t>(mask_words(plan.width)));
  if (tree_links(kSequences, plan.width, kept.begin, kept.parent, links, nullptr, roots.sequence_count) !=
      cudaSuccess)
    return 1;

  const std::vector<std::int32_t> size = to_host(trees.size, kSequences),
                                  begin = to_host(kept.begin, kSequences + 1);
  std::printf("%d and %d nodes, of which %d and %d are kept, status %d\n", size[0], size[1],
              begin[1] - begin[0], begin[2] - begin[1], static_cast<int>(to_host(status, 1)[0]));
}
