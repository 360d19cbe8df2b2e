// SPDX-License-Identifier: MIT
// The tokenizer of a GGUF file's vocabulary.
#pragma once

#include <filesystem>
#include <string>

#include <specula/files/json.hpp>

#include "gguf_vocabulary.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

/// The same tokens as libllama gives, and as Hugging Face's `tokenizers` gives for the model's own
/// tokenizer.json. Where the two differ it is as the latter: "qwen2" composes characters (NFC), and added
/// tokens are found from left to right. Control tokens never come from the text of a prompt. Types, begin and
/// ends are those of gguf_roles(). `source` names the file in messages. Throws std::runtime_error naming file
/// and key for what is wrong, and for a `model` or `pre` that is not read.
Tokenizer make_gguf_tokenizer(const GgufVocabulary& vocabulary, const std::string& source);

/// Of a file, of several parts the first. Throws likewise, and as read_gguf_vocabulary() does.
Tokenizer read_gguf_tokenizer(const std::filesystem::path& file);

/// What the tokenizer.json of such a vocabulary holds. It cannot say that tokens have the same score: of
/// those, pairs merge in another order in `tokenizers`. Throws likewise.
specula::files::Json tokenizer_json(const GgufVocabulary& vocabulary, const std::string& source);

}  // namespace specula_tools
