// SPDX-License-Identifier: MIT
#include "folder_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <specula/cpu/gguf_config.hpp>
#include <specula/cpu/read_decoder_config.hpp>
#include <specula/cpu/tensor_files.hpp>

#include "chat_templates.hpp"
#include "files.hpp"
#include "ggml_expand.hpp"
#include "gguf_rounding.hpp"
#include "gguf_tokenizer.hpp"
#include "safetensors_writer.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::files::Dtype;
using specula::files::GgufId;

/// A message of protocol buffers.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
    return *this;
  }
  Message& real(int field, float value) {
    tag(field, 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
  }
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>((value & 127) | 128));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

/// tokenizer.model (sentencepiece_model.proto), whose types of pieces GGUF has taken over.
std::string sentencepiece_model(const GgufVocabulary& vocabulary) {
  Message model;
  std::uint64_t unknown = 0;
  bool bytes = false;
  for (std::size_t t = 0; t < vocabulary.tokens.size(); ++t) {
    const auto type = vocabulary.types.empty() ? GgufVocabulary::normal : vocabulary.types[t];
    if (type == GgufVocabulary::unknown) unknown = t;
    bytes = bytes || type == GgufVocabulary::byte;
    Message piece;
    piece.text(1, vocabulary.tokens[t])
        .real(2, vocabulary.scores[t])
        .number(3, static_cast<std::uint64_t>(type));
    model.text(1, piece.bytes());
  }
  // An int32 is written as 64 bits; -1: there is no such token.
  const auto id = [](std::optional<Token> token) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(token.value_or(-1)));
  };
  constexpr std::uint64_t kBpe = 2;
  Message trainer, normalizer;
  trainer.number(3, kBpe).number(4, vocabulary.tokens.size()).number(35, bytes);
  trainer.number(40, unknown)
      .number(41, id(vocabulary.begin))
      .number(42, id(vocabulary.end))
      .number(43, id({}));
  trainer.text(45, vocabulary.tokens[unknown]);
  if (vocabulary.begin) trainer.text(46, vocabulary.tokens[static_cast<std::size_t>(*vocabulary.begin)]);
  if (vocabulary.end) trainer.text(47, vocabulary.tokens[static_cast<std::size_t>(*vocabulary.end)]);
  normalizer.text(1, "identity").number(3, vocabulary.adds_space.value_or(true)).number(4, 0).number(5, 1);
  return model.text(2, trainer.bytes()).text(3, normalizer.bytes()).bytes();
}

void write_json(const std::filesystem::path& file, const nlohmann::ordered_json& json) {
  write_file(file, json.dump(2) + "\n");
}

nlohmann::ordered_json tokenizer_config(const GgufVocabulary& vocabulary, const Tokenizer& tokenizer,
                                        const ChatTemplates& templates) {
  nlohmann::ordered_json out;
  const bool scores = vocabulary.model == "llama";
  out["tokenizer_class"] = scores ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
  const auto text = [&](Token token) { return tokenizer.pieces()[static_cast<std::size_t>(token)]; };
  if (vocabulary.begin) out["bos_token"] = text(*vocabulary.begin);
  out["eos_token"] = text(tokenizer.end());
  out["add_bos_token"] = tokenizer.adds_begin();
  out["add_eos_token"] = false;
  if (scores && !vocabulary.adds_space.value_or(true)) out["add_prefix_space"] = false;
  if (scores)
    for (std::size_t t = 0; t < vocabulary.types.size(); ++t)
      if (const auto type = vocabulary.types[t];
          type == GgufVocabulary::control || type == GgufVocabulary::user_defined)
        out["added_tokens_decoder"][std::to_string(t)] = {{"content", vocabulary.tokens[t]},
                                                          {"lstrip", false},
                                                          {"normalized", false},
                                                          {"rstrip", false},
                                                          {"single_word", false},
                                                          {"special", type == GgufVocabulary::control}};
  if (templates.size() == 1 && templates[0].first.empty()) {
    out["chat_template"] = templates[0].second;
  } else {
    for (const auto& [name, source] : templates)
      out["chat_template"].push_back({{"name", name.empty() ? "default" : name}, {"template", source}});
  }
  return out;
}

void write_weights(specula::cpu::TensorFiles& files, const std::filesystem::path& file) {
  SafetensorsWriter out;
  for (const auto& [name, where] : files.names()) {
    const auto& tensor = files.weight(name, files.find(name).shape);
    const bool full = tensor.dtype == Dtype::f32, half = tensor.dtype == Dtype::f16;
    const GgufId type = full ? GgufId::f32 : half ? GgufId::f16 : GgufId::bf16;
    std::string bytes;
    files.rows(tensor, [&](std::int64_t, std::span<const float> row) { append_rounded(type, row, bytes); });
    out.add(name, full ? "F32" : half ? "F16" : "BF16", tensor.shape, bytes);
  }
  write_file(file, out.bytes());
}

}  // namespace

void write_folder(const std::filesystem::path& gguf, const std::filesystem::path& folder) {
  specula::files::GgufFiles parts(gguf);
  const std::string source = parts.keys().source();
  const specula::files::Json config = specula::cpu::gguf_config(parts);
  const auto read = specula::cpu::read_decoder_config(config, source);
  const GgufVocabulary vocabulary = read_gguf_vocabulary(parts.keys());
  const Tokenizer tokenizer = make_gguf_tokenizer(vocabulary, source);
  const ChatTemplates templates = read_chat_templates(gguf);
  specula::cpu::TensorFiles files(specula::cpu::GgufTensors(std::move(parts), ggml_expand()));

  std::filesystem::create_directories(folder);
  nlohmann::ordered_json out(config);
  if (tokenizer.begin() != specula::kNoToken) out["bos_token_id"] = tokenizer.begin();
  out["eos_token_id"] = tokenizer.end();
  write_weights(files, folder / "model.safetensors");
  write_json(folder / "config.json", out);
  write_json(folder / "generation_config.json", {{"eos_token_id", tokenizer.ends()}});
  write_json(folder / "tokenizer_config.json", tokenizer_config(vocabulary, tokenizer, templates));
  if (vocabulary.model == "llama")
    write_file(folder / "tokenizer.model", sentencepiece_model(vocabulary));
  else
    write_file(folder / "tokenizer.json", tokenizer_json(vocabulary, source).dump());
}

}  // namespace specula_tools
