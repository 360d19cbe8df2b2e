// SPDX-License-Identifier: MIT
// Muon and AdamW.
#include "optimizer.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>

namespace st = specula_train;

namespace {

/// One matrix and one vector, to be minimised.
struct Quadratic : torch::nn::Module {
  torch::Tensor matrix = register_parameter("matrix", torch::randn({8, 24}));
  torch::Tensor vector = register_parameter("vector", torch::randn({8}));
  double descend(st::Optimizer& optimizer, double rate) {
    for (auto& parameter : parameters()) parameter.mutable_grad() = parameter.detach().clone();
    return optimizer.step(rate);
  }
  double size() const { return (matrix.square().sum() + vector.square().sum()).item<double>(); }
};

}  // namespace

TEST_CASE("orthogonalize brings singular values near 1, for wide and for tall matrices") {
  torch::manual_seed(1);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16})
    for (const auto& matrices : {torch::randn({3, 16, 40}), torch::randn({3, 40, 16})}) {
      const auto of_dtype = st::orthogonalize(matrices, dtype);
      CHECK((of_dtype.scalar_type() == dtype));
      const auto result = of_dtype.to(torch::kFloat32);
      CHECK(result.sizes() == matrices.sizes());
      const auto squares =
          torch::bmm(result.transpose(1, 2), result);  // its trace sums squared singular values
      const auto mean = squares.diagonal(0, 1, 2).sum(-1) / 16;
      CHECK(mean.min().item<double>() > 0.5);
      CHECK(mean.max().item<double>() < 1.4);
    }
}

TEST_CASE("both optimizers descend, and a loaded state continues identically") {
  for (const auto* kind : {"adamw", "muon"}) {
    CAPTURE(kind);
    torch::manual_seed(1);
    Quadratic one, two;
    st::OptimizerOptions options;
    options.kind = kind;
    st::Optimizer first(one, options), second(two, options);
    const double before = one.size();
    for (int i = 0; i < 20; ++i) one.descend(first, 0.02);
    CHECK(one.size() < before);

    {
      torch::NoGradGuard no_grad;
      two.matrix.copy_(one.matrix);
      two.vector.copy_(one.vector);
    }
    second.load_state(first.state());
    one.descend(first, 0.02);
    two.descend(second, 0.02);
    CHECK(torch::equal(one.matrix, two.matrix));
    CHECK(torch::equal(one.vector, two.vector));
  }
}

TEST_CASE("mistakes are errors") {
  Quadratic model;
  st::OptimizerOptions options;
  st::Optimizer muon(model, options);
  options.kind = "adamw";
  st::Optimizer adamw(model, options);
  CHECK_THROWS_WITH_AS(muon.load_state(adamw.state()), doctest::Contains("another --optimizer"),
                       std::runtime_error);
  options.kind = "sgd";
  CHECK_THROWS_AS(st::Optimizer(model, options), std::invalid_argument);
  for (auto& parameter : model.parameters()) {
    parameter.mutable_grad() = torch::full_like(parameter, std::numeric_limits<float>::quiet_NaN());
  }
  CHECK_THROWS_WITH_AS(muon.step(0.1), doctest::Contains("not finite"), std::runtime_error);
}
