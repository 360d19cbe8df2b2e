// SPDX-License-Identifier: MIT
// Files of EAGLE-3 heads: names of tensors, draft vocabularies, what is missing or left over, and damaged
// files.
#include <specula/cpu/detail/load_eagle3_weights.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <specula/cpu/decoder.hpp>

#include "../eagle3/head_files.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;

namespace {

/// A golden head whose file a test changes.
struct HeadFile {
  explicit HeadFile(std::size_t number)
      : golden(golden_heads()), config(golden["heads"][number]["config"]), folder("eagle3_files") {
    tensors = head_tensors(golden, golden["heads"][number]);
  }
  Tensor& tensor(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  }
  void erase(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  }
  DecoderWeights<float> load(std::int32_t width = 64, std::int32_t vocab = 256) {
    write_head(folder.path, config, tensors);
    return load_decoder_weights<float>(folder.path, head_target<float>(width, vocab));
  }
  std::string error(std::int32_t width = 64, std::int32_t vocab = 256) {
    try {
      load(width, vocab);
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
    return "";
  }
  bool fails(const std::string& what, std::int32_t width = 64, std::int32_t vocab = 256) {
    const std::string found = error(width, vocab);
    CAPTURE(found);
    CHECK(found.find(what) != found.npos);
    return found.find(what) != found.npos;
  }

  Json golden, config;
  TemporaryDirectory folder;
  std::vector<Tensor> tensors;
};

constexpr std::size_t kSpeculators = 0, kSpecForge = 5, kWide = 6, kAngelSlim = 7, kModelOpt = 9,
                      kDeepSpec = 10;

std::vector<float> row(const DecoderWeights<float>& weights, std::int32_t r) {
  std::vector<float> out(static_cast<std::size_t>(weights.head().cols()));
  weights.head().get_row(r, out.data());
  return out;
}

}  // namespace

TEST_CASE("rows of the LM head are in the order of their tokens") {
  HeadFile file(kSpecForge);
  const auto weights = file.load();
  REQUIRE(weights.draft_tokens.size() == 96);
  CHECK(std::is_sorted(weights.draft_tokens.begin(), weights.draft_tokens.end()));
  const auto offsets = file.golden["d2t"].get<std::vector<std::int32_t>>();
  const auto& head = file.tensor("lm_head.weight").values;
  for (std::int32_t i = 0; i < 96; ++i) {
    const auto at = std::find(weights.draft_tokens.begin(), weights.draft_tokens.end(),
                              i + offsets[static_cast<std::size_t>(i)]);
    REQUIRE(at != weights.draft_tokens.end());
    CHECK(row(weights, static_cast<std::int32_t>(at - weights.draft_tokens.begin())) ==
          std::vector<float>(head.begin() + 64 * i, head.begin() + 64 * (i + 1)));
  }
}

TEST_CASE("a draft vocabulary that is not one is refused") {
  HeadFile file(kSpeculators);
  const auto offsets = file.tensor("d2t").values;
  const auto with = [&](std::size_t at, float value, const std::string& what) {
    file.tensor("d2t").values = offsets;
    file.tensor("d2t").values[at] = value;
    CHECK(file.fails(what));
  };
  with(3, offsets[2] - 1, "tensor 'd2t': entry 3 is 76: token 79 occurs twice");
  with(3, -4, "entry 3 is -4, expected an offset from 3 to a token below 256");
  with(0, 256, "entry 0 is 256, expected an offset from 0");
  with(0, 6, "entry 0 is 6: t2d does not mark token 6; entries are offsets");
  file.erase("t2d");
  with(0, 6, "");  // then nothing tells
  file.erase("d2t");
  CHECK(file.fails("tensor 'd2t' is missing"));
  file.tensors.push_back({"d2t", "I32", {96}, offsets});
  CHECK(file.fails("I32 of shape [96], expected I64 of [96]"));
}

TEST_CASE("a draft vocabulary of all tokens") {
  HeadFile file(kDeepSpec);
  CHECK(file.load().draft_tokens.empty());
  file.tensors.push_back({"d2t", "I64", {256}, std::vector<float>(256)});
  file.tensors.push_back({"t2d", "BOOL", {256}, std::vector<float>(256, 1)});
  CHECK(file.load().draft_tokens.empty());
  const auto plain = row(file.load(), 0);
  file.tensor("d2t").values[0] = 1, file.tensor("d2t").values[1] = -1;  // the first two change places
  CHECK(file.load().draft_tokens.empty());
  CHECK(row(file.load(), 1) == plain);
  file.erase("lm_head.weight");
  CHECK(file.fails("reorders all tokens"));
}

TEST_CASE("where the LM head and the embedding come from") {
  HeadFile file(kAngelSlim);  // tied in its config, with an LM head in its file, which wins
  CHECK(file.load().head().rows() == 96);
  CHECK(file.load().embedding.rows() == 0);
  file.erase("lm_head.weight");
  CHECK(file.fails("tensor 'lm_head.weight' is missing"));  // and the embedding has other rows
  HeadFile all(kDeepSpec);
  all.erase("lm_head.weight");
  const auto lm_head_of_target = all.load();
  CHECK(&lm_head_of_target.head() == &lm_head_of_target.target->head());
  all.config["tie_word_embeddings"] = true;
  CHECK(row(all.load(), 7) != std::vector<float>());
  const auto tied = all.load();
  CHECK(&tied.head() == &tied.embedding);
  all.erase("embed_tokens.weight");
  const auto borrowed = all.load();
  CHECK(&borrowed.head() == &borrowed.target->embedding);
  CHECK(&borrowed.tokens() == &borrowed.target->embedding);
  write_head(all.folder.path, all.config, all.tensors);
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(all.folder.path),
                       doctest::Contains("with its target's weights"), std::runtime_error);
  HeadFile wide(kWide);
  CHECK(wide.load(80).embedding.rows() == 256);
  wide.erase("embed_tokens.weight");
  CHECK(wide.fails("it has no embed_tokens.weight, and its hidden_size 64", 80));
  HeadFile borrower(kWide);  // of all tokens: the target's LM head has rows of another width
  borrower.config["draft_vocab_size"] = 256;
  for (const char* name : {"lm_head.weight", "d2t", "t2d"}) borrower.erase(name);
  CHECK(borrower.fails("it has no lm_head.weight, and its hidden_size 64 is not the target's, 80", 80));
  borrower.config["tie_word_embeddings"] = true;
  const auto own = borrower.load(80);
  CHECK(&own.head() == &own.embedding);
}

