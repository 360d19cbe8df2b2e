// SPDX-License-Identifier: MIT
// The vocabulary of a model's folder, as a GGUF file has it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gguf_vocabulary.hpp"

namespace specula_tools {

/// Of a Hugging Face folder (tokenizer.model, or a byte-level tokenizer.json, and the files beside it), or of
/// a GGUF file. Has `size` tokens: those that the tokenizer lacks are unused. Throws std::runtime_error
/// naming the file for one that cannot be read, has more tokens, or tokenizes in a way that GGUF has no name
/// for.
GgufVocabulary read_vocabulary(const std::filesystem::path& model, std::int32_t size);

}  // namespace specula_tools
