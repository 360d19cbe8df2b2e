// SPDX-License-Identifier: MIT
// One thread as a block, for kernels' bodies that need no emulated GPU.
#pragma once

#include <specula/cuda/detail/primitives/group.cuh>

namespace specula_test {

struct SerialBlock {
  static int rank() { return 0; }
  static int size() { return 1; }
  static void sync() {}
  static specula::cuda::SerialGroup warp() { return {}; }
  static int warp_rank() { return 0; }
  static int warp_count() { return 1; }
};

}  // namespace specula_test
