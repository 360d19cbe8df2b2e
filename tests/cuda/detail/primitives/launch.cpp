// SPDX-License-Identifier: MIT
// labels: threads
// Preparing and launching kernels on the host, against a fake CUDA runtime.
#include <cuda_runtime.h>  // the fake one
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <thread>
#include <type_traits>
#include <vector>

#include <specula/cuda/api/scan_plan.cuh>
#include <specula/cuda/detail/primitives/launch.cuh>

#include "thread_sanitizer.hpp"

using namespace specula::cuda;
using namespace specula::cuda::detail;
using specula_test::FakeCuda;
using specula_test::FakeLaunch;

namespace {

__global__ void kernel(double value, double* out) { *out = value; }
__global__ void other_kernel(double value, double* out) { *out = -value; }

constexpr int kVocab = 128256;

std::size_t bytes_of(const ScanSize& size, int warps) {
  return static_cast<std::size_t>(warps * size.ring_bytes + 16 * size.rows * tile_count(size.vocab));
}
cudaError_t plan_for(int problems, ScanPlan* out, int vocab = kVocab, int device = 0) {
  return make_scan_plan(kernel, {problems, vocab, 2, 5, 2}, device, bytes_of, out);
}
ScanPlan plan(int problems, int vocab = kVocab) {
  ScanPlan out;
  REQUIRE(plan_for(problems, &out, vocab) == cudaSuccess);
  CHECK(out.size.vocab == vocab);
  CHECK(out.shared_bytes == bytes_of(out.size, out.threads / 32));
  CHECK(FakeCuda::now().kernel(kernel).shared_bytes >= static_cast<int>(out.shared_bytes));
  return out;
}

// A plan that the caller had before.
ScanPlan earlier_plan() {
  ScanPlan out;
  out.cluster = 3, out.threads = 96, out.shared_bytes = 7, out.size.vocab = 5;
  return out;
}
bool is_earlier(const ScanPlan& p) {
  return p.cluster == 3 && p.threads == 96 && p.shared_bytes == 7 && p.size.vocab == 5;
}

}  // namespace

static_assert(!std::is_copy_constructible_v<Launch> && !std::is_copy_assignable_v<Launch>);

UNTHREADED_TEST_CASE("plans are made for the current device only, from all its properties") {
  FakeCuda cuda;
  CHECK(check_current(0) == cudaSuccess);
  CHECK(check_current(1) == cudaErrorInvalidDevice);
  cuda.current = 1;
  CHECK(check_current(0) == cudaErrorInvalidDevice);
  CHECK(check_current(1) == cudaSuccess);
  CHECK(check_current(-1) == cudaErrorInvalidDevice);

  DeviceLimits limits;
  REQUIRE(device_limits(1, &limits) == cudaSuccess);
  CHECK(limits.processors == 132);
  CHECK(limits.shared_bytes == 227 << 10);
  CHECK(limits.version == 90);
  cuda.version = 103;
  REQUIRE(device_limits(1, &limits) == cudaSuccess);
  CHECK(limits.version == 103);
  for (const int ptx : {80, 89, 90, 120}) {
    cuda.ptx_version = ptx;
    bool clusters = ptx < 90;
    REQUIRE(has_clusters(kernel, &clusters) == cudaSuccess);
    CHECK(clusters == (ptx >= 90));
  }

  ScanPlan p = earlier_plan();
  CHECK(plan_for(1, &p, kVocab, 0) == cudaErrorInvalidDevice);
  CHECK(is_earlier(p));
  CHECK(cudaPeekAtLastError() == cudaSuccess);  // the library's error, not the driver's
  CHECK(plan_for(1, &p, kVocab, 1) == cudaSuccess);
  CHECK(p.cluster == 16);
}

UNTHREADED_TEST_CASE("an error of any driver call is returned, and the plan is unchanged") {
  FakeCuda cuda;
  cuda.active = [](int cluster, int, std::size_t) { return 32 / cluster; };
  const auto make = [&](ScanPlan* out) {
    cuda.forget_kernels();
    return plan_for(8, out, 32768);
  };
  ScanPlan p;
  REQUIRE(make(&p) == cudaSuccess);
  CHECK(p.cluster == 4);  // at most 8, which a device may refuse
  const int calls = cuda.calls;
  CHECK(calls >= 10);
  for (int i = 0; i < calls; ++i) {
    CAPTURE(i);
    cuda.failing_call = cuda.calls + i;
    p = earlier_plan();
    CHECK(make(&p) == cudaErrorUnknown);
    CHECK(cuda.calls == cuda.failing_call + 1);  // no call after it
    CHECK(is_earlier(p));
    CHECK(cudaGetLastError() == cudaErrorUnknown);
  }
  cuda.failing_call = cuda.calls;
  CHECK(check_current(0) == cudaErrorUnknown);
}

