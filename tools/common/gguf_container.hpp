// SPDX-License-Identifier: MIT
// A GGUF file as it grows: what specula/files/gguf.hpp reads. Version 3, with the format's usual alignment.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace specula_tools {

class GgufContainer {
 public:
  static constexpr std::size_t kAlignment = 32;

  void set(std::string_view key, bool value) { entry(key, 7, number(static_cast<std::uint8_t>(value))); }
  void set(std::string_view key, std::uint16_t value) { entry(key, 2, number(value)); }
  void set(std::string_view key, std::uint32_t value) { entry(key, 4, number(value)); }
  void set(std::string_view key, std::int32_t value) { entry(key, 5, number(value)); }
  void set(std::string_view key, float value) { entry(key, 6, number(value)); }
  void set(std::string_view key, std::string_view value) { entry(key, 8, text(value)); }
  void set(std::string_view key, const char* value) { set(key, std::string_view(value)); }
  void set(std::string_view key, std::span<const std::string> values) {
    std::string all;
    for (const std::string& value : values) all += text(value);
    array(key, 8, values.size(), all);
  }
  void set(std::string_view key, std::span<const float> values) { array(key, 6, values.size(), raw(values)); }
  void set(std::string_view key, std::span<const std::int32_t> values) {
    array(key, 5, values.size(), raw(values));
  }

  /// `shape`: outermost extent first; `type`: its number in the format; `bytes`: rows of whole blocks.
  void add(std::string_view name, std::uint32_t type, const std::vector<std::int64_t>& shape,
           std::string_view bytes) {
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
    tensors_ += text(name) + number(static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) tensors_ += number(*extent);
    tensors_ += number(type) + number(static_cast<std::uint64_t>(data_.size()));
    data_ += bytes;
    ++tensor_count_;
  }

  /// What stands before the data.
  std::string head() const {
    std::string out = "GGUF" + number(std::uint32_t{3}) + number(tensor_count_) + number(entry_count_);
    out += entries_ + tensors_;
    out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
    return out;
  }
  const std::string& data() const { return data_; }
  /// The whole file.
  std::string bytes() const { return head() + data_; }

 private:
  static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

  template <class T>
  static std::string number(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
  }
  template <class T>
  static std::string raw(std::span<const T> values) {
    return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
  }
  static std::string text(std::string_view value) {
    return number(static_cast<std::uint64_t>(value.size())).append(value);
  }
  void entry(std::string_view key, std::uint32_t type, std::string_view value) {
    entries_ += text(key) + number(type);
    entries_ += value;
    ++entry_count_;
  }
  void array(std::string_view key, std::uint32_t type, std::size_t count, const std::string& values) {
    entry(key, 9, number(type) + number(static_cast<std::uint64_t>(count)) + values);
  }

  std::string entries_, tensors_, data_;
  std::uint64_t entry_count_ = 0, tensor_count_ = 0;
};

}  // namespace specula_tools
