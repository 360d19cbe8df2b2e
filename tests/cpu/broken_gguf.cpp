// SPDX-License-Identifier: MIT
// Broken GGUF files of blocks of 256 numbers: each is loaded, or refused by an error that names the file and,
// where a tensor is broken, that.
#include <specula/cpu/decoder_weights.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <specula/cpu/load_options.hpp>
#include <specula/files/gguf_blocks.hpp>

#include "../../tools/common/gguf_container.hpp"
#include "../files/safetensors_writer.hpp"
#include "random.hpp"
#include "random_blocks.hpp"

namespace {

using namespace specula_test;
using specula_tools::GgufContainer;

/// A layer of a Llama of these sizes, as small as rows of 256 allow.
struct SmallFile {
  std::vector<std::string> names;
  std::string bytes;
  std::size_t data = 0;  // where the tensors begin

  explicit SmallFile(Random& random) {
    GgufContainer out;
    out.set("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"context_length", 64u},
                                     {"embedding_length", 256u},
                                     {"block_count", 1u},
                                     {"feed_forward_length", 8u},
                                     {"attention.head_count", 2u},
                                     {"attention.head_count_kv", 1u},
                                     {"attention.key_length", 4u}})
      out.set("llama." + std::string(key), value);
    out.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    std::size_t size = 0;
    const auto add = [&](const std::string& name, std::uint32_t type,
                         const std::vector<std::int64_t>& shape) {
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      const specula::files::GgufType& about = *specula::files::find_gguf_type(type);
      std::string tensor(static_cast<std::size_t>(count) / about.block * about.bytes, '\0');
      for (char& byte : tensor) byte = static_cast<char>(random.below(256));
      if (about.block > 1) {  // whose scales are finite
        const auto row =
            random_row(static_cast<specula::files::GgufId>(type), static_cast<std::int32_t>(count), random);
        std::memcpy(tensor.data(), row.data(), tensor.size());
      }
      names.push_back(name + ".weight");
      out.add(names.back(), type, shape, tensor);
      size += (tensor.size() + 31) / 32 * 32;
    };
    add("token_embd", 14, {5, 256}), add("output", 12, {5, 256}), add("output_norm", 0, {256});
    add("blk.0.attn_norm", 0, {256}), add("blk.0.ffn_norm", 0, {256});
    add("blk.0.attn_q", 12, {8, 256}), add("blk.0.attn_k", 13, {4, 256}), add("blk.0.attn_v", 14, {4, 256});
    add("blk.0.ffn_gate", 12, {8, 256}), add("blk.0.ffn_up", 13, {8, 256});
    add("blk.0.attn_output", 30, {256, 8}), add("blk.0.ffn_down", 30, {256, 8});
    bytes = out.bytes();
    data = bytes.size() - size;
  }

  /// Where a tensor's description has its type, which is followed by its offset.
  std::size_t type_at(const std::string& name) const {
    const std::size_t at = bytes.find(std::string("\0\0\0\0", 4) + name) + 4 + name.size();
    std::uint32_t rank = 0;
    std::memcpy(&rank, bytes.data() + at, sizeof rank);
    return at + 4 + std::size_t{8} * rank;
  }
};

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

class Loader {
 public:
  /// Empty if it is loaded; else the error, after the file's name.
  std::string error(const std::string& bytes) const {
    write_file(path_, bytes);
    try {
      specula::cpu::load_decoder_weights<float>(path_);
    } catch (const std::runtime_error& error) {
      const std::string_view what = error.what();
      REQUIRE(what.starts_with(path_.string() + ": "));
      return std::string(what.substr(path_.string().size() + 2));
    }
    return "";
  }

 private:
  TemporaryDirectory folder_{"broken_gguf"};
  std::filesystem::path path_ = folder_.path / "m.gguf";
};

}  // namespace

TEST_CASE("the whole file is loaded; cut off anywhere it is refused") {
  Random random(1);
  const SmallFile file(random);
  const Loader loader;
  CHECK(loader.error(file.bytes) == "");
  for (int round = 0; round < 300; ++round) {
    const auto within = [&](std::size_t from, std::size_t to) {
      return from + static_cast<std::size_t>(random.below(static_cast<std::int32_t>(to - from)));
    };
    const bool header = round % 3 == 0;
    const std::string cut =
        file.bytes.substr(0, header ? within(0, file.data) : within(file.data, file.bytes.size() - 31));
    const std::string error = loader.error(cut);
    CAPTURE(error);
    if (header)
      REQUIRE(error != "");
    else
      REQUIRE((error.starts_with("tensor '") && error.find("is it cut off?") != error.npos));
  }
}

TEST_CASE("tensors that share bytes, lie elsewhere or are of another type") {
  Random random(2);
  const SmallFile file(random);
  const Loader loader;
  for (const std::string& name : file.names) {
    CAPTURE(name);
    const std::size_t at = file.type_at(name);
    std::uint64_t tensor_offset = 0;
    std::memcpy(&tensor_offset, file.bytes.data() + at + 4, sizeof tensor_offset);
    for (const std::string& other : file.names) {  // begins where another does
      if (name == other) continue;
      std::string bytes = file.bytes;
      std::memcpy(bytes.data() + at + 4, bytes.data() + file.type_at(other) + 4, 8);
      const std::string error = loader.error(bytes);
      CAPTURE(error);
      REQUIRE(error.starts_with("tensor '"));
      REQUIRE((error.find("shares bytes with") != error.npos || error.find("is it cut off?") != error.npos));
    }
    for (const std::uint64_t offset :
         {tensor_offset + 1, tensor_offset + 32 * 100'000, ~std::uint64_t{31}, std::uint64_t{1} << 63}) {
      std::string bytes = file.bytes;
      put(bytes, at + 4, offset);
      REQUIRE(loader.error(bytes).starts_with("tensor '" + name + "': "));
    }
    for (std::uint32_t type = 0; type < 45; ++type) {
      std::string bytes = file.bytes;
      put(bytes, at, type);
      const std::string error = loader.error(bytes);
      CAPTURE(error);
      REQUIRE((error == "" || error.starts_with("tensor '")));
    }
  }
}

TEST_CASE("any bytes of the header changed") {
  Random random(3);
  const SmallFile file(random);
  const Loader loader;
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = file.bytes;
    for (int n = 1 + random.below(3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(file.data - 8)));
      static constexpr std::uint64_t kTelling[] = {
          0, 1, 0x7f, 0xff, 1 << 24, ~std::uint64_t{0}, 1ull << 48, 1ull << 63};
      if (random.below(4) == 0)
        put(bytes, at, kTelling[random.below(8)]);
      else if (random.bernoulli(0.5))
        put(bytes, at, static_cast<std::uint8_t>(random.below(256)));
      else
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
    }
    loaded += loader.error(bytes).empty();
  }
  CHECK(loaded > 0);
  CHECK(loaded < 3000);
}
