// SPDX-License-Identifier: MIT
// Weights on disk: safetensors files and shards.
#include "safetensors.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "llama.hpp"
#include "tiny_models.hpp"

namespace st = specula_train;

namespace {

st::DecoderConfig tiny() {
  return {.vocab_size = 50, .hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .intermediate = 48};
}

/// model.safetensors in a folder that is removed at the end.
struct File {
  specula_train_test::Folder folder{"specula_train_safetensors_test"};
  std::filesystem::path path = folder.path / "model.safetensors";
};

}  // namespace

TEST_CASE("saved weights are loaded as rounded") {
  const File file;
  torch::manual_seed(1);
  st::Llama one(tiny()), two(tiny());
  st::write_safetensors(one->named_parameters(), file.path);
  st::load_weights(file.folder.path, *two);
  for (const auto& item : one->named_parameters()) {
    CAPTURE(item.key());
    const auto rounded = item.value().to(torch::kBFloat16).to(torch::kFloat32);
    CHECK(torch::equal(two->named_parameters()[item.key()], rounded));
  }
  CHECK(two->parameters().front().requires_grad());
}

TEST_CASE("errors name unexpected tensors") {
  const File file;
  st::Llama model(tiny());
  auto larger = tiny();
  larger.intermediate = 64;
  st::write_safetensors(st::Llama(larger)->named_parameters(), file.path);
  CHECK_THROWS_WITH_AS(
      st::load_weights(file.folder.path, *model),
      doctest::Contains("model.layers.0.mlp.gate_proj.weight': shape [64, 32], expected [48, 32]"),
      std::runtime_error);

  auto deeper = tiny();
  deeper.layers = 3;
  st::write_safetensors(st::Llama(deeper)->named_parameters(), file.path);
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *model),
                       doctest::Contains("is not a parameter of the model"), std::runtime_error);

  auto shallower = tiny();
  shallower.layers = 1;
  st::write_safetensors(st::Llama(shallower)->named_parameters(), file.path);
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *model),
                       doctest::Contains("tensor 'model.layers.1."), std::runtime_error);
}

TEST_CASE("files that are not safetensors are refused") {
  const File file;
  st::Llama model(tiny());
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *model),
                       doctest::Contains("neither model.safetensors nor"), std::runtime_error);
  for (const auto* text : {"short", "far too many bytes", "\2\0\0\0\0\0\0\0{]"}) {
    std::ofstream(file.path, std::ios::binary).write(text, text[0] == '\2' ? 10 : 5 + 13 * (text[0] == 'f'));
    CHECK_THROWS_AS(st::load_weights(file.folder.path, *model), std::runtime_error);
  }

  st::write_safetensors(model->named_parameters(), file.path);
  std::filesystem::resize_file(file.path, std::filesystem::file_size(file.path) - 2);
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *model), doctest::Contains("data_offsets"),
                       std::runtime_error);
}

TEST_CASE("shards, and tensors that are stored twice") {
  const File file;
  torch::manual_seed(1);
  st::Llama one(tiny()), two(tiny());
  auto tensors = one->named_parameters();
  tensors.insert("lm_head.weight", tensors["model.embed_tokens.weight"]);  // tied, but present
  tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq", torch::ones({4}));
  st::write_safetensors(tensors, file.path);
  specula_train_test::shard(file.folder.path, 3);
  CHECK_FALSE(std::filesystem::exists(file.path));
  st::load_weights(file.folder.path, *two);
  for (std::size_t i = 0; i < one->parameters().size(); ++i) {
    // What is below 2^-17 loses bits in F16.
    CHECK(torch::allclose(two->parameters()[i], one->parameters()[i].to(torch::kBFloat16).to(torch::kFloat32),
                          0, 1e-7));
  }
  std::filesystem::remove(file.folder.path / "shard-1.safetensors");
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *two), doctest::Contains("shard-1.safetensors"),
                       std::runtime_error);
}

TEST_CASE("biases are refused") {
  const File file;
  st::Llama model(tiny());
  auto tensors = model->named_parameters();
  tensors.insert("model.layers.0.self_attn.q_proj.bias", torch::ones({32}));
  st::write_safetensors(tensors, file.path);
  CHECK_THROWS_WITH_AS(st::load_weights(file.folder.path, *model),
                       doctest::Contains("is not a parameter of the model"), std::runtime_error);
}
