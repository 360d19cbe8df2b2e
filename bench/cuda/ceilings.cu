// SPDX-License-Identifier: MIT
// Limits of the device (bandwidths, launches, products), which all other results are compared with.
//
//   ceilings ceilings [--out FILE]
#include <cooperative_groups.h>

#include <cstdio>

#include "program.cuh"

namespace specula_bench {
namespace {

/// Sums all that it reads, so that no read is optimised away; `passes` times over the same memory.
__global__ void read_kernel(const uint4* from, std::int64_t n, int passes, std::uint32_t* out) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::uint32_t sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    std::int64_t i = first;
    for (; i + 3 * step < n; i += 4 * step) {
      // Past the first cache: what is wanted is the second one, or memory.
      const uint4 a = __ldcg(from + i), b = __ldcg(from + i + step), c = __ldcg(from + i + 2 * step),
                  d = __ldcg(from + i + 3 * step);
      sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) +
             (d.x ^ d.y ^ d.z ^ d.w);
    }
    for (; i < n; i += step) {
      const uint4 a = __ldcg(from + i);
      sum += a.x ^ a.y ^ a.z ^ a.w;
    }
  }
  if (sum == 0x12345678u) *out = sum;
}

__global__ void empty_kernel() {}
__global__ void cluster_kernel(int syncs) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  for (int i = 0; i < syncs; ++i) cooperative_groups::this_cluster().sync();
#else
  static_cast<void>(syncs);
#endif
}

Twice per_second(double bytes, Twice us) { return {bytes / us.first * 1e6, bytes / us.second * 1e6}; }

void write(Json& json, const char* name, Twice value, const char* unit, double scale) {
  json.key(name).begin_object().field("first", value.first).field("second", value.second);
  json.field("spread", value.spread()).field("unit", unit).end();
  std::printf("| %s | %.4g | spread %.2f%% |\n", name, value.first / scale, 100 * value.spread());
}

void measure(const Options&, Report& report) {
  const Device device;
  const Stream stream;
  const cudaDeviceProp& p = device.properties;
  report.part("device", [&](Json& json) {
    int driver = 0, runtime = 0, clock = 0, memory_clock = 0;
    SPECULA_CHECK(cudaDriverGetVersion(&driver));
    SPECULA_CHECK(cudaRuntimeGetVersion(&runtime));
    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device.id);
    cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, device.id);
    json.field("name", p.name).field("compute", 10 * p.major + p.minor);
    json.field("multiprocessors", p.multiProcessorCount).field("l2_bytes", p.l2CacheSize);
    json.field("memory_bytes", static_cast<unsigned long long>(p.totalGlobalMem));
    json.field("shared_bytes_per_block", static_cast<unsigned long long>(p.sharedMemPerBlockOptin));
    json.field("shared_bytes_per_multiprocessor",
               static_cast<unsigned long long>(p.sharedMemPerMultiprocessor));
    json.field("registers_per_multiprocessor", p.regsPerMultiprocessor);
    json.field("driver", driver).field("runtime", runtime).field("clock_khz", clock);
    json.field("memory_clock_khz", memory_clock).field("memory_bus_bits", p.memoryBusWidth);
    std::printf("| %s | sm_%d%d | %d multiprocessors | L2 %.1f MB | driver %d | runtime %d |\n", p.name,
                p.major, p.minor, p.multiProcessorCount, p.l2CacheSize / 1e6, driver, runtime);
  });
  const unsigned blocks = static_cast<unsigned>(p.multiProcessorCount) * 8;
  const std::size_t large = std::size_t{1} << 30;
  report.part("memory", [&](Json& json) {
    write(json, "copy kernel, TB/s read + written", measure_copy_kernel(device, stream), "bytes/s", 1e12);
    DeviceArray<unsigned char> from(large), to(large);
    fill_normal(reinterpret_cast<specula::cuda::BFloat16*>(from.data()), nullptr,
                static_cast<std::int64_t>(large / 2), 3, 1);
    Twice us = time_twice(
        stream, 1,
        [&](int, cudaStream_t s) {
          return cudaMemcpyAsync(to.data(), from.data(), large, cudaMemcpyDeviceToDevice, s);
        },
        4, 15);
    write(json, "cudaMemcpy, TB/s read + written", per_second(2.0 * large, us), "bytes/s", 1e12);
    DeviceArray<std::uint32_t> sink(1);
    us = time_twice(
        stream, 1,
        [&](int, cudaStream_t s) {
          read_kernel<<<blocks, 256, 0, s>>>(reinterpret_cast<const uint4*>(from.data()),
                                             static_cast<std::int64_t>(large / 16), 1, sink.data());
          return cudaGetLastError();
        },
        4, 15);
    write(json, "read-only, TB/s", per_second(1.0 * large, us), "bytes/s", 1e12);
    // A quarter of the cache, read often: each half of it may hold a copy.
    const auto inside = static_cast<std::int64_t>(p.l2CacheSize / 4 / 16);
    constexpr int kPasses = 50;
    us = time_twice(
        stream, 1,
        [&](int, cudaStream_t s) {
          read_kernel<<<blocks, 256, 0, s>>>(reinterpret_cast<const uint4*>(from.data()), inside, kPasses,
                                             sink.data());
          return cudaGetLastError();
        },
        4, 15);
    const double read = 16.0 * static_cast<double>(inside) * kPasses;
    write(json, "L2 read, TB/s", per_second(read, us), "bytes/s", 1e12);
  });
  report.part("launches", [&](Json& json) {
    write(json, "empty kernel in a graph, us",
          time_twice(
              stream, 1,
              [&](int, cudaStream_t s) {
                empty_kernel<<<1, 32, 0, s>>>();
                return cudaGetLastError();
              },
              500, 25),
          "us", 1);
    write(json, "empty kernel on every multiprocessor, us",
          time_twice(
              stream, 1,
              [&](int, cudaStream_t s) {
                empty_kernel<<<static_cast<unsigned>(p.multiProcessorCount), 256, 0, s>>>();
                return cudaGetLastError();
              },
              500, 25),
          "us", 1);
    if (device.clusters().size() == 1) return;
    SPECULA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(cluster_kernel),
                                       cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    for (const int size : device.clusters())
      for (const int syncs : {0, 10}) {
        cudaLaunchConfig_t config{};
        cudaLaunchAttribute attribute{};
        config.gridDim = dim3(16);
        config.blockDim = dim3(256);
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = static_cast<unsigned>(size);
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.attrs = &attribute;
        config.numAttrs = 1;
        const auto launch = [&](int, cudaStream_t s) {
          config.stream = s;
          return cudaLaunchKernelEx(&config, cluster_kernel, syncs);
        };
        if (!launched(launch(0, stream), size)) continue;
        stream.wait();
        const std::string name =
            "16 blocks in clusters of " + std::to_string(size) + (syncs ? ", 10 barriers, us" : ", us");
        write(json, name.c_str(), time_twice(stream, 1, launch, 500, 15), "us", 1);
      }
  });
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_section(argc, argv, {{"ceilings", specula_bench::measure}});
}
