// SPDX-License-Identifier: MIT
#include "token_files.hpp"

#include <set>
#include <stdexcept>
#include <utility>

#include <specula/base/read_number.hpp>
#include <specula/files/json_fields.hpp>

#include "files.hpp"

namespace specula_tools {
namespace {

namespace fs = std::filesystem;
using specula::Token;
using specula::files::Json;
using specula::files::JsonFields;

/// Calls use(fields) if the file is there.
template <class Use>
void with_file(const fs::path& file, Use use) {
  if (!fs::exists(file)) return;
  const Json json = specula::files::parse_json(read_file(file), file.string());
  use(JsonFields(json, file.string()));
}

/// A token by its text: a string, or an object with `content`.
std::optional<NamedToken> named(const JsonFields& file, const char* key) {
  const Json* const value = file.find(key);
  if (!value) return {};
  NamedToken out{.text = {}, .where = file.source() + ": key '" + key + "'"};
  if (value->is_object())
    out.text = file.object(key).text("content");
  else if (value->is_string())
    out.text = file.text(key);
  else
    file.fail(key, "expected a token's text or an object with its content", *value);
  return out;
}

void read_roles(const JsonFields& file, TokenFiles& out) {
  auto begin = named(file, "bos_token"), end = named(file, "eos_token");
  if (!out.begin) out.begin = std::move(begin);
  if (end) out.stop_texts.push_back(*end);
  if (!out.end) out.end = std::move(end);
  out.no_begin = out.no_begin || file.is_null("bos_token");
}

/// The texts of control tokens, which added_tokens.json does not mark.
void collect_special(const JsonFields& file, std::set<std::string>& out) {
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto token = named(file, key)) out.insert(token->text);
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* const list = file.find(key);
    if (!list) continue;
    if (!list->is_array() && !list->is_object())
      file.fail(key, "expected an array or an object of tokens", *list);
    for (const Json& entry : *list) {
      if (entry.is_string())
        out.insert(entry.get<std::string>());
      else
        out.insert(JsonFields(entry, file.source() + ": key '" + key + "'").text("content"));
    }
  }
}

Token token_of(const std::string& text, const JsonFields& file, const char* key) {
  Token token = 0;
  if (!specula::detail::read_number(text, token) || token < 0)
    file.fail(key, "'" + text + "' is no token's number");
  return token;
}

void read_tokenizer_config(const JsonFields& file, TokenFiles& out) {
  read_roles(file, out);
  if (file.find("add_bos_token")) out.adds_begin = file.flag("add_bos_token");
  if (file.flag("add_eos_token"))
    file.fail("add_eos_token", "true is not read, it would end every prompt; expected false");
  if (const Json* const options = file.find("sp_model_kwargs"); options && !options->empty())
    file.fail("sp_model_kwargs", "is not read, expected none", *options);
  out.spaces_each_part = file.flag("legacy", true);
  out.spaces_text = out.spaces_each_part || file.flag("add_prefix_space", true);
  if (!file.find("added_tokens_decoder")) return;
  const JsonFields added = file.object("added_tokens_decoder");
  for (const auto& [number, entry] : added.json().items())
    out.added.push_back(read_added_token(JsonFields(entry, added.source() + ", " + number),
                                         token_of(number, file, "added_tokens_decoder")));
}

}  // namespace

TokenFiles read_token_files(const fs::path& folder) {
  TokenFiles out;
  std::set<std::string> special;
  with_file(folder / "tokenizer_config.json", [&](const JsonFields& file) {
    read_tokenizer_config(file, out);
    collect_special(file, special);
  });
  with_file(folder / "special_tokens_map.json", [&](const JsonFields& file) {
    read_roles(file, out);
    collect_special(file, special);
  });
  if (out.added.empty())
    with_file(folder / "added_tokens.json", [&](const JsonFields& file) {
      for (const auto& [text, number] : file.json().items())
        out.added.push_back({.token = file.integer(text), .text = text, .special = special.contains(text)});
    });
  out.no_begin = out.no_begin && !out.begin;
  out.stop_tokens = read_stop_tokens(folder);
  return out;
}

}  // namespace specula_tools
