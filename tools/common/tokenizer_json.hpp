// SPDX-License-Identifier: MIT
// A tokenizer from the contents of a tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <specula/files/json.hpp>

#include "token_files.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

/// Byte-pair encoding: on bytes, as GPT-2, Llama 3, Qwen and SmolLM have it, or on characters with spaces
/// written as U+2581, as Llama 1 and 2. The same tokens as Hugging Face's `tokenizers` gives. `source` names
/// the file in messages, `files` what lies beside it. `ranks` (vocab_size): the lower that of a token, the
/// earlier pairs merge into it, of the same rank from left to right, as in SentencePiece; empty: pairs merge
/// in the order of the list. Throws std::runtime_error naming the file and what it holds that is not read,
/// say a model Unigram.
Tokenizer make_json_tokenizer(const specula::files::Json& json, const std::string& source,
                              const TokenFiles& files, std::span<const std::uint32_t> ranks = {});

/// The same of a file.
Tokenizer read_tokenizer_json(const std::filesystem::path& file);

}  // namespace specula_tools
