// SPDX-License-Identifier: MIT
// Loading the weights of a Hugging Face directory: values, and all errors.
#include <specula/cpu/decoder_weights.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "../files/safetensors_writer.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;

constexpr const char* kConfig =
    R"({"model_type":"llama","vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":2,"num_attention_heads":2,
        "num_key_value_heads":1,"head_dim":4,"tie_word_embeddings":false})";

/// Values that every dtype holds exactly, different everywhere.
void add_tensor(std::vector<Tensor>& all, const std::string& dtype, const std::string& name,
                std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  Tensor tensor{name, dtype, std::move(shape), {}};
  for (std::int64_t i = 0; i < count; ++i)
    tensor.values.push_back(
        static_cast<float>((static_cast<std::int64_t>(all.size()) * 31 + i * 7) % 127 - 63) / 64);
  all.push_back(tensor);
}

/// All tensors of the model above.
std::vector<Tensor> tensors(const std::string& dtype) {
  std::vector<Tensor> all;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    add_tensor(all, dtype, name, std::move(shape));
  };
  add("model.embed_tokens.weight", {7, 6});
  add("lm_head.weight", {7, 6});
  add("model.norm.weight", {6});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add(layer + "self_attn.q_proj.weight", {8, 6});
    add(layer + "self_attn.k_proj.weight", {4, 6});
    add(layer + "self_attn.v_proj.weight", {4, 6});
    add(layer + "self_attn.o_proj.weight", {6, 8});
    add(layer + "mlp.gate_proj.weight", {5, 6});
    add(layer + "mlp.up_proj.weight", {5, 6});
    add(layer + "mlp.down_proj.weight", {6, 5});
    add(layer + "input_layernorm.weight", {6});
    add(layer + "post_attention_layernorm.weight", {6});
  }
  return all;
}

Tensor& find(std::vector<Tensor>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const Tensor& tensor) { return tensor.name == name; });
}

template <class Real>
void check_matrix(const PanelMatrix<Real>& matrix, std::int32_t first_row, const Tensor& tensor) {
  const auto cols = static_cast<std::int32_t>(tensor.shape[1]);
  REQUIRE(matrix.cols() == cols);
  for (std::int32_t r = 0; r < tensor.shape[0]; ++r)
    for (std::int32_t k = 0; k < cols; ++k)
      REQUIRE(matrix.value(first_row + r, k) ==
              static_cast<Real>(tensor.values[static_cast<std::size_t>(r * cols + k)]));
}

template <class Real>
void check_weights(const DecoderWeights<Real>& weights, std::vector<Tensor> all) {
  check_matrix(weights.embedding, 0, find(all, "model.embed_tokens.weight"));
  check_matrix(weights.head(), 0, find(all, "lm_head.weight"));
  REQUIRE(weights.layers.size() == 2);
  for (std::size_t l = 0; l < 2; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const auto& layer = weights.layers[l];
    check_matrix(layer.attention.qkv, 0, find(all, at + "self_attn.q_proj.weight"));
    check_matrix(layer.attention.qkv, 8, find(all, at + "self_attn.k_proj.weight"));
    check_matrix(layer.attention.qkv, 12, find(all, at + "self_attn.v_proj.weight"));
    check_matrix(layer.attention.output, 0, find(all, at + "self_attn.o_proj.weight"));
    check_matrix(layer.mlp.gate_up, 0, find(all, at + "mlp.gate_proj.weight"));
    check_matrix(layer.mlp.gate_up, 5, find(all, at + "mlp.up_proj.weight"));
    check_matrix(layer.mlp.down, 0, find(all, at + "mlp.down_proj.weight"));
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(layer.attention.norm[i] == static_cast<Real>(find(all, at + "input_layernorm.weight").values[i]));
      CHECK(layer.mlp.norm[i] ==
            static_cast<Real>(find(all, at + "post_attention_layernorm.weight").values[i]));
    }
  }
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(weights.final_norm[i] == static_cast<Real>(find(all, "model.norm.weight").values[i]));
}

