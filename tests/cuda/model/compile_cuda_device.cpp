// SPDX-License-Identifier: MIT
// Making a CudaDevice on a fake runtime: what is missing is said, and a failure at any call leaves nothing.
#include <doctest/doctest.h>

#include <string>

#include <fake_device.hpp>

using specula::cuda::CudaDevice;
using specula::cuda::DeviceError;
using specula_test::FakeBlas;
using specula_test::FakeCuda;

TEST_CASE("what a device lacks is said") {
  FakeCuda runtime;
  const auto refused = [](int number, const char* what) {
    CHECK_THROWS_WITH_AS(CudaDevice{number}, what, DeviceError);
  };
  refused(2, "CUDA: device 2, must be 0 to 1");
  refused(-1, "CUDA: device -1, must be 0 to 1");
  runtime.version = 75;
  refused(0, "CUDA: a fake has compute capability 7.5, the kernels need 8.0");
  runtime.version = 90;
  runtime.devices = 0;
  refused(0, "CUDA: no device");
  runtime.driver_is_too_old = true;
  runtime.driver = 12040;
  refused(0, "CUDA: the driver is of version 12.4, the program needs 13.0");
  runtime.driver = 0;
  refused(0, "CUDA: there is no driver, the program needs 13.0");
}

TEST_CASE("a device that cannot be made leaves nothing, whatever call fails") {
  FakeCuda runtime;
  const int made = FakeBlas::now().made;
  int failing = 0;
  for (bool works = false; !works; ++failing) {
    runtime.failing_call = runtime.calls + failing;
    try {
      const CudaDevice device(1);
      CHECK(device.machine() == "a fake, cuBLASLt 130000");
      CHECK(device.free_bytes() == runtime.free_bytes);
      CHECK(runtime.current == 1);
      works = true;
    } catch (const DeviceError& error) {
      CHECK(std::string(error.what()).starts_with("CUDA: "));
    }
    CHECK(runtime.memory.empty());
    CHECK(runtime.made == 0);
    CHECK(FakeBlas::now().made == made);
  }
  CHECK(failing > 4);
}
