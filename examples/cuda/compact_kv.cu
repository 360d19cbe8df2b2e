// SPDX-License-Identifier: MIT
#include <specula/cuda/api/compact_kv.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // One sequence of 100 committed tokens; nodes 0, 2 and 5 of its proposal were accepted.
  const std::int32_t count = 3, prefix = 100;
  const AcceptedPaths paths{on_device<NodeId>({0, 2, 5, -1}), on_device<std::int32_t>({count}),
                            on_device<std::int32_t>({prefix}), 1, 4};

  // 32 layers of 8 KV heads of 128 bf16, NHD pages of 16 slots.
  constexpr int kLayers = 32, kHeads = 8, kDim = 128, kPageSize = 16, kPages = 8;
  constexpr std::int64_t kToken = kHeads * kDim, kPage = kPageSize * kToken, kLayer = kPages * kPage;
  const std::int32_t* const table = on_device<std::int32_t>({3, 1, 4, 0, 5, 2, 6, 7});
  const PagedRows<BFloat16> k{zeros<BFloat16>(kLayers * kLayer), kPage, kToken, kDim, table};
  PagedRows<BFloat16> v = k;
  v.data = zeros<BFloat16>(kLayers * kLayer);
  SlotPages pages;
  pages.page_size = kPageSize;
  pages.max_pages = kPages;

  // Slots 102 and 105 move to 101 and 102.
  const cudaError_t error = compact_kv(paths, pages, slot_rows(k, kHeads, kDim, kLayers, kLayer),
                                       slot_rows(v, kHeads, kDim, kLayers, kLayer), nullptr);
  if (error != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::printf("the cache now holds %d tokens\n", prefix + count);
}
