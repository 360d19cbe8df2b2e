// SPDX-License-Identifier: MIT
// GGUF reader: the container of llama.cpp's model files, key-values and tensors. Little-endian, version 2 or
// 3. Format: llama.cpp, ggml/include/gguf.h. What the keys mean is in gguf_config.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/read_number.hpp"
#include "specula/files/detail/mapped_file.hpp"
#include "specula/files/gguf_blocks.hpp"

namespace specula::files {

/// A tensor of a GGUF file.
struct GgufTensor {
  std::string_view name;             ///< of the tensor
  std::uint32_t type = 0;            ///< find_gguf_type() describes it, unless it is unknown
  std::vector<std::int64_t> shape;   ///< outermost extent first, unlike in the file
  std::span<const std::byte> bytes;  ///< in the file; empty for an unknown type
};

/// One GGUF file. The constructor checks all sizes: later reads lie within the file. Members that take a key
/// throw std::runtime_error, "<source>: key '<key>': <what was expected>", for a value of another type.
class Gguf {
 public:
  /// Maps the file. Throws std::runtime_error, naming the file and the key, tensor or offset, and what was
  /// expected.
  static Gguf open(const std::filesystem::path& path) {
    detail::MappedFile file(path);
    Gguf out(file.bytes(), path.string());
    out.file_ = std::move(file);
    return out;
  }

  /// Of bytes, which must live as long as this, unless `owner` keeps them; `source` names them in messages.
  Gguf(std::span<const std::byte> bytes, std::string source, std::shared_ptr<const void> owner = {})
      : owner_(std::move(owner)), source_(std::move(source)), rest_(bytes), size_(bytes.size()) {
    read();
  }

  /// Takes the pages of an opened file that lie wholly within `read` out of this process's memory; they come
  /// back when they are read again. Nothing for bytes that were in memory.
  void drop(std::span<const std::byte> read) const { file_.drop(read); }

  const std::string& source() const { return source_; }  ///< name of the file, for messages
  /// In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  /// Whether the key is there.
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  /// All keys, ascending.
  std::vector<std::string_view> keys() const {
    std::vector<std::string_view> out;
    for (const auto& [key, value] : values_) out.push_back(key);
    return out;
  }

  /// An integer of any width; `absent` if there is none.
  std::optional<std::int64_t> integer(std::string_view key) const {
    const Value* const value = find(key);
    if (!value) return std::nullopt;
    const auto number = whole(*value);
    if (!number) fail_key(key, "expected an integer below 2^63, found " + found(*value));
    return number;
  }
  /// A floating-point number or an integer. A float is taken as the shortest decimal that is the same float,
  /// since files have 1e-5f for what config.json calls 1e-5.
  std::optional<double> number(std::string_view key) const {
    const Value* const value = find(key);
    if (!value) return std::nullopt;
    if (value->type == kF32) return shortest(scalar<float>(value->bytes.data()));
    if (value->type == kF64) return scalar<double>(value->bytes.data());
    const auto number = whole(*value);
    if (!number) fail_key(key, "expected a number, found " + found(*value));
    return static_cast<double>(*number);
  }
  /// True or false.
  std::optional<bool> flag(std::string_view key) const {
    const Value* const value = find(key);
    if (!value) return std::nullopt;
    if (value->type != kBool) fail_key(key, "expected true or false, found " + found(*value));
    return value->bytes[0] != std::byte{0};
  }
  /// A string; a view into the file.
  std::optional<std::string_view> text(std::string_view key) const {
    const Value* const value = find(key);
    if (!value) return std::nullopt;
    if (value->type != kString) fail_key(key, "expected a string, found " + found(*value));
    return string_at(value->bytes.data());
  }
  /// An array of strings; empty if there is none. O(its size).
  std::vector<std::string_view> texts(std::string_view key) const {
    const Value* const value = array(key, "strings", {kString});
    std::vector<std::string_view> out;
    if (!value) return out;
    out.reserve(value->count);
    for (const std::byte* at = value->bytes.data(); out.size() < value->count;) {
      out.push_back(string_at(at));
      at += 8 + out.back().size();
    }
    return out;
  }
  /// An array of floats; empty if there is none.
  std::vector<float> floats(std::string_view key) const {
    return array_of<float>(array(key, "floats", {kF32}));
  }
  /// An array of 32-bit integers; empty if there is none.
  std::vector<std::int32_t> integers(std::string_view key) const {
    return array_of<std::int32_t>(array(key, "32-bit integers", {kI32, kU32}));
  }
  /// Whether the value is an array; false if there is none.
  bool is_array(std::string_view key) const {
    const Value* const value = find(key);
    return value && value->type == kArray;
  }

  /// Throws std::runtime_error, "<source>: key '<key>': <what>".
  [[noreturn]] void fail_key(std::string_view key, const std::string& what) const {
    throw std::runtime_error(source_ + ": key '" + std::string(key) + "': " + what);
  }
  /// Throws std::runtime_error, "<source>: tensor '<name>': <what>".
  [[noreturn]] void fail_tensor(std::string_view name, const std::string& what) const {
    throw std::runtime_error(source_ + ": tensor '" + std::string(name) + "': " + what);
  }

