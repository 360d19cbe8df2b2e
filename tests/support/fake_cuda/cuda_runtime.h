// SPDX-License-Identifier: MIT
// Fake CUDA runtime for tests of host code: g++ and clang compile the code under __CUDACC__, and a FakeCuda
// answers as the driver would. It has only what the headers call, and is strict where drivers differ.
//
//   FakeCuda cuda;                // one at a time
//   cuda.refuses_16 = true;
//   CHECK(prepare(kernel, 100'000, &cluster) == cudaSuccess);
//   CHECK(cudaPeekAtLastError() == cudaSuccess);
//
// Include it before the library's headers, since it defines __CUDACC__, and after the
// standard's, which test that macro.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#ifdef __CUDACC__
#error "not for a CUDA compiler"
#endif

#define __CUDACC__ 1
#define __host__
#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// NOLINTBEGIN(readability-identifier-naming): CUDA's names

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorInvalidClusterSize = 912,
  cudaErrorUnknown = 999
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
constexpr int cudaSharedmemCarveoutMaxShared = 100;
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeClusterDimension = 4 };

struct CUstream_st {};
using cudaStream_t = CUstream_st*;
/// Work in its order, that of a capture.
struct FakeGraph {
  std::vector<std::function<void()>> work;
};
using cudaGraph_t = FakeGraph*;
using cudaGraphExec_t = FakeGraph*;
struct FakeEvent {
  double at;
};
using cudaEvent_t = FakeEvent*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline constexpr dim3 blockIdx{0, 0, 0}, threadIdx{0, 0, 0}, blockDim, gridDim;  // of one thread
struct cudaFuncAttributes {
  int ptxVersion, maxDynamicSharedSizeBytes, numRegs;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

// NOLINTEND(readability-identifier-naming)

namespace specula_test {

struct FakeLaunch {
  const void* kernel;
  unsigned grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
  unsigned attributes, cluster;
};

/// Two devices, one of them current, and the behaviour of all calls. The defaults are an H100's.
class FakeCuda {
 public:
  static constexpr int kNoSuchCluster = -1;

  int current = 0;
  int processors = 132, block_bytes = 227 << 10, processor_bytes = 228 << 10, cache_bytes = 50 << 20;
  int version = 90, ptx_version = 90;
  bool refuses_16 = false;
  /// The number of clusters of `cluster` blocks that run concurrently; kNoSuchCluster:
  /// the size itself is an error.
  std::function<int(int cluster, int threads, std::size_t shared_bytes)> active =
      [this](int cluster, int threads, std::size_t shared_bytes) {
        const int fit = processor_bytes / (static_cast<int>(shared_bytes) + 1024),
                  resident = fit < 512 / threads ? fit : 512 / threads;
        return resident * processors / cluster;
      };
  /// Index of the call that fails. `calls` counts all calls except those about the last error.
  int failing_call = -1;
  int calls = 0;
  /// Runs between the reads of a call and its return, as another thread might.
  std::chrono::microseconds pause{0};
  std::vector<FakeLaunch> launches;

  int devices = 2, driver = 13000, toolkit = 13000;
  bool driver_is_too_old = false;
  std::size_t free_bytes = std::size_t{1} << 30;
  std::map<void*, std::size_t> memory;  // allocated, of device and host
  int made = 0;                         // streams, events, graphs that are there
  bool runs_kernels = true;             // by one thread; false: for kernels of clusters, which it cannot run
  double clock = 0;                     // seconds of the device; whatever runs there moves it
  std::unique_ptr<FakeGraph> capture;   // that is under way

  /// Runs work of the device now, or keeps it for the graph that is captured.
  void enqueue(std::function<void()> work) {
    if (capture)
      capture->work.push_back(std::move(work));
    else
      work();
  }

  FakeCuda() {
    if (now_ != nullptr) throw std::logic_error("one FakeCuda at a time");
    now_ = this;
    last_error() = cudaSuccess;
  }
  ~FakeCuda() { now_ = nullptr; }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  static FakeCuda& now() {
    if (now_ == nullptr) throw std::logic_error("no FakeCuda");
    return *now_;
  }
  /// As in CUDA, per thread: a failing call sets it and no success clears it.
  static cudaError_t& last_error() {
    static thread_local cudaError_t error = cudaSuccess;
    return error;
  }

