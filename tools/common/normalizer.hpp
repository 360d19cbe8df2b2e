// SPDX-License-Identifier: MIT
// Normalizers of tokenizer.json: how a text is changed before it is cut into words.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/files/json_fields.hpp>

namespace specula_tools {

/// Any number of steps. Without any, texts stay as they are.
class Normalizer {
 public:
  Normalizer() = default;
  /// Of the types Sequence, Prepend, Replace and NFC (by utf8proc). Throws std::runtime_error naming file and
  /// type for another, and for NFC if the programs were built without utf8proc.
  explicit Normalizer(const specula::files::JsonFields& part) { add(part); }

  /// The text, which must be UTF-8, as the steps leave it. O(n) a step.
  std::string operator()(std::string_view text) const;

 private:
  void add(const specula::files::JsonFields& part);
  std::vector<std::function<std::string(std::string)>> steps_;
};

/// Throws std::runtime_error naming the file that the part of a tokenizer is from, what is not read, and what
/// to do instead.
[[noreturn]] void refuse_tokenizer(const specula::files::JsonFields& part, const std::string& what);

}  // namespace specula_tools