TEST_CASE_TEMPLATE("one file of each dtype", Real, float, double) {
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    const TemporaryDirectory directory("one_file");
    write_file(directory.path / "config.json", kConfig);
    write_file(directory.path / "model.safetensors", safetensors_bytes(tensors(dtype)));
    const auto weights = load_decoder_weights<Real>(directory.path);
    check_weights(weights, tensors(dtype));
    CHECK((weights.layers[0].mlp.down.type() == WeightType::bf16) == (dtype == "BF16"));
    CHECK(weights.config.head_dim == 4);
  }
}

TEST_CASE("matrices of 8 bits stay in blocks; in double, and if asked for, they are bfloat16") {
  // Each matrix as integers and exponents, whose values are those of the F32 file.
  auto stored = tensors("BF16"), meant = stored;
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    all.push_back(stored[i]);
    if (stored[i].shape.size() != 2) continue;
    const auto e = static_cast<float>(static_cast<int>(i % 7) - 9);
    for (float& value : all.back().values) value *= 64;
    all.back().dtype = "I8";
    all.push_back({stored[i].name + ".exponents", "I8", {stored[i].shape[0], 1}, {}});
    all.back().values.assign(static_cast<std::size_t>(stored[i].shape[0]), e);
    for (float& value : meant[i].values) value = std::ldexp(value * 64, static_cast<int>(e));
  }
  const TemporaryDirectory directory("int8");
  write_file(directory.path / "config.json", kConfig);
  write_file(directory.path / "model.safetensors", safetensors_bytes(all));
  const auto weights = load_decoder_weights<float>(directory.path);
  check_weights(weights, meant);
  const StoredType blocks{WeightType::blocks, GgufId::q8_0};
  CHECK(weights.layers[0].mlp.down.stored_at(0) == blocks);
  CHECK(weights.layers[0].attention.qkv.stored_at(15) == blocks);
  REQUIRE(weights.kept.size() == 1);
  CHECK(weights.kept[0].type == "I8");
  CHECK(weights.kept[0].as == WeightType::blocks);
  CHECK(weights.kept[0].quantized);
  CHECK(weights.kept[0].tensors == 16);
  const auto in_double = load_decoder_weights<double>(directory.path);
  check_weights(in_double, meant);
  CHECK(in_double.layers[0].mlp.down.type() == WeightType::bf16);
  const auto as_asked = load_decoder_weights<float>(directory.path, {}, {.stored = WeightType::bf16});
  check_weights(as_asked, meant);
  CHECK(as_asked.layers[0].mlp.down.type() == WeightType::bf16);

  const auto error_of = [&](const std::vector<Tensor>& changed) {
    write_file(directory.path / "model.safetensors", safetensors_bytes(changed));
    try {
      load_decoder_weights<float>(directory.path);
    } catch (const std::runtime_error& error) {
      const std::string what = error.what();
      return what.substr(what.find("tensor '"));
    }
    return std::string("no error");
  };
  const auto without = [&](const std::string& name) {
    auto some = all;
    std::erase_if(some, [&](const Tensor& tensor) { return tensor.name == name; });
    return some;
  };
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  CHECK(error_of(without(name + ".exponents")) ==
        "tensor '" + name + "': I8 without '" + name +
            ".exponents' in its file, so quantized by other programs: take the model as it was before, or "
            "run its "
            "GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)");
  CHECK(error_of(without(name)) == "tensor '" + name + "' is missing");
  auto changed = all;
  find(changed, name + ".exponents").shape = {3, 2};
  CHECK(error_of(changed) == "tensor '" + name + ".exponents': I8 of shape [3, 2], expected I8 of [6, 1]");
  changed = all;
  find(changed, name + ".exponents").values[4] = 16;
  CHECK(error_of(changed) == "tensor '" + name + "': row 4, group 0: exponent 16, must be in [-24, 15]");
  changed = all;
  find(changed, name).values[7] = -128;
  CHECK(error_of(changed) == "tensor '" + name + "': row 1, column 2: -128, must be in [-127, 127]");
  changed = all;
  find(changed, "model.norm.weight").dtype = "I8";
  CHECK(error_of(changed) == "tensor 'model.norm.weight': I8 of shape [6], expected (rows, cols)");
}

