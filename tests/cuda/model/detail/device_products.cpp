// SPDX-License-Identifier: MIT
// Products on a fake cuBLASLt: the fastest algorithm that is exact, once for a process; the product itself.
#include <cublasLt.h>  // the fake one
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cuda/model/detail/device_products.hpp>

namespace cuda = specula::cuda;
using cuda::BFloat16;
using cuda::DeviceError;
using cuda::DeviceMatrix;
using cuda::detail::DeviceProducts;
using specula_test::FakeBlas;
using specula_test::FakeCuda;

namespace {

constexpr int kRows = 6, kCols = 256, kHeight = 64;

struct Scene {
  FakeCuda runtime;
  CUstream_st stream;
  std::vector<BFloat16> weights, x;
  std::string machine;

  /// Each has a machine of its own in the process's table.
  Scene(const Scene&) = delete;
  explicit Scene(const std::vector<specula_test::FakeAlgorithm>& algorithms)
      : weights(kRows * kCols), x(kHeight * kCols) {
    static int number = 0;
    machine = "machine " + std::to_string(++number);
    FakeBlas::now() = {algorithms};
    std::minstd_rand random(1);
    for (auto* all : {&weights, &x})
      for (BFloat16& value : *all)
        value = cuda::detail::to_bfloat16(static_cast<float>(random() % 2001) * 1e-3f - 1);
  }
  DeviceMatrix matrix() const { return {weights.data(), kRows, kCols}; }
  cuda::ProductShape shape(bool exact, bool add = false) const { return {kRows, kCols, kHeight, add, exact}; }
  /// The number of the algorithm that is chosen.
  int chosen(bool exact) {
    DeviceProducts products(&stream, machine);
    products.prepare(matrix(), shape(exact));
    return static_cast<int>(cuda::ProductTable::shared().get(
        machine, shape(exact), []() -> cuda::ProductAlgorithm { throw std::logic_error("not chosen"); })[0]);
  }
};

}  // namespace

TEST_CASE("the fastest algorithm is taken that runs, and gives a row the same bits everywhere and again") {
  const std::vector<specula_test::FakeAlgorithm> all{{3e-3},
                                                     {.seconds = 1e-4, .runs = false},
                                                     {.seconds = 1e-3, .by_place = true},
                                                     {.seconds = 1.2e-3, .by_call = true},
                                                     {2e-3}};
  CHECK(Scene(all).chosen(true) == 4);
  CHECK(Scene(all).chosen(false) == 2);
  using Algorithms = std::vector<specula_test::FakeAlgorithm>;
  {
    Scene none(Algorithms{{.seconds = 1, .by_place = true}, {.seconds = 1, .by_call = true}});
    CHECK_THROWS_WITH_AS(none.chosen(true),
                         "cuBLASLt: none of 2 algorithms for a product of 64 rows with a matrix (6, 256) "
                         "gives a row the same bits in "
                         "every place; FreeProducts do not need it",
                         DeviceError);
    // The failure left nothing: no memory, no descriptor, no event.
    CHECK(none.runtime.memory.empty());
    CHECK(none.runtime.made == 0);
    CHECK(FakeBlas::now().made == 0);
  }
  Scene broken(Algorithms{{.seconds = 1, .runs = false}});
  CHECK_THROWS_AS(broken.chosen(false), DeviceError);
}

TEST_CASE("a product is x W^T, or is added, and only of a shape that was prepared") {
  Scene scene(std::vector<specula_test::FakeAlgorithm>{{1e-3}});
  DeviceProducts products(&scene.stream, scene.machine);
  products.prepare(scene.matrix(), scene.shape(true));
  products.prepare(scene.matrix(), scene.shape(true, true));
  std::vector<float> out(kHeight * kRows, 7.0f);
  products.run(scene.matrix(), scene.x.data(), kHeight, out.data(), false);
  for (const float times : {1.0f, 2.0f}) {
    for (int t = 0; t < kHeight; ++t)
      for (int r = 0; r < kRows; ++r) {
        double sum = 0;
        for (int k = 0; k < kCols; ++k)
          sum +=
              static_cast<double>(
                  cuda::detail::to_float(scene.weights[static_cast<std::size_t>(r * kCols + k)])) *
              static_cast<double>(cuda::detail::to_float(scene.x[static_cast<std::size_t>(t * kCols + k)]));
        CHECK(static_cast<double>(out[static_cast<std::size_t>(t * kRows + r)]) ==
              doctest::Approx(static_cast<double>(times) * sum).epsilon(1e-4));
      }
    products.run(scene.matrix(), scene.x.data(), kHeight, out.data(), true);
  }
  CHECK_THROWS_AS(products.run(scene.matrix(), scene.x.data(), 128, out.data(), false), std::logic_error);
}

TEST_CASE("an algorithm is chosen once for all, and one that the library does not know is refused") {
  Scene scene(std::vector<specula_test::FakeAlgorithm>{{1e-3}, {2e-3}});
  DeviceProducts first(&scene.stream, scene.machine), second(&scene.stream, scene.machine);
  first.prepare(scene.matrix(), scene.shape(true));
  const int asked = FakeBlas::now().asked;
  first.prepare(scene.matrix(), scene.shape(true));
  first.prepare(scene.matrix(), scene.shape(false));  // an exact one serves
  second.prepare(scene.matrix(), scene.shape(true));
  CHECK(FakeBlas::now().asked == asked);
  cuda::ProductTable::shared().get(scene.machine + " 2", scene.shape(true),
                                   [] { return cuda::ProductAlgorithm{9}; });
  DeviceProducts other(&scene.stream, scene.machine + " 2");
  CHECK_THROWS_WITH_AS(
      other.prepare(scene.matrix(), scene.shape(true)),
      "cuBLASLt: the algorithm chosen for a product of 64 rows with a matrix (6, 256) is not one of this "
      "library; was it read from a file?",
      DeviceError);
}
