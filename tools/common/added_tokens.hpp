// SPDX-License-Identifier: MIT
// Tokens that a file adds to a tokenizer's own, and where they stand in a text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>
#include <specula/files/json_fields.hpp>

namespace specula_tools {

/// As Hugging Face's files describe one.
struct AddedToken {
  specula::Token token = 0;
  std::string text;
  bool special = false;      // a control token: read as text in a prompt, printed as nothing
  bool normalized = false;   // found in the prepared text, not in the text itself
  bool lstrip = false;       // takes the white space in front of it along
  bool rstrip = false;       // and that behind it
  bool single_word = false;  // not found next to a character of a word
};

/// The token that an entry of `added_tokens` or `added_tokens_decoder` describes. Throws std::runtime_error
/// naming file and key for one that is only to be found as a single word, if the programs were built without
/// Oniguruma.
AddedToken read_added_token(const specula::files::JsonFields& entry, specula::Token token);

/// Finds tokens in texts as Hugging Face's library does: the leftmost, and of those the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Of these those that are not special, or all of them.
  explicit AddedTokens(std::vector<AddedToken> tokens, bool special = false);

  bool empty() const { return tokens_.empty(); }
  /// Calls `on_text` with each part between tokens, `on_token` with each token, in order. O(n), times the
  /// length of the longest beginning of a token that the text repeats.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(specula::Token)>& on_token) const;

 private:
  const AddedToken* at(std::string_view rest) const;
  std::vector<AddedToken> tokens_;  // by their texts
};

}  // namespace specula_tools
