// SPDX-License-Identifier: MIT
// The vocabulary of a GGUF file, and its tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <specula/base/rows.hpp>
#include <specula/files/json.hpp>

#include "tokenizer.hpp"

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
};

/// The same tokens as libllama gives, and as Hugging Face's `tokenizers` gives for the model's own
/// tokenizer.json. Where the two differ it is as the latter: "qwen2" composes characters (NFC), and added
/// tokens are found from left to right. Control tokens never come from the text of a prompt. Texts end at
/// `end`, `other_ends` and the control tokens whose texts libllama knows as ends, say <|im_end|>. `source`
/// names the file in messages. Throws std::runtime_error naming file and key for what is wrong, and for a
/// `model` or `pre` that is not read.
Tokenizer make_gguf_tokenizer(const GgufVocabulary& vocabulary, const std::string& source);

/// Whether libllama stops at a token for its text, whatever the keys say.
bool ends_by_text(const GgufVocabulary& vocabulary, specula::Token token);

/// What the tokenizer.json of such a vocabulary holds. It cannot say that tokens have the same score: of
/// those, pairs merge in another order in `tokenizers`. Throws likewise.
specula::files::Json tokenizer_json(const GgufVocabulary& vocabulary, const std::string& source);

}  // namespace specula_tools
