// SPDX-License-Identifier: MIT
// Launches of tree_attention() on the emulated device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <specula/cuda/api/tree_attention_mma.cuh>
#include <stdexcept>
#include <vector>

#include "attention_scene.hpp"
#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"

namespace specula_test {

struct alignas(16) Four {
  float v[4];
};

/// Device memory shared by successive launches of several plans.
struct AttentionMemory {
  std::vector<Four> parts;  // garbage
  std::vector<std::uint32_t> counters;

  /// Makes room for a plan.
  specula::cuda::Workspace workspace(const specula::cuda::TreeAttentionGeometry& plan) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    parts.resize(std::max(parts.size(), specula::cuda::part_bytes(plan) / sizeof(Four)),
                 Four{nan, nan, nan, nan});
    counters.resize(std::max(counters.size(), specula::cuda::counter_bytes(plan) / sizeof(std::uint32_t)), 0);
    return {parts.data(), parts.size() * sizeof(Four), counters.data(),
            counters.size() * sizeof(std::uint32_t)};
  }
};

/// Launches a plan by `run(launch)`; the caller owns `memory`.
template <class Scene, class Run>
AttentionOutput<typename Scene::Element> launch_attention(const Scene& scene,
                                                          const specula::cuda::TreeAttentionGeometry& plan,
                                                          AttentionMemory* memory, Run run) {
  using Element = typename Scene::Element;
  namespace cuda = specula::cuda;
  AttentionOutput<Element> result;
  const auto queries = static_cast<std::size_t>(scene.begin.back());
  result.stride = scene.c.query_heads * Scene::kHead + 8;
  result.out.assign(queries * static_cast<std::size_t>(result.stride) + 8, Element{0x7FFE});
  result.lse.assign(queries * static_cast<std::size_t>(scene.c.query_heads) + 1,
                    std::numeric_limits<float>::quiet_NaN());
  auto args = scene.args;
  args.out = result.out.data();
  args.out_stride = result.stride;
  args.lse = result.lse.data();
  result.status.assign(static_cast<std::size_t>(plan.capacity.sequences), cuda::Status::infinite_loss);
  args.status = result.status.data();
  AttentionMemory local_memory;
  if (!memory) memory = &local_memory;
  const cuda::Workspace workspace = memory->workspace(plan);
  if (!cuda::detail::valid_args(plan, args, workspace))
    throw std::runtime_error("run_attention: arguments are not valid");
  run(cuda::detail::make_launch(plan, args, workspace));
  for (const std::uint32_t counter : memory->counters)
    if (counter != 0) throw std::runtime_error("a counter was not reset");
  return result;
}

/// How a scene is divided into blocks.
struct AttentionCut {
  int rows = 0;  // 0: chosen by the plan
  int splits = 1, cluster = 1;
};

/// A plan of Variant with room for the scene; its splits are one tile long.
template <class Variant, class Scene>
specula::cuda::TreeAttentionGeometry plan_for(const Scene& scene, AttentionCut cut = {}) {
  specula::cuda::TreeAttentionCapacity c;
  c.sequences = static_cast<int>(scene.c.lengths.size());
  c.max_nodes = std::max(1, *std::max_element(scene.c.nodes.begin(), scene.c.nodes.end()));
  c.query_heads = scene.c.query_heads;
  c.kv_heads = scene.c.kv_heads;
  c.max_tokens = *std::max_element(scene.c.lengths.begin(), scene.c.lengths.end());
  specula::cuda::TreeAttentionGeometry plan;
  if (!Variant::fill(&plan, c, Scene::kHead, {})) throw std::runtime_error("plan_for: capacities");
  if (cut.rows > 0) {
    plan.rows = cut.rows;
    plan.row_tiles = (c.max_nodes * (c.query_heads / c.kv_heads) + cut.rows - 1) / cut.rows;
  }
  plan.cluster = cut.cluster;
  plan.splits = (cut.splits + cut.cluster - 1) / cut.cluster * cut.cluster;
  plan.least_tiles = 1;
  return plan;
}

/// Variant: tree_attention() on the emulated device. KV caches hold elements as converted by AsStored.
template <template <class> class AsStored>
struct MmaAttention {
  template <class Element>
  using Stored = AsStored<Element>;
  static constexpr int kRows[] = {16, 32, 64, 128}, kTrials = 32;

  static bool fill(specula::cuda::TreeAttentionGeometry* plan, const specula::cuda::TreeAttentionCapacity& c,
                   int head_size, const specula::cuda::detail::AttentionPlaces& places) {
    return specula::cuda::detail::fill_plan(plan, c, head_size, places);
  }
  template <class Scene>
  static AttentionOutput<typename Scene::Element> run(const Scene& scene,
                                                      const specula::cuda::TreeAttentionGeometry& plan,
                                                      std::uint64_t seed = 1, Engine engine = Engine::fibers,
                                                      AttentionMemory* memory = nullptr) {
    namespace detail = specula::cuda::detail;
    using Element = typename Scene::Element;
    return launch_attention(scene, plan, memory, [&](const auto& launch) {
      detail::with_shape<Scene::kHead, typename Scene::Stored>(plan.rows, [&](auto shape) {
        using Shape = decltype(shape);
        const int clusters = static_cast<int>(detail::units_of(plan) * (plan.splits / plan.cluster));
        emulate({.clusters = clusters,
                 .blocks = plan.cluster,
                 .threads = Shape::kThreads,
                 .shared_bytes = Shape::kSharedBytes,
                 .seed = seed,
                 .engine = engine},
                [&](EmulatedCluster cluster, int index, unsigned char* shared) {
                  EmulatedCopies copies;
                  detail::TreeAttentionBlock<Shape, EmulatedCluster, Element, typename Scene::Stored>(
                      cluster, launch, index, shared)
                      .run(copies);
                  if (!copies.idle()) throw std::runtime_error("copies without a wait");
                });
        return 0;
      });
    });
  }
};

/// How a KV cache stores an element.
template <class Element>
using AsElements = Element;
template <class>
using AsBytes = specula::cuda::Float8E4M3;

}  // namespace specula_test
