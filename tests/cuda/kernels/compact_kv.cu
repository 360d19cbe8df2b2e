// SPDX-License-Identifier: MIT
#include <specula/cuda/api/compact_kv.cuh>

using namespace specula::cuda;

cudaError_t use(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows& keys, const SlotRows& values) {
  return compact_kv(paths, pages, keys, values, nullptr);
}
