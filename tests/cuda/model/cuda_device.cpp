// SPDX-License-Identifier: MIT
// CudaDevice on a fake runtime: memory that is given back, launches that are captured the second time, errors
// that do not stay.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <fake_device.hpp>

using namespace specula::cuda;
using specula_test::FakeBlas;
using specula_test::FakeCuda;

TEST_CASE("memory is zeros, comes and goes, and all is given back") {
  FakeCuda runtime;
  const int made = FakeBlas::now().made;
  {
    CudaDevice device;
    const std::size_t held = runtime.memory.size();
    float* const a = device.allocate<float>(100);
    float* const b = device.allocate_host<float>(4);
    CHECK(a[99] == 0);
    CHECK(b[3] == 0);
    CHECK(device.allocations() == 2);
    const std::vector<float> from{1, 2, 3};
    std::vector<float> to(3);
    device.put(a, from.data(), 3);
    device.get(to.data(), a, 3);
    CHECK(to == from);
    device.allocate<float>(1);
    device.release(0, 1);
    CHECK(runtime.memory.size() == held + 2);
    device.release(1, 3);
    CHECK(device.allocations() == 0);
    CHECK(runtime.memory.size() == held);
    device.allocate<float>(7);
  }
  CHECK(runtime.memory.empty());
  CHECK(runtime.made == 0);
  CHECK(FakeBlas::now().made == made);
}

TEST_CASE("a body runs at once, is captured the second time and replayed from then on") {
  FakeCuda runtime;
  CudaDevice device;
  const std::vector<float> gate_up{0, 2, 3, 4};
  std::vector<BFloat16> out(2);
  int enqueued = 0;
  const auto enqueue = [&] {
    ++enqueued;
    device.run(detail::SiluProduct{gate_up.data(), out.data(), 1, 2});
  };
  {
    CudaDevice::Recording recording;
    for (int turn = 1; turn <= 4; ++turn) {
      out[1] = {};
      device.replay(recording, enqueue);
      CHECK(detail::to_float(out[1]) == doctest::Approx(2 / (1 + std::exp(-2.0)) * 4).epsilon(0.01));
      CHECK(enqueued == std::min(turn, 2));
    }
    device.captures = false;
    device.replay(recording, enqueue);
    CHECK(enqueued == 3);
    device.captures = true;
    // What throws while it is captured leaves no capture behind.
    CudaDevice::Recording other;
    device.replay(other, [] {});
    CHECK_THROWS_AS(device.replay(other, [] { throw std::logic_error("x"); }), std::logic_error);
    CHECK(runtime.capture == nullptr);
    device.replay(other, enqueue);
    CHECK(enqueued == 4);
  }
  CHECK(runtime.made == 1);  // the stream
}

TEST_CASE("an error of one call is not that of a later one") {
  FakeCuda runtime;
  CudaDevice device;
  runtime.free_bytes = 1000;
  CHECK_THROWS_WITH_AS(device.allocate<float>(1000),
                       "CUDA: no memory for 4000 bytes, 1000 are free: out of memory", DeviceError);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_THROWS_AS(device.allocate_host<float>(1000), DeviceError);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  runtime.failing_call = runtime.calls;
  CHECK_THROWS_WITH_AS(device.wait(), "CUDA: the device's work: an error", DeviceError);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  const std::vector<float> gate_up{0, 2, 3, 4};
  std::vector<BFloat16> out(2);
  device.run(detail::SiluProduct{gate_up.data(), out.data(), 1, 2});
}

TEST_CASE("plans share memory to work in, which outlives what is given back") {
  FakeCuda runtime;
  CudaDevice device;
  TreeAttentionCapacity capacity;
  capacity.max_nodes = 64, capacity.query_heads = 4, capacity.kv_heads = 1, capacity.max_tokens = 100000;
  capacity.batch_invariant = true;
  const std::size_t before = runtime.memory.size();
  const CudaDevice::Attention plan = device.make_attention(capacity, 64);
  CHECK(plan->narrow.capacity.max_nodes == 64);
  CHECK(runtime.memory.size() == before + 2);  // parts and counters
  device.make_attention(capacity, 64);
  CHECK(runtime.memory.size() == before + 2);
  CHECK(device.allocations() == 0);
}
