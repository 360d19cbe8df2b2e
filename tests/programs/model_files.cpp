// SPDX-License-Identifier: MIT
// The files of a model's folder: every row of the table in docs/measuring.md is true.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/cpu/read_decoder_config.hpp>
#include <specula/cpu/tensor_files.hpp>

#include "../files/safetensors_writer.hpp"
#include "bigram_file.hpp"
#include "chat_template.hpp"
#include "files.hpp"
#include "prompts.hpp"
#include "skip.hpp"
#include "style_info.hpp"
#include "token_store.hpp"
#include "tokenizer.hpp"

using namespace specula_tools;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kPack = SPECULA_MODELS_DIR;
constexpr const char* kSpace = "\xe2\x96\x81";

/// A model's folder with all that the programs need, with tokenizer.model or with tokenizer.json.
class Folder {
 public:
  explicit Folder(bool with_json) : folder_("model_files"), path(folder_.path) {
    write("config.json", config().dump());
    specula_test::write_file(path / "model.safetensors", specula_test::safetensors_bytes("{}", ""));
    if (with_json)
      write("tokenizer.json", tokenizer().dump());
    else
      fs::copy_file(kPack / "target" / "tokenizer.model", path / "tokenizer.model");
  }
  static json config() {
    return {{"model_type", "llama"},  {"vocab_size", 3000},
            {"hidden_size", 64},      {"intermediate_size", 96},
            {"num_hidden_layers", 3}, {"num_attention_heads", 8},
            {"eos_token_id", 2},      {"max_position_embeddings", 512}};
  }
  static json tokenizer() {
    const std::string s = kSpace;
    const json vocab{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {s, 3},   {"a", 4},
                     {"b", 5},     {"<", 6},   {"t", 7},    {">", 8}, {s + "a", 9}};
    return {
        {"added_tokens", json::array({{{"id", 1}, {"content", "<s>"}, {"special", true}}})},
        {"pre_tokenizer",
         {{"type", "Metaspace"}, {"replacement", s}, {"prepend_scheme", "first"}, {"split", false}}},
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", json::array({{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}})},
          {"special_tokens", {{"<s>", {{"ids", {1}}}}}}}},
        {"model",
         {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", json::array({s + " a"})}}}};
  }
  void write(const std::string& file, const std::string& text) const { write_file(path / file, text); }

  /// What the programs make of the folder, or the error.
  std::string seen() const {
    try {
      std::ostringstream out;
      const Tokenizer tokens(path);
      for (const char* text : {"a", " a<t>a", "<t> <u>b"}) {
        out << '[';
        for (const specula::Token token : tokens.encode(text)) out << ' ' << token;
        out << " ] ";
      }
      out << "begin " << tokens.begin() << " end " << tokens.end() << " ends";
      for (const specula::Token end : tokens.ends()) out << ' ' << end;
      out << ", prints " << tokens.decode(std::vector<specula::Token>{4, 3, 2048, 2049}) << ", V "
          << tokens.vocab_size();
      const auto file = path / "config.json";
      const auto c = specula::cpu::read_decoder_config(specula::files::read_json_file(file), file.string());
      out << ", config " << c.vocab_size << ' ' << c.hidden_size << ' ' << c.intermediate_size << ' '
          << c.layers << ' ' << c.heads << ' ' << c.kv_heads << ' ' << c.head_dim << ' ' << c.max_position
          << ' ' << c.rms_norm_eps << ' ' << c.rope_theta << ' ' << c.rope_scaling.factor << ' '
          << c.tied_head << ", rope " << static_cast<int>(c.rope_scaling.type) << ' '
          << c.rope_scaling.original_max_position << ", parts " << c.qkv_bias << c.output_bias
          << c.query_key_norms;
      const specula::cpu::TensorFiles tensors(path);
      out << ", tensors";
      for (const auto& [name, _] : tensors.names()) out << ' ' << name;
      if (const auto chat = find_chat_template(path)) out << ", chat " << chat->source;
      return out.str();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  specula_test::TemporaryDirectory folder_;

 public:
  fs::path path;
};

/// A row of the page: a file, a key ("" for the whole file) and what is done with it: read, refused or
/// ignored.
using Row = std::tuple<std::string, std::string, std::string>;

std::string trimmed(std::string text) {
  for (const char* mark : {"`", " "})
    for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos;) text.erase(at, 1);
  return text;
}

/// One entry for each key of each row.
std::set<Row> page() {
  const std::string text = read_file(kPack.parent_path().parent_path() / "docs" / "measuring.md");
  const auto begin = text.find("| file | keys |");
  REQUIRE(begin != text.npos);
  std::istringstream lines(text.substr(begin));
  std::set<Row> rows;
  std::string line;
  std::string above;
  std::getline(lines, line), std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("| ")) {
    std::istringstream cells(line.substr(1));
    std::string files, keys, what, key, file;
    std::getline(cells, files, '|'), std::getline(cells, keys, '|'), std::getline(cells, what, '|');
    if (const std::string here = trimmed(files); !here.empty()) above = here;
    std::istringstream each(above);
    while (std::getline(each, file, ',')) {
      std::istringstream all(trimmed(keys) + ",");
      while (std::getline(all, key, ','))
        for (const char* how : {"read", "refused", "ignored"})
          if (what.find(how) != what.npos) rows.emplace(file, key, how);
    }
  }
  return rows;
}

/// What shows that a row is true: with this text in the file, the folder is seen in another way, which holds
/// `shows` (read); is an error that names the file and holds `shows` (refused); or is seen as before
/// (ignored).
struct Case {
  std::string file, key, how;
  std::string text;  // of the file; of config.json and tokenizer.json: a patch of what is there
  std::string shows = {};
  bool with_json = false;                                        // beside tokenizer.json, not tokenizer.model
  std::vector<std::pair<std::string, std::string>> others = {};  // files that are there already; empty: not
};

void check(const Case& c) {
  CAPTURE(c.file);
  CAPTURE(c.key);
  CAPTURE(c.text);
  CAPTURE(c.with_json);
  const Folder folder(c.with_json);
  for (const auto& [file, text] : c.others) {
    if (text.empty())
      fs::remove(folder.path / file);
    else
      folder.write(file, text);
  }
  const std::string before = folder.seen();
  if (c.others.empty()) REQUIRE(before.find("tensors") != before.npos);
  if (c.file == "config.json" || c.file == "tokenizer.json") {
    json whole = c.file == "config.json" ? Folder::config() : Folder::tokenizer();
    whole.merge_patch(json::parse(c.text));
    folder.write(c.file, whole.dump());
  } else {
    folder.write(c.file, c.text);
  }
  const std::string after = folder.seen();
  CAPTURE(before);
  CAPTURE(after);
  if (c.how == "ignored") {
    CHECK(after == before);
    return;
  }
  CHECK(after != before);
  CHECK(after.find(c.shows) != after.npos);
  CHECK(before.find(c.shows) == before.npos);
  const bool fails = after.starts_with(folder.path.string());
  if (c.how == "refused") {
    CHECK(fails);
    CHECK(after.find(c.file) != after.npos);
  }
}

const std::string kDecoder = R"("added_tokens_decoder": {"2048": {"content": "<t>", "special": false}})";

/// The pack's tokenizer, with a space in front of each text, as Llama's.
std::string spaced_model() {
  std::string bytes = read_file(kPack / "target" / "tokenizer.model");
  const auto at =
      bytes.rfind(std::string_view("\x18\x00\x20\x00", 4));  // add_dummy_prefix, remove_extra_whitespaces
  REQUIRE(at != bytes.npos);
  bytes[at + 1] = 1;
  return bytes;
}

constexpr const char* kTensor = R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";

std::vector<Case> cases() {
  const std::string config = "config.json", generation = "generation_config.json",
                    tokenizer = "tokenizer.json", tokens = "tokenizer_config.json",
                    map = "special_tokens_map.json", added = "added_tokens.json", read = "read",
                    refused = "refused", ignored = "ignored";
  std::vector<Case> all{
      {config, "eos_token_id", read, R"({"eos_token_id": [2, 464]})", "ends 2 464,"},
      {config, "eos_token_id", read, R"({"eos_token_id": 464})", "ends 2 464,"},
      {config, "eos_token_id", read, R"({"eos_token_id": 7})", "ends 2 7,", true},
      {config, "vocab_size", read, R"({"vocab_size": 3001})", "config 3001"},
      {config, "hidden_size", read, R"({"hidden_size": 128})", "config 3000 128"},
      {config, "intermediate_size", read, R"({"intermediate_size": 97})", "64 97"},
      {config, "num_hidden_layers", read, R"({"num_hidden_layers": 4})", "96 4"},
      {config, "num_attention_heads", read, R"({"num_attention_heads": 16})", "3 16"},
      {config, "num_key_value_heads", read, R"({"num_key_value_heads": 4})", "8 4"},
      {config, "head_dim", read, R"({"head_dim": 10})", "8 8 10"},
      {config, "rms_norm_eps", read, R"({"rms_norm_eps": 1e-4})", "512 0.0001"},
      {config, "rope_theta", read, R"({"rope_theta": 5000})", " 5000 1"},
      {config, "tie_word_embeddings", read, R"({"tie_word_embeddings": true})", " 10000 1 1"},
      {config, "max_position_embeddings", read, R"({"max_position_embeddings": 100})", "8 100"},
      {config, "max_position_embeddings", read, R"({"max_position_embeddings": null})", "8 2048"},
      {config, "max_sequence_length", read,
       R"({"max_position_embeddings": null, "max_sequence_length": 1024})", "8 1024"},
      {config, "rope_scaling", read,
       R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": 256}})",
       " 10000 8 0"},
      {config, "rope_parameters", read, R"({"rope_parameters": {"rope_theta": 500}})", " 500 1"},
      {config, "rope_scaling", read, R"({"rope_scaling": {"type": "linear", "factor": 3}})",
       " 10000 3 0, rope 1"},
      {config, "rope_scaling", read,
       R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 256}})",
       " 10000 4 0, rope 3 256"},
      {config, "original_max_position_embeddings", read,
       R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}, "original_max_position_embeddings": 128})",
       "rope 3 128"},
      {config, "model_type", read, R"({"model_type": "qwen2", "num_key_value_heads": 8})", "parts 100"},
      {config, "architectures", read,
       R"({"architectures": ["Qwen3ForCausalLM"], "model_type": null, "num_key_value_heads": 8, "head_dim": 8})",
       "parts 001"},
      {config, "attention_bias", read, R"({"attention_bias": true})", "parts 110"},
      {config, "sliding_window", read,
       R"({"model_type": "mistral", "num_key_value_heads": 8, "sliding_window": 512, "head_dim": 10})",
       "8 8 10"},
      {config, "use_sliding_window", read,
       R"({"model_type": "qwen2", "num_key_value_heads": 8, "sliding_window": 8, "use_sliding_window": false})",
       "parts 100"},
      {config, "layer_types", read,
       R"({"model_type": "qwen2", "num_key_value_heads": 8, "sliding_window": 8, "use_sliding_window": true,
           "layer_types": ["full_attention"]})",
       "parts 100"},
      {config, "use_sliding_window", refused,
       R"({"model_type": "qwen2", "num_key_value_heads": 8, "sliding_window": 8, "use_sliding_window": true})",
       "key 'sliding_window'"},
      {config, "layer_types", refused, R"({"layer_types": ["chunked_attention"]})", "layer_types"},
      {config, "model_type", refused, R"({"model_type": "gemma3"})", "model_type"},
      {config, "architectures", refused, R"({"architectures": ["PhiForCausalLM"]})", "architectures"},
      {config, "hidden_act", refused, R"({"hidden_act": "gelu"})", "hidden_act"},
      {config, "mlp_bias", refused, R"({"mlp_bias": true})", "mlp_bias"},
      {config, "sliding_window", refused, R"({"sliding_window": 256})", "sliding_window"},
      {config, "quantization_config", refused, R"({"quantization_config": {"bits": 4}})",
       "quantization_config"},
      {config, "quantization", refused, R"({"quantization": {"bits": 4}})", "'quantization'"},
      {config, "draft_vocab_size", refused, R"({"draft_vocab_size": 99})",
       "a draft head that other programs"},
      {config, "partial_rotary_factor", refused, R"({"partial_rotary_factor": 0.5})",
       "partial_rotary_factor"},
      {config, "partial_rotary_factor", refused, R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "key 'rope_parameters': key 'partial_rotary_factor'"},
      {config, "rope_scaling", refused, R"({"rope_scaling": {"rope_type": "longrope", "factor": 8}})",
       "rope_scaling"},
      {config, "rope_parameters", refused, R"({"rope_parameters": {"full_attention": {"rope_theta": 500}}})",
       "rope_parameters"},
      {generation, "eos_token_id", read, R"({"eos_token_id": [2, 464]})", "ends 2 464,"},
      {generation, "eos_token_id", read, R"({"eos_token_id": 5})", "ends 2 5,", true},
      {tokenizer, "model", read, R"({"model": {"merges": []}})", "[ 1 3 4 ]", true},
      {tokenizer, "normalizer", read, R"({"normalizer": {"type": "Prepend", "prepend": "\u2581"}})",
       "[ 1 3 9 6 7 8 4 ]", true},
      {tokenizer, "pre_tokenizer", read,
       R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never"}})",
       "[ 1 4 ]", true},
      {tokenizer, "post_processor", read, R"({"post_processor": null})", "[ 9 ]", true},
      {tokenizer, "added_tokens", read,
       R"({"added_tokens": [{"id": 11, "content": "<t>", "special": false}]})", "[ 1 9 11 4 ] [ 1 11 3 6",
       true},
      {tokenizer, "post_processor", refused, R"({"post_processor": {"type": "RobertaProcessing"}})",
       "post_processor RobertaProcessing", true},
      {tokenizer, "post_processor", refused,
       R"({"post_processor": {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}, {"SpecialToken": {"id": "</s>"}}]}})",
       "a post_processor that puts other tokens than one in front", true},
      {tokenizer, "model", refused, R"({"model": {"type": "Unigram"}})", "a model Unigram", true},
      {tokenizer, "normalizer", refused, R"({"normalizer": {"type": "Lowercase"}})", "a normalizer Lowercase",
       true},
      {tokenizer, "pre_tokenizer", refused, R"({"pre_tokenizer": {"type": "Whitespace"}})",
       "a pre_tokenizer Whitespace", true},
      {map, "bos_token", read, R"({"bos_token": "</s>"})", "begin 2 end"},
      {map,
       "bos_token",
       read,
       R"({"bos_token": {"content": "a"}})",
       "[ 4 9 ]",
       true,
       {{tokens, R"({"add_bos_token": true})"}}},
      {map, "eos_token", read, R"({"eos_token": {"content": "ly"}})", "end 464 ends 2 464,"},
      {map, "eos_token", read, R"({"eos_token": "b"})", "end 5 ends 2 5,", true},
      {tokens, "bos_token", read, R"({"bos_token": null})", "begin -1"},
      {tokens, "bos_token", read, R"({"bos_token": "</s>"})", "begin 2 end"},
      {tokens, "bos_token", read, R"({"bos_token": {"content": "a"}, "add_bos_token": true})", "[ 4 9 ]",
       true},
      {tokens, "eos_token", read, R"({"eos_token": "ly"})", "end 464 ends 2 464,"},
      {tokens, "eos_token", read, R"({"eos_token": "b"})", "end 5 ends 2 5,", true},
      {tokens, "eos_token", refused, R"({"eos_token": "<|none|>"})",
       "token '<|none|>' is not in the vocabulary"},
      {tokens, "eos_token", refused, R"({"eos_token": "<|none|>"})",
       "token '<|none|>' is not in the vocabulary", true},
      {tokens, "add_bos_token", read, R"({"add_bos_token": false})", "[ 1957 ]"},
      {tokens, "add_bos_token", read, R"({"add_bos_token": false})", "[ 9 ]", true},
      {tokens, "added_tokens_decoder", read, "{" + kDecoder + "}", " 2048 ", false},
      {tokens, "added_tokens_decoder", read, "{" + kDecoder + "}", " 2048 ", true},
      {tokens,
       "legacy",
       read,
       "{" + kDecoder + R"(, "legacy": false})",
       "[ 1 4 1957 2048 1957 ]",
       false,
       {{"tokenizer.model", spaced_model()}}},
      {tokens,
       "add_prefix_space",
       read,
       "{" + kDecoder + R"(, "legacy": false, "add_prefix_space": false})",
       "[ 1 271 2048 1957 ]",
       false,
       {{"tokenizer.model", spaced_model()}}},
      {tokens,
       "additional_special_tokens",
       read,
       R"({"additional_special_tokens": ["<t>", {"content": "<u>"}]})",
       "2033 1955 2023 758 1967 2023",
       false,
       {{added, R"({"<t>": 2048, "<u>": 2049})"}}},
      {map,
       "additional_special_tokens",
       read,
       R"({"additional_special_tokens": ["<t>"]})",
       "2033 1955 2023 1953 2049 1974",
       false,
       {{added, R"({"<t>": 2048, "<u>": 2049})"}}},
      {tokens, "bos_token", refused, R"({"bos_token": 3})", "key 'bos_token': expected a token's text"},
      {map, "bos_token", refused, R"({"bos_token": "<|none|>"})",
       "token '<|none|>' is not in the vocabulary"},
      {map, "eos_token", refused, R"({"eos_token": "<|none|>"})", "token '<|none|>' is not in the vocabulary",
       true},
      {tokens, "chat_template", read, R"({"chat_template": "turns"})", "chat turns"},
      {tokens, "chat_template", read, R"({"chat_template": [{"name": "default", "template": "turns"}]})",
       "chat turns", true},
      {tokens, "chat_template", refused, R"({"chat_template": [{"name": "rag", "template": "turns"}]})",
       "none of the templates is the default one"},
      {"chat_template.jinja",
       "",
       read,
       "turns",
       "chat turns",
       false,
       {{tokens, R"({"chat_template": "others"})"}}},
      {tokens, "add_eos_token", refused, R"({"add_eos_token": true})", "add_eos_token"},
      {tokens, "add_eos_token", refused, R"({"add_eos_token": true})", "add_eos_token", true},
      {tokens, "sp_model_kwargs", refused, R"({"sp_model_kwargs": {"nbest_size": 4}})", "sp_model_kwargs"},
      {added, "", read, R"({"<t>": 2048, "<u>": 2049})", "<t><u>, V 2050"},
      {"model.safetensors", "", read, specula_test::safetensors_bytes(kTensor, "1234"), "tensors x"},
      {"model.safetensors.index.json",
       "",
       read,
       R"({"weight_map": {"x": "part"}})",
       "tensors x",
       false,
       {{"model.safetensors", ""}, {"part", specula_test::safetensors_bytes(kTensor, "1234")}}},
      {"adapter_config.json", "", refused, "{}", "adapters are not read"},
      {"tokenizer.model", "", read, spaced_model(), "[ 1 271 ]"},
      {"tokenizer.model", "", refused, "IQ== 0\nIg== 1\n", "byte-level vocabulary (tiktoken"},
  };
  const auto ignore = [&](const std::string& file, std::initializer_list<const char*> keys,
                          const json& value) {
    for (const char* key : keys)
      for (const bool with_json : {false, true})
        all.push_back({file, key, ignored, json{{key, value}}.dump(), {}, with_json});
  };
  ignore(config,
         {"max_window_layers", "bos_token_id", "pad_token_id", "torch_dtype", "dtype", "use_cache",
          "pretraining_tp", "initializer_range", "attention_dropout", "transformers_version"},
         3);
  ignore(generation,
         {"temperature", "top_p", "top_k", "min_p", "do_sample", "repetition_penalty", "max_length",
          "max_new_tokens", "bos_token_id", "pad_token_id", "stop_strings", "suppress_tokens"},
         3);
  ignore(tokens,
         {"tokenizer_class", "model_max_length", "clean_up_tokenization_spaces", "split_special_tokens",
          "padding_side", "use_default_system_prompt"},
         "LlamaTokenizer");
  for (const char* file : {"chat_template.json", "preprocessor_config.json", "processor_config.json",
                           "quantize_config.json", "quant_config.json", "adapter_model.safetensors",
                           "pytorch_model.bin", "pytorch_model.bin.index.json", "vocab.json", "merges.txt"})
    for (const bool with_json : {false, true}) all.push_back({file, "", ignored, "{}", {}, with_json});
  for (const char* key : {"decoder", "truncation", "padding"})
    all.push_back({tokenizer, key, ignored, json{{key, {{"type", "Fuse"}}}}.dump(), {}, true});
  return all;
}

}  // namespace

