// Strict JSON parser for config.json and safetensors headers, without a dependency.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "specula/base/fields.hpp"

namespace specula::eigen {

/// A value of RFC 8259. Objects are sorted by key. A duplicate key is an error, because parsers disagree
/// about which value counts.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  static constexpr int kMaxDepth = 64;

  /// Parses all of `text`. O(n log n). Throws std::runtime_error: "<source>: offset <byte>: <what was
  /// expected>".
  static Json parse(std::string_view text, std::string_view source);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  std::optional<double> number() const {
    const auto* number = std::get_if<Number>(&value_);
    return number ? std::optional(number->value) : std::nullopt;
  }
  /// The value of a number without fraction or exponent that fits 64 bits; std::nullopt otherwise.
  std::optional<std::int64_t> integer() const {
    const auto* number = std::get_if<Number>(&value_);
    return number ? number->integer : std::nullopt;
  }
  /// This value for error messages, in at most about 80 characters.
  std::string summary() const {
    if (is_null()) return "null";
    if (boolean()) return *boolean() ? "true" : "false";
    if (integer()) return std::to_string(*integer());
    if (number()) return specula::detail::number(*number());
    if (string()) return '"' + string()->substr(0, 40) + (string()->size() > 40 ? "...\"" : "\"");
    if (object()) return "an object of " + std::to_string(object()->size()) + " keys";
    const bool one = array()->size() == 1 && !array()->front().array();
    return one ? '[' + array()->front().summary() + ']' : "an array of " + std::to_string(array()->size());
  }
  /// The member `key` of an object; null if it is missing or this is not an object. O(log n).
  const Json* find(std::string_view key) const {
    const auto* members = object();
    if (!members) return nullptr;
    const auto at =
        std::lower_bound(members->begin(), members->end(), key,
                         [](const auto& member, std::string_view wanted) { return member.first < wanted; });
    return at != members->end() && at->first == key ? &at->second : nullptr;
  }

 private:
  struct Number {
    double value;
    std::optional<std::int64_t> integer;
  };
  class Parser;
  std::variant<std::nullptr_t, bool, Number, std::string, Array, Object> value_ = nullptr;
};

class Json::Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Json document() {
    Json result = value(0);
    skip_space();
    if (at_ != text_.size()) fail("expected the end of the text");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(std::string(source_) + ": offset " + std::to_string(at_) + ": " + what);
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool digit() const { return peek() >= '0' && peek() <= '9'; }
  void skip_space() {
    while (!at_end() && (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t')) ++at_;
  }
  bool take(char wanted) {
    if (at_end() || peek() != wanted) return false;
    ++at_;
    return true;
  }
  void word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) fail("expected a value");
    at_ += wanted.size();
  }

  Json value(int depth) {
    if (depth > kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth));
    skip_space();
    Json result;
    switch (peek()) {
      case '{':
        result.value_ = object(depth);
        break;
      case '[':
        result.value_ = array(depth);
        break;
      case '"':
        result.value_ = string();
        break;
      case 't':
        word("true"), result.value_ = true;
        break;
      case 'f':
        word("false"), result.value_ = false;
        break;
      case 'n':
        word("null");
        break;
      default:
        result.value_ = number();
    }
    return result;
  }

  Object object(int depth) {
    Object members;
    ++at_;
    skip_space();
    if (take('}')) return members;
    do {
      skip_space();
      if (peek() != '"') fail("expected a key in double quotes");
      std::string key = string();
      skip_space();
      if (!take(':')) fail("expected ':' after key \"" + key + "\"");
      members.emplace_back(std::move(key), value(depth + 1));
      skip_space();
    } while (take(','));
    if (!take('}')) fail("expected ',' or '}'");
    const auto by_key = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::sort(members.begin(), members.end(), by_key);
    const auto twice = std::adjacent_find(members.begin(), members.end(),
                                          [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice != members.end())
      fail("key \"" + twice->first + "\" occurs twice in the object that ends here");
    return members;
  }

  Array array(int depth) {
    Array items;
    ++at_;
    skip_space();
    if (take(']')) return items;
    do {
      items.push_back(value(depth + 1));
      skip_space();
    } while (take(','));
    if (!take(']')) fail("expected ',' or ']'");
    return items;
  }

  Number number() {
    const std::size_t begin = at_;
    take('-');
    if (!digit()) fail("expected a value");
    if (!take('0')) skip_digits();
    bool whole = true;
    if (take('.')) whole = false, skip_digits();
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      skip_digits();
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    Number result{};
    if (std::from_chars(first, last, result.value).ec != std::errc{})
      fail("the number before is out of range");
    std::int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc{}) result.integer = integer;
    return result;
  }
  void skip_digits() {
    if (!digit()) fail("expected a digit");
    while (digit()) ++at_;
  }

  std::string string() {
    std::string result;
    ++at_;
    for (;;) {
      if (at_end()) fail("expected '\"' at the end of a string");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) fail("control character in a string");
      ++at_;
      if (c == '"') return result;
      if (c == '\\')
        escape(result);
      else
        result.push_back(c);
    }
  }
  void escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    const char c = peek();
    if (const auto known = kNames.find(c); !at_end() && known != std::string_view::npos) {
      ++at_;
      out.push_back(kMeaning[known]);
      return;
    }
    if (!take('u')) fail("unknown escape in a string");
    std::uint32_t code = hex4();
    if (code >= 0xdc00 && code < 0xe000) fail("second half of a surrogate pair without the first");
    if (code >= 0xd800 && code < 0xdc00) {
      if (!take('\\') || !take('u')) fail("expected the second half of a surrogate pair");
      const std::uint32_t low = hex4();
      if (low < 0xdc00 || low >= 0xe000) fail("expected the second half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(out, code);
  }
  std::uint32_t hex4() {
    std::uint32_t code = 0;
    const auto digits = text_.substr(at_, 4);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || end.ptr != digits.data() + 4) fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
  }
  static void append_utf8(std::string& out, std::uint32_t code) {
    const auto push = [&out](std::uint32_t byte) {
      out.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    };
    if (code < 0x80) return push(code);
    if (code < 0x800) return push(0xc0 | (code >> 6)), push(0x80 | (code & 63));
    if (code < 0x10000)
      return push(0xe0 | (code >> 12)), push(0x80 | ((code >> 6) & 63)), push(0x80 | (code & 63));
    push(0xf0 | (code >> 18)), push(0x80 | ((code >> 12) & 63)), push(0x80 | ((code >> 6) & 63)),
        push(0x80 | (code & 63));
  }

  std::string_view text_, source_;
  std::size_t at_ = 0;
};

inline Json Json::parse(std::string_view text, std::string_view source) {
  return Parser(text, source).document();
}

}  // namespace specula::eigen
