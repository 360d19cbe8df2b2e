// SPDX-License-Identifier: MIT
// A safetensors file as it grows: what specula/files/safetensors.hpp reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace specula_tools {

class SafetensorsWriter {
 public:
  /// `bytes` are the tensor's, row by row, little-endian; `dtype` as the format names it: F32, BF16, I8, ...
  void add(const std::string& name, const char* dtype, const std::vector<std::int64_t>& shape,
           std::string_view bytes) {
    header_[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  /// The whole file.
  std::string bytes() const {
    std::string text = header_.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
    std::string out;
    for (std::size_t i = 0; i < 8; ++i) out.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
    return out + text + data_;
  }

 private:
  nlohmann::ordered_json header_{{"__metadata__", {{"format", "pt"}}}};
  std::string data_;
};

}  // namespace specula_tools
