// SPDX-License-Identifier: MIT
#include "gguf_vocabulary.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

namespace specula_tools {
namespace {

using specula::Token;
using specula::files::Gguf;

constexpr const char* kAt = "tokenizer.ggml.";

/// Texts that end a text, in the order of llama.cpp's lists: of turns, of code to fill in, of models.
constexpr std::array<std::string_view, 33> kEnds{"<|eot_id|>",
                                                 "<|im_end|>",
                                                 "<|end|>",
                                                 "<|return|>",
                                                 "<|call|>",
                                                 "<|flush|>",
                                                 "<|calls|>",
                                                 "<end_of_turn>",
                                                 "<|endoftext|>",
                                                 "</s>",
                                                 "<|eom_id|>",
                                                 "<EOT>",
                                                 "_<EOT>",
                                                 "[EOT]",
                                                 "[EOS]",
                                                 "<|end_of_text|>",
                                                 "<end_of_utterance>",
                                                 "<eos>",
                                                 "<turn|>",
                                                 "<|tool_response>",
                                                 "<\xef\xbd\x9c"
                                                 "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                                 "[e~[",
                                                 "<|fim_pad|>",
                                                 "<fim-pad>",
                                                 "<fim_pad>",
                                                 "<PAD>",
                                                 "[PAD]",
                                                 "<|fim_repo|>",
                                                 "<|repo_name|>",
                                                 "<fim-repo>",
                                                 "<REPO>",
                                                 "<reponame>",
                                                 "<|file_sep|>"};

/// Other texts that are control tokens whatever their type, where no key names such a token.
constexpr std::array<std::string_view, 24> kControls{"<|fim_prefix|>",
                                                     "<fim-prefix>",
                                                     "<fim_prefix>",
                                                     "<PRE>",
                                                     "\xe2\x96\x81<PRE>",
                                                     "<|code_prefix|>",
                                                     "<|prefix|>",
                                                     "<\xef\xbd\x9c"
                                                     "fim\xe2\x96\x81"
                                                     "begin\xef\xbd\x9c>",
                                                     "<|fim_suffix|>",
                                                     "<fim-suffix>",
                                                     "<fim_suffix>",
                                                     "<SUF>",
                                                     "\xe2\x96\x81<SUF>",
                                                     "<|code_suffix|>",
                                                     "<|suffix|>",
                                                     "<\xef\xbd\x9c"
                                                     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
                                                     "<|fim_middle|>",
                                                     "<fim-middle>",
                                                     "<fim_middle>",
                                                     "<MID>",
                                                     "\xe2\x96\x81<MID>",
                                                     "<|code_middle|>",
                                                     "<|middle|>",
                                                     "<\xef\xbd\x9c"
                                                     "fim\xe2\x96\x81"
                                                     "end\xef\xbd\x9c>"};

/// Words that a prompt's text may spell, whatever their type.
constexpr std::array<std::string_view, 4> kWords{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

bool is_one_of(const auto& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

std::optional<Token> read_token(const Gguf& file, const std::string& key, GgufVocabulary& out) {
  const auto number = file.integer(key);
  if (!number) return std::nullopt;
  if (*number >= 0 && static_cast<std::size_t>(*number) < out.tokens.size())
    return static_cast<Token>(*number);
  out.notes.push_back("key '" + key + "': " + std::to_string(*number) + " is none of " +
                      std::to_string(out.tokens.size()) + " tokens, so it counts as absent");
  return std::nullopt;
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const Gguf& file) {
  const std::string at = kAt;
  GgufVocabulary out;
  const auto model = file.text(at + "model");
  if (!model) file.fail_key(at + "model", "missing, expected a string: the file has no vocabulary");
  out.model = *model;
  out.pre = file.text(at + "pre").value_or("");
  for (const std::string_view text : file.texts(at + "tokens")) out.tokens.emplace_back(text);
  out.scores = file.floats(at + "scores");
  out.types = file.integers(at + "token_type");
  for (const std::string_view text : file.texts(at + "merges")) out.merges.emplace_back(text);
  out.begin = read_token(file, at + "bos_token_id", out);
  out.end = read_token(file, at + "eos_token_id", out);
  for (const char* name :
       {"eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"})
    if (const auto token = read_token(file, at + name, out)) out.other_ends.push_back(*token);
  out.adds_begin = file.flag(at + "add_bos_token");
  out.adds_space = file.flag(at + "add_space_prefix");
  out.adds_end = file.flag(at + "add_eos_token").value_or(false);
  return out;
}

bool ends_by_text(std::string_view token) { return is_one_of(kEnds, token); }

GgufRoles gguf_roles(const GgufVocabulary& vocabulary) {
  const std::size_t size = vocabulary.tokens.size();
  GgufRoles out{
      .types = vocabulary.types, .begin = vocabulary.begin, .end = vocabulary.end, .notes = vocabulary.notes};
  out.types.resize(size, GgufVocabulary::normal);
  const auto type = [&](std::size_t token) -> std::int32_t& { return out.types[token]; };
  const auto note = [&](std::size_t token, const std::string& what) {
    out.notes.push_back("token " + std::to_string(token) + " '" + vocabulary.tokens[token] + "' " + what);
  };
  if (vocabulary.model == "gpt2" && vocabulary.pre.empty())
    out.notes.push_back(
        std::string("no key '") + kAt +
        "pre': texts are cut into words as by 'default', which may not be how the model learned; "
        "a newer conversion names it");

  std::set<Token> ends(vocabulary.other_ends.begin(), vocabulary.other_ends.end());
  const auto has = [&](std::string_view text) {
    return std::any_of(ends.begin(), ends.end(),
                       [&](Token end) { return vocabulary.tokens[static_cast<std::size_t>(end)] == text; });
  };
  for (std::size_t token = 0; token < size; ++token) {
    const std::string_view text = vocabulary.tokens[token];
    const bool end = ends_by_text(text);
    if (end) ends.insert(static_cast<Token>(token));
    if ((end || is_one_of(kControls, text)) && type(token) != GgufVocabulary::control) {
      if (type(token) != GgufVocabulary::user_defined)
        note(token, "is no control token in the file, but is one by its text");
      type(token) = GgufVocabulary::control;
    }
    if (is_one_of(kWords, text)) type(token) = GgufVocabulary::user_defined;
  }
  // Where no key says: the tokens of the first models of each kind, if they are control tokens here.
  const auto by_default = [&](std::optional<Token>& role, std::size_t token) {
    if (!role && token < size && type(token) == GgufVocabulary::control) role = static_cast<Token>(token);
  };
  const bool pieces = vocabulary.model == "llama";
  by_default(out.begin, pieces ? 1 : 11);
  by_default(out.end, pieces ? 2 : 11);
  if (out.end) ends.insert(*out.end);

  const auto no_end = [&](std::string_view text, std::int32_t becomes) {
    for (std::size_t token = 0; token < size; ++token) {
      if (vocabulary.tokens[token] != text || ends.erase(static_cast<Token>(token)) == 0) continue;
      type(token) = becomes;
      note(token, "ends no text, since others of this vocabulary do");
    }
  };
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>")) && has("<|end|>"))
    no_end("<|end|>", GgufVocabulary::user_defined);
  if (has("<|tool_response>") || has("<|plamo:eos|>")) no_end("</s>", GgufVocabulary::normal);
  out.ends.assign(ends.begin(), ends.end());
  return out;
}

}  // namespace specula_tools
