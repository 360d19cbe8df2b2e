// SPDX-License-Identifier: MIT
// The vocabulary of a GGUF file, and what libllama takes its tokens for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>
#include <specula/files/gguf.hpp>

namespace specula_tools {

/// What a file's keys tokenizer.ggml.* say; the name of each key stands beside it.
struct GgufVocabulary {
  /// Of `token_type`.
  enum Type : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  std::string model = {};  // "llama": pairs by the scores of SentencePiece; "gpt2": of bytes, by merges
  std::string pre = {};    // how texts are cut into words, of "gpt2"; empty: the file does not say
  std::vector<std::string> tokens = {};         // (vocab_size): as the file spells them
  std::vector<float> scores = {};               // (vocab_size), of "llama": pairs of the highest merge first
  std::vector<std::int32_t> types = {};         // (vocab_size), `token_type`; empty: all are normal
  std::vector<std::string> merges = {};         // of "gpt2": "left right", the first merges first
  std::optional<specula::Token> begin = {};     // bos_token_id
  std::optional<specula::Token> end = {};       // eos_token_id
  std::vector<specula::Token> other_ends = {};  // eot_token_id, eom_token_id and the like: each ends a text
  std::optional<bool> adds_begin = {};          // add_bos_token
  std::optional<bool> adds_space = {};          // add_space_prefix, of "llama"
  bool adds_end = false;                        // add_eos_token
  std::vector<std::string> notes = {};          // each of a key that was read otherwise than the file says
};

/// A number that is none of the file's tokens, as 4294967295 for "none", counts as absent, with a note.
/// Throws std::runtime_error naming file and key for a key that is missing or of another type.
GgufVocabulary read_gguf_vocabulary(const specula::files::Gguf& file);

/// What libllama takes the tokens of a vocabulary for.
struct GgufRoles {
  std::vector<std::int32_t> types = {};      // (vocab_size)
  std::optional<specula::Token> begin = {};  // of a text
  std::optional<specula::Token> end = {};    // of a document
  std::vector<specula::Token> ends = {};     // each ends a text; ascending
  std::vector<std::string> notes = {};  // the vocabulary's, and what the file's types and keys say otherwise
};

/// By the keys, and by texts: whatever its type, <|im_end|> ends a text and is a control token.
/// docs/measuring.md has the table (llama.cpp, src/llama-vocab.cpp).
GgufRoles gguf_roles(const GgufVocabulary& vocabulary);

/// Whether libllama ends texts at a token of this text, whatever the keys say.
bool ends_by_text(std::string_view token);

/// Whether a file begins as GGUF files do; false if it cannot be read.
inline bool begins_as_gguf(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  char begin[4] = {};
  return in.read(begin, sizeof begin) && std::string_view(begin, sizeof begin) == "GGUF";
}

}  // namespace specula_tools