TEST_CASE("a file that says all loads without its target, one that names no states does not") {
  HeadFile file(kSpeculators);
  write_head(file.folder.path, file.config, file.tensors);
  CHECK(load_decoder_weights<float>(file.folder.path).target == nullptr);
  file.config.erase("eagle_aux_hidden_state_layer_ids");
  write_head(file.folder.path, file.config, file.tensors);
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(file.folder.path),
                       doctest::Contains("with its target's weights"), std::runtime_error);
  CHECK(file.load().config.feature_layers == std::vector<std::int32_t>{2, 8, 13});
}

TEST_CASE("other names of the same tensors") {
  HeadFile file(kSpecForge);
  const auto rename = [&](const std::string& from, const std::string& to) { file.tensor(from).name = to; };
  rename("fc_norm.0.weight", "aux_norm_low.weight");
  rename("fc_norm.1.weight", "aux_norm_mid.weight");
  rename("fc_norm.2.weight", "model.aux_norm_high.weight");
  for (Tensor& tensor : file.tensors)
    if (tensor.name.starts_with("midlayer.")) tensor.name = "model." + tensor.name;
  file.tensors.push_back(
      {"model.midlayer.self_attn.rotary_emb.inv_freq", "F32", {16}, std::vector<float>(16)});
  CHECK(file.error().empty());
  rename("model.midlayer.mlp.down_proj.weight", "model.layers.0.mlp.down_proj.weight");
  CHECK(file.fails("tensor 'model.midlayer.mlp.down_proj.weight' is missing"));
}

