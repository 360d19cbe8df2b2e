// SPDX-License-Identifier: MIT
#include <specula/cuda/api/tree_attention.cuh>

#include <cmath>
#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

// Two sequences with 1000 and 30 committed tokens, and trees of 3 and 2 nodes; 8 heads on 2 KV heads. The
// cache holds elements of type Stored. Scales, (Hkv), may be null.
template <class Stored>
cudaError_t attend(const float* k_scale, const float* v_scale) {
  constexpr int kHead = 128, kQueryHeads = 8, kKvHeads = 2, kNodes = 5;
  constexpr int kPage = 16, kPages = 63 + 2;  // of 16 tokens: for 1003 and 32

  // Once, outside of graph capture: capacities of the batches.
  TreeAttentionCapacity capacity;
  capacity.sequences = 2;
  capacity.max_nodes = 8;
  capacity.query_heads = kQueryHeads;
  capacity.kv_heads = kKvHeads;
  capacity.max_tokens = 4096;
  TreeAttentionPlan<BFloat16, kHead, Stored> plan;
  const cudaError_t error = make_tree_attention_plan(&plan, capacity, /*device*/ 0);
  if (error != cudaSuccess) return error;
  Workspace workspace;  // requires zeroed counters; zero_counters() clears them
  workspace.part_bytes = part_bytes(plan);
  workspace.counter_bytes = counter_bytes(plan);
  if (workspace.part_bytes > 0) workspace.parts = zeros<unsigned char>(workspace.part_bytes);
  if (workspace.counter_bytes > 0)
    workspace.counters = zeros<std::uint32_t>(workspace.counter_bytes / sizeof(std::uint32_t));

  // Zeros stand for queries, keys and values.
  TreeAttentionArgs<BFloat16, Stored> args{};
  args.q = zeros<BFloat16>(kNodes * kQueryHeads * kHead);
  args.out = zeros<BFloat16>(kNodes * kQueryHeads * kHead);
  args.q_stride = args.out_stride = kQueryHeads * kHead;
  std::vector<std::int32_t> table(kPages);
  for (int i = 0; i < kPages; ++i) table[static_cast<std::size_t>(i)] = i;
  constexpr std::int64_t kToken = kKvHeads * kHead;  // of NHD pages
  args.kv.k = {zeros<Stored>(kPages * kPage * kToken), kPage * kToken, kToken, kHead, on_device(table)};
  args.kv.v = args.kv.k;
  args.kv.v.data = zeros<Stored>(kPages * kPage * kToken);
  args.kv.page_size = kPage;
  args.kv.indptr = on_device<std::int32_t>({0, 63, 65});
  args.kv.length = on_device<std::int32_t>({1000, 30});
  args.k_scale = k_scale;
  args.v_scale = v_scale;
  // A root with two children, and a root with one.
  args.begin = on_device<std::int32_t>({0, 3, 5});
  args.mask = on_device<std::uint64_t>({0b001, 0b011, 0b101, 0b01, 0b11});
  args.words = 1;
  args.scale = 0.08838835f;  // 1 / sqrt(128)
  args.lse = zeros<float>(kNodes * kQueryHeads);

  // Every round, also in a captured graph: lengths, trees and masks are read on the device.
  if (const cudaError_t launched = tree_attention(plan, args, workspace, nullptr)) return launched;

  // All products are 0, so the log-sum-exp is the logarithm of how many keys a node sees.
  const std::vector<float> lse = to_host(args.lse, kNodes * kQueryHeads);
  std::printf("%d bytes an element: the first root sees %.0f keys, its children %.0f\n",
              static_cast<int>(sizeof(Stored)), std::exp(static_cast<double>(lse[0])),
              std::exp(static_cast<double>(lse[kQueryHeads])));
  return cudaGetLastError();
}

int main() {
  if (attend<BFloat16>(nullptr, nullptr) != cudaSuccess) return 1;
  // The same with an e4m3 cache: only the types change, and a scale per KV head makes up for the format's
  // range.
  const float* const k_scale = on_device<float>({0.5f, 0.25f});
  const float* const v_scale = on_device<float>({2.0f, 1.0f});
  if (attend<Float8E4M3>(k_scale, v_scale) != cudaSuccess) return 1;
}
