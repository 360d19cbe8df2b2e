// SPDX-License-Identifier: MIT
// The keys of a JSON object, by type, with errors that name file and key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/files/json.hpp"

namespace specula::files {

/// An object of a file. A null value counts as absent. All members throw std::runtime_error,
/// "<source>: key '<key>': <what was expected>, found <value>", for a value of another type. Refers to the
/// object, which must outlive it.
class JsonFields {
 public:
  /// `source` names the file, or the place in it, in messages. Throws std::runtime_error unless `json` is an
  /// object.
  JsonFields(const Json& json, std::string source) : json_(&json), source_(std::move(source)) {
    if (!json.is_object())
      throw std::runtime_error(source_ + ": expected a JSON object, found " + detail::summary(json));
  }
  JsonFields(const Json&&, std::string) = delete;

  const std::string& source() const { return source_; }  ///< name in messages
  const Json& json() const { return *json_; }            ///< the object itself

  /// Throws std::runtime_error naming source and key.
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw std::runtime_error(source_ + ": key '" + std::string(key) + "': " + what);
  }
  /// The same with the value found.
  [[noreturn]] void fail(std::string_view key, const std::string& what, const Json& found) const {
    fail(key, what + ", found " + detail::summary(found));
  }

  /// The value, or null if there is none.
  const Json* find(std::string_view key) const {
    const Json* value = detail::find(*json_, key);
    return value && !value->is_null() ? value : nullptr;
  }
  /// Whether the key is there with the value null.
  bool is_null(std::string_view key) const {
    const Json* value = detail::find(*json_, key);
    return value && value->is_null();
  }

  /// A number of 0 to 2147483647. Throws if it is absent.
  std::int32_t integer(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected an integer");
    return int32(key, *value, "expected an integer");
  }
  /// The same, or `absent`.
  std::int32_t integer(std::string_view key, std::int32_t absent) const {
    return find(key) ? integer(key) : absent;
  }
  /// A whole number of [least, most], or `absent`.
  template <class Integer>
  Integer integer(std::string_view key, Integer absent, Integer least, Integer most) const {
    const Json* value = find(key);
    return value ? static_cast<Integer>(whole(key, *value, "expected an integer", least, most)) : absent;
  }
  /// A list of numbers of 0 to 2147483647; empty if it is absent.
  std::vector<std::int32_t> integers(std::string_view key) const {
    std::vector<std::int32_t> numbers;
    for (const Json& item : array(key, "integers")) numbers.push_back(int32(key, item, "expected integers"));
    return numbers;
  }
  /// One such number or a list of them; empty if it is absent.
  std::vector<std::int32_t> one_or_more(std::string_view key) const {
    const Json* value = find(key);
    if (!value || value->is_array()) return integers(key);
    return {int32(key, *value, "expected an integer or an array of them,")};
  }
  /// A number. Throws if it is absent.
  double number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected a number");
    if (!value->is_number()) fail(key, "expected a number", *value);
    return value->get<double>();
  }
  /// The same, or `absent`.
  double number(std::string_view key, double absent) const { return find(key) ? number(key) : absent; }
  /// A number of [least, most], or `absent`.
  template <class Float>
  Float number(std::string_view key, Float absent, Float least, Float most) const {
    const Json* value = find(key);
    if (!value) return absent;
    if (!value->is_number() || value->get<double>() < least || value->get<double>() > most)
      fail(
          key,
          "expected a number from " + specula::detail::number(least) + " to " + specula::detail::number(most),
          *value);
    return static_cast<Float>(value->get<double>());
  }
  /// True or false, or `absent`.
  bool flag(std::string_view key, bool absent = false) const {
    const Json* value = find(key);
    if (value && !value->is_boolean()) fail(key, "expected true or false", *value);
    return value ? value->get<bool>() : absent;
  }
  /// A text. Throws if it is absent.
  std::string text(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected a string");
    if (!value->is_string()) fail(key, "expected a string", *value);
    return value->get<std::string>();
  }
  /// The same, or `absent`.
  std::string text(std::string_view key, std::string_view absent) const {
    return find(key) ? text(key) : std::string(absent);
  }
  /// A text or a list of them; empty if it is absent.
  std::vector<std::string> texts(std::string_view key) const {
    const Json* value = find(key);
    if (!value || !value->is_array()) return value ? std::vector{text(key)} : std::vector<std::string>();
    for (const Json& item : *value)
      if (!item.is_string()) fail(key, "expected a string or an array of them", item);
    return value->get<std::vector<std::string>>();
  }
  /// The object below this key. Throws if it is absent.
  JsonFields object(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected an object");
    if (!value->is_object()) fail(key, "expected an object", *value);
    return JsonFields(*value, source_ + ": key '" + std::string(key) + "'");
  }
  /// An array of anything; empty if it is absent. `of` says of what, in messages.
  const Json& array(std::string_view key, std::string_view of) const {
    static const Json kNone = Json::array();
    const Json* value = find(key);
    if (value && !value->is_array()) fail(key, "expected an array of " + std::string(of), *value);
    return value ? *value : kNone;
  }
  /// The objects of an array, named by their numbers from 0; empty if it is absent.
  std::vector<JsonFields> objects(std::string_view key) const {
    std::vector<JsonFields> out;
    for (const Json& item : array(key, "objects"))
      out.emplace_back(item, source_ + ": key '" + std::string(key) + "', " + std::to_string(out.size()));
    return out;
  }

 private:
  std::int64_t whole(std::string_view key, const Json& value, const char* expected, std::int64_t least,
                     std::int64_t most) const {
    const auto number = detail::integer(value);
    if (!number || *number < least || *number > most)
      fail(key, std::string(expected) + " from " + std::to_string(least) + " to " + std::to_string(most),
           value);
    return *number;
  }
  std::int32_t int32(std::string_view key, const Json& value, const char* expected) const {
    constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int32_t>(whole(key, value, expected, 0, kMost));
  }

  const Json* json_;
  std::string source_;
};

}  // namespace specula::files
