// SPDX-License-Identifier: MIT
// The loops of fused.hpp against ATen: values and gradients.
#include "fused.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "attention.hpp"
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

    const auto scores = random({5, 37, 41}, dtype, 3);
    const auto seen = st::causal(37, torch::kCPU);
    compare({st::masked_softmax(scores, seen).columns}, {st::plain::masked_softmax(scores, seen).columns},
            {scores}, tolerance);

    const auto logits = random({29, 101}, dtype, 3);
    const auto expected = torch::randint(0, 101, {29}, torch::kInt64);
    expected.narrow(0, 4, 5).fill_(-1);
    compare({st::cross_entropy(logits, expected)}, {st::plain::cross_entropy(logits, expected)}, {logits},
            tolerance);

    const auto table =
        st::make_rotary_table(40, {.head_dim = 16, .rope_theta = 1e4, .rope_scaling = {}}, torch::kCPU);
    for (const std::int64_t batch : {1, 3}) {  // ATen transposes a single row without a copy
      const auto qkv = random({batch, 37, 8 + 2 * 2, 16}, dtype);
      const auto got = st::rotate_and_split(qkv, 8, 2, table);
      const auto plain = st::plain::rotate_and_split(qkv, 8, 2, table);
      compare({got.q, got.keys.k, got.keys.v}, {plain.q, plain.keys.k, plain.keys.v}, {qkv}, tolerance);

      const auto q = random({batch, 37, 6, 16}, dtype);
      const auto queries = st::plain::rotate_queries(q, table);
      compare({st::rotate_queries(q, table)}, {queries}, {q}, tolerance);
      for (const auto& made : {plain.q, plain.keys.k, plain.keys.v, queries})
        CHECK(made.is_contiguous());  // views follow
    }
  }
}

TEST_CASE("a row sees its first columns and the tail") {
  torch::manual_seed(5);
  const float kHidden = -std::numeric_limits<float>::infinity();
  const auto visible = torch::tensor({0, 3, 0, 41, 1, 0, 17}, torch::kInt64);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    INFO(c10::toString(dtype));
    const double tolerance = dtype == torch::kFloat32 ? 2e-6 : 3e-2;
    const auto make = [&](std::int64_t columns) {
      const auto values = torch::randn({4, 7, columns}) * 3;
      return values.masked_fill(torch::rand({4, 7, columns}) < 0.3, kHidden).to(dtype).requires_grad_();
    };
    const auto scores = make(41), tail = make(3);
    {
      torch::NoGradGuard no_grad;
      tail.select(1, 5).fill_(kHidden);  // sees no key
    }
    const auto got = st::masked_softmax(scores, visible, tail);
    const auto expected = st::plain::masked_softmax(scores, visible, tail);
    compare({got.columns, got.tail}, {expected.columns, expected.tail}, {scores, tail}, tolerance);
    CHECK(got.columns.select(1, 5).abs().max().item<double>() == 0);
    CHECK(got.tail.select(1, 5).abs().max().item<double>() == 0);
    CHECK(got.columns.select(1, 1).narrow(-1, 3, 38).abs().max().item<double>() == 0);
    CHECK(got.tail.masked_select(tail == kHidden).abs().max().item<double>() == 0);
    const auto sums = (got.columns.sum(-1) + got.tail.sum(-1)).to(torch::kFloat32);
    CHECK(torch::allclose(sums.select(1, 3), torch::ones({4}), 0, 0.02));

    const auto alone = st::masked_softmax(scores, visible),
               plain = st::plain::masked_softmax(scores, visible);
    CHECK_FALSE(alone.tail.defined());
    compare({alone.columns}, {plain.columns}, {scores}, tolerance);
  }
}

TEST_CASE("attention with lagged keys equals plain attention") {
  // A causal row, and the same with its last three keys taken one by one.
  torch::manual_seed(6);
  const std::int64_t length = 11;
  const auto make = [](std::int64_t rows) { return torch::randn({2, rows, 8}).requires_grad_(); };
  const auto q = make(3 * length), k = make(length), v = make(length);
  const auto at = torch::arange(length), visible = (at - 2).clamp_min(0);
  std::vector<st::LaggedKey> more;
  for (const std::int64_t lag : {2, 0, 1}) more.push_back({{k, v}, lag, at < lag});
  compare({st::attend(q, {k, v}, visible, more)}, {st::attend(q, {k, v}, st::causal(length, torch::kCPU))},
          {q, k, v}, 1e-5);
}

TEST_CASE("extreme scores") {
  const auto scores = torch::tensor({{{1e4F, 0.0F}, {-1e4F, 1e4F}}});
  CHECK(torch::allclose(st::masked_softmax(scores, st::causal(2, torch::kCPU)).columns,
                        torch::tensor({{{1.0F, 0.0F}, {0.0F, 1.0F}}})));
  const auto broken = torch::tensor({{{1.0F, 0.0F}, {std::numeric_limits<float>::quiet_NaN(), 0.0F}}});
  CHECK(st::masked_softmax(broken, st::causal(2, torch::kCPU)).columns[0][1].isnan().all().item<bool>());
  const auto gates = torch::tensor({{-1e4F, 1e4F, 1.0F, 1.0F}});
  CHECK(torch::allclose(st::swiglu(gates), torch::tensor({{0.0F, 1e4F}})));
}

TEST_CASE("a token outside the vocabulary is an error") {
  CHECK_THROWS_AS(st::cross_entropy(torch::zeros({1, 4}), torch::full({1}, 4, torch::kInt64)),
                  c10::IndexError);
}
