// Launches of tree_attention_wgmma() on the emulated device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <specula/cuda/device/tree_attention_wgmma.cuh>
#include <stdexcept>
#include <vector>

#include "attention_scene.hpp"
#include "emulated_wgmma.hpp"

namespace specula_test {

/// How a scene is cut into blocks.
struct WgmmaCut {
  int rows = 0;  // 0: as the plan wants it
  int splits = 1, cluster = 1;
};

/// A plan that holds the scene, its splits as short as tiles are.
template <class Element, int kHead>
specula::cuda::TreeAttentionPlan wgmma_plan(const AttentionScene<Element, kHead>& scene, WgmmaCut cut = {}) {
  specula::cuda::TreeAttentionCapacity c;
  c.sequences = static_cast<int>(scene.c.lengths.size());
  c.max_nodes = std::max(1, *std::max_element(scene.c.nodes.begin(), scene.c.nodes.end()));
  c.query_heads = scene.c.query_heads;
  c.kv_heads = scene.c.kv_heads;
  c.max_tokens = *std::max_element(scene.c.lengths.begin(), scene.c.lengths.end());
  specula::cuda::TreeAttentionPlan plan;
  if (!specula::cuda::detail::fill_wgmma_plan(&plan, c, kHead, 1, false))
    throw std::runtime_error("wgmma_plan: capacities");
  if (cut.rows > 0) {
    plan.rows = cut.rows;
    plan.row_tiles = (c.max_nodes * (c.query_heads / c.kv_heads) + cut.rows - 1) / cut.rows;
  }
  plan.cluster = cut.cluster;
  plan.splits = (cut.splits + cut.cluster - 1) / cut.cluster * cut.cluster;
  plan.least_tiles = 1;
  return plan;
}

template <class Element, int kHead>
AttentionOutput<Element> run_wgmma_attention(const AttentionScene<Element, kHead>& scene,
                                             const specula::cuda::TreeAttentionPlan& plan,
                                             std::uint64_t seed = 1, Engine engine = Engine::fibers,
                                             std::vector<unsigned char>* workspace = nullptr) {
  namespace detail = specula::cuda::detail;
  return launch_attention(scene, plan, workspace, [&](const auto& launch) {
    detail::with_wgmma_shape<kHead>(plan.rows, [&](auto shape) {
      using Shape = decltype(shape);
      const int clusters = static_cast<int>(detail::units_of(plan) * (plan.splits / plan.cluster));
      std::vector<std::unique_ptr<HopperBlock>> blocks;
      for (int b = 0; b < clusters * plan.cluster; ++b)
        blocks.push_back(std::make_unique<HopperBlock>(
            static_cast<std::size_t>(Shape::kSharedBytes), Shape::kThreads,
            engine == Engine::threads ? -1 : static_cast<std::int64_t>(1000 * seed) + b));
      emulate({.clusters = clusters,
               .blocks = plan.cluster,
               .threads = Shape::kThreads,
               .shared_bytes = Shape::kTileBytes + Shape::kBarrierBytes,
               .seed = seed,
               .engine = engine},
              [&](EmulatedCluster cluster, int index, unsigned char* shared) {
                EmulatedHopper hopper(
                    cluster.block(), shared,
                    *blocks[static_cast<std::size_t>(index * plan.cluster + cluster.rank())]);
                detail::attend_with_wgmma<Shape>(cluster, hopper, launch, index, shared);
                if (!hopper.idle()) throw std::runtime_error("copies or products that nobody waited for");
              });
      return 0;
    });
  });
}

}  // namespace specula_test
