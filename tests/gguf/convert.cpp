// SPDX-License-Identifier: MIT
// Folders to GGUF files and back: the same logits, tokens, ends and chat templates.
#include "folder_writer.hpp"
#include "gguf_writer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/files/gguf.hpp>

#include "../cpu/gguf_model.hpp"
#include "chat_templates.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "skip.hpp"
#include "text_pattern.hpp"
#include "tokenizer.hpp"

using namespace specula_tools;
using nlohmann::json;
using specula::Token;
using specula::files::Gguf;
using specula_test::TemporaryDirectory;
using specula_test::TinyModel;
namespace fs = std::filesystem;

namespace {

const fs::path kModels = SPECULA_MODELS_DIR,
               kTokenizers = kModels / ".." / ".." / "tests" / "programs" / "tokenizers";

constexpr std::int64_t kTinyVocab = 604;  // of the sample 600 and an added one; padded

/// The logits after a few tokens, of weights in floats: blocks have products of their own.
std::vector<float> logits(const fs::path& model) {
  specula::cpu::Decoder<float> decoder(
      std::make_shared<const specula::cpu::DecoderWeights<float>>(
          specula::cpu::load_decoder_weights<float>(model, {}, {.stored = specula::cpu::WeightType::full})),
      {.capacity = 40});
  specula_test::Random random(3);
  std::vector<Token> tokens(20);
  for (Token& token : tokens) token = random.below(40);
  std::vector<specula::NodeId> parents(20);
  for (std::size_t i = 0; i < 20; ++i) parents[i] = static_cast<specula::NodeId>(i) - 1;
  decoder.extend(tokens, parents);
  std::vector<float> out;
  for (std::int32_t i = 0; i < 20; ++i)
    out.insert(out.end(), decoder.logits(i).begin(), decoder.logits(i).end());
  return out;
}

void check_same_tokens(const Tokenizer& one, const Tokenizer& other) {
  CHECK(one.begin() == other.begin());
  CHECK(one.adds_begin() == other.adds_begin());
  CHECK(one.end() == other.end());
  CHECK(one.ends() == other.ends());
  for (const char* text :
       {"", "Once upon a time", "  two  spaces\n\n12345 and \xc3\xa9, \xe6\x97\xa5\xe6\x9c\xac!",
        "it's <|end|> </s> <0x0A>", "aaaaaaaaaaaa", "\tdef f(x): return x**2"}) {
    CAPTURE(text);
    CHECK(one.encode(text) == other.encode(text));
    CHECK(one.encode_chat(text) == other.encode_chat(text));
    CHECK(one.decode(one.encode(text)) == other.decode(other.encode(text)));
  }
}

/// The tiny model with a sample of a model's own tokenizer.json, and a chat template.
void write_tiny(const fs::path& folder, const std::string& kind) {
  json tokenizer = json::parse(read_file(kTokenizers / (kind + ".json")));
  json& added = tokenizer["added_tokens"];  // of which GGUF has no place for some properties
  added.erase(3);
  added[2]["lstrip"] = false;
  const std::int64_t vocab = kTinyVocab;
  write_file(folder / "tokenizer.json", tokenizer.dump());
  write_file(folder / "tokenizer_config.json",
             R"({"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": "{{ 'hello' }}"})");
  json config = json::parse(specula_test::kTinyConfig);
  config["vocab_size"] = vocab;
  write_file(folder / "config.json", config.dump());
  write_file(folder / "model.safetensors", specula_test::safetensors_bytes(TinyModel(false, vocab).tensors));
}

std::string error_of(const fs::path& folder, const fs::path& file) {
  try {
    write_gguf(folder, file, GgufType::f32);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("SentencePiece: a model at 8 bits as Q8_0 and back loses nothing") {
  const TemporaryDirectory folder("convert_pack");
  const auto file = folder.path / "model.gguf", back = folder.path / "back";
  CHECK(write_gguf(kModels / "small", file, GgufType::automatic).empty());
  const auto want = logits(kModels / "small");
  CHECK(logits(file) == want);
  write_folder(file, back);
  CHECK(logits(back) == want);
  const Tokenizer tokenizer(kModels / "small");
  check_same_tokens(tokenizer, Tokenizer(file));
  check_same_tokens(tokenizer, Tokenizer(back));
  CHECK(fs::exists(back / "tokenizer.model"));
  CHECK(read_chat_templates(back).empty());
}

TEST_CASE("byte-level vocabularies, with a chat template") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  const std::vector<std::pair<const char*, const char*>> kinds{
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"smollm2", "smollm"}};
  for (const auto& both : kinds) {
    const std::string kind = both.first, pre = both.second;
    CAPTURE(kind);
    const TemporaryDirectory folder("convert_bytes");
    const auto file = folder.path / "model.gguf", back = folder.path / "back";
    write_tiny(folder.path, kind);
    write_gguf(folder.path, file, GgufType::f32);
    const Gguf written = Gguf::open(file);
    CHECK(written.text("tokenizer.ggml.model") == "gpt2");
    CHECK(written.text("tokenizer.ggml.pre") == pre);
    CHECK(written.text("tokenizer.chat_template") == "{{ 'hello' }}");
    CHECK(written.texts("tokenizer.ggml.tokens").back().starts_with("[PAD"));
    const auto want = logits(folder.path);
    CHECK(logits(file) == want);
    write_folder(file, back);
    CHECK(logits(back) == want);
    CHECK(read_chat_templates(back) == ChatTemplates{{"", "{{ 'hello' }}"}});
    const Tokenizer tokenizer(folder.path);
    check_same_tokens(tokenizer, Tokenizer(file));
    check_same_tokens(tokenizer, Tokenizer(back));
    const auto again = folder.path / "again.gguf";
    write_gguf(back, again, GgufType::f32);
    CHECK(Gguf::open(again).text("tokenizer.ggml.pre") == pre);
    CHECK(Gguf::open(again).texts("tokenizer.ggml.merges") == written.texts("tokenizer.ggml.merges"));
    auto types = Gguf::open(again).integers("tokenizer.ggml.token_type");
    for (std::size_t t = 601; t < types.size(); ++t) types[t] = 5;  // tokenizer.json has no unused ones
    CHECK(types == written.integers("tokenizer.ggml.token_type"));
  }
}

TEST_CASE("a tokenizer.json that is another family's but for a part has that family's name of the rest") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  const std::vector<std::tuple<const char*, const char*, const char*>> kinds{
      {"qwen2", "normalizer", "deepseek-r1-qwen"}, {"llama3", "ignore_merges", "smaug-bpe"}};
  for (const auto& [kind, part, pre] : kinds) {
    const TemporaryDirectory folder("convert_others");
    write_tiny(folder.path, kind);
    auto tokenizer = json::parse(read_file(folder.path / "tokenizer.json"));
    if (tokenizer.contains(part)) tokenizer[part] = nullptr;
    if (tokenizer["model"].contains(part)) tokenizer["model"][part] = false;
    write_file(folder.path / "tokenizer.json", tokenizer.dump());
    write_gguf(folder.path, folder.path / "model.gguf", GgufType::f32);
    CHECK(Gguf::open(folder.path / "model.gguf").text("tokenizer.ggml.pre") == pre);
    check_same_tokens(Tokenizer(folder.path), Tokenizer(folder.path / "model.gguf"));
  }
}

