// SPDX-License-Identifier: MIT
// The trainer's Llama decoder: causality, loss, gradients, checkpoints.
#include "llama.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "checkpoint.hpp"
#include "export.hpp"
#include "folder.hpp"
#include "gradients.hpp"
#include "safetensors.hpp"

namespace st = specula_train;

namespace {

st::DecoderConfig tiny() {
  return {.vocab_size = 50, .hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .intermediate = 48};
}

torch::Tensor random_rows(std::int64_t rows, std::int64_t length) {
  return torch::randint(0, 50, {rows, length}, torch::kInt64);
}

}  // namespace

TEST_CASE("later tokens do not change earlier features") {
  torch::manual_seed(1);
  st::Llama model(tiny());
  const auto one = random_rows(2, 9);
  auto two = one.clone();
  two.select(1, 6).fill_(7);
  const auto a = model->features(one, torch::kFloat32), b = model->features(two, torch::kFloat32);
  CHECK(torch::allclose(a.narrow(1, 0, 6), b.narrow(1, 0, 6)));
  CHECK_FALSE(torch::allclose(a.narrow(1, 6, 3), b.narrow(1, 6, 3)));
}

TEST_CASE("an untrained model has the loss of a uniform distribution") {
  torch::manual_seed(1);
  st::Llama model(tiny());
  const auto loss = st::next_token_loss(model, random_rows(8, 33), torch::kFloat32).item<double>();
  CHECK(loss == doctest::Approx(std::log(50.0)).epsilon(0.02));
}

TEST_CASE("given tokens are inputs, but not part of the loss") {
  torch::manual_seed(1);
  st::Llama model(tiny());
  const auto rows = random_rows(2, 9);
  auto marked = rows.clone();
  marked[0].slice(0, 0, 5).bitwise_not_();
  marked[1].fill_(~7);
  // The rest: the last four tokens of the first row, with all tokens before them.
  const auto features = model->features(rows.slice(0, 0, 1).narrow(1, 0, 8), torch::kFloat32);
  const auto expected =
      torch::nn::functional::cross_entropy(model->head(features)[0].narrow(0, 4, 4), rows[0].narrow(0, 5, 4));
  CHECK(st::next_token_loss(model, marked, torch::kFloat32).item<double>() ==
        doctest::Approx(expected.item<double>()));
  // A part of a batch without tokens to learn has no gradient.
  const auto loss = [&](const torch::Tensor& part) {
    return st::next_token_loss(model, part, torch::kFloat32);
  };
  CHECK(st::compute_gradients(loss, marked.slice(0, 1, 2), model->parameters()) == 0);
  for (const auto& parameter : model->parameters()) {
    const auto& gradient = parameter.grad();
    CHECK((!gradient.defined() || gradient.abs().max().item<double>() == 0));
  }
}

TEST_CASE("the number of learned predictions is rounded up") {
  auto rows = random_rows(3, 101);
  const auto all = st::learned_predictions(rows);
  CHECK(torch::equal(all.places, torch::arange(300)));
  CHECK(torch::equal(all.expected, rows.narrow(1, 1, 100).reshape({-1})));
  rows[0].narrow(0, 0, 91).bitwise_not_();
  rows[2].bitwise_not_();
  const auto some = st::learned_predictions(rows);  // 10 of the first row, 100 of the second
  REQUIRE(some.places.size(0) == 128);
  REQUIRE(some.expected.size(0) == 128);
  CHECK(torch::equal(some.places.narrow(0, 0, 110), torch::arange(90, 200)));
  CHECK(torch::equal(some.expected.narrow(0, 10, 100), rows[1].narrow(0, 1, 100)));
  CHECK((some.expected.narrow(0, 110, 18) == -1).all().item<bool>());
  CHECK(st::learned_predictions(rows.narrow(0, 2, 1)).places.numel() == 0);
}