  struct Kernel {
    int shared_bytes = 48 << 10;  // a launch may ask for
    bool clusters_of_16 = false;
  };
  template <class Function>
  Kernel kernel(Function* function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kernels_[reinterpret_cast<const void*>(function)];
  }
  void forget_kernels() { kernels_.clear(); }

  /// Performs a call: `act` under the lock, unless this call is to fail.
  template <class Act>
  cudaError_t call(Act act) {
    cudaError_t error = cudaSuccess;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      error = calls++ == failing_call ? cudaErrorUnknown : act();
    }
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    if (error != cudaSuccess) last_error() = error;
    return error;
  }

  cudaError_t device_attribute(int* out, cudaDeviceAttr what, int device) const {
    if (device != 0 && device != 1) return cudaErrorInvalidDevice;
    switch (what) {
      case cudaDevAttrMultiProcessorCount:
        *out = processors;
        break;
      case cudaDevAttrL2CacheSize:
        *out = cache_bytes;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *out = version / 10;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *out = version % 10;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *out = processor_bytes;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = block_bytes;
        break;
    }
    if (device != current) *out = 1;  // not valid for the device in question
    return cudaSuccess;
  }
  cudaError_t attributes(cudaFuncAttributes* out, const void* function) {
    *out = {ptx_version, kernels_[function].shared_bytes, 128};
    return cudaSuccess;
  }
  cudaError_t set_attribute(const void* function, cudaFuncAttribute what, int value) {
    if (what == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      if (value < 0 || value > block_bytes) return cudaErrorInvalidValue;
      kernels_[function].shared_bytes = value;
    } else if (what == cudaFuncAttributeNonPortableClusterSizeAllowed) {
      if (refuses_16) return cudaErrorInvalidValue;
      kernels_[function].clusters_of_16 = value != 0;
    }
    return cudaSuccess;
  }
  cudaError_t active_clusters(int* out, const void* function, const cudaLaunchConfig_t& config) {
    if (config.numAttrs == 0) return cudaErrorInvalidValue;  // "must be specified", says the manual
    const unsigned cluster = cluster_of(config);
    const Kernel& kernel = kernels_[function];
    if (cluster > 8 && !kernel.clusters_of_16) return cudaErrorInvalidClusterSize;
    const int number =
        active(static_cast<int>(cluster), static_cast<int>(config.blockDim.x), config.dynamicSmemBytes);
    if (number == kNoSuchCluster) return cudaErrorInvalidClusterSize;
    *out = config.dynamicSmemBytes > static_cast<std::size_t>(kernel.shared_bytes) ? 0 : number;
    return cudaSuccess;
  }
  cudaError_t launch(const void* function, const cudaLaunchConfig_t& config) {
    const unsigned cluster = cluster_of(config);
    const Kernel& kernel = kernels_[function];
    if (config.gridDim.x == 0 || config.gridDim.x % cluster != 0 || config.blockDim.x == 0 ||
        config.blockDim.x > 1024)
      return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > static_cast<std::size_t>(kernel.shared_bytes)) return cudaErrorInvalidValue;
    if (cluster > 8 && !kernel.clusters_of_16) return cudaErrorInvalidClusterSize;
    launches.push_back({function, config.gridDim.x, config.blockDim.x, config.dynamicSmemBytes, config.stream,
                        config.numAttrs, cluster});
    return cudaSuccess;
  }

 private:
  static unsigned cluster_of(const cudaLaunchConfig_t& config) {
    if (config.gridDim.y * config.gridDim.z * config.blockDim.y * config.blockDim.z != 1)
      throw std::logic_error("not one dimension");
    if (config.numAttrs == 0) return 1;
    const cudaLaunchAttribute& first = config.attrs[0];
    if (config.numAttrs != 1 || first.id != cudaLaunchAttributeClusterDimension ||
        first.val.clusterDim.y != 1 || first.val.clusterDim.z != 1)
      throw std::logic_error("not one cluster dimension");
    return first.val.clusterDim.x;
  }

  inline static FakeCuda* now_ = nullptr;
  std::mutex mutex_;
  std::map<const void*, Kernel> kernels_;
};

}  // namespace specula_test

// NOLINTBEGIN(readability-identifier-naming)

