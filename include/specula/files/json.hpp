// SPDX-License-Identifier: MIT
// Strict JSON by nlohmann/json, for config.json and safetensors headers: no duplicate keys, limited depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/files/detail/open_file.hpp"

namespace specula::files {

using Json = nlohmann::json;  ///< the JSON type of nlohmann/json

/// Maximum nesting depth of arrays and objects.
inline constexpr std::size_t kMaxJsonDepth = 64;

namespace detail {

/// SAX handler that builds a Json and throws std::runtime_error, "<source>: ...", for an error.
class JsonBuilder {
 public:
  explicit JsonBuilder(std::string_view source) : source_(source) {}

  Json result;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return open_.pop_back(), true; }
  bool end_array() { return open_.pop_back(), true; }
  bool key(std::string& name) {
    const auto [at, fresh] = open_.back()->get_ref<Json::object_t&>().emplace(std::move(name), nullptr);
    if (!fresh)
      fail("key \"" + at->first + "\" occurs twice in an object");  // parsers disagree which value counts
    member_ = &at->second;
    return true;
  }
  bool parse_error(std::size_t read, const std::string&, const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line ..."
    const std::size_t end = what.find("] ");
    fail("offset " + std::to_string(read - (read > 0)) + ": " +
         std::string(end == what.npos ? what : what.substr(end + 2)));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(std::string(source_) + ": " + what);
  }
  Json* place(Json value) {
    if (open_.empty()) return &(result = std::move(value));
    if (open_.back()->is_object()) return &(*member_ = std::move(value));
    return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
  }
  bool add(Json value) { return place(std::move(value)), true; }
  bool open(Json value) {
    if (open_.size() > kMaxJsonDepth) fail("nested deeper than " + std::to_string(kMaxJsonDepth));
    open_.push_back(place(std::move(value)));
    return true;
  }

  std::string_view source_;
  std::vector<Json*> open_;  // the arrays and objects around the next value; their elements do not move
  Json* member_ = nullptr;   // the value of the last key
};

}  // namespace detail

/// Parses all of `text`, RFC 8259. Throws std::runtime_error: "<source>: offset <byte>: <what was expected>",
/// or the key that an object has twice, or a depth over kMaxJsonDepth.
inline Json parse_json(std::string_view text, std::string_view source) {
  detail::JsonBuilder builder(source);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.result);
}

/// Reads a whole JSON file. Throws std::runtime_error naming the file if it cannot be opened, is a folder, is
/// over 100 MB, or is not JSON.
inline Json read_json_file(const std::filesystem::path& path) {
  constexpr std::size_t kMax = 100'000'000, kBlock = 1 << 16;
  std::ifstream stream = detail::open_file(path);
  std::string text;
  for (std::streamsize got = 1; got > 0;) {
    const std::size_t before = text.size();
    text.resize(before + kBlock);
    got = stream.read(text.data() + before, kBlock).gcount();
    text.resize(before + static_cast<std::size_t>(got));
    if (text.size() > kMax)
      throw std::runtime_error(path.string() + ": over " + std::to_string(kMax) + " bytes of JSON");
  }
  return parse_json(text, path.string());
}

namespace detail {

/// The member `key` of an object; null if it is missing or this is not an object.
inline const Json* find(const Json& json, std::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto at = json.find(std::string(key));
  return at == json.end() ? nullptr : &*at;
}

/// The value of a number without fraction or exponent that fits 64 bits; std::nullopt otherwise.
inline std::optional<std::int64_t> integer(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return json.get<std::int64_t>();
}

/// A value for error messages, in at most about 80 characters.
inline std::string summary(const Json& json) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    return '"' + text.substr(0, 40) + (text.size() > 40 ? "...\"" : "\"");
  }
  if (json.is_number_float()) return specula::detail::number(json.get<double>());
  if (json.is_object()) return "an object of " + std::to_string(json.size()) + " keys";
  if (!json.is_array()) return json.dump();
  const bool one = json.size() == 1 && !json[0].is_array();
  return one ? '[' + summary(json[0]) + ']' : "an array of " + std::to_string(json.size());
}

}  // namespace detail
}  // namespace specula::files