TEST_CASE("a batch in parts has the gradient of the whole") {
  torch::manual_seed(1);
  st::Llama model(tiny());
  const auto rows = random_rows(5, 17);
  const auto loss = [&](const torch::Tensor& part) {
    return st::next_token_loss(model, part, torch::kFloat32);
  };
  const auto whole = loss(rows);
  const auto expected = torch::autograd::grad({whole}, model->parameters());
  CHECK(st::compute_gradients(loss, rows, model->parameters()) == doctest::Approx(whole.item<double>()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(torch::allclose(model->parameters()[i].grad(), expected[i], 1e-4, 1e-6));
  }
}

TEST_CASE("parameters have Hugging Face's names") {
  const auto parameters = st::Llama(tiny())->named_parameters();
  for (const auto* name : {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight",
                           "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.1.post_attention_layernorm.weight", "model.norm.weight"}) {
    CAPTURE(name);
    CHECK(parameters.contains(name));
  }
  CHECK(parameters.size() == 1 + 2 * 9 + 1);
}

TEST_CASE("an untied LM head, and a head_dim other than hidden / heads") {
  auto config = tiny();
  config.tied_head = false;
  config.head_size = 6;
  torch::manual_seed(1);
  st::Llama model(config);
  const auto parameters = model->named_parameters();
  CHECK(parameters.size() == 1 + 2 * 9 + 1 + 1);
  CHECK((parameters["lm_head.weight"].sizes() == torch::IntArrayRef{50, 32}));
  CHECK((parameters["model.layers.0.self_attn.q_proj.weight"].sizes() == torch::IntArrayRef{24, 32}));
  CHECK((parameters["model.layers.0.self_attn.k_proj.weight"].sizes() == torch::IntArrayRef{12, 32}));
  CHECK((parameters["model.layers.0.self_attn.o_proj.weight"].sizes() == torch::IntArrayRef{32, 24}));
  const auto features = torch::randn({3, 32});
  CHECK(torch::allclose(model->head(features), features.matmul(parameters["lm_head.weight"].t())));
  const auto loss = [&](const torch::Tensor& part) {
    return st::next_token_loss(model, part, torch::kFloat32);
  };
  const auto rows = random_rows(5, 17);
  CHECK(loss(rows).item<double>() == doctest::Approx(std::log(50.0)).epsilon(0.02));
  loss(rows).backward();
  for (const auto& item : parameters) {
    CAPTURE(item.key());
    CHECK(item.value().grad().abs().max().item<double>() > 0);
  }
}

TEST_CASE("a model with additional layers equals the one that it starts from, and its new layers learn") {
  torch::manual_seed(1);
  const specula_train_test::Folder folder("specula_train_deeper_test");
  folder.write("t.model", "a tokenizer");
  const auto directory = folder.path / "export";
  st::Llama shallow(tiny());
  st::export_model(shallow, folder.path / "t.model", {}, directory);
  st::load_weights(directory, *shallow);  // rounded

  auto config = tiny();
  config.layers = 4;
  st::Llama deep(config);
  CHECK_THROWS_WITH_AS(st::load_weights(directory, *deep, st::Surplus::refused, {"model.layers.3."}),
                       doctest::Contains("model.layers.2."), std::runtime_error);
  st::load_weights(directory, *deep, st::Surplus::refused, {"model.layers.2.", "model.layers.3."});
  const auto rows = random_rows(2, 9);
  CHECK_FALSE(torch::equal(deep->features(rows, torch::kFloat32), shallow->features(rows, torch::kFloat32)));
  deep->silence(2);
  CHECK(torch::equal(deep->features(rows, torch::kFloat32), shallow->features(rows, torch::kFloat32)));
  st::next_token_loss(deep, rows, torch::kFloat32).backward();
  for (const auto* name : {"model.layers.2.self_attn.o_proj.weight", "model.layers.3.mlp.down_proj.weight"})
    CHECK(deep->named_parameters()[name].grad().abs().max().item<double>() > 0);
}

TEST_CASE("impossible sizes are refused") {
  auto config = tiny();
  config.kv_heads = 3;
  CHECK_THROWS_WITH_AS(st::Llama{config}, doctest::Contains("multiple of kv-heads 3"), std::invalid_argument);
  CHECK_THROWS_AS(st::named_config("huge"), std::invalid_argument);
}

TEST_CASE("saved checkpoints are loaded completely") {
  const specula_train_test::Folder folder("specula_train_checkpoint_test");
  st::Llama one(tiny()), two(tiny());
  st::save_checkpoint({.steps = 3,
                       .tokens = 70,
                       .seconds = 1.5,
                       .finished = true,
                       .data_position = torch::ones({3, 2}, torch::kInt64),
                       .parameters = one->parameters(),
                       .optimizer = {torch::full({2}, 4.0)}},
                      folder.path / "checkpoint.pt");
  const auto saved = st::load_checkpoint(folder.path / "checkpoint.pt");
  CHECK(saved.steps == 3);
  CHECK(saved.tokens == 70);
  CHECK(saved.seconds == 1.5);
  CHECK(saved.finished);
  CHECK(saved.optimizer.size() == 1);
  st::copy_parameters(saved.parameters, *two);
  const auto rows = random_rows(2, 9);
  CHECK(torch::equal(one->features(rows, torch::kFloat32), two->features(rows, torch::kFloat32)));

  auto larger = tiny();
  larger.intermediate = 64;
  st::Llama other(larger);
  CHECK_THROWS_AS(st::copy_parameters(saved.parameters, *other), std::runtime_error);
  CHECK_THROWS_AS(st::load_checkpoint(folder.path / "missing.pt"), std::runtime_error);
}
