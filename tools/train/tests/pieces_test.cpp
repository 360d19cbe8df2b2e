// SPDX-License-Identifier: MIT
// Losses in pieces of rows: as of the whole.
#include "pieces.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace st = specula_train;
using torch::Tensor;

TEST_CASE("a sum in pieces and its gradients are those of the whole") {
  torch::manual_seed(1);
  const auto inputs = torch::randn({7, 2, 3}).requires_grad_(),
             weight = torch::randn({5, 3}).requires_grad_();
  const auto scales = torch::randn({7});
  const auto run = [&](std::int64_t numbers, std::vector<std::int64_t>& sizes) {
    const auto sum = st::sum_in_pieces(
        inputs, weight, 10,
        [&](const Tensor& piece, const Tensor& own, std::int64_t first) {
          CHECK(torch::equal(piece, inputs.narrow(0, first, piece.size(0))));
          sizes.push_back(piece.size(0));
          const auto of_row = torch::linear(piece, own).square().sum({1, 2});
          return (of_row * scales.narrow(0, first, piece.size(0))).sum();
        },
        numbers);
    const auto gradients = torch::autograd::grad({sum * 3}, {inputs, weight});
    return std::vector{sum.detach(), gradients[0], gradients[1]};
  };
  std::vector<std::int64_t> sizes;
  const auto whole = run(70, sizes);
  CHECK(sizes == std::vector<std::int64_t>{7});
  for (const auto& [numbers, expected] : {std::pair{std::int64_t{69}, std::vector<std::int64_t>{6, 1}},
                                          {30, {3, 3, 1}},
                                          {1, {1, 1, 1, 1, 1, 1, 1}}}) {
    sizes.clear();
    const auto parts = run(numbers, sizes);
    CHECK(sizes == expected);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CAPTURE(i);
      CHECK(torch::allclose(parts[i], whole[i], 1e-4, 1e-5));
    }
  }
}

TEST_CASE("pieces without gradients, and a piece that uses no weight") {
  const auto inputs = torch::ones({4, 2}).requires_grad_(), weight = torch::ones({3, 2}).requires_grad_();
  const st::PieceLoss loss = [](const Tensor& piece, const Tensor& own, std::int64_t first) {
    CHECK(piece.requires_grad() == torch::GradMode::is_enabled());
    return first == 0 ? torch::linear(piece, own).sum() : piece.sum() * 0;
  };
  {
    torch::NoGradGuard no_grad;
    CHECK(st::sum_in_pieces(inputs, weight, 3, loss, 6).item<double>() == 12);
  }
  const auto gradients =
      torch::autograd::grad({st::sum_in_pieces(inputs, weight, 3, loss, 6)}, {inputs, weight});
  CHECK(gradients[0].sum().item<double>() == 12);
  CHECK(gradients[1].sum().item<double>() == 12);
}
