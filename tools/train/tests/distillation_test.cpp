// SPDX-License-Identifier: MIT
// The fused loss against ATen and its autograd.
#include "distillation.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

namespace st = specula_train;
using torch::Tensor;

namespace {

double largest_error(const Tensor& got, const Tensor& expected) {
  const auto difference = (got.to(torch::kFloat32) - expected.to(torch::kFloat32)).abs().max();
  return (difference / expected.to(torch::kFloat32).abs().max()).item<double>();
}

void compare(const Tensor& draft, const Tensor& target, const specula::TopKDistillation& loss,
             double tolerance) {
  const auto got = st::distillation(draft, target, loss),
             expected = st::plain::distillation(draft, target, loss);
  REQUIRE(got.sizes() == expected.sizes());
  CHECK(largest_error(got, expected) < tolerance);
  const auto seed = torch::rand_like(expected);  // each row's loss counts differently
  const auto gradient = torch::autograd::grad({got}, {draft}, {seed})[0];
  const auto expected_gradient = torch::autograd::grad({expected}, {draft}, {seed})[0];
  CHECK(largest_error(gradient, expected_gradient) < tolerance);
}

}  // namespace

TEST_CASE("the fused distillation loss agrees with ATen") {
  torch::manual_seed(4);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    INFO(c10::toString(dtype));
    const double tolerance = dtype == torch::kFloat32 ? 1e-5 : 2e-2;
    const auto draft = (torch::randn({29, 101}) * 3).to(dtype).requires_grad_();
    const auto target =
        (torch::rand({29, 101}).argsort(-1, false).argsort(-1, false) * 0.0625).to(dtype);  // without ties
    for (const specula::TopKDistillation loss : {specula::TopKDistillation{},
                                                 {.k = 5, .weight = 0.5, .cross_entropy_weight = 0},
                                                 {.k = 0, .weight = 0, .cross_entropy_weight = 1},
                                                 {.k = 1, .weight = 2, .cross_entropy_weight = 0.3}}) {
      CAPTURE(loss.k);
      compare(draft, target, loss, tolerance);
    }
  }
}

TEST_CASE("ties among the likeliest K go to the lower token") {
  const auto target = torch::tensor({{0.0F, 2.0F, 2.0F, 2.0F}, {1.0F, 1.0F, 1.0F, 1.0F}});
  const auto draft = torch::randn({2, 4}).requires_grad_();
  const auto p = torch::softmax(target, -1), log_q = torch::log_softmax(draft, -1);
  const auto of = [&](std::int64_t row, std::int64_t token) { return p[row][token] * log_q[row][token]; };
  const auto expected = -torch::stack({of(0, 1) + of(0, 2), of(1, 0) + of(1, 1)});
  const auto got = st::distillation(draft, target, {.k = 2, .weight = 1, .cross_entropy_weight = 0});
  CHECK(largest_error(got, expected) < 1e-5);
}

TEST_CASE("a bad number of tokens is refused") {
  CHECK_THROWS_WITH_AS(st::distillation(torch::zeros({1, 4}), torch::zeros({1, 4}), {.k = 65}),
                       doctest::Contains("k is 65"), std::invalid_argument);
}