TEST_CASE("shards of mixed dtypes, listed by an index") {
  const TemporaryDirectory directory("shards");
  auto all = tensors("F32");
  std::vector<Tensor> shards[2];
  std::string map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].dtype = i % 3 == 0 ? "BF16" : "F32";
    shards[i % 2].push_back(all[i]);
    map += std::string(map.empty() ? "" : ",") + "\"" + all[i].name + "\":\"shard-" + std::to_string(i % 2) +
           ".safetensors\"";
  }
  write_file(directory.path / "config.json", kConfig);
  for (int s = 0; s < 2; ++s)
    write_file(directory.path / ("shard-" + std::to_string(s) + ".safetensors"),
               safetensors_bytes(shards[s]));
  write_file(directory.path / "model.safetensors.index.json",
             "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  check_weights(load_decoder_weights<float>(directory.path), all);

  const auto error_of_map = [&](const std::string& entry) -> std::string {
    write_file(directory.path / "model.safetensors.index.json", "{\"weight_map\":{" + entry + "}}");
    try {
      load_decoder_weights<float>(directory.path);
    } catch (const std::runtime_error& error) {
      const std::string what = error.what(), prefix = directory.path.string();
      return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
    }
    return "no error";
  };
  CHECK(error_of_map("\"x\":3") ==
        "/model.safetensors.index.json: tensor 'x': expected the name of a file in the same directory");
  CHECK(error_of_map("\"x\":\"../shard-0.safetensors\"") ==
        "/model.safetensors.index.json: tensor 'x': expected the name of a file in the same directory");
  CHECK(error_of_map("\"x\":\"shard-9.safetensors\"") == "/shard-9.safetensors: cannot be opened");
  CHECK(error_of_map("\"x\":\"shard-1.safetensors\"") ==
        "/shard-1.safetensors: tensor 'x': missing, though model.safetensors.index.json places it here");
  CHECK(error_of_map("") == ": tensor 'model.embed_tokens.weight' is missing");
}

TEST_CASE("a tied head needs no lm_head.weight, and ignores one") {
  const TemporaryDirectory directory("tied");
  std::string config = kConfig;
  config.replace(config.find("false"), 5, "true");
  write_file(directory.path / "config.json", config);
  auto all = tensors("BF16");
  write_file(directory.path / "model.safetensors", safetensors_bytes(all));
  CHECK(load_decoder_weights<float>(directory.path).separate_head.rows() == 0);
  all.erase(all.begin() + 1);
  write_file(directory.path / "model.safetensors", safetensors_bytes(all));
  const auto weights = load_decoder_weights<float>(directory.path);
  CHECK(&weights.head() == &weights.embedding);
}