UNTHREADED_TEST_CASE("too little shared memory") {
  FakeCuda cuda;
  cuda.block_bytes = 16 << 10;
  ScanPlan p = earlier_plan();
  CHECK(plan_for(1, &p) == cudaErrorInvalidValue);
  CHECK(is_earlier(p));
  CHECK(cuda.kernel(kernel).shared_bytes == 48 << 10);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

UNTHREADED_TEST_CASE(
    "the geometry in which most warps read at once: 512 threads, or two blocks of 256 per multiprocessor") {
  FakeCuda cuda;
  for (const int problems : {1, 8}) {
    const ScanPlan p = plan(problems);
    CHECK(p.threads == 512);
    CHECK(p.cluster == 16);
    CHECK(cuda.kernel(kernel).clusters_of_16);
  }
  CHECK(plan(64).threads == 512);  // as many warps as in 4 blocks of 256 threads, which would share
  CHECK(plan(64).cluster == 2);
  CHECK(plan(200).cluster == 1);
  // As an H200: of clusters of 4 and more fewer run than its multiprocessors suggest.
  cuda.active = [](int cluster, int threads, std::size_t) {
    return (threads == 512 ? 132 : 264) / cluster - (cluster > 2 ? 3 : 0);
  };
  CHECK(plan(64).threads == 512);
  CHECK(plan(64).cluster == 2);
  CHECK(plan(16).threads == 256);  // the same number of warps either way
  CHECK(plan(16).cluster == 8);
  CHECK(plan(140).threads == 256);        // one wave in place of two
  CHECK(plan(100, 1000).threads == 256);  // two tiles: more warps would read nothing
  cuda.block_bytes = 99 << 10;            // rather smaller rings than fewer warps
  CHECK(plan(64).threads == 512);
  CHECK(plan(64).size.ring_bytes == 4096);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

UNTHREADED_TEST_CASE("devices without clusters get clusters of one block") {
  FakeCuda cuda;
  cuda.ptx_version = 80;
  cuda.active = [](int, int, std::size_t) { return FakeCuda::kNoSuchCluster; };
  for (const int problems : {1, 8, 64}) {
    const ScanPlan p = plan(problems);
    CHECK(p.cluster == 1);
    CHECK(p.threads == 512);
  }
  CHECK(plan(200).threads == 256);  // one wave, not two of half as many blocks
  CHECK_FALSE(cuda.kernel(kernel).clusters_of_16);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

UNTHREADED_TEST_CASE("fewer concurrent clusters than the number of multiprocessors suggests") {
  FakeCuda cuda;
  cuda.active = [](int, int threads, std::size_t) { return threads == 512 ? 7 : 14; };
  CHECK(plan(7).threads == 512);
  const ScanPlan halves = plan(8);
  CHECK(halves.threads == 256);
  CHECK(halves.cluster == 16);
  CHECK(2 * (halves.shared_bytes + 1024) <= static_cast<std::size_t>(cuda.processor_bytes));

  cuda.active = [](int cluster, int, std::size_t) { return cluster == 16 ? 7 : 112 / cluster; };
  CHECK(plan(7).cluster == 16);
  CHECK(plan(8).threads == 512);
  CHECK(plan(8).cluster == 8);
  // Many: 32 in clusters of 2 or of 4.
  cuda.active = [](int cluster, int, std::size_t) { return 128 / cluster; };
  CHECK(plan(32).cluster == 4);
  cuda.active = [](int cluster, int, std::size_t) { return 128 / cluster - 1; };
  CHECK(plan(32).cluster == 2);
  cuda.active = [](int, int, std::size_t) { return 0; };
  CHECK(plan(32).cluster == 1);
  CHECK(plan(1).cluster == 1);
  CHECK(plan(1).threads == 512);
  CHECK(plan(1, 100).cluster == 1);  // one tile: one block suffices, however many run concurrently
}

UNTHREADED_TEST_CASE("occupancy queries use the configuration of the later launch") {
  struct Question {
    int cluster, threads;
    std::size_t bytes;
    bool operator==(const Question&) const = default;
  };
  FakeCuda cuda;
  std::vector<Question> asked;
  cuda.active = [&](int cluster, int threads, std::size_t bytes) {
    asked.push_back({cluster, threads, bytes});
    return cluster > 2 ? 0 : 8;
  };
  int cluster = 16;
  REQUIRE(prepare(kernel, 1000, &cluster) == cudaSuccess);
  REQUIRE(fit_cluster(kernel, 6, 128, 1000, &cluster) == cudaSuccess);
  CHECK(cluster == 2);
  CHECK(asked == std::vector<Question>{{16, 128, 1000}, {8, 128, 1000}, {4, 128, 1000}, {2, 128, 1000}});

  asked.clear();
  plan(6);
  std::vector<Question> both;
  for (const int threads : {512, 256})
    for (const int size : {16, 8, 4, 2})
      both.push_back({size, threads, bytes_of({kVocab, 5, 8192}, threads / 32)});
  CHECK(asked == both);
}

UNTHREADED_TEST_CASE("a device that refuses clusters of 16 gets clusters of 8") {
  FakeCuda cuda;
  cuda.refuses_16 = true;
  const ScanPlan p = plan(1);
  CHECK(p.cluster == 8);
  CHECK(p.threads == 512);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  cuda.active = [](int, int threads, std::size_t) { return threads == 512 ? 7 : 14; };
  CHECK(plan(8).cluster == 8);  // of 256 threads, too
  CHECK(plan(8).threads == 256);
  CHECK(cudaPeekAtLastError() == cudaSuccess);

  for (const int asked : {1, 8, 16}) {
    int cluster = asked;
    CHECK(prepare(kernel, 0, &cluster) == cudaSuccess);
    CHECK(cluster == (asked == 16 ? 8 : asked));
  }
  CHECK(prepare(kernel, 0, 16) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

UNTHREADED_TEST_CASE("a cluster size that the device does not support has occupancy 0") {
  FakeCuda cuda;
  cuda.active = [](int cluster, int, std::size_t) { return cluster > 2 ? FakeCuda::kNoSuchCluster : 40; };
  int active = 5;
  CHECK(active_clusters(kernel, 4, 256, 0, &active) == cudaSuccess);
  CHECK(active == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(active_clusters(kernel, 16, 256, 0, &active) == cudaSuccess);  // not prepared for it
  CHECK(active == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(active_clusters(kernel, 2, 256, 0, &active) == cudaSuccess);
  CHECK(active == 40);
  CHECK(plan(8).cluster == 2);
  CHECK(plan(8).threads == 512);
  CHECK(cudaPeekAtLastError() == cudaSuccess);

  cuda.failing_call = cuda.calls;
  CHECK(active_clusters(kernel, 2, 256, 0, &active) == cudaErrorUnknown);
  CHECK(active == 0);
}

UNTHREADED_TEST_CASE("a plan does not reduce another plan's shared memory or cluster size") {
  FakeCuda cuda;
  CHECK(prepare(kernel, 1000, 8) == cudaSuccess);
  CHECK(cuda.kernel(kernel).shared_bytes == 48 << 10);
  CHECK_FALSE(cuda.kernel(kernel).clusters_of_16);
  CHECK(prepare(kernel, 100'000, 16) == cudaSuccess);
  CHECK(prepare(kernel, 60'000, 8) == cudaSuccess);
  CHECK(cuda.kernel(kernel).shared_bytes == 100'000);
  CHECK(cuda.kernel(kernel).clusters_of_16);
  CHECK(prepare(kernel, 200'000, 1) == cudaSuccess);
  CHECK(cuda.kernel(kernel).shared_bytes == 200'000);
  CHECK(cuda.kernel(other_kernel).shared_bytes == 48 << 10);
  CHECK(prepare(kernel, 300'000, 1) == cudaErrorInvalidValue);
  CHECK(cuda.kernel(kernel).shared_bytes == 200'000);

  // Plans, and launches that show whether they still work.
  double out = 0;
  const ScanPlan few = plan(1), many = plan(64);
  CHECK(few.shared_bytes > many.shared_bytes);
  for (const ScanPlan& p : {few, many})
    CHECK(launch(kernel, 2, p.cluster, p.threads, p.shared_bytes, nullptr, 1.0, &out) == cudaSuccess);
  CHECK(cuda.launches.size() == 2);
}

// Threads read the limit, then all of them raise it; without care the last one's value would win.
TEST_CASE("threads that prepare a kernel concurrently leave the largest shared memory limit") {
  constexpr int kThreads = 8, kRounds = 20;
  FakeCuda cuda;
  cuda.pause = std::chrono::microseconds(100);
  for (int round = 0; round < kRounds; ++round) {
    cuda.forget_kernels();
    std::array<cudaError_t, kThreads> errors{};
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        const int place = (i + round) % kThreads;  // the thread with the largest limit varies
        errors[static_cast<std::size_t>(i)] =
            prepare(kernel, static_cast<std::size_t>(100'000 + 1000 * place), 8);
      });
    for (std::thread& thread : threads) thread.join();
    for (const cudaError_t error : errors) CHECK(error == cudaSuccess);
    CHECK(cuda.kernel(kernel).shared_bytes == 100'000 + 1000 * (kThreads - 1));
  }
}

UNTHREADED_TEST_CASE("launches: grid, block, shared memory, stream, and cluster size") {
  FakeCuda cuda;
  const auto stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{64});
  REQUIRE(prepare(kernel, 100'000, 16) == cudaSuccess);
  double out = 0;
  int value = 0;
  for (const int cluster : {1, 2, 16}) {
    CAPTURE(cluster);
    cuda.launches.clear();
    CHECK(launch(kernel, 3, cluster, 256, 90'000, stream, ++value, &out) == cudaSuccess);
    CHECK(out == value);  // an int, which the kernel takes as a double
    REQUIRE(cuda.launches.size() == 1);
    const FakeLaunch& it = cuda.launches[0];
    CHECK(it.kernel == reinterpret_cast<const void*>(kernel));
    CHECK(it.grid == static_cast<unsigned>(3 * cluster));
    CHECK(it.block == 256);
    CHECK(it.shared_bytes == 90'000);
    CHECK(it.stream == stream);
    CHECK(it.attributes == (cluster > 1 ? 1 : 0));
    CHECK(it.cluster == static_cast<unsigned>(cluster));
  }
}

UNTHREADED_TEST_CASE("invalid launches, and launches of nothing") {
  FakeCuda cuda;
  double out = 5;
  const auto launched = [&](int clusters, int cluster, int threads, std::size_t shared_bytes = 0) {
    return launch(kernel, clusters, cluster, threads, shared_bytes, nullptr, 1.0, &out);
  };
  for (const int cluster : {-1, 0, 3, 32}) CHECK(launched(1, cluster, 256) == cudaErrorInvalidValue);
  for (const int threads : {-32, 0, 16, 100, 1056}) CHECK(launched(1, 1, threads) == cudaErrorInvalidValue);
  CHECK(launched(0, 3, 256) == cudaErrorInvalidValue);
  CHECK(launched(0, 4, 256) == cudaSuccess);
  CHECK(launched(-1, 4, 256) == cudaSuccess);
  CHECK(cuda.calls == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);

  CHECK(launched(1, 1, 256, 100'000) ==
        cudaErrorInvalidValue);  // the driver says that the kernel is not prepared for it
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(launched(1, 16, 256) == cudaErrorInvalidClusterSize);
  CHECK(cudaGetLastError() == cudaErrorInvalidClusterSize);
  CHECK(cuda.launches.empty());
  CHECK(out == 5);
}

UNTHREADED_TEST_CASE("an earlier error that the caller has not read is neither returned nor lost") {
  FakeCuda cuda;
  FakeCuda::last_error() = cudaErrorUnknown;
  double out = 0;
  for (const int problems : {1, 64, 200}) {
    const ScanPlan p = plan(problems);
    CHECK(cudaPeekAtLastError() == cudaErrorUnknown);
    CHECK(launch(kernel, problems, p.cluster, p.threads, p.shared_bytes, nullptr, 1.0, &out) == cudaSuccess);
    CHECK(cudaPeekAtLastError() == cudaErrorUnknown);
  }
  CHECK(cuda.launches.size() == 3);
  CHECK(launch(kernel, 0, 1, 32, 0, nullptr, 1.0, &out) == cudaSuccess);
  CHECK(launch(kernel, 1, 3, 32, 0, nullptr, 1.0, &out) == cudaErrorInvalidValue);
  ScanPlan p;
  CHECK(plan_for(1, &p, kVocab, 1) == cudaErrorInvalidDevice);
  CHECK(prepare(kernel, 1000, 8) == cudaSuccess);
  cuda.ptx_version = 80;
  CHECK(plan(1).cluster == 1);
  CHECK(cudaPeekAtLastError() == cudaErrorUnknown);
}

UNTHREADED_TEST_CASE("zero_counters zeroes all counters, or none if there are none") {
  FakeCuda cuda;
  std::uint32_t counters[3] = {1, 2, 3};
  Workspace room;
  CHECK(zero_counters(room, nullptr) == cudaSuccess);
  room.counters = counters, room.counter_bytes = 8;
  CHECK(zero_counters(room, nullptr) == cudaSuccess);
  CHECK((counters[0] == 0 && counters[1] == 0 && counters[2] == 3));
  room.counters = nullptr;
  CHECK(zero_counters(room, nullptr) == cudaErrorInvalidValue);
}
