// SPDX-License-Identifier: MIT
// Exported Hugging Face directories: the library and the trainer can read them.
#include "export.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <specula/cpu/read_decoder_config.hpp>
#include <specula/cpu/tensor_files.hpp>
#include <specula/files/gguf_names.hpp>
#include <specula/files/json.hpp>
#include <stdexcept>

#include "gguf_container.hpp"
#include "safetensors.hpp"
#include "tiny_models.hpp"

using namespace specula_train_test;
namespace cpu = specula::cpu;
namespace files = specula::files;

namespace {

cpu::DecoderConfig read(const std::filesystem::path& directory) {
  const auto file = directory / "config.json";
  return cpu::read_decoder_config(files::read_json_file(file), file.string());
}

std::string text(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The file's weights are the model's, rounded to bfloat16.
void check_weights(const std::filesystem::path& directory, torch::nn::Module& written,
                   torch::nn::Module& other) {
  st::load_weights(directory, other);
  for (std::size_t i = 0; i < written.parameters().size(); ++i) {
    CHECK(torch::equal(other.parameters()[i],
                       written.parameters()[i].to(torch::kBFloat16).to(torch::kFloat32)));
  }
}

struct Place {
  Place() { std::ofstream(tokenizer) << "a tokenizer"; }
  Folder folder{"specula_train_export_test"};
  std::filesystem::path tokenizer = folder.path / "t.model", directory = folder.path / "export";
};

}  // namespace

TEST_CASE("a decoder's directory") {
  const Place place;
  st::Llama model(tiny_target()), other(tiny_target());
  st::export_model(model, place.tokenizer,
                   {.name = "target",
                    .recipe = "r",
                    .device = "an abacus, products in sand",
                    .styles = {{.name = "poems",
                                .share = 0.25,
                                .documents = 7,
                                .tokens = 1234,
                                .heldout = 99,
                                .info = {.description = "old poems", .licence = "CC0", .heldout_every = 8}},
                               {.name = "notes", .share = 0.75, .tokens = 5}},
                    .progress = {.steps = 3, .tokens = 48, .seconds = 90, .finished = true, .heldout = {}}},
                   place.directory);
  const auto card = text(place.directory / "MODEL_CARD.md");
  for (const std::string part :
       {"3 steps, 48 tokens, 1.5 minutes on: an abacus, products in sand.",
        "| poems | 25.0% | 7 | 1234 | 99 tokens, one document in 8 | old poems | CC0 |",
        "| notes | 75.0% | 0 | 5 | 0 tokens | not stated | not stated |", "| embedding and head | tied |"}) {
    CAPTURE(part);
    CHECK(card.find(part) != std::string::npos);
  }
  for (const std::string part : {"GSM8K", "Python", "half", "not finished", "own text"}) {
    CAPTURE(part);
    CHECK(card.find(part) == std::string::npos);
  }
  const auto config = st::read_config(place.directory);
  CHECK(config.layers == 3);
  CHECK(config.hidden == 32);
  CHECK(config.kv_heads == 2);
  CHECK(config.intermediate == 48);
  CHECK(config.vocab_size == kVocab);
  CHECK(text(place.directory / "tokenizer.model") == "a tokenizer");
  check_weights(place.directory, *model, *other);
}

TEST_CASE("a GLIDE draft's directory") {
  const Place place;
  const st::GlideConfig config{.draft = tiny_draft(2), .target = tiny_target(), .block = 5};
  st::Glide draft(config), other(config);
  st::export_glide(draft, place.tokenizer,
                   {.name = "glide",
                    .recipe = "the recipe",
                    .answers = true,
                    .learned_prompts = {"articles", "chats"},
                    .progress = {.steps = 7, .heldout = {{"gsm8k step 2 agrees", 0.25}}}},
                   place.directory);
  const auto read_back = read(place.directory);
  CHECK((read_back.conditioned_on == specula::Conditioning::key_values));
  CHECK(read_back.layers == 2);
  CHECK(read_back.hidden_size == 36);
  CHECK(read_back.heads == 6);
  CHECK(read_back.tied_head);
  CHECK(read_back.target.layers == 3);
  CHECK(read_back.target.heads == 4);
  CHECK(read_back.target.kv_heads == 2);
  CHECK(read_back.target.head_dim == 8);
  CHECK(read_back.target.rope_theta == 10000);
  CHECK(read_back.target.reads == std::vector<std::int32_t>{1, 2});
  check_weights(place.directory, *draft, *other);
  const auto card = text(place.directory / "MODEL_CARD.md");
  for (const std::string part : {"the recipe", "7 steps", "gsm8k step 2 agrees | 0.2500", "not finished",
                                 "4 query heads of 8 in each layer, over 2 key-value heads",
                                 "| layers of the target that it reads, from 0 | 1 2 (of 3) |",
                                 "own text after prompts from these styles",
                                 "not part of the loss, but for those of articles, chats."}) {
    CAPTURE(part);
    CHECK(card.find(part) != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(st::read_config(place.directory), doctest::Contains("expected a plain decoder"),
                       std::runtime_error);
}

TEST_CASE("config.json describes the model") {
  const Place place;
  auto config = other_target();
  config.begin = 7;
  config.end = 8;
  config.max_positions = 4096;
  st::Llama model(config);
  st::export_model(model, place.tokenizer, {.name = "n", .progress = {}}, place.directory);
  const auto read_back = st::read_config(place.directory);
  CHECK(read_back.head_dim() == 10);
  CHECK(read_back.head_size == 10);
  CHECK_FALSE(read_back.tied_head);
  CHECK(read_back.rope_theta == 500);
  CHECK(read_back.rope_scaling.factor == 4);
  CHECK(read_back.rope_scaling.low_turns == 1);
  CHECK(read_back.rope_scaling.high_turns == 3);
  CHECK(read_back.rope_scaling.original_max_position == 12);
  CHECK(read_back.max_positions == 4096);
  const auto json = nlohmann::json::parse(text(place.directory / "config.json"));
  CHECK(json["bos_token_id"] == 7);
  CHECK(json["eos_token_id"] == 8);
  CHECK(json["rope_scaling"]["rope_type"] == "llama3");
  CHECK(json["tie_word_embeddings"] == false);

  auto draft = tiny_draft(2);
  draft.tied_head = false;
  st::Glide glide(st::GlideConfig{.draft = draft, .target = config, .block = 5, .target_layers = {2, 0}});
  st::export_glide(glide, place.tokenizer, {.name = "glide", .progress = {}}, place.directory);
  const auto exported = read(place.directory);
  CHECK_FALSE(exported.tied_head);
  CHECK(exported.target.head_dim == 10);
  CHECK(exported.target.rope_scaling.factor == 4);
  CHECK(exported.target.reads == std::vector<std::int32_t>{2, 0});
}

TEST_CASE("the architecture is that of the parts") {
  const Place place;
  const auto architecture = [&](st::DecoderConfig config) {
    st::Llama model(config), other(config);
    torch::NoGradGuard no_grad;
    enlarge(*model);
    st::export_model(model, place.tokenizer, {.name = "n", .progress = {}}, place.directory);
    const auto read_back = st::read_config(place.directory);
    CHECK(read_back.qkv_bias == config.qkv_bias);
    CHECK(read_back.output_bias == config.output_bias);
    CHECK(read_back.query_key_norms == config.query_key_norms);
    CHECK((read_back.rope_scaling.type == config.rope_scaling.type));
    CHECK(read_back.rope_scaling.factor == config.rope_scaling.factor);
    CHECK(read_back.rope_scaling.low_turns == config.rope_scaling.low_turns);
    CHECK(read_back.rope_scaling.high_turns == config.rope_scaling.high_turns);
    CHECK(read_back.rope_scaling.truncate == config.rope_scaling.truncate);
    CHECK(read_back.rope_scaling.attention_factor == config.rope_scaling.attention_factor);
    check_weights(place.directory, *model, *other);
    return nlohmann::json::parse(text(place.directory / "config.json"))["architectures"][0]
        .get<std::string>();
  };
  CHECK(architecture(qwen2_target()) == "Qwen2ForCausalLM");
  CHECK(architecture(qwen3_target()) == "Qwen3ForCausalLM");
  auto config = tiny_target();
  config.qkv_bias = config.output_bias = true;
  CHECK(architecture(config) == "LlamaForCausalLM");
  config.qkv_bias = false;
  CHECK_THROWS_WITH_AS(st::Llama{config}, "model: no architecture has these biases and norms",
                       std::invalid_argument);
}

TEST_CASE("errors name the key of an unsupported model") {
  const Place place;
  st::Llama model(tiny_target());
  st::export_model(model, place.tokenizer, {.name = "n", .progress = {}}, place.directory);
  const auto json = nlohmann::json::parse(text(place.directory / "config.json"));
  const auto refuses = [&](const char* key, const nlohmann::json& value) {
    auto other = json;
    other[key] = value;
    std::ofstream(place.directory / "config.json") << other;
    CAPTURE(key);
    CHECK_THROWS_WITH_AS(st::read_config(place.directory), doctest::Contains(key), std::runtime_error);
  };
  refuses("mlp_bias", true);
  refuses("sliding_window", 128);
  refuses("quantization_config", nlohmann::json::object());
  refuses("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}});
  refuses("head_dim", 7);
}

TEST_CASE("a feature head's directory") {
  const Place place;
  std::vector<std::int64_t> layers;
  SUBCASE("on the last layer") {}
  SUBCASE("on three layers") { layers = {1, 2}; }
  const auto config = st::head_config(tiny_target(), layers);
  st::FeatureHead head(config), other(config);
  st::export_feature_head(head, place.tokenizer, {.name = "head", .recipe = "r", .progress = {}},
                          place.directory);
  const auto read_back = read(place.directory);
  CHECK((read_back.conditioned_on == specula::Conditioning::features));
  CHECK(read_back.layers == 1);
  CHECK(read_back.hidden_size == 32);
  CHECK(std::equal(read_back.feature_layers.begin(), read_back.feature_layers.end(), layers.begin(),
                   layers.end()));
  check_weights(place.directory, *head, *other);
}

TEST_CASE("a feature head with a draft vocabulary ends texts as its target does") {
  const Place place;
  auto target_config = tiny_target();
  st::Llama target(target_config);
  st::export_model(target, place.tokenizer, {}, place.directory);
  CHECK(st::read_config(place.directory).ends == std::vector<std::int32_t>{2});
  auto json = nlohmann::json::parse(text(place.directory / "config.json"));
  json["eos_token_id"] = {2, 9};
  std::ofstream(place.directory / "config.json") << json;
  std::ofstream(place.directory / "generation_config.json") << R"({"eos_token_id": [11, 2]})";

  auto config = st::head_config(st::read_config(place.directory));
  CHECK(config.ends == std::vector<std::int32_t>{2, 9, 11});
  config.end = 5;  // of the data's documents
  config.draft_vocab_size = 4;
  st::FeatureHead head(config, std::vector<std::int32_t>{2, 9, 11, 30}),
      other(st::head_config(tiny_target()));
  const auto directory = place.folder.path / "head";
  st::export_feature_head(head, place.tokenizer, {.name = "head", .recipe = "r", .progress = {}}, directory);
  json = nlohmann::json::parse(text(directory / "config.json"));
  CHECK(json["eos_token_id"] == nlohmann::json{2, 9, 11});
  CHECK(json["draft_vocab_size"] == 4);
  CHECK(read(directory).draft_vocab_size == 4);
  cpu::TensorFiles files(directory);
  CHECK(files.find("draft_tokens").dtype_name == "I32");
  check_weights(directory, *head, *other);  // a head of any draft vocabulary may go on from it
  const auto card = text(directory / "MODEL_CARD.md");
  CHECK(card.find("draft vocabulary) | 4 |") != std::string::npos);
  CHECK(card.find("| parameters | 9792 |") != std::string::npos);  // the tokens are none
}

TEST_CASE("a GGUF file is a model, too") {
  const Place place;
  auto config = tiny_target();
  config.qkv_bias = true;  // a Qwen2
  st::Llama model(config), other(config);
  specula_tools::GgufContainer out;
  out.set("general.architecture", "qwen2");
  const auto set = [&](const std::string& key, std::int64_t value) {
    out.set("qwen2." + key, static_cast<std::uint32_t>(value));
  };
  set("block_count", config.layers), set("embedding_length", config.hidden);
  set("feed_forward_length", config.intermediate), set("context_length", config.max_positions);
  set("attention.head_count", config.heads), set("attention.head_count_kv", config.kv_heads);
  set("vocab_size", config.vocab_size);
  out.set("qwen2.attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_epsilon));
  out.set("qwen2.rope.freq_base", static_cast<float>(config.rope_theta));
  std::vector<std::string> tokens;
  for (std::int64_t t = 0; t < config.vocab_size; ++t) tokens.push_back("t" + std::to_string(t));
  tokens[5] = "<|im_end|>";  // ends texts by its text
  out.set("tokenizer.ggml.model", "llama");
  out.set("tokenizer.ggml.tokens", tokens);
  out.set("tokenizer.ggml.eos_token_id", std::uint32_t{9});
  out.set("tokenizer.ggml.eot_token_id", std::uint32_t{7});
  for (const auto& item : model->named_parameters()) {
    const auto value = item.value().detach().contiguous();
    out.add(files::gguf_name(item.key()), 0, value.sizes().vec(),
            {static_cast<const char*>(value.data_ptr()), static_cast<std::size_t>(value.nbytes())});
  }
  const auto file = place.folder.path / "model.gguf";
  std::ofstream(file, std::ios::binary) << out.bytes();

  const auto read_back = st::read_config(file);
  CHECK(read_back.layers == 3);
  CHECK(read_back.qkv_bias);
  CHECK(read_back.tied_head);
  CHECK(read_back.ends == std::vector<std::int32_t>{5, 7, 9});
  st::load_weights(file, *other);
  for (std::size_t i = 0; i < model->parameters().size(); ++i)
    CHECK(torch::equal(other->parameters()[i], model->parameters()[i]));
}