TEST_CASE("errors name the fault of a directory") {
  const TemporaryDirectory directory("errors");
  const auto error = [&]() -> std::string {
    try {
      load_decoder_weights<float>(directory.path);
    } catch (const std::runtime_error& what) {
      const std::string text = what.what(), prefix = directory.path.string();
      return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    }
    return "no error";
  };
  const auto error_with = [&](std::vector<Tensor> all) {
    write_file(directory.path / "model.safetensors", safetensors_bytes(all));
    return error();
  };
  CHECK(error() == "/config.json: cannot be opened");
  std::filesystem::create_directory(directory.path / "config.json");
  CHECK(error() == "/config.json: is a folder, expected a file");
  std::filesystem::remove(directory.path / "config.json");
  write_file(directory.path / "config.json", "");
  std::filesystem::resize_file(directory.path / "config.json", 100'000'001);
  CHECK(error() == "/config.json: over 100000000 bytes of JSON");
  write_file(directory.path / "config.json", "{");
  CHECK(error().starts_with("/config.json: offset 1: parse error at line 1, column 2: "));
  write_file(directory.path / "config.json", kConfig);
  CHECK(error() ==
        ": has neither model.safetensors nor model.safetensors.index.json; download the weights into it");

  auto all = tensors("F32");
  all.erase(all.begin() + 5);
  CHECK(error_with(all) == ": tensor 'model.layers.0.self_attn.v_proj.weight' is missing");

  all = tensors("F32");
  find(all, "model.layers.1.mlp.down_proj.weight").shape = {5, 6};
  CHECK(error_with(all) ==
        "/model.safetensors: tensor 'model.layers.1.mlp.down_proj.weight': shape [5, 6], expected [6, 5]");

  all = tensors("F32");
  find(all, "model.norm.weight").shape = {1, 6};
  CHECK(error_with(all) == "/model.safetensors: tensor 'model.norm.weight': shape [1, 6], expected [6]");

  all = tensors("F32");
  find(all, "lm_head.weight").dtype = "I32";
  CHECK(
      error_with(all) ==
      "/model.safetensors: tensor 'lm_head.weight': dtype I32 is not supported, expected F32, F16, BF16 or "
      "I8; if the weights are quantized, take the model as it was before, or run its GGUF file in llama.cpp "
      "(specula run --engine llama.cpp; docs/models.md)");

  all = tensors("F32");
  all.erase(all.begin() + 1);
  CHECK(error_with(all) ==
        ": tensor 'lm_head.weight' is missing: if the embedding is the LM head, set tie_word_embeddings in "
        "config.json");

  for (const char* unread : {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight",
                             "model.layers.2.input_layernorm.weight", "lm_head.bias"}) {
    all = tensors("F32");
    all.push_back({unread, "F32", {6}, std::vector<float>(6)});
    CHECK(error_with(all) ==
          std::string("/model.safetensors: tensor '") + unread +
              "': is no part of a model of 2 layers of this architecture; run its GGUF file in "
              "llama.cpp (specula run --engine llama.cpp; docs/models.md)");
  }
  for (const std::string head : {"fc.weight", "d2t", "midlayer.self_attn.q_proj.weight"}) {  // EAGLE's
    all = tensors("F32");
    all.push_back({head, "F32", {6}, std::vector<float>(6)});
    CHECK(error_with(all).starts_with("/model.safetensors: tensor '" + head +
                                      "': is of a draft head that other programs trained"));
  }
  all = tensors("F32");  // old checkpoints have these
  all.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, {1}});
  CHECK(error_with(all) == "no error");

  const std::string whole = safetensors_bytes(tensors("F32"));
  for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
    write_file(directory.path / "model.safetensors", whole.substr(0, size));
    CHECK(error() != "no error");
  }
}

TEST_CASE("drafts conditioned on a target have additional tensors") {
  const TemporaryDirectory directory("looking");
  const auto config = [&](const std::string& more) {
    write_file(directory.path / "config.json",
               R"({"vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":1,
                   "num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"tie_word_embeddings":true,)" +
                   more + "}");
  };
  std::vector<Tensor> all = tensors("BF16");
  std::erase_if(all, [](const Tensor& t) {
    return t.name == "lm_head.weight" || t.name.starts_with("model.layers.1.");
  });
  const auto save = [&] { write_file(directory.path / "model.safetensors", safetensors_bytes(all)); };
  save();
  config(R"("model_type":"llama")");
  const auto plain =
      std::make_shared<const DecoderWeights<float>>(load_decoder_weights<float>(directory.path));
  CHECK(!plain->layers[0].cross_attention);

  config(
      R"("model_type":"specula_glide","target":{"num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,
         "head_dim":8})");
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(directory.path),
                       doctest::Contains("tensor 'model.layers.0.cross_attn.q_proj.weight' is missing"),
                       std::runtime_error);
  add_tensor(all, "BF16", "model.layers.0.cross_attn.q_proj.weight", {24, 6});
  add_tensor(all, "BF16", "model.layers.0.cross_attn.o_proj.weight", {6, 24});
  save();
  const auto glide = load_decoder_weights<float>(directory.path);
  check_matrix(glide.layers[0].cross_attention->query, 0,
               find(all, "model.layers.0.cross_attn.q_proj.weight"));
  check_matrix(glide.layers[0].cross_attention->output, 0,
               find(all, "model.layers.0.cross_attn.o_proj.weight"));
  check_matrix(glide.layers[0].mlp.down, 0, find(all, "model.layers.0.mlp.down_proj.weight"));

  config(R"("model_type":"specula_feature_head")");
  std::erase_if(all, [](const Tensor& t) {
    return t.name.find("cross_attn") != std::string::npos || t.name.find("embed") != std::string::npos ||
           t.name.find("input_layernorm") != std::string::npos || t.name == "model.norm.weight";
  });
  add_tensor(all, "BF16", "model.fc.weight", {6, 12});
  save();
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(directory.path),
                       doctest::Contains("is loaded with its target's weights"), std::runtime_error);
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(directory.path, plain),
                       doctest::Contains("tensor 'model.fc.bias' is missing"), std::runtime_error);
  add_tensor(all, "BF16", "model.fc.bias", {6});
  save();
  const auto head = load_decoder_weights<float>(directory.path, plain);
  check_matrix(head.feature_input->fusion, 0, find(all, "model.fc.weight"));
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(head.feature_input->bias[i] == find(all, "model.fc.bias").values[i]);
  CHECK(&head.head() == &plain->head());
  CHECK(&head.tokens() == &plain->embedding);
  CHECK(head.layers[0].attention.norm.empty());
  CHECK(head.final_norm.empty());
}

