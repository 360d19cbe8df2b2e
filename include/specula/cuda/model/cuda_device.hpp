// SPDX-License-Identifier: MIT
// A GPU as a Device (device.hpp): a stream, cuBLASLt and this library's kernels. Declared here for any
// compiler, and compiled in the one file of a program that includes compile_cuda_device.hpp, by nvcc.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "specula/cuda/args/attention.cuh"
#include "specula/cuda/args/slots.cuh"
#include "specula/cuda/model/detail/pass_bodies.cuh"
#include "specula/cuda/model/device.hpp"

namespace specula::cuda {

/// A GPU, and the memory of what runs on it: it must outlive the models. All calls go into one stream; a pass
/// is captured when it runs a second time. Models of one device run one after the other. Not for concurrent
/// calls. The device must be the thread's current one in every call; the constructor makes it that. Members
/// throw DeviceError where the device, the driver or cuBLASLt fails; see device.hpp.
class CudaDevice {
 public:
  /// A plan for heads of 64 or 128.
  using Attention = std::shared_ptr<const struct CudaAttention>;
  /// What replay() captured.
  class Recording {
   public:
    Recording() = default;
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    friend CudaDevice;
    void* graph_ = nullptr;
    bool ran_ = false;
  };

  bool captures = true;  ///< false: replay() launches each time

  /// Throws DeviceError, with the reason, if there is no such device, its compute capability is below 8.0, or
  /// the driver is older than the toolkit.
  explicit CudaDevice(int device = 0);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void* stream() const;                ///< a cudaStream_t, of all launches
  const std::string& machine() const;  ///< name of the device, and version of the library of products
  std::size_t free_bytes() const;      ///< of memory

  /// Memory of the device, zeros.
  template <class T>
  T* allocate(std::size_t n) {
    return static_cast<T*>(allocate_bytes(n * sizeof(T)));
  }
  /// Pinned memory of the host, zeros.
  template <class T>
  T* allocate_host(std::size_t n) {
    return static_cast<T*>(allocate_host_bytes(n * sizeof(T)));
  }
  std::size_t allocations() const;  ///< calls of both, of which the last ones may have been released
  /// Frees what the allocations [first, last) gave.
  void release(std::size_t first, std::size_t last);
  /// Copies to the device, and waits.
  template <class T>
  void put(T* to, const T* from, std::size_t n) {
    send(to, from, n), wait();
  }
  /// Copies to the host, and waits.
  template <class T>
  void get(T* to, const T* from, std::size_t n) {
    fetch(to, from, n), wait();
  }
  /// Copies to the device, in the order of the launches.
  template <class T>
  void send(T* to, const T* from, std::size_t n) {
    copy(to, from, n * sizeof(T), true);
  }
  /// Copies to the host, in the order of the launches.
  template <class T>
  void fetch(T* to, const T* from, std::size_t n) {
    copy(to, from, n * sizeof(T), false);
  }
  void wait();  ///< for all that was asked for

  /// Launches a kernel body, one of those in pass_bodies.cuh.
  template <class Body>
  void run(const Body& body);
  /// Chooses the algorithm of a product, if it was not chosen before in this process
  /// (ProductTable::shared()). Throws DeviceError if no algorithm is exact where it must be.
  void prepare(const DeviceMatrix& w, int height, bool add, bool exact);
  /// Of a prepared shape; std::logic_error for another.
  void product(const DeviceMatrix& w, const BFloat16* x, int n, int height, float* out, bool add);
  Attention make_attention(const TreeAttentionCapacity& capacity, int head_size);  ///< a plan
  void attend(const Attention& plan, const TreeAttentionArgs<BFloat16>& args);     ///< by a plan
  void compact(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows* rows,
               int count);  ///< see compact_slots()

  /// Launches what enqueue() launches: at first as it is, so that kernels are loaded, then captured.
  template <class F>
  void replay(Recording& recording, F enqueue) {
    if (!captures || !std::exchange(recording.ran_, true)) return enqueue();
    replay(
        recording, [](void* of) { (*static_cast<F*>(of))(); }, &enqueue);
  }

 private:
  struct Impl;
  void* allocate_bytes(std::size_t bytes);
  void* allocate_host_bytes(std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes, bool to_device);
  void replay(Recording& recording, void (*enqueue)(void*), void* of);

  std::unique_ptr<Impl> impl_;
};

extern template void CudaDevice::run(const detail::Embed& body);
extern template void CudaDevice::run(const detail::Norm& body);
extern template void CudaDevice::run(const detail::FinalNorm& body);
extern template void CudaDevice::run(const detail::PlaceHeads<64>& body);
extern template void CudaDevice::run(const detail::PlaceHeads<128>& body);
extern template void CudaDevice::run(const detail::SiluProduct& body);

}  // namespace specula::cuda