 private:
  static_assert(std::endian::native == std::endian::little, "GGUF is read without byte swapping");

  // Types of values, by their numbers in the file.
  static constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10,
                                 kI64 = 11, kF64 = 12, kTypes = 13;
  static constexpr std::uint64_t kWidths[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

  struct Value {
    std::uint32_t type = 0;            // of an array: kArray
    std::uint32_t of = 0;              // an array's elements' type
    std::size_t count = 1;             // an array's elements
    std::span<const std::byte> bytes;  // of a string with its length; of an array its elements
  };

  // Reading forward.

  [[noreturn]] void fail_here(const std::string& what) const {
    throw std::runtime_error(source_ + ": offset " + std::to_string(size_ - rest_.size()) + ": " + what);
  }
  std::span<const std::byte> take(std::uint64_t bytes, const char* what) {
    if (bytes > rest_.size())
      fail_here("expected " + std::to_string(bytes) + " bytes of " + what + ", the file has " +
                std::to_string(rest_.size()) + " more");
    const auto taken = rest_.first(static_cast<std::size_t>(bytes));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  template <class T>
  T take_number(const char* what) {
    return scalar<T>(take(sizeof(T), what).data());
  }
  /// With its length in front.
  std::span<const std::byte> take_string(const char* what) {
    const auto all = rest_;
    const auto length = take_number<std::uint64_t>(what);
    take(length, what);
    return all.first(static_cast<std::size_t>(8 + length));
  }
  /// How many things follow. Each takes `least` bytes or more, so that no count makes this allocate more than
  /// the file has.
  std::size_t take_count(std::uint64_t least, const char* what) {
    const auto count = take_number<std::uint64_t>(what);
    if (count > rest_.size() / least)
      fail_here(std::to_string(count) + " " + what + ", more than the file has bytes for");
    return static_cast<std::size_t>(count);
  }

  void read() {
    if (rest_.size() < 4 || std::memcmp(rest_.data(), "GGUF", 4) != 0)
      fail_here("is no GGUF file: it does not begin with \"GGUF\"");
    take(4, "header");
    const auto version = take_number<std::uint32_t>("version");
    if (version != 2 && version != 3)
      fail_here("version " + std::to_string(version) + ", expected 2 or 3, little-endian" +
                (version % 65536 == 0 ? "; convert it: gguf-py's gguf_convert_endian.py"
                                      : "; convert the model again with a current llama.cpp"));
    std::uint64_t least = 8 + 4 + 4 + 8;
    const auto tensors = take_number<std::uint64_t>("header");
    const std::size_t values = take_count(8 + 4 + 1, "key-values");
    for (std::size_t i = 0; i < values; ++i) {
      const auto key = string_at(take_string("a key").data());
      if (!values_.emplace(key, take_value(key)).second) fail_key(key, "occurs twice");
    }
    if (tensors > rest_.size() / least)
      fail_here(std::to_string(tensors) + " tensors, more than the file has bytes for");
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < tensors; ++i) offsets.push_back(take_tensor());
    place(offsets);
  }

  Value take_value(std::string_view key) {
    Value out;
    out.type = take_number<std::uint32_t>("a value's type");
    if (out.type >= kTypes) fail_key(key, "type " + std::to_string(out.type) + ", expected 0 to 12");
    if (out.type == kString) {
      out.bytes = take_string("a string");
    } else if (out.type != kArray) {
      out.bytes = take(kWidths[out.type], "a value");
    } else {
      out.of = take_number<std::uint32_t>("an array's type");
      if (out.of >= kTypes || out.of == kArray)
        fail_key(key, "an array of type " + std::to_string(out.of) + ", expected 0 to 12 except 9");
      const std::uint64_t width = out.of == kString ? 8 : kWidths[out.of];
      out.count = take_count(width, "elements of an array");
      out.bytes = rest_;
      if (out.of == kString)
        for (std::size_t i = 0; i < out.count; ++i) take_string("a string");
      else
        take(width * out.count, "an array");
    }
    return out;
  }

  /// Returns its offset, from where the data begins.
  std::uint64_t take_tensor() {
    GgufTensor& tensor = tensors_.emplace_back();
    tensor.name = string_at(take_string("a tensor's name").data());
    const auto rank = take_number<std::uint32_t>("a tensor's rank");
    if (rank < 1 || rank > 4) fail_tensor(tensor.name, std::to_string(rank) + " extents, expected 1 to 4");
    for (std::uint32_t i = 0; i < rank; ++i)
      tensor.shape.insert(tensor.shape.begin(), take_number<std::int64_t>("a tensor's extents"));
    tensor.type = take_number<std::uint32_t>("a tensor's type");
    return take_number<std::uint64_t>("a tensor's offset");
  }

  /// The bytes of the tensors. `rest_` begins after the last one's description.
  void place(const std::vector<std::uint64_t>& offsets) {
    const std::int64_t alignment = integer("general.alignment").value_or(32);
    if (alignment < 1 || alignment > 1 << 20 || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
      fail_key("general.alignment",
               std::to_string(alignment) + ", expected a power of two from 1 to 1048576");
    const auto step = static_cast<std::uint64_t>(alignment);
    const std::uint64_t padding = (step - (size_ - rest_.size()) % step) % step;
    if (!tensors_.empty()) take(padding, "padding");
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      GgufTensor& tensor = tensors_[i];
      const auto bytes = bytes_of(tensor);
      if (offsets[i] % step != 0)
        fail_tensor(tensor.name, "offset " + std::to_string(offsets[i]) + " is no multiple of " +
                                     std::to_string(step) + ", the alignment");
      if (offsets[i] > rest_.size() || bytes > rest_.size() - offsets[i])
        fail_tensor(tensor.name, "its " + std::to_string(bytes) + " bytes at offset " +
                                     std::to_string(offsets[i]) + " end after the file, which has " +
                                     std::to_string(rest_.size()) + " of data: is it cut off?");
      tensor.bytes = rest_.subspan(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(bytes));
      if (bytes > 0) order.emplace_back(offsets[i], i);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 1; i < order.size(); ++i)
      if (const GgufTensor& before = tensors_[order[i - 1].second];
          order[i].first < order[i - 1].first + before.bytes.size())
        fail_tensor(tensors_[order[i].second].name, "shares bytes with '" + std::string(before.name) + "'");
    std::vector<std::string_view> names;
    for (const GgufTensor& tensor : tensors_) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
      fail_tensor(*twice, "occurs twice");
  }

  std::uint64_t bytes_of(const GgufTensor& tensor) const {
    const GgufType* const type = find_gguf_type(tensor.type);
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.shape) {
      const auto factor = static_cast<std::uint64_t>(extent);
      if (extent < 1 || count > (std::uint64_t{1} << 48) / factor)
        fail_tensor(tensor.name, "shape " + detail::shape_text(tensor.shape) +
                                     ", expected extents from 1 on and at most 2^48 numbers");
      count *= factor;
    }
    if (!type) return 0;  // an error once it is asked for
    if (tensor.shape.back() % type->block != 0)
      fail_tensor(tensor.name, "rows of " + std::to_string(tensor.shape.back()) +
                                   " numbers are no whole blocks of " + type->name + ", which have " +
                                   std::to_string(type->block));
    return count / type->block * type->bytes;
  }