TEST_CASE("drafts of a draft vocabulary, and over their target's embedding") {
  const TemporaryDirectory folder("target"), directory("drafts");
  write_file(folder.path / "config.json", kConfig);
  write_file(folder.path / "model.safetensors", safetensors_bytes(tensors("BF16")));
  const auto target = std::make_shared<const DecoderWeights<float>>(load_decoder_weights<float>(folder.path));

  std::vector<Tensor> all;
  const auto config = [&](const std::string& more) {
    write_file(directory.path / "config.json",
               R"({"vocab_size":7,"hidden_size":6,"intermediate_size":5,"num_hidden_layers":2,
                   "num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,)" +
                   more + "}");
  };
  const auto load = [&](std::shared_ptr<const DecoderWeights<float>> lender) {
    write_file(directory.path / "model.safetensors", safetensors_bytes(all));
    return load_decoder_weights<float>(directory.path, lender);
  };
  const auto error = [&](std::shared_ptr<const DecoderWeights<float>> lender) -> std::string {
    try {
      load(lender);
    } catch (const std::runtime_error& what) {
      const std::string text = what.what(), prefix = directory.path.string();
      return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    }
    return "no error";
  };
  const auto tokens = [&](std::vector<float> ids) {
    Tensor& tensor = find(all, "draft_tokens");
    tensor.shape = {static_cast<std::int64_t>(ids.size())};
    tensor.values = std::move(ids);
    return error(target);
  };

  // A feature head takes rows of its target's LM head.
  all = tensors("BF16");
  std::erase_if(all, [](const Tensor& t) {
    return t.name.find("embed") != std::string::npos || t.name.find("input_layernorm") != std::string::npos ||
           t.name == "model.norm.weight" || t.name == "lm_head.weight";
  });
  add_tensor(all, "BF16", "model.fc.weight", {6, 12});
  add_tensor(all, "BF16", "model.fc.bias", {6});
  config(R"("model_type":"specula_feature_head","draft_vocab_size":3)");
  CHECK(error(target) ==
        ": tensor 'draft_tokens' is missing: the ids of the draft_vocab_size tokens that the model predicts; "
        "without the key it predicts all");
  all.push_back({"draft_tokens", "I32", {3}, {1, 4, 6}});
  const auto head = load(target);
  CHECK(head.draft_tokens == std::vector<std::int32_t>{1, 4, 6});
  REQUIRE(head.head().rows() == 3);
  CHECK(head.head().type() == target->head().type());
  for (std::int32_t r = 0; r < 3; ++r)
    for (std::int32_t k = 0; k < 6; ++k)
      CHECK(head.head().value(r, k) ==
            target->head().value(head.draft_tokens[static_cast<std::size_t>(r)], k));
  const std::string at = "/model.safetensors: tensor 'draft_tokens': ";
  CHECK(tokens({1, 4}) == at + "I32 of shape [2], expected I32 of [3]");
  CHECK(tokens({1, 4, 4}) == at + "entry 2 is 4, expected ascending tokens from 0 to 6");
  CHECK(tokens({4, 1, 6}) == at + "entry 1 is 1, expected ascending tokens from 0 to 6");
  CHECK(tokens({1, 4, 7}) == at + "entry 2 is 7, expected ascending tokens from 0 to 6");
  CHECK(tokens({-1, 4, 6}) == at + "entry 0 is -1, expected ascending tokens from 0 to 6");
  find(all, "draft_tokens").dtype = "F32";
  CHECK(error(target) == at + "F32 of shape [3], expected I32 of [3]");
  find(all, "draft_tokens") = {"draft_tokens", "I32", {3}, {0, 2, 3}};
  CHECK(error(target) == "no error");
  config(R"("model_type":"specula_feature_head")");
  CHECK(error(target) == at + "is not used: config.json has no key 'draft_vocab_size'");

  // A draft over its target's embedding has an LM head of its own.
  const std::string projects = R"("model_type":"specula_draft","target_hidden_size":6,"draft_vocab_size":3)";
  config(projects);
  all = tensors("BF16");
  all.push_back({"draft_tokens", "I32", {3}, {0, 2, 6}});
  CHECK(error({}) == "/config.json: a draft over its target's embedding is loaded with its target's weights");
  CHECK(error(target) == ": tensor 'model.embed_projection.weight' is missing");
  find(all, "model.embed_tokens.weight").name = "model.embed_projection.weight";
  CHECK(error(target) ==
        "/model.safetensors: tensor 'model.embed_projection.weight': shape [7, 6], expected [6, 6]");
  find(all, "model.embed_projection.weight").shape = {6, 6};
  find(all, "model.embed_projection.weight").values.resize(36);
  CHECK(error(target) == "/model.safetensors: tensor 'lm_head.weight': shape [7, 6], expected [3, 6]");
  find(all, "lm_head.weight").shape = {3, 6};
  find(all, "lm_head.weight").values.resize(18);
  const auto draft = load(target);
  check_matrix(draft.embed_projection, 0, find(all, "model.embed_projection.weight"));
  check_matrix(draft.head(), 0, find(all, "lm_head.weight"));
  CHECK(&draft.tokens() == &target->embedding);
  CHECK(draft.embedding.rows() == 0);
  config(R"("model_type":"specula_draft","target_hidden_size":8,"draft_vocab_size":3)");
  CHECK(error(target) ==
        "/config.json: target_hidden_size is 8, the target's hidden_size is 6: the draft is made "
        "for another target");

  // GLIDE's likewise; without target_hidden_size it has an embedding.
  add_tensor(all, "BF16", "model.layers.0.cross_attn.q_proj.weight", {24, 6});
  add_tensor(all, "BF16", "model.layers.0.cross_attn.o_proj.weight", {6, 24});
  add_tensor(all, "BF16", "model.layers.1.cross_attn.q_proj.weight", {24, 6});
  add_tensor(all, "BF16", "model.layers.1.cross_attn.o_proj.weight", {6, 24});
  const std::string glide =
      R"("model_type":"specula_glide","draft_vocab_size":3,"target":{"num_hidden_layers":2,
         "num_attention_heads":3,"num_key_value_heads":1,"head_dim":8})";
  config(glide + R"(,"target_hidden_size":6)");
  CHECK(load(target).target == target);
  config(glide);
  CHECK(error(target) == ": tensor 'model.embed_tokens.weight' is missing");
  all.push_back(tensors("BF16")[0]);
  CHECK(error(target) ==
        "/model.safetensors: tensor 'model.embed_projection.weight': is not used: config.json "
        "has no key 'target_hidden_size'");
  std::erase_if(all, [](const Tensor& t) { return t.name == "model.embed_projection.weight"; });
  CHECK(load({}).head().rows() == 3);
}

