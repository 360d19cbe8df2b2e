// SPDX-License-Identifier: MIT
// Fuzzes GGUF files: any bytes give an error, or keys and tensors within the file, a config or an error, and
// rows.
#include <specula/cpu/gguf_tensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <specula/cpu/read_decoder_config.hpp>

#include "../../tools/common/gguf_container.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;

void require(bool ok) {
  if (!ok) std::abort();
}

/// Calls `read`, which may throw what a bad file makes it throw: an error that names the file.
template <class Read>
void attempt(Read read) {
  try {
    read();
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with("fuzz: "));
  }
}

void read_all(std::span<const std::byte> bytes) {
  Gguf file(bytes, "fuzz");
  std::size_t total = 0;
  for (const std::string_view key : file.keys()) {
    require(file.contains(key));
    attempt([&] { file.integer(key); });
    attempt([&] { file.number(key); });
    attempt([&] { file.flag(key); });
    attempt([&] { total += file.text(key).value_or("").size(); });
    attempt([&] {
      for (const std::string_view text : file.texts(key)) total += text.size();
    });
    attempt([&] { total += file.floats(key).size(); });
    attempt([&] { total += file.integers(key).size(); });
  }
  for (const GgufTensor& tensor : file.tensors()) {
    total += tensor.bytes.size();  // no two share a byte
    for (const std::byte& byte : tensor.bytes)
      require(&byte >= bytes.data() && &byte < bytes.data() + bytes.size());
  }
  require(total <= bytes.size());
  GgufFiles files(std::move(file));
  attempt([&] { read_decoder_config(gguf_config(files), "fuzz"); });
  const GgufTensors tensors(std::move(files));
  for (const auto& [name, about] : tensors.infos())
    attempt([&, &name = name, &info = about.first] {
      const GgufType* const type = find_gguf_type(tensors.type_of(name));
      std::vector<const std::byte*> raw;
      tensors.raw_rows(name, [&](std::int64_t r, const std::byte* row) {
        const auto at = static_cast<std::size_t>(row - bytes.data());
        const auto blocks = static_cast<std::size_t>(info.shape.back()) / type->block;
        require(r == static_cast<std::int64_t>(raw.size()));
        require(at < bytes.size() && blocks * type->bytes <= bytes.size() - at);
        raw.push_back(row);
      });
      std::int64_t rows = 0;
      std::vector<float> again(static_cast<std::size_t>(info.shape.back()));
      tensors.rows(name, [&](std::int64_t r, std::span<const float> row) {
        require(r == rows++ && row.size() == again.size());
        expand(static_cast<GgufId>(type->id), raw[static_cast<std::size_t>(r)], again);
        require(info.shape.size() == 1 ||  // whose numbers may be in another order
                std::memcmp(again.data(), row.data(), row.size_bytes()) == 0);
      });
      require(rows > 0 && rows == static_cast<std::int64_t>(raw.size()));
    });
}

constexpr std::uint32_t kTypes[] = {0, 2, 3, 6, 7, 8, 1, 30, 12, 13, 14};

/// Small models, whose mutations get past the first checks.
std::string seed(std::uint32_t index) {
  specula_tools::GgufContainer out;
  const bool llama = index % 2 == 0;
  const std::string at = llama ? "llama." : "qwen2.";
  out.set("general.architecture", llama ? "llama" : "qwen2");
  for (const char* key : {"context_length", "block_count", "attention.head_count_kv"}) out.set(at + key, 1u);
  out.set(at + "feed_forward_length", 32u);
  out.set(at + "attention.head_count", 2u);
  out.set(at + "attention.key_length", 4u);
  out.set(at + "attention.layer_norm_rms_epsilon", 1e-5f);
  if (index == 2) out.set(at + "rope.scaling.type", "yarn"), out.set(at + "rope.scaling.factor", 4.0f);
  if (index == 3) out.set("general.alignment", 64u);
  const std::vector<std::string> tokens{"a", "", "\xe2\x96\x81"};
  const std::vector<float> scores{0, -1, -2};
  const std::vector<std::int32_t> types{1, 2, 3};
  out.set("tokenizer.ggml.tokens", tokens);
  out.set("tokenizer.ggml.scores", scores);
  out.set("tokenizer.ggml.token_type", types);
  const std::uint32_t type = kTypes[index % std::size(kTypes)];
  const GgufType& about = *find_gguf_type(type);
  const std::size_t columns = std::max(std::size_t{32}, std::size_t{about.block}),
                    bytes = columns / about.block * about.bytes;
  out.set(at + "embedding_length", static_cast<std::uint32_t>(columns));
  out.add("token_embd.weight", type, {3, static_cast<std::int64_t>(columns)}, std::string(3 * bytes, 'x'));
  out.add("blk.0.attn_q.weight", type, {8, static_cast<std::int64_t>(columns)}, std::string(8 * bytes, 'y'));
  out.add("blk.0.attn_k.bias", 0, {4}, std::string(16, 'z'));
  if (index == 4) out.add("rope_freqs.weight", 0, {2}, std::string("\0\0\x80\x3f\0\0\0\x41", 8));
  return out.bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] { read_all(std::as_bytes(std::span(data, size))); });
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  if (index >= std::size(kTypes)) return 0;
  const std::string bytes = seed(index);
  const std::size_t size = std::min(capacity, bytes.size());
  std::memcpy(data, bytes.data(), size);
  return size;
}
