// SPDX-License-Identifier: MIT
// labels: long

// GGUF read and written by our own code, and by ggml's: the same types, the same bits; K-quants by ggml.
#include <specula/files/gguf_blocks.hpp>

#include <doctest/doctest.h>

#include <ggml.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>

#include "ggml_expand.hpp"
#include "gguf_container.hpp"
#include "gguf_rounding.hpp"
#include "pack.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;
using files::GgufId;
using specula_tools::append_rounded;

namespace {

std::vector<float> random_row(Random& random) {
  std::vector<float> row(512);
  for (float& weight : row) weight = static_cast<float>(random.between(-0.2, 0.3));
  return row;
}

std::string quantized(ggml_type type, const std::vector<float>& row) {
  std::string out(ggml_row_size(type, static_cast<std::int64_t>(row.size())), '\0');
  ggml_quantize_chunk(type, row.data(), out.data(), 0, 1, static_cast<std::int64_t>(row.size()), nullptr);
  return out;
}

}  // namespace

TEST_CASE("the table of types is ggml's") {
  int known = 0;
  for (std::uint32_t id = 0; id < GGML_TYPE_COUNT; ++id) {
    const auto type = static_cast<ggml_type>(id);
    const files::GgufType* const entry = files::find_gguf_type(id);
    CAPTURE(id);
    REQUIRE((entry != nullptr) == (ggml_blck_size(type) > 0));
    if (!entry) continue;
    CHECK(static_cast<std::int64_t>(entry->block) == ggml_blck_size(type));
    CHECK(entry->bytes == ggml_type_size(type));
    std::string name = ggml_type_name(type);
    for (char& letter : name)
      if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
    CHECK(entry->name == name);
    ++known;
  }
  CHECK(known > 30);
}

TEST_CASE("rows are rounded and expanded to ggml's bits") {
  Random random(1);
  for (const GgufId id :
       {GgufId::f16, GgufId::bf16, GgufId::q4_0, GgufId::q4_1, GgufId::q5_0, GgufId::q5_1, GgufId::q8_0}) {
    CAPTURE(static_cast<int>(id));
    const auto type = static_cast<ggml_type>(id);
    for (int round = 0; round < 20; ++round) {
      const auto row = random_row(random);
      std::string rounded;
      append_rounded(id, row, rounded);
      REQUIRE(rounded == quantized(type, row));
      std::vector<float> a(row.size()), b(row.size());
      const auto* const bytes = reinterpret_cast<const std::byte*>(rounded.data());
      files::expand(id, bytes, a);
      REQUIRE(specula_tools::ggml_expand()(static_cast<std::uint32_t>(id), bytes, b));
      REQUIRE(a == b);
    }
  }
}

TEST_CASE("random blocks are expanded to ggml's bits, of all types that expand() reads") {
  Random random(4);
  const auto expand = specula_tools::ggml_expand();
  int types = 0;
  for (std::uint32_t id = 0; id < GGML_TYPE_COUNT; ++id) {
    const files::GgufType* const type = files::find_gguf_type(id);
    if (!type || !type->expands || type->id == 0) continue;  // ggml copies floats
    CAPTURE(type->name);
    ++types;
    const std::size_t count = type->block == 1 ? 256 : type->block;
    for (int round = 0; round < 500; ++round) {
      std::vector<std::byte> bytes(count / type->block * type->bytes);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
      std::vector<float> a(count), b(count);
      files::expand(static_cast<GgufId>(id), bytes.data(), a);
      REQUIRE(expand(id, bytes.data(), b));
      for (std::size_t i = 0; i < count; ++i)
        REQUIRE((std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]) ||
                 (std::isnan(a[i]) && std::isnan(b[i]))));  // of a scale that is none
    }
  }
  CHECK(types == 10);
}

TEST_CASE("K-quants are read by ggml's code") {
  Random random(2);
  const auto expand = specula_tools::ggml_expand();
  for (const ggml_type type :
       {GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS}) {
    CAPTURE(static_cast<int>(type));
    const auto row = random_row(random);
    const std::string bytes = quantized(type, row);
    std::vector<float> back(row.size());
    REQUIRE(expand(static_cast<std::uint32_t>(type), reinterpret_cast<const std::byte*>(bytes.data()), back));
    double error = 0, size = 0;
    for (std::size_t i = 0; i < row.size(); ++i)
      error += static_cast<double>((row[i] - back[i]) * (row[i] - back[i])),
          size += static_cast<double>(row[i] * row[i]);
    CHECK(error < 0.2 * size);
    CHECK(error > 0);
  }
  std::vector<float> none(32);
  CHECK(!expand(4, nullptr, none));
  CHECK(!expand(GGML_TYPE_COUNT, nullptr, none));
  CHECK(!expand(GGML_TYPE_I32, nullptr, none));
}

TEST_CASE("a decoder over the file has libllama's logits") {
  const TemporaryDirectory folder("gguf_types");
  quiet();
  const auto file = folder.path / "model.gguf";
  specula_tools::write_gguf(std::filesystem::path(SPECULA_MODELS_DIR) / "small", file,
                            specula_tools::GgufType::f32);
  cpu::Decoder<float> decoder(file, {.capacity = 64});
  llama_cpp::Model other(llama_cpp::load(file), exact_options(64));
  Random random(3);
  std::vector<Token> tokens;
  std::vector<NodeId> parents;
  for (int i = 0; i < 24; ++i) tokens.push_back(random.below(2048)), parents.push_back(i - 1);
  const LogitsView a = decoder.extend(tokens, parents), b = other.extend(tokens, parents);
  for (std::int32_t r = 0; r < a.rows; ++r) CHECK(difference(a.row(r), b.row(r)) < 1e-4);
}
