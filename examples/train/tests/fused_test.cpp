// The loops of fused.hpp against ATen: values and gradients.
#include "fused.hpp"

#include <doctest/doctest.h>

#include "plain.hpp"
#include "rotary.hpp"

namespace st = specula_train;
using torch::Tensor;

namespace {

double largest_error(const Tensor& got, const Tensor& expected) {
  const auto difference = (got.to(torch::kFloat32) - expected.to(torch::kFloat32)).abs().max();
  return (difference / expected.to(torch::kFloat32).abs().max()).item<double>();
}

/// Compares outputs, and gradients for a random gradient of the outputs.
void compare(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
             const std::vector<Tensor>& inputs, double tolerance) {
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i].sizes() == expected[i].sizes());
    REQUIRE((got[i].scalar_type() == expected[i].scalar_type()));  // doctest cannot print it
    CHECK(largest_error(got[i], expected[i]) < tolerance);
    seeds.push_back(torch::randn_like(got[i]));
  }
  const auto got_gradients = torch::autograd::grad(got, inputs, seeds);
  const auto expected_gradients = torch::autograd::grad(expected, inputs, seeds);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK(largest_error(got_gradients[i], expected_gradients[i]) < tolerance);
  }
}

Tensor random(torch::IntArrayRef shape, torch::ScalarType dtype, double scale = 1) {
  return (torch::randn(shape) * scale).to(dtype).requires_grad_();
}

}  // namespace

TEST_CASE("fused steps agree with ATen") {
  torch::manual_seed(3);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    INFO(c10::toString(dtype));
    const double tolerance = dtype == torch::kFloat32 ? 2e-6 : 3e-2;  // ATen rounds to bfloat16 in between

    const auto x = random({7, 33, 48}, torch::kFloat32);
    const auto weight = torch::rand({48}).requires_grad_();
    compare({st::rms_norm(x, weight, 1e-5, dtype)}, {st::plain::rms_norm(x, weight, 1e-5, dtype)},
            {x, weight}, tolerance);

    const auto gate_up = random({7, 33, 96}, dtype, 4);
    compare({st::swiglu(gate_up)}, {st::plain::swiglu(gate_up)}, {gate_up}, tolerance);

    const auto scores = random({5, 37, 37}, dtype, 3);
    compare({st::causal_softmax(scores)}, {st::plain::causal_softmax(scores)}, {scores}, tolerance);

    const auto logits = random({29, 101}, dtype, 3);
    const auto expected = torch::randint(0, 101, {29}, torch::kInt64);
    compare({st::cross_entropy(logits, expected)}, {st::plain::cross_entropy(logits, expected)}, {logits},
            tolerance);

    const auto table = st::make_rotary_table(40, 16, 1e4, torch::kCPU);
    const auto qkv = random({3, 37, 8 + 2 * 2, 16}, dtype);
    const auto got = st::rotate_and_split(qkv, 8, 2, table);
    const auto plain = st::plain::rotate_and_split(qkv, 8, 2, table);
    compare({got.q, got.k, got.v}, {plain.q, plain.k, plain.v}, {qkv}, tolerance);
  }
}

TEST_CASE("extreme scores") {
  const auto scores = torch::tensor({{{1e4F, 0.0F}, {-1e4F, 1e4F}}});
  CHECK(torch::allclose(st::causal_softmax(scores), torch::tensor({{{1.0F, 0.0F}, {0.0F, 1.0F}}})));
  const auto gates = torch::tensor({{-1e4F, 1e4F, 1.0F, 1.0F}});
  CHECK(torch::allclose(st::swiglu(gates), torch::tensor({{0.0F, 1e4F}})));
}

TEST_CASE("a token outside the vocabulary is an error") {
  CHECK_THROWS_AS(st::cross_entropy(torch::zeros({1, 4}), torch::full({1}, 4, torch::kInt64)),
                  c10::IndexError);
}
