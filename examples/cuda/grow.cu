#include <specula/cuda/api/grow_dynamic_tree.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // The host knows capacities only. Outside of graph capture.
  constexpr int kSequences = 2, kVocab = 32000;
  DynamicTreeCapacity capacity;  // the rest as published: the 10 best tokens of a row, 5 levels, 59 draft tokens
  capacity.sequences = kSequences;
  capacity.vocab = kVocab;
  DynamicTreePlan<BFloat16> plan;
  if (make_dynamic_tree_plan(&plan, capacity, /*device*/ 0) != cudaSuccess) return 1;

  // The draft's inputs, level by level, (E, B, K).
  const Roots roots{on_device<Token>({17, 4}), on_device<std::int32_t>({120, 33})};
  const auto rows_of_level = static_cast<std::size_t>(kSequences * plan.top_k);
  const auto slots = rows_of_level * static_cast<std::size_t>(plan.expansions);
  const DraftLevels calls{zeros<Token>(slots), zeros<NodeId>(slots), zeros<std::int32_t>(slots),
                          zeros<std::uint64_t>(slots * static_cast<std::size_t>(plan.draft_words))};

  // The proposals, as verification and tree attention take them. (Except verification's positions, which are
  // the roots'.)
  const auto nodes = static_cast<std::size_t>(kSequences * plan.width);
  GrownTrees trees{zeros<Token>(nodes), zeros<NodeId>(nodes)};
  trees.begin = zeros<std::int32_t>(kSequences + 1);
  trees.size = zeros<std::int32_t>(kSequences);
  trees.position = zeros<std::int32_t>(nodes);
  trees.ancestors = zeros<std::uint64_t>(nodes * static_cast<std::size_t>(mask_words(plan.width)));

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

  std::printf("%d of %d nodes, the second one is token %d, status %d\n", to_host(trees.size, 1)[0],
              plan.width, to_host(trees.token, 2)[1], static_cast<int>(to_host(status, 1)[0]));
}
