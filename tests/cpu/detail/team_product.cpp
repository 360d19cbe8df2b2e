// SPDX-License-Identifier: MIT
// Products shared by the threads of a team, against plain loops.
#include <specula/cpu/detail/team_product.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "random.hpp"

using namespace specula::cpu;
using namespace specula::cpu::detail;

TEST_CASE("any number of threads gives the product of all rows, into the outputs that were asked for") {
  specula_test::Random random(1);
  const std::int32_t rows = 150, cols = 7, count = 5;  // three blocks of four panels
  PanelMatrix<double> matrix(rows, cols, WeightType::full);
  for (std::int32_t r = 0; r < rows; ++r) {
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (float& x : row) x = static_cast<float>(random.between(-1, 1));
    matrix.set_row(r, row);
  }
  Activations<double> in(count, cols), out(count, rows);
  for (std::int32_t i = 0; i < count; ++i)
    for (std::int32_t k = 0; k < cols; ++k) in.at(i)[k] = random.between(-1, 1);
  for (const std::int32_t threads : {1, 2, 4}) {
    TeamProduct<double> product({.threads = threads, .prefill_chunk = 8}, cols);
    CHECK(product.team()->size() == threads);
    for (double& x : out.values) x = -100;
    auto body = [&](std::int32_t thread) { product.multiply(thread, matrix, in, out, 2, 5, 1); };
    product.team()->run(body);
    for (std::int32_t r = 0; r < rows; ++r) {
      CHECK(out.at(0)[r] == -100);
      CHECK(out.at(4)[r] == -100);
      for (std::int32_t i = 2; i < 5; ++i) {
        double want = 0;
        for (std::int32_t k = 0; k < cols; ++k) want += matrix.value(r, k) * in.at(i)[k];
        CHECK(out.at(i - 1)[r] == doctest::Approx(want).epsilon(1e-13));
      }
    }
  }
}

TEST_CASE("shares are neighbours, and all of it") {
  const TeamProduct<double> product({.threads = 3, .prefill_chunk = 8}, 4);
  for (const std::int32_t total : {0, 1, 2, 3, 100}) {
    std::int32_t next = 0;
    for (std::int32_t thread = 0; thread < 3; ++thread) {
      const auto share = product.share(thread, total);
      CHECK(share.first == next);
      next = share.second;
    }
    CHECK(next == total);
  }
}

TEST_CASE("vectors of one kind are copied whole") {
  Activations<float> all(3, 5);
  CHECK(all.stride == 16);
  for (int k = 0; k < 16; ++k) all.at(2)[k] = static_cast<float>(k);
  all.copy(2, 0);
  for (int k = 0; k < 16; ++k) CHECK((all.at(0)[k] == static_cast<float>(k) && all.at(1)[k] == 0));
}
