// SPDX-License-Identifier: MIT
// Fuzzes safetensors files: any bytes give an error or tensors within the file, never a read outside.
#include <specula/files/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace specula::files;

void require(bool ok) {
  if (!ok) std::abort();
}

void read_all(const std::string& bytes) {
  Safetensors file(std::make_unique<std::istringstream>(bytes), "fuzz");
  std::uint64_t total = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    require(file.find(tensor.name) == &tensor);
    const auto data = file.read(tensor);
    total += data.size();
    if (!is_of_weights(tensor.dtype)) continue;
    std::uint64_t count = 1;
    for (const auto extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
    require(count * size_of(tensor.dtype) == data.size());
    std::vector<float> values(static_cast<std::size_t>(count));
    decode(tensor.dtype, data.data(), values);
  }
  require(total <= bytes.size());  // no two share a byte
}

constexpr std::string_view kSeeds[] = {
    R"({})",
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
    R"({"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}})",
    R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"\u0062":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})",
    R"({"draft_tokens":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
    R"({"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[3,3]}})",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  // The input as it is, and with a valid header length (given by the first byte), which mutation would hardly
  // ever produce.
  std::string framed(8, '\0');
  if (size > 1) {
    const std::size_t header = std::min<std::size_t>(size - 1, static_cast<std::size_t>(data[0]) * 16);
    framed[0] = static_cast<char>(header & 0xff), framed[1] = static_cast<char>(header >> 8 & 0xff);
    framed += bytes.substr(1);
  }
  for (const auto& file : {bytes, framed}) {
    try {
      read_all(file);
    } catch (const std::runtime_error&) {
    }
  }
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  if (index >= std::size(kSeeds)) return 0;
  std::string seed(8, '\0');
  seed[0] = static_cast<char>(kSeeds[index].size());
  seed.append(kSeeds[index]).append(16, '\x3c');
  const std::size_t size = std::min(capacity, seed.size());
  std::memcpy(data, seed.data(), size);
  return size;
}
