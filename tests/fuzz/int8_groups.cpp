// SPDX-License-Identifier: MIT
// Fuzzes matrices of 8 bits: any bytes give an error or rows that bfloat16 represents; any floats are
// rounded.
#include <specula/cpu/tensor_files.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace specula::cpu;
using namespace specula::files;

void require(bool ok) {
  if (!ok) std::abort();
}

/// A file of a matrix and its exponents; `lie` corrupts the header.
std::string file_of(std::int64_t rows, std::int64_t cols, std::uint8_t lie, const std::string& data) {
  const std::int64_t groups = static_cast<std::int64_t>(Int8Groups::count(static_cast<std::size_t>(cols)));
  const auto entry = [](const std::string& name, const char* dtype, std::int64_t r, std::int64_t c,
                        std::int64_t begin) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(r) + "," +
           std::to_string(c) + "],\"data_offsets\":[" + std::to_string(begin) + "," +
           std::to_string(begin + r * c) + "]}";
  };
  std::string header = "{" + entry("w", "I8", rows, cols, 0);
  if (lie != 1)
    header += "," + entry("w.exponents", lie == 2 ? "U8" : "I8", rows, groups - (lie == 3 && groups > 0),
                          rows * cols);
  header += "}";
  std::string out(8, '\0');
  out[0] = static_cast<char>(header.size() & 0xff), out[1] = static_cast<char>(header.size() >> 8);
  std::string bytes = data;
  bytes.resize(
      static_cast<std::size_t>(rows * cols + (lie == 1 ? 0 : rows * (groups - (lie == 3 && groups > 0)))),
      '\x05');
  return out + header + bytes;
}

void read_matrix(const std::uint8_t* data, std::size_t size) {
  const std::int64_t rows = data[0] % 5, cols = data[1] % 80;
  const std::string bytes =
      file_of(rows, cols, data[2] % 8, std::string(reinterpret_cast<const char*>(data) + 3, size - 3));
  TensorFiles files(Safetensors(std::make_unique<std::istringstream>(bytes), "fuzz"));
  const std::int64_t shape[] = {rows, cols};
  std::int64_t seen = 0;
  files.rows(files.weight("w", shape), [&](std::int64_t r, std::span<const float> row) {
    require(r == seen++ && row.size() == static_cast<std::size_t>(cols));
    for (const float weight : row)
      require(std::abs(weight) <= 127 * 0x1p15f && (std::bit_cast<std::uint32_t>(weight) & 0xffff) == 0);
  });
  require(seen == rows || cols == 0);
}

void round_row(const std::uint8_t* data, std::size_t size) {
  std::vector<float> row(std::min<std::size_t>(size / 4, 100));
  if (!row.empty()) std::memcpy(row.data(), data, row.size() * 4);
  std::vector<std::int8_t> numbers(row.size()), exponents(Int8Groups::count(row.size()));
  round_to_groups(row, numbers, exponents);
  std::vector<float> back(numbers.begin(), numbers.end()), again(row.size());
  scale_groups(back, exponents);
  for (std::size_t c = 0; c < row.size(); ++c) {
    const float unit = std::ldexp(1.0f, exponents[c / Int8Groups::kSize]);
    // Within half a step, except where the smaller scale saturates.
    require(std::abs(row[c] - back[c]) <= unit / 2 || std::abs(numbers[c]) == Int8Groups::kMax);
  }
  round_to_groups(back, numbers, exponents);
  again.assign(numbers.begin(), numbers.end());
  scale_groups(again, exponents);
  require(again == back);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 3) {
    try {
      read_matrix(data, size);
    } catch (const std::runtime_error&) {
    }
  }
  try {
    round_row(data, size);
  } catch (const std::invalid_argument&) {
  }
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  if (index >= 6) return 0;
  // Plausible exponents, then plausible floats.
  std::string seed{static_cast<char>(index), static_cast<char>(31 + index),
                   static_cast<char>(index > 3 ? index - 3 : 0)};
  if (index % 2 == 0) {
    for (int i = 0; i < 240; ++i) seed.push_back(static_cast<char>(i % 16 - 8));
  } else {
    seed.clear();
    for (int i = 0; i < 60; ++i) {
      const float weight = std::ldexp(static_cast<float>(i * 37 % 61 - 30), -8 - i % 5);
      char bytes[4];
      std::memcpy(bytes, &weight, 4);
      seed.append(bytes, 4);
    }
  }
  const std::size_t size = std::min(capacity, seed.size());
  std::memcpy(data, seed.data(), size);
  return size;
}
