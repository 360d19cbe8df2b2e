// SPDX-License-Identifier: MIT
// Definitions of CudaDevice: include this in one file of a program, which nvcc compiles in C++20, and
// cuda_device.hpp in the others. That program is linked with cuBLASLt. What Round needs besides has a file of
// its own, compile_cuda_rounds.hpp.
#pragma once

#include "specula/cuda/model/cuda_device.hpp"
#include "specula/cuda/model/detail/cuda_calls.hpp"
#include "specula/cuda/model/detail/device_products.hpp"

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "specula/cuda/api/compact_kv.cuh"
#include "specula/cuda/api/tree_attention.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula::cuda {

/// A plan of one of the two sizes of heads.
struct CudaAttention {
  int head_size = 64;                      ///< which is made
  TreeAttentionPlan<BFloat16, 64> narrow;  ///< of 64
  TreeAttentionPlan<BFloat16, 128> wide;   ///< of 128
};

/// Private members of CudaDevice.
struct CudaDevice::Impl {
  /// What was allocated; null: given back.
  struct Memory {
    void* at;
    bool of_host;
  };

  explicit Impl(int number) : Impl() {  // an exception destroys what is there by then
    device = number;
    int devices = 0, driver = 0, toolkit = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&toolkit);
    if (found == cudaErrorInsufficientDriver)
      throw DeviceError((driver == 0 ? std::string("CUDA: there is no driver")
                                     : "CUDA: the driver is of version " + version(driver)) +
                        ", the program needs " + version(toolkit));
    if (found != cudaSuccess || devices == 0)
      throw DeviceError(std::string("CUDA: no device") +
                        (found == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(found)));
    if (device < 0 || device >= devices)
      throw DeviceError("CUDA: device " + std::to_string(device) + ", must be 0 to " +
                        std::to_string(devices - 1));
    detail::expect(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    detail::expect(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    if (properties.major < 8)
      throw DeviceError(std::string("CUDA: ") + properties.name + " has compute capability " +
                        std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                        ", the kernels need 8.0");
    machine = std::string(properties.name) + ", cuBLASLt " + std::to_string(cublasLtGetVersion());
    detail::expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    products.emplace(stream, machine);
  }
  Impl() = default;
  ~Impl() {
    products.reset();
    release(memory, 0, memory.size()), release(rooms, 0, rooms.size());
    if (stream) cudaStreamDestroy(stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* allocate(std::size_t bytes, std::vector<Memory>& of) {
    void* p = nullptr;
    if (const cudaError_t error = cudaMalloc(&p, bytes); error != cudaSuccess) {
      cudaGetLastError();
      throw DeviceError("CUDA: no memory for " + std::to_string(bytes) + " bytes, " +
                        std::to_string(free_bytes()) + " are free: " + cudaGetErrorString(error));
    }
    of.push_back({p, false});
    detail::expect(cudaMemsetAsync(p, 0, bytes, stream), "cudaMemset");
    return p;
  }
  /// Frees what the allocations [first, last) of a list gave.
  static void release(std::vector<Memory>& memory, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      Memory& allocation = memory[i];
      if (allocation.of_host)
        cudaFreeHost(allocation.at);
      else
        cudaFree(allocation.at);
      allocation.at = nullptr;
    }
    while (!memory.empty() && !memory.back().at) memory.pop_back();
  }
  /// Room to work in, at least so large. Captured launches keep the memory that they were given.
  void reserve(std::size_t part_bytes, std::size_t counter_bytes) {
    if (part_bytes > workspace.part_bytes) {
      workspace.parts = allocate(part_bytes, rooms);
      workspace.part_bytes = part_bytes;
    }
    if (counter_bytes > workspace.counter_bytes) {
      workspace.counters = static_cast<std::uint32_t*>(allocate(counter_bytes, rooms));
      workspace.counter_bytes = counter_bytes;
    }
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, all = 0;
    return cudaMemGetInfo(&free, &all) == cudaSuccess ? free : 0;
  }
  static std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  }

  int device = 0;
  std::string machine;
  cudaStream_t stream = nullptr;
  std::optional<detail::DeviceProducts> products;
  std::vector<Memory> memory,  // of models
      rooms;                   // that they share, while they work
  Workspace workspace;
};

CudaDevice::Recording::~Recording() {
  if (graph_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

CudaDevice::CudaDevice(int device) : impl_(std::make_unique<Impl>(device)) {}
CudaDevice::~CudaDevice() = default;

void* CudaDevice::stream() const { return impl_->stream; }
const std::string& CudaDevice::machine() const { return impl_->machine; }
std::size_t CudaDevice::free_bytes() const { return Impl::free_bytes(); }

void* CudaDevice::allocate_bytes(std::size_t bytes) { return impl_->allocate(bytes, impl_->memory); }
void* CudaDevice::allocate_host_bytes(std::size_t bytes) {
  void* p = nullptr;
  detail::expect(cudaMallocHost(&p, bytes), "cudaMallocHost");
  impl_->memory.push_back({p, true});
  return std::memset(p, 0, bytes);
}
void CudaDevice::copy(void* to, const void* from, std::size_t bytes, bool to_device) {
  detail::expect(cudaMemcpyAsync(to, from, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                 impl_->stream),
                 to_device ? "a copy to the device" : "a copy from the device");
}
void CudaDevice::wait() { detail::expect(cudaStreamSynchronize(impl_->stream), "the device's work"); }

template <class Body>
void CudaDevice::run(const Body& body) {
  detail::expect(
      detail::launch(detail::body_kernel<Body>, body.blocks(), 1, Body::kThreads, 0, impl_->stream, body),
      "a kernel's launch");
}
void CudaDevice::prepare(const DeviceMatrix& w, int height, bool add, bool exact) {
  impl_->products->prepare(w, {w.rows, w.cols, height, add, exact});
}
void CudaDevice::product(const DeviceMatrix& w, const BFloat16* x, int, int height, float* out, bool add) {
  impl_->products->run(w, x, height, out, add);
}

CudaDevice::Attention CudaDevice::make_attention(const TreeAttentionCapacity& capacity, int head_size) {
  auto out = std::make_shared<CudaAttention>();
  out->head_size = head_size;
  const auto make = [&](auto& plan) {
    detail::expect(make_tree_attention_plan(&plan, capacity, impl_->device), "a plan of attention");
    impl_->reserve(part_bytes(plan), counter_bytes(plan));
  };
  if (head_size == 64)
    make(out->narrow);
  else
    make(out->wide);
  return out;
}
void CudaDevice::attend(const Attention& plan, const TreeAttentionArgs<BFloat16>& args) {
  detail::expect(plan->head_size == 64 ? tree_attention(plan->narrow, args, impl_->workspace, impl_->stream)
                                       : tree_attention(plan->wide, args, impl_->workspace, impl_->stream),
                 "attention");
}
void CudaDevice::compact(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows* rows,
                         int count) {
  detail::expect(compact_slots(paths, pages, rows, count, impl_->stream), "compaction");
}

CudaDevice::Signal::~Signal() {
  if (event_) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}
void CudaDevice::signal(Signal& signal) {
  if (!signal.event_) {
    cudaEvent_t event = nullptr;
    detail::expect(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    signal.event_ = event;
  }
  detail::expect(cudaEventRecord(static_cast<cudaEvent_t>(signal.event_), impl_->stream), "an event");
}
void CudaDevice::await(const Signal& signal) {
  detail::expect(cudaEventSynchronize(static_cast<cudaEvent_t>(signal.event_)), "the device's work");
}

std::size_t CudaDevice::allocations() const { return impl_->memory.size(); }
void CudaDevice::release(std::size_t first, std::size_t last) { Impl::release(impl_->memory, first, last); }

void CudaDevice::replay(Recording& recording, void (*enqueue)(void*), void* of) {
  if (!recording.graph_) recording.graph_ = detail::captured(impl_->stream, [&] { enqueue(of); });
  detail::expect(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording.graph_), impl_->stream),
                 "a graph's launch");
}

template void CudaDevice::run(const detail::Embed& body);
template void CudaDevice::run(const detail::Gather& body);
template void CudaDevice::run(const detail::Spread& body);
template void CudaDevice::run(const detail::Norm& body);
template void CudaDevice::run(const detail::FinalNorm& body);
template void CudaDevice::run(const detail::PlaceHeads<64>& body);
template void CudaDevice::run(const detail::PlaceHeads<128>& body);
template void CudaDevice::run(const detail::SiluProduct& body);

}  // namespace specula::cuda

#endif