TEST_CASE("tensors that are missing, of another shape, quantised or unknown are refused by name") {
  HeadFile file(kModelOpt);
  for (const char* name : {"fc.weight", "layers.0.hidden_norm.weight", "layers.0.self_attn.k_proj.weight",
                           "norm.weight", "lm_head.weight", "layers.0.input_layernorm.weight"}) {
    HeadFile less(kModelOpt);
    less.erase(name);
    CHECK(less.fails("tensor '" + std::string(name) + "' is missing"));
  }
  CHECK(file.error().empty());
  CHECK(file.fails("the target's is 80: the head is made for another target", 80));
  CHECK(file.fails("vocab_size is 256, the target's is 255", 64, 255));
  file.tensors.push_back({"fc.bias", "F32", {64}, std::vector<float>(64)});
  CHECK(file.fails("tensor 'fc.bias': is not known to be part of an EAGLE-3 head"));
  file.erase("fc.bias");
  file.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 7, 12, 13};
  CHECK(file.fails("tensor 'fc.weight': shape [64, 192], expected [64, 256]"));
  file.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 7, 16};
  CHECK(file.fails("it reads state 17 of its target (ids below eagle_config are outputs"));
  file.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 7, 12};
  file.tensor("fc.weight").dtype = "I32";
  CHECK(file.fails("tensor 'fc.weight': dtype I32 is not supported"));
  file.tensor("fc.weight").dtype = "F32";
  file.config["attention_bias"] = true;  // as a writer's class that has none may have it
  CHECK(file.error().empty());
  file.tensors.push_back({"layers.0.self_attn.q_proj.bias", "F32", {64}, std::vector<float>(64)});
  CHECK(file.fails("tensor 'layers.0.self_attn.k_proj.bias' is missing"));
  file.erase("layers.0.self_attn.q_proj.bias");
  write_file(file.folder.path / "hf_quant_config.json", "{}");
  CHECK(file.fails("hf_quant_config.json: quantised heads are not read: take the head in BF16 or F16"));
}

TEST_CASE("a head without safetensors says how to get them") {
  HeadFile file(kAngelSlim);
  write_file(file.folder.path / "config.json", file.config.dump());
  write_file(file.folder.path / "pytorch_model.bin", "x");
  CHECK_THROWS_WITH_AS(load_decoder_weights<float>(file.folder.path, head_target<float>(64)),
                       doctest::Contains("pytorch_model.bin is not read: save the model as safetensors"),
                       std::runtime_error);
}

TEST_CASE("a caller goes before the config, and is checked as it is") {
  HeadFile file(kSpecForge);
  const auto states = file.load().config.eagle3->states;
  file.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = std::vector<int>(states.size(), 60000);
  CHECK(file.fails("of its target"));
  const auto load = [&](std::vector<std::int32_t> asked) {
    return load_decoder_weights<float>(
        file.folder.path, head_target<float>(64),
        {.overrule = [&](DecoderConfig& config) { config.eagle3->states = asked; }});
  };
  const auto loaded = load(states);
  CHECK(loaded.config.eagle3->states == states);
  CHECK(loaded.config.feature_layers == loaded.config.eagle3->ascending_states());
  auto fewer = states;
  fewer.pop_back();
  CHECK_THROWS_WITH_AS(load(fewer), doctest::Contains("fc.weight"), std::runtime_error);
  auto wrong = states;
  wrong.back() = -3;
  CHECK_THROWS_WITH_AS(load(wrong), "LoadOptions::overrule: state -3, must be at least 0",
                       std::invalid_argument);
  wrong.back() = 60000;
  CHECK_THROWS_WITH_AS(load(wrong), doctest::Contains("it reads state 60000 of its target"),
                       std::runtime_error);
}

TEST_CASE("numbers that are none are passed on as a target's are, and never crash") {
  HeadFile file(kSpecForge);
  for (const char* name : {"fc.weight", "midlayer.hidden_norm.weight", "lm_head.weight"})
    file.tensor(name).values[5] = std::numeric_limits<float>::quiet_NaN();
  Decoder<float> head(std::make_shared<const DecoderWeights<float>>(file.load()), {.capacity = 32});
  TargetStates<float> states(64, head.config().feature_layers);
  head.set_target_state(states.view(4));
  head.append(std::vector<Token>{1, 2, 3, 4});
  CHECK(head.extend(std::vector<Token>{5}, std::vector<NodeId>{kNoParent}).rows == 1);
}

