// SPDX-License-Identifier: MIT
// Launching kernels over thread block clusters.
#pragma once

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <cstddef>
#include <mutex>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Properties of a device that plans need.
struct DeviceLimits {
  int processors = 0;    // multiprocessors
  int shared_bytes = 0;  // a block may ask for
  int version = 0;       // 80, 90
};
inline cudaError_t device_limits(int device, DeviceLimits* out) {
  int major = 0, minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&out->processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&out->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  out->version = 10 * major + minor;
  return error;
}

/// cudaErrorInvalidDevice unless `device` is the current one: kernels are prepared for that.
inline cudaError_t check_current(int device) {
  int current = -1;
  const cudaError_t error = cudaGetDevice(&current);
  return error != cudaSuccess ? error : current == device ? cudaSuccess : cudaErrorInvalidDevice;
}

/// Whether `kernel`, as it runs on the current device, was compiled for an architecture that has clusters.
template <class Kernel>
cudaError_t has_clusters(Kernel* kernel, bool* out) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  *out = attributes.ptxVersion >= 90;
  return error;
}

/// Lets `kernel` use `shared_bytes` and clusters of up to `*cluster` blocks, on the current device; 8 where
/// the device refuses more. Outside of captures; by any number of threads at once.
template <class Kernel>
cudaError_t prepare(Kernel* kernel, std::size_t shared_bytes, int* cluster) {
  static std::mutex one_at_a_time;  // the attribute read below must not change before it is raised
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes now{};  // another plan's of the same kernel, which must stay valid
  cudaError_t error = cudaFuncGetAttributes(&now, function);
  if (error == cudaSuccess && shared_bytes > static_cast<std::size_t>(now.maxDynamicSharedSizeBytes))
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
  if (error == cudaSuccess && *cluster > 8 &&
      cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess) {
    cudaGetLastError();
    *cluster = 8;
  }
  return error;
}
/// The same for a cluster of at most 8 blocks.
template <class Kernel>
cudaError_t prepare(Kernel* kernel, std::size_t shared_bytes, int cluster) {
  return prepare(kernel, shared_bytes, &cluster);
}

/// A launch of clusters, as the driver takes it.
struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};

  Launch(int clusters, int cluster, int threads, std::size_t shared_bytes, cudaStream_t stream) {
    config.gridDim = dim3(static_cast<unsigned>(clusters) * static_cast<unsigned>(cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = cluster > 1 ? 1 : 0;
  }
  Launch(const Launch&) = delete;  // config points into it
  Launch& operator=(const Launch&) = delete;
};

/// How many clusters of this size run at the same time on the current device, or on its MIG slice. For at
/// least 2 blocks: the driver rejects the query on devices without clusters.
template <class Kernel>
cudaError_t active_clusters(Kernel* kernel, int cluster, int threads, std::size_t shared_bytes, int* out) {
  *out = 0;
  const Launch how(1, cluster, threads, shared_bytes, nullptr);
  const cudaError_t error = cudaOccupancyMaxActiveClusters(out, kernel, &how.config);
  if (error != cudaErrorInvalidClusterSize) return error;
  cudaGetLastError();
  return cudaSuccess;
}
/// Halves `*cluster` until `problems` of them run at the same time: otherwise the last one would take a
/// second wave.
template <class Kernel>
cudaError_t fit_cluster(Kernel* kernel, int problems, int threads, std::size_t shared_bytes, int* cluster) {
  cudaError_t error = cudaSuccess;
  for (; error == cudaSuccess && *cluster > 1; *cluster /= 2) {
    int active = 0;
    error = active_clusters(kernel, *cluster, threads, shared_bytes, &active);
    if (active >= problems) break;
  }
  return error;
}

/// Launches `clusters` clusters of `cluster` blocks. cudaErrorInvalidValue where a plan holds an impossible
/// geometry.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), int clusters, int cluster, int threads,
                   std::size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
  if (!is_geometry(cluster, threads)) return cudaErrorInvalidValue;
  if (clusters <= 0) return cudaSuccess;
  const Launch how(clusters, cluster, threads, shared_bytes, stream);
  return cudaLaunchKernelEx(&how.config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula

#endif  // __CUDACC__
