// SPDX-License-Identifier: MIT
// Calls of a fake runtime as exceptions: no error stays, no capture and no graph is left.
#include <cublasLt.h>  // the fake one
#include <doctest/doctest.h>

#include <stdexcept>

#include <specula/cuda/model/detail/cuda_calls.hpp>

using namespace specula::cuda;
using specula_test::FakeCuda;

TEST_CASE("an error is thrown with what failed, and does not stay") {
  FakeCuda runtime;
  FakeCuda::last_error() = cudaErrorUnknown;
  CHECK_THROWS_WITH_AS(detail::expect(cudaErrorUnknown, "a thing"), "CUDA: a thing: an error", DeviceError);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  FakeCuda::last_error() = cudaErrorUnknown;
  CHECK_THROWS_WITH_AS(detail::expect(CUBLAS_STATUS_NOT_SUPPORTED, "a product"),
                       "cuBLASLt: a product: a status", DeviceError);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  detail::expect(cudaSuccess, "nothing");
  detail::expect(CUBLAS_STATUS_SUCCESS, "nothing");
}

TEST_CASE("events measure what lies between them") {
  FakeCuda runtime;
  {
    detail::Event begin, end;
    begin.record(nullptr);
    runtime.clock += 0.25;
    end.record(nullptr);
    CHECK(end.milliseconds_since(begin) == 250);
    CHECK(runtime.made == 2);
  }
  CHECK(runtime.made == 0);
}

TEST_CASE("a capture is a graph, and leaves nothing whatever call fails") {
  FakeCuda runtime;
  int ran = 0;
  const auto work = [&] { runtime.enqueue([&] { ++ran; }); };
  for (int failing = 0;; ++failing) {
    CAPTURE(failing);
    runtime.failing_call = runtime.calls + failing;
    try {
      const cudaGraphExec_t graph = detail::captured(nullptr, work);
      CHECK(failing == 3);  // begin, end, instantiate
      CHECK(ran == 0);
      CHECK(cudaGraphLaunch(graph, nullptr) != cudaSuccess);  // the next call was to fail
      CHECK(cudaGraphLaunch(graph, nullptr) == cudaSuccess);
      CHECK(ran == 1);
      cudaGraphExecDestroy(graph);
      break;
    } catch (const DeviceError&) {
      runtime.capture.reset();  // a failed end of a capture ends it
    }
    CHECK(runtime.made == 0);
  }
  runtime.failing_call = -1;
  CHECK_THROWS_AS(detail::captured(nullptr, [] { throw std::logic_error("x"); }), std::logic_error);
  CHECK(runtime.capture == nullptr);
  CHECK(runtime.made == 0);
}