TEST_CASE("a GGUF file as one of another type is what the folder would be") {
  const TemporaryDirectory folder("convert_types");
  const auto exact = folder.path / "exact.gguf", one = folder.path / "one.gguf",
             other = folder.path / "other.gguf";
  write_gguf(kModels / "small", exact, GgufType::f32);
  const auto want = logits(exact);
  for (const char* name : {"f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"}) {
    CAPTURE(name);
    write_gguf(kModels / "small", one, parse_gguf_type(name));
    write_gguf(exact, other, parse_gguf_type(name));
    const Gguf a = Gguf::open(one), b = Gguf::open(other);
    REQUIRE(a.tensors().size() == b.tensors().size());
    int in_blocks = 0;
    for (std::size_t t = 0; t < a.tensors().size(); ++t) {
      const auto &x = a.tensors()[t], &y = b.tensors()[t];
      CHECK(x.name == y.name);
      CHECK(x.type == y.type);
      in_blocks += specula::files::find_gguf_type(x.type)->block == 32;
      // The folder's weights are at 8 bits, of which Q8_0 loses nothing, where rounding anew may.
      if (std::string(name) != "q8_0")
        CHECK(std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end()));
    }
    CHECK((in_blocks == 0) == (std::string(name).find('q') == std::string::npos));
    CHECK(a.keys() == b.keys());
    const auto got = logits(other);
    double most = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(got[i] - want[i])));
    CHECK((most == 0) == (in_blocks == 0));  // 16 bits hold weights of 8
    CHECK(most < (name[1] == '8' ? 1 : name[1] == '5' ? 5 : 10));
  }
  CHECK_THROWS_WITH_AS(parse_gguf_type("q4_k"),
                       "type 'q4_k', must be f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or auto",
                       UsageError);
}

