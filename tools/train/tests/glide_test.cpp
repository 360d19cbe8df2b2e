// SPDX-License-Identifier: MIT
// GLIDE drafts: parameters, masks, loss, resuming.
#include "glide.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <losses/block_mask.hpp>
#include <stdexcept>

#include "export.hpp"
#include "folder.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
using torch::Tensor;

namespace {

st::GlideConfig tiny(std::int64_t layers) {
  return {.draft = tiny_draft(layers), .target = tiny_target(), .block = 5};
}

struct Pair {
  explicit Pair(std::int64_t layers) : target(tiny_target()), draft(tiny(layers)) {
    torch::manual_seed(layers);
    enlarge(*target);
    enlarge(*draft);
  }
  std::vector<st::KeyValues> target_states(const Tensor& tokens) {
    return target->target_view(tokens, draft->config().layers_read(), false, torch::kFloat32).layers;
  }
  st::Llama target;
  st::Glide draft;
};

}  // namespace

TEST_CASE("a draft has a Llama's parameters and two more per layer") {
  const auto parameters = st::Glide(tiny(2))->named_parameters();
  for (const auto* name : {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight",
                           "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.1.post_attention_layernorm.weight", "model.norm.weight"}) {
    CAPTURE(name);
    CHECK(parameters.contains(name));
  }
  CHECK(parameters.size() == 1 + 2 * 11 + 1);
  CHECK((parameters["model.layers.1.cross_attn.q_proj.weight"].sizes() == torch::IntArrayRef{32, 36}));
  CHECK((parameters["model.layers.1.cross_attn.o_proj.weight"].sizes() == torch::IntArrayRef{36, 32}));
}

TEST_CASE("keys and values that a target exposes are those that its layers use") {
  torch::manual_seed(1);
  st::Llama target(tiny_target());
  enlarge(*target);
  const auto tokens = random_rows(2, 7);
  const auto view = target->target_view(tokens, {1, 2}, true, torch::kFloat32);
  CHECK(torch::equal(view.features, target->features(tokens, torch::kFloat32)));
  REQUIRE(view.layers.size() == 2);
  CHECK((view.layers[0].k.sizes() == torch::IntArrayRef{2 * 2, 7, 8}));
  CHECK_FALSE(view.features.requires_grad());
  CHECK_FALSE(view.layers[0].k.requires_grad());
  const auto less = target->target_view(tokens, {2}, false, torch::kFloat32);
  REQUIRE(less.layers.size() == 1);
  CHECK_FALSE(less.features.defined());
  CHECK(torch::equal(less.layers[0].k, view.layers[1].k));
  CHECK(torch::equal(less.layers[0].v, view.layers[1].v));
  const auto chosen = target->target_view(tokens, {1, 0, 1}, false, torch::kFloat32);
  REQUIRE(chosen.layers.size() == 3);
  CHECK(torch::equal(chosen.layers[0].k, view.layers[0].k));
  CHECK(torch::equal(chosen.layers[2].v, view.layers[0].v));
  CHECK_FALSE(torch::equal(chosen.layers[1].k, view.layers[0].k));
}

TEST_CASE("a target's key is visible to the blocks after its own, and in block 0 to later queries") {
  const std::int64_t length = 13;
  for (const std::int64_t layers : {1, 2}) {
    CAPTURE(layers);
    Pair pair(layers);
    const auto tokens = random_rows(2, length);
    const auto seen = pair.target_states(tokens);
    const auto before = pair.draft->features(tokens, seen, torch::kFloat32);
    for (std::int32_t key = 0; key < length; ++key) {
      CAPTURE(key);
      for (const bool value : {false, true}) {
        if (!value && key == 0 && layers == 1) continue;  // where it is the only key, only its value matters
        std::vector<st::KeyValues> changed;
        for (const auto& layer : seen) {
          changed.push_back({layer.k.clone(), layer.v.clone()});
          (value ? changed.back().v : changed.back().k).select(1, key).mul_(-2);
        }
        const auto rows = changed_rows(before, pair.draft->features(tokens, changed, torch::kFloat32));
        for (std::int32_t query = 0; query < length; ++query) {
          CAPTURE(query);
          const bool sees = key < specula::BlockMask{.block = 5}.visible(query);
          const bool only_key = !value && key == 0 && query == 1;
          if (!only_key) CHECK(rows[query].item<bool>() == sees);
        }
      }
    }
  }
}

TEST_CASE("a draft sees its own tokens up to the query's") {
  for (const std::int64_t layers : {1, 2}) {
    CAPTURE(layers);
    Pair pair(layers);
    const auto tokens = random_rows(2, 13);
    const auto seen = pair.target_states(tokens);
    const auto before = pair.draft->features(tokens, seen, torch::kFloat32);
    for (std::int64_t at = 0; at < 13; ++at) {
      CAPTURE(at);
      auto changed = tokens.clone();
      changed.select(1, at).add_(1).remainder_(kVocab);
      const auto rows = changed_rows(before, pair.draft->features(changed, seen, torch::kFloat32));
      CHECK(torch::equal(rows, torch::arange(13) >= at));
    }
  }
}

