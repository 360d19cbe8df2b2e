// SPDX-License-Identifier: MIT
// What a decoder runs on: a Device.
//
// A Device has memory and launches, all in one order: CudaDevice (cuda_device.hpp) those of a GPU, whose
// graphs capture the launches; in tests an emulated GPU runs the same sequence. It throws DeviceError if it
// fails. It has
//
//   T* allocate<T>(n)        zeros, in its own memory; free_bytes() are left
//   T* allocate_host<T>(n)   zeros, in the host's memory, for send() and fetch()
//   release(first, last)     frees what these allocations gave, which are counted: allocations()
//   put(to, from, n)         copies to the device, get() back; both wait
//   send(to, from, n)        the same in the order of the launches, fetch() back; wait() waits for all
//   run(body)                launches a kernel body
//   attend(plan, args)       tree attention, by a plan of make_attention(capacity, head_size)
//   compact(paths, pages, rows, count)         compact_slots()
//   product(matrix, x, n, height, out, add)    out (n, matrix.rows) = x W^T, or is added to; it computes
//                                              `height` rows, of which those from n on do not matter
//   prepare(matrix, height, add, exact)        before the first product of a shape; if `exact`, a row's bits
//                                              depend neither on its place nor on the other rows
//   replay(recording, enqueue)                 launches what enqueue() launches, which is always the same
//
// and the types Attention, of a plan, and Recording.
#pragma once

#include <stdexcept>

#include "specula/base/compiler_options.hpp"
#include "specula/cuda/args/types.cuh"

namespace specula::cuda {

/// An error of a device. Of a launch, a copy or waiting it is final: the device does not work any more. Where
/// memory, a device or an algorithm is missing, what failed was not made, and the rest works.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// (rows, cols) in row-major order. A product is x W^T.
struct DeviceMatrix {
  const BFloat16* data = nullptr;  ///< on the device
  int rows = 0,                    ///< outputs of a product
      cols = 0;                    ///< its inputs
};

}  // namespace specula::cuda
