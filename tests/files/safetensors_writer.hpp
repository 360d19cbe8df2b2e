// SPDX-License-Identifier: MIT
// Writes safetensors files and model directories for the tests of the loader.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace specula_test {

/// A temporary folder, removed with its contents.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name)
      : path(std::filesystem::temp_directory_path() /
             ("specula_test_" + name + "_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)))) {
    std::filesystem::create_directories(path);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// 8 bytes of length, the header, the data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out.append(header).append(data);
}

struct Tensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Rounds to nearest even by arithmetic, unlike the loader, which uses bits.
inline std::uint16_t half_bits(float value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [0.5, 1) * 2^exponent
  const int unit = std::max(exponent - 11, -24);
  const auto steps = static_cast<int>(std::nearbyint(std::abs(std::ldexp(value, -unit))));  // 0 to 2048 units
  const int bits =
      unit == -24 ? steps : (unit + 25) * 1024 + steps - 1024;  // a carry into the exponent is intended
  return static_cast<std::uint16_t>(bits + (std::signbit(value) ? 0x8000 : 0));
}

inline std::string tensor_bytes(const Tensor& tensor) {
  std::string out;
  for (const float value : tensor.values) {
    if (tensor.dtype == "I8" || tensor.dtype == "BOOL") {
      out.push_back(static_cast<char>(static_cast<std::int8_t>(value)));
      continue;
    }
    if (tensor.dtype == "I64") {
      const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
      for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
      continue;
    }
    const std::uint32_t bits = tensor.dtype == "F16" ? half_bits(value)
                               : tensor.dtype == "I32"
                                   ? static_cast<std::uint32_t>(static_cast<std::int32_t>(value))
                                   : std::bit_cast<std::uint32_t>(value);
    const int first = tensor.dtype == "BF16" ? 2 : 0, bytes = tensor.dtype.ends_with("32") ? 4 : 2;
    for (int i = first; i < first + bytes; ++i) out.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
  }
  return out;
}

inline std::string safetensors_bytes(const std::vector<Tensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
  for (const auto& tensor : tensors) {
    std::string shape;
    for (const auto extent : tensor.shape)
      shape.append(shape.empty() ? "" : ",").append(std::to_string(extent));
    const std::string bytes = tensor_bytes(tensor);
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  return safetensors_bytes(header + "}", data);
}

}  // namespace specula_test