  // Values.

  template <class T>
  static T scalar(const std::byte* at) {
    T out;
    std::memcpy(&out, at, sizeof out);
    return out;
  }
  static std::string_view string_at(const std::byte* at) {
    return {reinterpret_cast<const char*>(at) + 8, static_cast<std::size_t>(scalar<std::uint64_t>(at))};
  }
  const Value* find(std::string_view key) const {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
  }
  static std::string found(const Value& value) {
    static constexpr const char* kNames[kTypes] = {
        "an 8-bit integer", "an 8-bit integer", "a 16-bit integer", "a 16-bit integer", "a 32-bit integer",
        "a 32-bit integer", "a float",          "true or false",    "a string",         "",
        "a 64-bit integer", "a 64-bit integer", "a double"};
    return value.type == kArray ? "an array of " + std::to_string(value.count) : kNames[value.type];
  }
  static std::optional<std::int64_t> whole(const Value& value) {
    const std::byte* const at = value.bytes.data();
    switch (value.type) {
      case 0:
        return scalar<std::uint8_t>(at);
      case 1:
        return scalar<std::int8_t>(at);
      case 2:
        return scalar<std::uint16_t>(at);
      case 3:
        return scalar<std::int16_t>(at);
      case kU32:
        return scalar<std::uint32_t>(at);
      case kI32:
        return scalar<std::int32_t>(at);
      case kI64:
        return scalar<std::int64_t>(at);
      case kU64:
        if (const auto wide = scalar<std::uint64_t>(at); wide >> 63 == 0)
          return static_cast<std::int64_t>(wide);
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }
  static double shortest(float value) {
    if (!std::isfinite(value)) return static_cast<double>(value);
    double out = 0;
    specula::detail::read_number(specula::detail::number(value), out);
    return out;
  }
  const Value* array(std::string_view key, const char* of, std::initializer_list<std::uint32_t> types) const {
    const Value* const value = find(key);
    if (value && (value->type != kArray || std::find(types.begin(), types.end(), value->of) == types.end()))
      fail_key(key, std::string("expected an array of ") + of + ", found " +
                        (value->type == kArray ? "one of another type" : found(*value)));
    return value;
  }
  template <class T>
  static std::vector<T> array_of(const Value* value) {
    std::vector<T> out(value ? value->count : 0);
    if (!out.empty()) std::memcpy(out.data(), value->bytes.data(), out.size() * sizeof(T));
    return out;
  }

  std::shared_ptr<const void> owner_;
  detail::MappedFile file_;  // instead
  std::string source_;
  std::span<const std::byte> rest_;  // while reading
  std::size_t size_;                 // of the file
  std::map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace specula::files
