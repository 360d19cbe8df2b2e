// SPDX-License-Identifier: MIT
// Sorted fine-tuning: a decoder that learns to predict at several exits.
#include <doctest/doctest.h>

#include <losses/sorted_loss.hpp>
#include <specula/cpu/compile_decoder.hpp>  // for all the tests here
#include <specula/cpu/compile_decoder_double.hpp>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "export.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;

namespace {

st::DecoderConfig sorted() {
  auto config = tiny_target();
  config.exits = {1, 3};
  return config;
}

/// The first layers of a model, with its weights.
st::Llama cut(const st::Llama& model, std::int64_t layers) {
  auto config = model->config();
  config.layers = layers;
  config.exits.clear();
  st::Llama out(config);
  torch::NoGradGuard no_grad;
  const auto from = model->named_parameters();
  for (auto& item : out->named_parameters()) item.value().copy_(from[item.key()]);
  return out;
}

}  // namespace

TEST_CASE("outputs of an exit are those of the model that ends there") {
  torch::manual_seed(1);
  st::Llama model(sorted());
  enlarge(*model);
  const auto rows = random_rows(2, 9);
  const auto exits = model->exit_features(rows, torch::kFloat32);
  REQUIRE(exits.size() == 2);
  CHECK(torch::allclose(exits[0], cut(model, 1)->features(rows, torch::kFloat32)));
  CHECK(torch::allclose(exits[1], model->features(rows, torch::kFloat32)));
}

TEST_CASE("the loss is the mean over the exits, and so is its gradient: specula::sorted_loss, by autograd") {
  torch::manual_seed(2);
  st::Llama model(sorted());
  enlarge(*model);
  const auto rows = random_rows(2, 7);
  const auto losses = st::exit_losses(model, rows, torch::kFloat32);
  const double loss = st::next_token_loss(model, rows, torch::kFloat32).item<double>();
  CHECK(loss == doctest::Approx((losses[0].item<double>() + losses[1].item<double>()) / 2));

  std::vector<torch::Tensor> logits;
  for (const auto& features : model->exit_features(rows.narrow(1, 0, 6), torch::kFloat32))
    logits.push_back(
        model->head(features).reshape({-1, kVocab}).detach().to(torch::kFloat64).requires_grad_());
  const auto expected = rows.narrow(1, 1, 6).reshape({-1});
  auto mean = torch::zeros({}, torch::kFloat64);
  for (const auto& l : logits) mean = mean + torch::nn::functional::cross_entropy(l, expected) / 2;
  mean.backward();
  CHECK(mean.item<double>() == doctest::Approx(loss).epsilon(1e-5));
  double total = 0;
  for (std::int64_t i = 0; i < 12; ++i) {
    std::vector<std::span<const double>> in;
    std::vector<std::vector<double>> gradients(2, std::vector<double>(kVocab));
    std::vector<std::span<double>> out(gradients.begin(), gradients.end());
    for (const auto& l : logits) in.emplace_back(l.data_ptr<double>() + i * kVocab, kVocab);
    total += specula::sorted_loss<double>(in, static_cast<specula::Token>(expected[i].item<std::int64_t>()),
                                          out, 1.0 / 12);
    for (std::size_t e = 0; e < 2; ++e)
      for (std::int64_t x = 0; x < kVocab; ++x)
        CHECK(gradients[e][static_cast<std::size_t>(x)] ==
              doctest::Approx(logits[e].grad()[i][x].item<double>()).epsilon(1e-9));
  }
  CHECK(total / 12 == doctest::Approx(mean.item<double>()).epsilon(1e-9));
}

TEST_CASE("gradients in parts and resumed training of a model with exits") {
  torch::manual_seed(3);
  st::Llama model(sorted());
  check_parts([&](const torch::Tensor& rows) { return st::next_token_loss(model, rows, torch::kFloat32); },
              random_rows(8, 9), *model);
  check_resume([] {
    torch::manual_seed(4);
    st::Llama trainee(sorted());
    return Trainee{trainee.ptr(), [trainee](const torch::Tensor& rows) mutable {
                     return st::next_token_loss(trainee, rows, torch::kFloat32);
                   }};
  });
}

TEST_CASE("bad exits are refused") {
  const std::vector<std::vector<std::int64_t>> bad{{1, 2}, {0, 3}, {2, 1, 3}, {1, 1, 3}, {3, 4}};
  for (const auto& exits : bad) {
    auto config = tiny_target();
    config.exits = exits;
    CHECK_THROWS_AS(st::Llama{config}, std::invalid_argument);
  }
}

TEST_CASE("a model cut from a larger export, and the exits of its own export") {
  const Folder folder("specula_sorted_test");
  torch::manual_seed(5);
  auto config = tiny_target();
  config.layers = 4;
  st::Llama larger(config);
  enlarge(*larger);
  st::write_safetensors(larger->named_parameters(), folder.path / "model.safetensors");
  st::Llama draft(sorted());
  CHECK_THROWS_AS(st::load_weights(folder.path, *draft), std::runtime_error);
  st::load_weights(folder.path, *draft, st::Surplus::ignored);

  const auto tokenizer = folder.path / "tokenizer.model";
  std::ofstream(tokenizer) << "pieces";
  st::export_model(draft, tokenizer, {.name = "s2d", .recipe = "by hand"}, folder.path / "export");
  specula::cpu::Decoder<float> model(folder.path / "export");
  REQUIRE(model.exits() == 2);
  CHECK(model.layers_to(0) == 1);
  const auto rows = random_rows(1, 6);
  std::vector<specula::Token> text;
  for (std::int64_t i = 0; i < 6; ++i)
    text.push_back(static_cast<specula::Token>(rows[0][i].item<std::int64_t>()));
  const auto exits = draft->exit_features(rows, torch::kFloat32);
  model.append(specula::Tokens(text).first(5));
  const specula::NodeId root = specula::kNoParent;
  const auto near = [&](std::span<const float> got, const torch::Tensor& features) {
    const auto want = draft->head(features)[0][5];
    double most = 0;
    for (std::int64_t x = 0; x < kVocab; ++x)
      most = std::max(
          most, std::abs(static_cast<double>(got[static_cast<std::size_t>(x)]) - want[x].item<double>()));
    return most;
  };
  const std::int32_t row = 0;
  CHECK(near(model.extend_to_exit({&text[5], 1}, {&root, 1}, 0).row(0), exits[0]) <
        0.1);  // exported as bfloat16
  CHECK(near(model.resume_to_exit({&row, 1}, 1).row(0), exits[1]) < 0.1);
  CHECK(st::read_config(folder.path / "export").exits == std::vector<std::int64_t>{1, 3});
}
