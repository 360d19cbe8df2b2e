// SPDX-License-Identifier: MIT
// Memory, launches in a graph and their times, for the programs that measure on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/cuda/args/types.cuh>

#include "measure.hpp"

namespace specula_bench {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string name = cudaGetErrorName(error);
  cudaGetLastError();  // else the next check of a launch finds it again
  throw std::runtime_error(std::string(what) + ": " + name + " (" + cudaGetErrorString(error) + ")");
}
#define SPECULA_CHECK(call) ::specula_bench::check((call), #call)

/// Device memory.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) { reserve(size); }
  explicit DeviceArray(const std::vector<T>& values) { upload(values); }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  /// Room for `size` elements; what was there is lost where there was not. Never smaller, never moved if it
  /// fits.
  void reserve(std::size_t size) {
    if (size > room_) {
      SPECULA_CHECK(cudaFree(data_));
      data_ = nullptr;
      room_ = 0;
      SPECULA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
      room_ = size;
    }
    size_ = size;
  }
  void upload(const std::vector<T>& values) {
    reserve(values.size());
    if (!values.empty())
      SPECULA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    SPECULA_CHECK(cudaDeviceSynchronize());  // our streams do not wait for the default one
  }
  std::vector<T> download() const {
    std::vector<T> out(size_);
    if (size_) SPECULA_CHECK(cudaMemcpy(out.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
  void fill_bytes(int byte) {
    if (size_) SPECULA_CHECK(cudaMemset(data_, byte, size_ * sizeof(T)));
    SPECULA_CHECK(cudaDeviceSynchronize());
  }

 private:
  void swap(DeviceArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

/// What poisoned outputs hold.
constexpr int kPoison = 0x5B;

class Stream {
 public:
  Stream() { SPECULA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { SPECULA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

using Work = std::function<cudaError_t(cudaStream_t)>;

/// Captured launches.
class Graph {
 public:
  Graph(const Stream& stream, const Work& work) {
    SPECULA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const cudaError_t done = work(stream);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    cudaError_t made = cudaSuccess;
    if (done == cudaSuccess && ended == cudaSuccess) made = cudaGraphInstantiate(&exec_, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    check(done, "launch while capturing");
    check(ended, "cudaStreamEndCapture");
    check(made, "cudaGraphInstantiate");
  }
  ~Graph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(const Stream& stream) const { SPECULA_CHECK(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class Event {
 public:
  Event() { SPECULA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const Stream& stream) { SPECULA_CHECK(cudaEventRecord(event_, stream)); }
  double us_since(const Event& begin) const {
    float ms = 0;
    SPECULA_CHECK(cudaEventElapsedTime(&ms, begin.event_, event_));
    return static_cast<double>(ms) * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Launches the work on inputs number `set`.
using Launch = std::function<cudaError_t(int set, cudaStream_t)>;

/// Median time in us of one launch of `sets` different ones: a graph holds them in turn, at least `least`
/// launches; replays are queued without a pause, so that no time of the host is in it.
inline double time_in_graph(const Stream& stream, int sets, const Launch& launch, int least = 48,
                            int replays = 25) {
  const int rounds = (least + sets - 1) / sets, launches = rounds * sets;
  const Graph graph(stream, [&](cudaStream_t s) {
    for (int i = 0; i < launches; ++i) {
      const cudaError_t error = launch(i % sets, s);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  stream.wait();
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i <= replays; ++i) events.push_back(std::make_unique<Event>());
  graph.launch(stream);  // keeps the device busy while the rest is queued
  for (int i = 0; i <= replays; ++i) {
    events[static_cast<std::size_t>(i)]->record(stream);
    if (i < replays) graph.launch(stream);
  }
  stream.wait();
  std::vector<double> us;
  for (std::size_t i = 0; i < static_cast<std::size_t>(replays); ++i)
    us.push_back(events[i + 1]->us_since(*events[i]) / launches);
  return median(us);
}
inline Twice time_twice(const Stream& stream, int sets, const Launch& launch, int least = 48,
                        int replays = 25) {
  for (int set = 0; set < sets; ++set) SPECULA_CHECK(launch(set, stream));  // a failure shows here
  stream.wait();
  Twice out;
  out.first = time_in_graph(stream, sets, launch, least, replays);
  out.second = time_in_graph(stream, sets, launch, least, replays);
  return out;
}

struct Device {
  int id = 0;
  cudaDeviceProp properties{};

  Device() {
    SPECULA_CHECK(cudaGetDevice(&id));
    SPECULA_CHECK(cudaGetDeviceProperties(&properties, id));
  }
  /// Numbers of blocks of a cluster to try.
  std::vector<int> clusters() const {
    return properties.major >= 9 ? std::vector<int>{1, 2, 4, 8, 16} : std::vector<int>{1};
  }
  bool has_wgmma() const { return properties.major == 9 && properties.minor == 0; }
  /// Different inputs of so many bytes that are needed so that, taken in turn, none is found in the cache.
  int sets_beyond_cache(double bytes) const {
    const double wanted = 2.2 * static_cast<double>(properties.l2CacheSize) / bytes;
    return static_cast<int>(std::max(2.0, std::min(1000.0, std::ceil(wanted) + 1)));
  }
};

/// Whether a launch in clusters of `cluster` blocks was made. Some devices have no room for one of 16; any
/// other error is one.
inline bool launched(cudaError_t error, int cluster) {
  if (error != cudaSuccess && cluster > 8) {
    cudaGetLastError();
    return false;
  }
  check(error, "launch");
  return true;
}

// ---- random data made on the device

namespace detail {

__device__ inline std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
__device__ inline float normal(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t word = mixed(mixed(seed) + i);
  const float u = (static_cast<float>(word >> 40) + 0.5f) * 0x1p-24f;
  const float v = static_cast<float>(word & 0xFFFFFF) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}
__device__ inline std::uint16_t bf16_bits(float x) {
  const std::uint32_t b = __float_as_uint(x);
  return static_cast<std::uint16_t>((b + 0x7FFFu + (b >> 16 & 1u)) >> 16);
}
/// out = base (0 if null) + scale * normal number; static, so that several files may have it.
static __global__ void normal_kernel(specula::cuda::BFloat16* out, const specula::cuda::BFloat16* base,
                                     std::int64_t n, std::uint64_t seed, float scale) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const float there = base ? __uint_as_float(static_cast<std::uint32_t>(base[i].bits) << 16) : 0.0f;
    out[i].bits = bf16_bits(there + scale * normal(seed, static_cast<std::uint64_t>(i)));
  }
}
static __global__ void copy_kernel(uint4* to, const uint4* from, std::int64_t n) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::int64_t i = first;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < n; i += step) to[i] = from[i];
}

}  // namespace detail

/// Normal numbers of a standard deviation, around `base`, (n), or 0.
inline void fill_normal(specula::cuda::BFloat16* out, const specula::cuda::BFloat16* base, std::int64_t n,
                        std::uint64_t seed, float scale) {
  if (n <= 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(16384, (n + 255) / 256));
  detail::normal_kernel<<<blocks, 256>>>(out, base, n, seed, scale);
  SPECULA_CHECK(cudaGetLastError());
  SPECULA_CHECK(cudaDeviceSynchronize());
}

/// Bytes read plus bytes written, a second, of a large copy on the device: what floors are computed with.
inline Twice measure_copy_kernel(const Device& device, const Stream& stream) {
  const std::size_t bytes = std::size_t{1} << 30;
  DeviceArray<uint4> from(bytes / sizeof(uint4)), to(bytes / sizeof(uint4));
  fill_normal(reinterpret_cast<specula::cuda::BFloat16*>(from.data()), nullptr,
              static_cast<std::int64_t>(bytes / 2), 1, 1);
  const auto blocks = static_cast<unsigned>(device.properties.multiProcessorCount * 8);
  const Twice us = time_twice(
      stream, 1,
      [&](int, cudaStream_t s) {
        detail::copy_kernel<<<blocks, 512, 0, s>>>(to.data(), from.data(),
                                                   static_cast<std::int64_t>(from.size()));
        return cudaGetLastError();
      },
      4, 15);
  return {2.0 * static_cast<double>(bytes) / us.first * 1e6,
          2.0 * static_cast<double>(bytes) / us.second * 1e6};
}

}  // namespace specula_bench
