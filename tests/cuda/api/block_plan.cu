// SPDX-License-Identifier: MIT
// verify() by a plan of block verification refuses trees, which traversal's kernel would take. Runs without a
// device, so a call that is not refused fails at the launch.
#include <specula/cuda/api/verify.cuh>

#include <cstdio>

using namespace specula::cuda;

namespace {

template <class Plan>
bool refuses(const NodeId* parent) {
  static double memory = 0;  // for all arrays: nothing reads them
  static const std::int32_t begin = 0;
  Plan plan;
  plan.sequences = plan.max_nodes = plan.width = 1;
  plan.scan.shared_bytes = 1024;
  Trees trees{};
  trees.begin = trees.token = trees.position = &begin;
  trees.parent = parent;
  trees.seed = reinterpret_cast<const std::uint64_t*>(&memory);
  const TargetRows<float> target{reinterpret_cast<const float*>(&memory), 1};
  const VerifyResults out{reinterpret_cast<Token*>(&memory), reinterpret_cast<NodeId*>(&memory),
                          reinterpret_cast<std::int32_t*>(&memory), reinterpret_cast<Status*>(&memory)};
  const cudaError_t error = verify_trees(plan, trees, target, ChosenDraft{}, out, nullptr);
  std::printf("%s\n", cudaGetErrorName(error));
  return error == cudaErrorInvalidValue;
}

}  // namespace

int main() {
  const NodeId root = kNoParent;
  using Block = BlockPlan<float, ChosenDraft>;
  using Traversal = TraversalPlan<float, ChosenDraft>;
  return refuses<Block>(&root) && !refuses<Block>(nullptr) && !refuses<Traversal>(&root) ? 0 : 1;
}