namespace {

/// The smallest head, so that many of its files can be read; its target, whose embedding it takes.
DecoderConfig tiny_target() {
  DecoderConfig config;
  config.vocab_size = 24, config.hidden_size = 8, config.intermediate_size = 4, config.layers = 8;
  config.heads = 1, config.kv_heads = 1, config.head_dim = 2, config.tied_head = true;
  return config;
}
std::vector<Tensor> tiny_head() {
  std::vector<Tensor> all{{"d2t", "I64", {6}, {1, 4, 2, 9, 11, 12}},
                          {"t2d", "BOOL", {24}, std::vector<float>(24)}};
  for (std::size_t i = 0; i < 6; ++i) all[1].values[i + static_cast<std::size_t>(all[0].values[i])] = 1;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    all.push_back({name + ".weight", "F32", shape, generated_weights(name, shape)});
  };
  for (const char* matrix : {"q", "k", "v"})
    add("midlayer.self_attn." + std::string(matrix) + "_proj", {4, 16});
  add("midlayer.self_attn.o_proj", {8, 4});
  add("midlayer.mlp.gate_proj", {6, 8}), add("midlayer.mlp.up_proj", {6, 8}),
      add("midlayer.mlp.down_proj", {8, 6});
  for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm"})
    add("midlayer." + std::string(norm), {8});
  add("fc", {8, 24}), add("fc_norm.0", {8}), add("fc_norm.1", {8}), add("fc_norm.2", {8});
  add("norm", {8}), add("lm_head", {6, 8});
  return all;
}

}  // namespace

TEST_CASE("damaged files load or are refused") {
  const auto target =
      std::make_shared<const DecoderWeights<float>>(random_decoder_weights<float>(tiny_target(), 1));
  const TemporaryDirectory folder("eagle3_damage");
  const std::string text =
      R"({"architectures":["LlamaForCausalLMEagle3"],"draft_vocab_size":6,"vocab_size":24,"hidden_size":8,)"
      R"("intermediate_size":6,"num_attention_heads":1,"head_dim":4,"num_hidden_layers":1,"fc_norm":true,)"
      R"("rms_norm_eps":1e-05,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,2,6]}})";
  const std::string bytes = safetensors_bytes(tiny_head());
  const auto header = static_cast<std::int32_t>(bytes.find("}}") + 2);
  const auto load = [&](const std::string& config, const std::string& tensors) {
    for (const char* name : {"config.json", "model.safetensors"})  // some file systems flush what is cut
      std::filesystem::remove(folder.path / name);
    write_file(folder.path / "config.json", config);
    write_file(folder.path / "model.safetensors", tensors);
    return load_decoder_weights<float>(folder.path, target);
  };
  CHECK(load(text, bytes).draft_tokens.size() == 6);
  Random random(4);
  const auto damaged = [&](std::string some, std::int32_t among) {
    for (std::int32_t n = 1 + random.below(3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(random.below(among));
      if (random.bernoulli(0.2))
        some.resize(at + 1);
      else if (random.bernoulli(0.5))
        some[at] = static_cast<char>(random.below(256));
      else
        some[at] = "0123456789,:[]{}\"aeltu"[random.below(22)];
      among = std::min(among, static_cast<std::int32_t>(some.size()));
    }
    return some;
  };
  int loaded = 0, refused = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const bool of_config = random.bernoulli(0.3);
    const auto size = static_cast<std::int32_t>(bytes.size());
    try {
      const auto weights = of_config ? load(damaged(text, static_cast<std::int32_t>(text.size())), bytes)
                                     : load(text, damaged(bytes, random.bernoulli(0.7) ? header : size));
      CHECK(weights.draft_tokens.size() <= 24);
      ++loaded;
    } catch (const std::runtime_error& error) {
      CHECK(std::string_view(error.what()).size() > 10);
      ++refused;
    }
  }
  CHECK(loaded > 60);
  CHECK(refused > 300);
}