TEST_CASE("templates with names") {
  const TemporaryDirectory folder("convert_templates");
  const auto config = folder.path / "tokenizer_config.json";
  write_file(
      config,
      R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  const ChatTemplates both{{"", "a"}, {"tool_use", "b"}};
  CHECK(read_chat_templates(folder.path) == both);
  write_file(folder.path / "chat_template.jinja", "c");
  CHECK(read_chat_templates(folder.path) == ChatTemplates{{"", "c"}, {"tool_use", "b"}});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"})
    fs::copy_file(kModels / "small" / name, folder.path / name);
  const auto file = folder.path / "model.gguf", back = folder.path / "back";
  write_gguf(folder.path, file, GgufType::bf16);
  CHECK(read_chat_templates(file) == ChatTemplates{{"", "c"}, {"tool_use", "b"}});
  write_folder(file, back);
  CHECK(read_chat_templates(back) == ChatTemplates{{"", "c"}, {"tool_use", "b"}});
  write_file(config, R"({"chat_template": 3})");
  CHECK_THROWS_WITH_AS(
      read_chat_templates(folder.path),
      (config.string() + ": key 'chat_template': expected an array of objects, found 3").c_str(),
      std::runtime_error);
}

TEST_CASE("what cannot be written is named") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  const TemporaryDirectory folder("convert_errors");
  const auto file = folder.path / "model.gguf", path = folder.path / "tokenizer.json";
  write_tiny(folder.path, "llama3");
  const json good = json::parse(read_file(path));
  json changed = good;
  changed["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  write_file(path, changed.dump());
  CHECK(error_of(folder.path, file) ==
        path.string() +
            ": key 'pre_tokenizer': cuts texts as none of these of llama.cpp: gpt-2, smollm, llama-bpe, "
            "qwen2, tekken, deepseek-r1-qwen, smaug-bpe, default; llama.cpp's own convert_hf_to_gguf.py "
            "knows more");
  changed = good;
  changed["added_tokens"][2]["lstrip"] = true;
  write_file(path, changed.dump());
  const std::string what = path.string() + ": added token '<tool>': a GGUF file cannot say that ";
  CHECK(error_of(folder.path, file) == what + "it takes white space along");
  changed = good;
  changed["added_tokens"][2]["single_word"] = true;
  write_file(path, changed.dump());
  CHECK(error_of(folder.path, file) == what + "it is found as a single word only");
  write_file(path, good.dump());
  auto tensors = TinyModel(false, kTinyVocab).tensors;
  tensors[3].values[7] = std::numeric_limits<float>::infinity();
  write_file(folder.path / "model.safetensors", specula_test::safetensors_bytes(tensors));
  CHECK(error_of(folder.path, file) ==
        folder.path.string() +
            ": tensor 'model.layers.0.self_attn.q_proj.weight': inf, expected a number of at most "
            "340282346638528859811704183484516925440.000000");
  CHECK(!fs::exists(file));
  write_tiny(folder.path, "llama3");
  write_gguf(folder.path, file, GgufType::f32);
  std::string bytes = read_file(file);
  bytes.resize(bytes.size() - 1);
  write_file(file, bytes);
  CHECK_THROWS_WITH_AS(write_folder(file, folder.path / "back"), doctest::Contains("is it cut off?"),
                       std::runtime_error);
  CHECK(!fs::exists(folder.path / "back"));
}