TEST_CASE("the loss of a draft") {
  Pair pair(2);
  const auto rows = random_rows(4, 14);
  const auto loss = [&](const Tensor& part) {
    return st::glide_loss(pair.draft, pair.target, part, torch::kFloat32);
  };
  check_parts(loss, rows, *pair.draft);

  auto given = rows.clone();
  given.narrow(1, 0, 9).bitwise_not_();
  const auto features =
      pair.draft->features(rows.narrow(1, 0, 13), pair.target_states(rows.narrow(1, 0, 13)), torch::kFloat32);
  const auto expected = torch::nn::functional::cross_entropy(
      pair.draft->head(features).narrow(1, 8, 5).flatten(0, 1), rows.narrow(1, 9, 5).flatten());
  CHECK(loss(given).item<double>() == doctest::Approx(expected.item<double>()));
  CHECK(loss(rows.bitwise_not()).item<double>() == 0);
}

TEST_CASE("a draft in bfloat16 is close to that in float32") {
  Pair pair(2);
  const auto rows = random_rows(8, 33);
  const auto in = [&](torch::ScalarType dtype) {
    return st::glide_loss(pair.draft, pair.target, rows, dtype).item<double>();
  };
  CHECK(in(torch::kBFloat16) == doctest::Approx(in(torch::kFloat32)).epsilon(0.02));
}

TEST_CASE("a resumed training of a draft continues identically") {
  check_resume([] {
    torch::manual_seed(5);
    const st::Llama target(tiny_target());
    const st::Glide draft(tiny(2));
    return Trainee{draft.ptr(), [=](const Tensor& rows) mutable {
                     auto own_draft = draft;
                     auto own_target = target;
                     return st::glide_loss(own_draft, own_target, rows, torch::kFloat32);
                   }};
  });
}

TEST_CASE("a draft reads the last layers of its target, or the given ones") {
  auto config = tiny(2);
  CHECK(config.layers_read() == std::vector<std::int64_t>{1, 2});
  config.target_layers = {2, 0};
  CHECK_NOTHROW(st::Glide{config});
  CHECK(config.layers_read() == std::vector<std::int64_t>{2, 0});
  config.target_layers = {2};
  CHECK_THROWS_WITH_AS(st::Glide{config}, doctest::Contains("--target-layer names 1 layers"),
                       std::invalid_argument);
  config.target_layers = {2, 3};
  CHECK_THROWS_WITH_AS(st::Glide{config}, doctest::Contains("--target-layer 3: expected 0 to 2"),
                       std::invalid_argument);
}

TEST_CASE("a draft may have an LM head of its own") {
  auto config = tiny(1);
  config.draft.tied_head = false;
  torch::manual_seed(1);
  st::Llama target(tiny_target());
  st::Glide draft(config);
  enlarge(*draft);
  const auto parameters = draft->named_parameters();
  CHECK(parameters.size() == 1 + 11 + 1 + 1);
  CHECK((parameters["lm_head.weight"].sizes() == torch::IntArrayRef{kVocab, 36}));
  const auto features = torch::randn({3, 36});
  CHECK(
      torch::allclose(draft->head(features), features.matmul(parameters["lm_head.weight"].t()), 1e-4, 1e-4));
  check_parts([&](const Tensor& part) { return st::glide_loss(draft, target, part, torch::kFloat32); },
              random_rows(4, 14), *draft);
}

TEST_CASE("impossible drafts are refused") {
  auto config = tiny(4);
  CHECK_THROWS_WITH_AS(st::Glide{config}, doctest::Contains("a draft of 4 layers: the target has 3"),
                       std::invalid_argument);
  config = tiny(1);
  config.block = 0;
  CHECK_THROWS_WITH_AS(st::Glide{config}, doctest::Contains("block is 0"), std::invalid_argument);
}

TEST_CASE("a draft initialised from a plain decoder equals that decoder until it is trained") {
  const specula_train_test::Folder folder("specula_train_glide_from_decoder_test");
  folder.write("t.model", "a tokenizer");
  const auto directory = folder.path / "export";
  torch::manual_seed(5);
  st::Llama decoder(tiny_draft(2));
  enlarge(*decoder);
  st::export_model(decoder, folder.path / "t.model", {}, directory);
  st::load_weights(directory, *decoder);  // rounded
  CHECK(st::read_inference_config(directory).conditioned_on == specula::Conditioning::nothing);

  Pair pair(2);
  CHECK_THROWS_WITH_AS(st::load_weights(directory, *pair.draft), doctest::Contains("cross_attn"),
                       std::runtime_error);
  pair.draft->silence_cross_attention();
  st::load_weights(directory, *pair.draft, st::Surplus::refused,
                   {"model.layers.0.cross_attn.", "model.layers.1.cross_attn."});
  const auto rows = random_rows(2, 14);
  const auto tokens = rows.narrow(1, 0, 13);
  const auto features = pair.draft->features(tokens, pair.target_states(tokens), torch::kFloat32);
  CHECK(torch::allclose(features, decoder->features(tokens, torch::kFloat32), 1e-4, 1e-5));

  st::glide_loss(pair.draft, pair.target, rows, torch::kFloat32).backward();
  for (const auto* name :
       {"model.layers.0.cross_attn.o_proj.weight", "model.layers.1.cross_attn.o_proj.weight"})
    CHECK(pair.draft->named_parameters()[name].grad().abs().max().item<double>() > 0);
  st::export_glide(pair.draft, folder.path / "t.model", {}, folder.path / "glide");
  CHECK(st::read_inference_config(folder.path / "glide").conditioned_on == specula::Conditioning::key_values);
  CHECK(st::read_config(folder.path / "glide", {specula::Conditioning::key_values}).layers == 2);
  CHECK_THROWS_WITH_AS(st::read_config(folder.path / "glide"), doctest::Contains("expected a plain decoder"),
                       std::runtime_error);
}