TEST_CASE("biases and norms of queries and keys, beside matrices of 8 bits") {
  const TemporaryDirectory directory("parts");
  std::string config = kConfig;
  config.replace(config.find("llama"), 5, "qwen3");
  config.replace(config.find("false"), 5, R"(false, "attention_bias": true, "max_position_embeddings": 64)");
  write_file(directory.path / "config.json", config);
  auto all = tensors("BF16");
  const auto add = [&](const std::string& name, std::int64_t size) {
    add_tensor(all, "F32", "model.layers." + name, {size});
  };
  for (const std::string layer : {"0.self_attn.", "1.self_attn."}) {
    add(layer + "q_proj.bias", 8), add(layer + "k_proj.bias", 4), add(layer + "v_proj.bias", 4);
    add(layer + "o_proj.bias", 6), add(layer + "q_norm.weight", 4), add(layer + "k_norm.weight", 4);
  }
  Tensor& matrix = find(all, "model.layers.1.self_attn.q_proj.weight");
  matrix.dtype = "I8";
  for (float& value : matrix.values) value *= 64;
  const std::string exponents = matrix.name + ".exponents";
  all.push_back({exponents, "I8", {8, 1}, std::vector<float>(8, -6)});
  write_file(directory.path / "model.safetensors", safetensors_bytes(all));
  const auto weights = load_decoder_weights<float>(directory.path);
  const auto& attention = weights.layers[1].attention;
  CHECK(attention.qkv.type() == WeightType::full);  // 8 rows in blocks are no whole panel
  check_matrix(weights.layers[1].attention.qkv, 8, find(all, "model.layers.1.self_attn.k_proj.weight"));
  const auto check = [&](const auto& vector, std::size_t first, const std::string& name) {
    const auto& values = find(all, "model.layers.1.self_attn." + name).values;
    REQUIRE(vector.size() >= first + values.size());
    CHECK(std::equal(values.begin(), values.end(), vector.begin() + static_cast<std::ptrdiff_t>(first)));
  };
  check(attention.qkv_bias, 0, "q_proj.bias");
  check(attention.qkv_bias, 8, "k_proj.bias");
  check(attention.qkv_bias, 12, "v_proj.bias");
  check(attention.output_bias, 0, "o_proj.bias");
  check(attention.query_norm, 0, "q_norm.weight");
  check(attention.key_norm, 0, "k_norm.weight");
  CHECK(attention.query_norm.size() == 16);
  std::erase_if(all, [](const Tensor& tensor) { return tensor.name.ends_with("1.self_attn.k_norm.weight"); });
  write_file(directory.path / "model.safetensors", safetensors_bytes(all));
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(directory.path),
                       doctest::Contains("tensor 'model.layers.1.self_attn.k_norm.weight' is missing"),
                       std::runtime_error);
}