TEST_CASE("every row of the page's table is tested, and true") {
  if (!fs::exists(kPack / "target" / "tokenizer.model")) return specula_test::skip("no model pack");
  std::set<Row> tested;
  for (const Case& c : cases()) {
    check(c);
    tested.emplace(c.file, c.key, c.how);
  }
  const std::set<Row> told = page();
  CHECK(told.size() > 50);
  const auto check_all_in = [](const std::set<Row>& some, const std::set<Row>& all,
                               const std::string& fault) {
    for (const Row& row : some) {
      const std::string name = std::get<0>(row) + ", " + std::get<1>(row) + ": " + std::get<2>(row);
      CHECK_MESSAGE(all.contains(row), (fault + name));
    }
  };
  check_all_in(told, tested, "without a test: ");
  check_all_in(tested, told, "not on the page: ");
}

TEST_CASE("a pointer of Git LFS is called that, whatever file it stands for") {
  if (!fs::exists(kPack / "target" / "tokenizer.model")) return specula_test::skip("no model pack");
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 26817536\n";
  for (const bool with_json : {false, true})
    for (const char* file :
         {"config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
          "added_tokens.json", "tokenizer.model", "tokenizer.json", "model.safetensors"}) {
      if (with_json == (std::string_view(file) == "tokenizer.model")) continue;
      if (!with_json && std::string_view(file) == "tokenizer.json") continue;
      const Folder folder(with_json);
      folder.write(file, pointer);
      CHECK(
          folder.seen().starts_with((folder.path / file).string() + ": is a Git LFS pointer, not the file"));
    }
  CHECK_THROWS_WITH_AS(
      parse_prompts(pointer, "p.jsonl"),
      "p.jsonl: is a Git LFS pointer, not the file: `git lfs pull` in its repository fetches that",
      std::runtime_error);
}

