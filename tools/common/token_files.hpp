// SPDX-License-Identifier: MIT
// What the files beside a tokenizer say of its tokens. docs/measuring.md has the table of their keys.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

#include "added_tokens.hpp"
#include "stop_tokens.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

/// A token as a file names it.
struct NamedToken {
  std::string text;
  std::string where;  // file and key, for messages
};

/// Of tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json and
/// generation_config.json, as far as they are there.
struct TokenFiles {
  std::optional<NamedToken> begin, end;  // of the first two; the former's count first
  bool no_begin = false;                 // bos_token is null
  std::optional<bool> adds_begin;        // add_bos_token
  bool spaces_each_part = true;          // beside tokenizer.model: what follows an added token is a new text
  bool spaces_text = true;               // beside tokenizer.model: a text may begin with a space of its own
  std::vector<NamedToken> stop_texts;    // each ends a text
  std::vector<specula::Token> stop_tokens;  // likewise
  std::vector<AddedToken> added;            // of tokenizer_config.json, else of added_tokens.json
  std::vector<std::string> notes;           // of what was read otherwise than a file says
};

/// Throws std::runtime_error naming file and key for what is of another type than it should be, and for what
/// would change the tokens but is not read.
TokenFiles read_token_files(const std::filesystem::path& folder);

/// Replaces what a tokenizer's own file says of the tokens that begin and end a text (`begin`, `adds_begin`,
/// `end`; kNoToken where it says nothing) by what `files` say; sets `ends` to the union of all; and lets
/// those and added control tokens print nothing. Throws std::runtime_error naming file and key for a token
/// that is not among the pieces; naming `source`, the tokenizer's own file, if nothing ends a text.
void name_roles(const TokenFiles& files, const std::string& source, Tokenizer::Parts& parts);

}  // namespace specula_tools
