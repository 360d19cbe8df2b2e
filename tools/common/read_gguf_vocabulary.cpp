// SPDX-License-Identifier: MIT
#include "read_gguf_vocabulary.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace specula_tools {
namespace {

using specula::Token;
using specula::files::Gguf;

std::optional<Token> read_token(const Gguf& file, const std::string& key) {
  const auto number = file.integer(key);
  if (!number) return std::nullopt;
  // Files of vocabularies without such a token may have the largest number of their type.
  if (*number < 0 || *number == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  if (*number > std::numeric_limits<Token>::max())
    file.fail_key(key, std::to_string(*number) + ", expected the number of a token");
  return static_cast<Token>(*number);
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const Gguf& file) {
  const std::string at = "tokenizer.ggml.";
  GgufVocabulary out;
  const auto model = file.text(at + "model");
  if (!model) file.fail_key(at + "model", "missing, expected a string: the file has no vocabulary");
  out.model = *model;
  out.pre = file.text(at + "pre").value_or("");
  for (const std::string_view text : file.texts(at + "tokens")) out.tokens.emplace_back(text);
  out.scores = file.floats(at + "scores");
  out.types = file.integers(at + "token_type");
  for (const std::string_view text : file.texts(at + "merges")) out.merges.emplace_back(text);
  out.begin = read_token(file, at + "bos_token_id");
  out.end = read_token(file, at + "eos_token_id");
  for (const char* name :
       {"eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"})
    if (const auto token = read_token(file, at + name)) out.other_ends.push_back(*token);
  out.adds_begin = file.flag(at + "add_bos_token");
  out.adds_space = file.flag(at + "add_space_prefix");
  out.adds_end = file.flag(at + "add_eos_token").value_or(false);
  return out;
}

Tokenizer read_gguf_tokenizer(const std::filesystem::path& path) {
  const Gguf file = Gguf::open(path);
  return make_gguf_tokenizer(read_gguf_vocabulary(file), file.source());
}

}  // namespace specula_tools
