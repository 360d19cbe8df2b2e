// SPDX-License-Identifier: MIT
// What a tokenizer's file looks for in a text: a string, or a regular expression (by Oniguruma, as Hugging
// Face's `tokenizers`).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <specula/files/json_fields.hpp>

namespace specula_tools {

/// A compiled pattern. Copies share it; threads may use it at once.
class TextPattern {
 public:
  /// Called with the first byte of a match and the one after its last.
  using OnMatch = std::function<void(std::size_t begin, std::size_t end)>;

  /// The string itself. An empty one matches nothing.
  static TextPattern literal(std::string text);
  /// `source` names the place of the expression in messages. Throws std::runtime_error naming it if the
  /// expression is none, is longer than 10,000 bytes, or if the programs were built without Oniguruma.
  static TextPattern regular_expression(const std::string& expression, const std::string& source);
  /// Of the key `pattern`, {"String": ...} or {"Regex": ...}. Throws std::runtime_error naming file and key.
  static TextPattern read(const specula::files::JsonFields& part);

  /// Whether regular_expression() works in this build.
  static bool has_regular_expressions();

  /// Calls `on_match` for the matches from left to right; they do not overlap. `text` must be UTF-8. Throws
  /// std::runtime_error for an expression that backtracks more than 1,000,000 times and 100 times per byte of
  /// the text, in search of one match.
  void for_each_match(std::string_view text, const OnMatch& on_match) const;

 private:
  struct Expression;
  std::string literal_;
  std::shared_ptr<const Expression> expression_;
};

}  // namespace specula_tools
