// SPDX-License-Identifier: MIT
// Launches of tree_attention_wgmma() on the emulated device.
#pragma once

#include <cstdint>
#include <memory>
#include <specula/cuda/api/tree_attention_wgmma.cuh>
#include <stdexcept>
#include <vector>

#include "attention_runs.hpp"
#include "emulated_wgmma.hpp"

namespace specula_test {

/// Variant: tree_attention_wgmma() on the emulated device.
template <template <class> class AsStored>
struct WgmmaAttention {
  template <class Element>
  using Stored = AsStored<Element>;
  static constexpr int kRows[] = {64, 128}, kTrials = 16;

  static bool fill(specula::cuda::TreeAttentionGeometry* plan, const specula::cuda::TreeAttentionCapacity& c,
                   int head_size, const specula::cuda::detail::AttentionPlaces& places) {
    return specula::cuda::detail::fill_wgmma_plan(plan, c, head_size, places);
  }
  template <class Scene>
  static AttentionOutput<typename Scene::Element> run(const Scene& scene,
                                                      const specula::cuda::TreeAttentionGeometry& plan,
                                                      std::uint64_t seed = 1, Engine engine = Engine::fibers,
                                                      AttentionMemory* memory = nullptr) {
    namespace detail = specula::cuda::detail;
    return launch_attention(scene, plan, memory, [&](const auto& launch) {
      detail::with_wgmma_shape<Scene::kHead>(plan.rows, [&](auto shape) {
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
                  if (!hopper.idle()) throw std::runtime_error("copies or products without a wait");
                });
        return 0;
      });
    });
  }
};

}  // namespace specula_test