TEST_CASE("random weights are the same in every type") {
  DecoderConfig config;
  config.vocab_size = 20, config.hidden_size = 9, config.intermediate_size = 11, config.layers = 2,
  config.heads = 2, config.kv_heads = 1, config.head_dim = 4;
  const auto a = random_decoder_weights<float>(config, 3, WeightType::bf16);
  const auto b = random_decoder_weights<double>(config, 3, WeightType::full);
  const auto other = random_decoder_weights<float>(config, 4);
  int differ = 0;
  for (std::int32_t r = 0; r < 22; ++r)
    for (std::int32_t k = 0; k < 9; ++k) {
      CHECK(static_cast<double>(a.layers[1].mlp.gate_up.value(r, k)) == b.layers[1].mlp.gate_up.value(r, k));
      differ += a.layers[1].mlp.gate_up.value(r, k) != other.layers[1].mlp.gate_up.value(r, k);
    }
  CHECK(differ > 150);
  CHECK(a.layers[0].attention.qkv.bytes() <
        0.6 *
            static_cast<double>(
                random_decoder_weights<float>(config, 3, WeightType::full).layers[0].attention.qkv.bytes()));
  config.kv_heads = 0;
  CHECK_THROWS_WITH_AS(random_decoder_weights<float>(config, 3),
                       "DecoderConfig: num_key_value_heads is 0, expected 1 to 16777216", std::runtime_error);
}

}  // namespace
