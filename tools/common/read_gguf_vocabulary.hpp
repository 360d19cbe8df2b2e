// SPDX-License-Identifier: MIT
// Reads the vocabulary of a GGUF file.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include <specula/files/gguf.hpp>

#include "gguf_vocabulary.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

/// Throws std::runtime_error naming file and key for one that is missing or of another type.
GgufVocabulary read_gguf_vocabulary(const specula::files::Gguf& file);

/// The tokenizer of a GGUF file, of several parts the first. Throws likewise, and as make_gguf_tokenizer()
/// does.
Tokenizer read_gguf_tokenizer(const std::filesystem::path& file);

/// Whether a file begins as GGUF files do; false if it cannot be read.
inline bool begins_as_gguf(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  char begin[4] = {};
  return in.read(begin, sizeof begin) && std::string_view(begin, sizeof begin) == "GGUF";
}

}  // namespace specula_tools