// Every value of every file that is JSON, replaced by values of other types: a message names file and key, in
// our words.
TEST_CASE("wrongly typed values: messages name file and key, and null counts as absent") {
  if (!fs::exists(kPack / "target" / "tokenizer.model")) return specula_test::skip("no model pack");
  const json values = json::array(
      {nullptr, 3, -1, 0.5, true, "x", json::array(), json::array({nullptr}), json::object(), 1e300});
  std::size_t errors = 0;
  const auto expect = [&](const std::string& message, const std::string& file, const std::string& place,
                          const json& value) {
    CAPTURE(file);
    CAPTURE(place);
    CAPTURE(value.dump());
    CAPTURE(message);
    ++errors;
    CHECK(message.find("json.exception") == message.npos);
    CHECK(message.find(file) != message.npos);
    // The key, or one around it; or another one that no longer fits it.
    bool names_key = place.empty() || message.find(": key '") != message.npos;
    for (json::json_pointer at(place); !at.empty(); at.pop_back())
      names_key = names_key || message.find(at.back()) != message.npos;
    CHECK(names_key);
  };
  /// Calls use(patched, key) with each value of `whole` replaced, at any depth.
  const std::function<void(const json&,
                           const std::function<void(const json&, const std::string&, const json&)>&)>
      each = [&](const json& whole, const auto& use) {
        const json flat = whole.flatten();
        std::set<std::string> places;
        for (const auto& [pointer, _] : flat.items())
          for (json::json_pointer at(pointer); !at.empty(); at.pop_back()) places.insert(at.to_string());
        for (const std::string& place : places)
          for (const json& value : values) {
            json patched = whole;
            patched[json::json_pointer(place)] = value;
            use(patched, place, value);
          }
        for (const json& value : values) use(value, "", value);
      };
  const auto in_folder = [&](const std::string& file, bool with_json, const json& whole) {
    const Folder folder(with_json);
    each(whole, [&](const json& patched, const std::string& key, const json& value) {
      folder.write(file, patched.dump());
      if (const std::string seen = folder.seen(); seen.starts_with('/'))
        expect(seen, folder.path.string(), key, value);
      else
        CHECK(seen.find("tensors") != seen.npos);
    });
  };
  const json token{
      {"content", "a"}, {"special", false}, {"lstrip", true}, {"rstrip", false}, {"normalized", true}};
  json config = Folder::config();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 256}};
  config["architectures"] = {"LlamaForCausalLM"};
  const json tokens{{"bos_token", token},
                    {"eos_token", "</s>"},
                    {"add_bos_token", true},
                    {"legacy", false},
                    {"additional_special_tokens", {"a", token}},
                    {"added_tokens_decoder", {{"4", token}}},
                    {"sp_model_kwargs", json::object()}};
  json file = Folder::tokenizer();
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", json::array({{{"type", "Prepend"}, {"prepend", kSpace}}})}};
  file["added_tokens"].push_back({{"id", 4}, {"content", "a"}, {"special", false}, {"normalized", false}});
  in_folder("config.json", false, config);
  in_folder("generation_config.json", false, {{"eos_token_id", {2, 3}}});
  in_folder("tokenizer_config.json", true, tokens);
  in_folder("special_tokens_map.json", true,
            {{"bos_token", token}, {"eos_token", "b"}, {"additional_special_tokens", {"a"}}});
  in_folder("added_tokens.json", true, {{"a", 4}});
  in_folder("tokenizer.json", true, file);
  const auto parsed = [&](const std::string& name, const json& whole, const auto& parse) {
    each(whole, [&](const json& patched, const std::string& key, const json& value) {
      try {
        parse(patched.dump());
      } catch (const std::exception& error) {
        expect(error.what(), name, key, value);
      }
    });
  };
  parsed("b.json", {{"vocab_size", 2}, {"next", {1, -1}}, {"vocabulary", "0"}},
         [](const std::string& text) { parse_bigram(text, "b.json"); });
  parsed("p.jsonl:1", {{"prompt", "a"}, {"question", "b"}, {"turns", {"c", "d"}}, {"category", "e"}},
         [](const std::string& text) { parse_prompts(text + "\n", "p.jsonl:1"); });
  const Folder folder(true);
  write_file(folder.path / "s.train.tokens", ""), write_file(folder.path / "s.heldout.tokens", "");
  const json index{{"vocab_size", 9}, {"begin", 1}, {"end", 2}, {"vocabulary", "0"}, {"styles", {"s"}}};
  parsed(folder.path.string(), index, [&](const std::string& text) {
    folder.write("tokens.json", text);
    read_tokens(folder.path);
  });
  parsed(folder.path.string(),
         {{"styles",
           json::array({{{"name", "s"}, {"description", "d"}, {"licence", "l"}, {"heldout_every", 3}}})}},
         [&](const std::string& text) {
           folder.write("styles.json", text);
           read_style_infos(folder.path);
         });
  CHECK(errors > 300);
}