inline cudaError_t cudaPeekAtLastError() { return specula_test::FakeCuda::last_error(); }
inline cudaError_t cudaGetLastError() {
  return std::exchange(specula_test::FakeCuda::last_error(), cudaSuccess);
}
inline cudaError_t cudaGetDevice(int* out) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return *out = cuda.current, cudaSuccess; });
}
inline cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr what, int device) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.device_attribute(out, what, device); });
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.attributes(out, function); });
}
inline cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.set_attribute(function, what, value); });
}
template <class Function>
cudaError_t cudaOccupancyMaxActiveClusters(int* out, Function* function, const cudaLaunchConfig_t* config) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call(
      [&] { return cuda.active_clusters(out, reinterpret_cast<const void*>(function), *config); });
}
template <class Function>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, Function*, int threads,
                                                          std::size_t shared_bytes) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call(
      [&] { return *out = cuda.active(1, threads, shared_bytes) / cuda.processors, cudaSuccess; });
}
/// Calls the kernel once, as one thread would, which shows only the arguments that arrive.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  auto& cuda = specula_test::FakeCuda::now();
  const cudaError_t error =
      cuda.call([&] { return cuda.launch(reinterpret_cast<const void*>(kernel), *config); });
  if (error == cudaSuccess && cuda.runs_kernels)
    cuda.enqueue([kernel, values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
      std::apply(kernel, values);
    });
  return error;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] {
    if (to == nullptr) return cudaErrorInvalidValue;
    cuda.enqueue([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
  });
}

// ---- devices, memory, graphs, events

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}
inline cudaError_t cudaGetDeviceCount(int* out) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] {
    *out = cuda.devices;
    return cuda.driver_is_too_old ? cudaErrorInsufficientDriver : cudaSuccess;
  });
}
inline cudaError_t cudaDriverGetVersion(int* out) {
  return *out = specula_test::FakeCuda::now().driver, cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* out) {
  return *out = specula_test::FakeCuda::now().toolkit, cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.current = device, cudaSuccess; });
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] {
    *out = {"a fake", cuda.version / 10, cuda.version % 10};
    return cudaSuccess;
  });
}
inline cudaError_t fake_allocate(void** out, std::size_t bytes) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] {
    if (cuda.capture) return cudaErrorStreamCaptureUnsupported;
    if (bytes > cuda.free_bytes) return cudaErrorMemoryAllocation;
    *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    cuda.memory[*out] = bytes;
    return cudaSuccess;
  });
}
inline cudaError_t fake_free(void* p) {
  auto& cuda = specula_test::FakeCuda::now();
  if (p != nullptr && cuda.memory.erase(p) == 0) throw std::logic_error("freed twice");
  std::free(p);
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** out, std::size_t bytes) { return fake_allocate(out, bytes); }
inline cudaError_t cudaMallocHost(void** out, std::size_t bytes) { return fake_allocate(out, bytes); }
inline cudaError_t cudaFree(void* p) { return fake_free(p); }
inline cudaError_t cudaFreeHost(void* p) { return fake_free(p); }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  *free = specula_test::FakeCuda::now().free_bytes;
  return *all = *free, cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] {
    cuda.enqueue([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
  });
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return *out = new CUstream_st, ++cuda.made, cudaSuccess; });
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return --specula_test::FakeCuda::now().made, cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess; });
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return cuda.capture = std::make_unique<FakeGraph>(), cudaSuccess; });
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* out) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return *out = cuda.capture.release(), ++cuda.made, cudaSuccess; });
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return --specula_test::FakeCuda::now().made, cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return *out = new FakeGraph(*graph), ++cuda.made, cudaSuccess; });
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  return specula_test::FakeCuda::now().call([&] {
    for (const auto& work : graph->work) work();
    return cudaSuccess;
  });
}
inline cudaError_t cudaEventCreate(cudaEvent_t* out) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return *out = new FakeEvent{0}, ++cuda.made, cudaSuccess; });
}
constexpr unsigned cudaEventDisableTiming = 2;
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return --specula_test::FakeCuda::now().made, cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  auto& cuda = specula_test::FakeCuda::now();
  return cuda.call([&] { return event->at = cuda.clock, cudaSuccess; });
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t begin, cudaEvent_t end) {
  return *out = static_cast<float>(1e3 * (end->at - begin->at)), cudaSuccess;
}

// NOLINTEND(readability-identifier-naming)
