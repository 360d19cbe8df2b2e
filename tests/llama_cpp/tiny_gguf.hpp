// SPDX-License-Identifier: MIT
// Writes GGUF files of metadata alone, which suffices for libllama's vocabulary.
#pragma once

#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/llama_cpp/model.hpp>

namespace specula_test {

/// libllama writes nothing to stderr from here on.
inline void quiet() {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
}

/// A token as the files number its kinds.
struct TinyToken {
  enum Kind : std::int32_t { normal = 1, unknown = 2, control = 3, unused = 5, byte = 6 };
  std::string text;
  Kind kind = normal;
};
using TinyVocabulary = std::vector<TinyToken>;

/// The required tokens of a SentencePiece vocabulary, then `words`.
inline TinyVocabulary tiny_vocabulary(const std::vector<std::string>& words) {
  TinyVocabulary out{{"<unk>", TinyToken::unknown},
                     {"<s>", TinyToken::control},
                     {"</s>", TinyToken::control},
                     {"<0x0A>", TinyToken::byte}};
  for (const std::string& word : words) out.push_back({word});
  return out;
}

inline void write_tiny_gguf(const std::filesystem::path& file, const std::string& architecture,
                            const TinyVocabulary& vocabulary, const std::string& tokenizer = "llama") {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> out(gguf_init_empty(), &gguf_free);
  gguf_set_val_str(out.get(), "general.architecture", architecture.c_str());
  gguf_set_val_str(out.get(), "tokenizer.ggml.model", tokenizer.c_str());
  gguf_set_val_u32(out.get(), (architecture + ".vocab_size").c_str(),
                   static_cast<std::uint32_t>(vocabulary.size()));
  std::vector<const char*> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  for (const TinyToken& token : vocabulary) {
    texts.push_back(token.text.c_str());
    scores.push_back(-static_cast<float>(scores.size()));
    kinds.push_back(token.kind);
  }
  gguf_set_arr_str(out.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(out.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(out.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
  gguf_set_val_u32(out.get(), "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(out.get(), "tokenizer.ggml.eos_token_id", 2);
  if (!gguf_write_to_file(out.get(), file.string().c_str(), true))
    throw std::runtime_error("cannot write " + file.string());
}

/// Such a file, loaded with its vocabulary only.
inline std::shared_ptr<llama_model> tiny_model(const std::filesystem::path& file,
                                               const std::string& architecture,
                                               const TinyVocabulary& vocabulary,
                                               const std::string& tokenizer = "llama") {
  write_tiny_gguf(file, architecture, vocabulary, tokenizer);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  return specula::llama_cpp::load(file, params);
}

}  // namespace specula_test
