// SPDX-License-Identifier: MIT
// Tensors of GGUF: a decoder over such a file computes what it computes over the folder that the file was
// made of; and every tensor that cannot be read is refused by file, name and type.
#include <specula/cpu/gguf_tensors.hpp>

#include "specula/cpu/gguf_tensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cpu/tensor_files.hpp>

#include "gguf_model.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;
using specula::NodeId;
using specula::Token;

const std::string kWayOut =
    "; run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)";

/// Bytes that are kept as long as what reads them.
struct Loaded {
  std::string bytes;
  explicit Loaded(const GgufContainer& container) : bytes(container.bytes()) {}
  GgufTensors tensors(GgufExpand expand = {}) const {
    return GgufTensors(GgufFiles(Gguf(std::as_bytes(std::span<const char>(bytes)), "file")),
                       std::move(expand));
  }
};

/// The logits of a small tree after a context.
template <class Real = float>
std::vector<Real> logits(const std::filesystem::path& model, const LoadOptions& options = {}) {
  Decoder<Real> decoder(
      std::make_shared<const DecoderWeights<Real>>(load_decoder_weights<Real>(model, {}, options)),
      {.capacity = 40});
  Random random(3);
  for (int i = 0; i < 20; ++i) {
    const Token token = random.below(40);
    decoder.append({&token, 1});
  }
  const std::vector<Token> tokens{1, 2, 3, 4};
  const std::vector<NodeId> parents{-1, 0, 0, 2};
  decoder.extend(tokens, parents);
  std::vector<Real> out;
  for (std::int32_t i = 0; i < 4; ++i)
    out.insert(out.end(), decoder.logits(i).begin(), decoder.logits(i).end());
  return out;
}

/// The folder of the tiny model, its matrices converted there and back by `type`, in files of `dtype`.
void write_folder(const std::filesystem::path& folder, TinyModel model, GgufId type,
                  const std::string& dtype) {
  for (Tensor& tensor : model.tensors) {
    if (tensor.shape.size() != 2) continue;
    std::string bytes;
    append_rounded(type, tensor.values, bytes);
    expand(type, reinterpret_cast<const std::byte*>(bytes.data()), tensor.values);
    tensor.dtype = dtype;
    if (dtype != "BF16") continue;  // which the writer of safetensors cuts off, so rounded here
    bytes.clear();
    append_rounded(GgufId::bf16, tensor.values, bytes);
    expand(GgufId::bf16, reinterpret_cast<const std::byte*>(bytes.data()), tensor.values);
  }
  write_file(folder / "config.json", kTinyConfig);
  write_file(folder / "model.safetensors", safetensors_bytes(model.tensors));
}

}  // namespace

TEST_CASE("the same bits as the folder that the file was made of") {
  const TemporaryDirectory folder("gguf_logits");
  const auto file = folder.path / "model.gguf";
  const TinyModel model;
  const auto exact = [&] {
    write_folder(folder.path, model, GgufId::f32, "F32");
    return logits(folder.path);
  }();
  const std::vector<std::pair<GgufId, const char*>> kinds{
      {GgufId::f32, "F32"},   {GgufId::f16, "F16"},   {GgufId::bf16, "BF16"}, {GgufId::q4_0, "BF16"},
      {GgufId::q4_1, "BF16"}, {GgufId::q5_0, "BF16"}, {GgufId::q5_1, "BF16"}, {GgufId::q8_0, "BF16"}};
  for (const auto& kind : kinds) {
    const auto type = kind.first;
    const char* const dtype = kind.second;
    CAPTURE(dtype);
    CAPTURE(static_cast<int>(type));
    write_file(file, tiny_gguf(model, type).bytes());
    write_folder(folder.path, model, type, dtype);
    const bool blocks = find_gguf_type(static_cast<std::uint32_t>(type))->block >
                        1;  // which would stay: bfloat16 is asked for
    const auto got = logits(file, {.stored = blocks ? std::optional(WeightType::bf16) : std::nullopt});
    CHECK(got == logits(folder.path));
    CHECK((got == logits(file)) == !blocks);
    CHECK((got == exact) == (type == GgufId::f32));
    // Kept in floats: of the very weights.
    write_folder(folder.path, model, type, "F32");
    CHECK(logits(file, {.stored = WeightType::full}) == logits(folder.path));
    CHECK(logits<double>(file, {.stored = WeightType::full}) == logits<double>(folder.path));
  }
}

TEST_CASE("as asked: in bfloat16 or in floats, of a folder too") {
  const TemporaryDirectory folder("gguf_stored");
  const TinyModel model;
  write_folder(folder.path, model, GgufId::f32, "F32");
  const auto rounded = logits(folder.path, {.stored = WeightType::bf16});
  CHECK(rounded != logits(folder.path));
  write_folder(folder.path, model, GgufId::bf16, "F32");
  CHECK(rounded == logits(folder.path, {.stored = WeightType::full}));
}

TEST_CASE("the order of rows, and of biases, by architecture") {
  const TinyModel model;
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    GgufContainer out = tiny_gguf(model, GgufId::f32, architecture);
    std::vector<float> bias(64);
    for (std::size_t i = 0; i < 64; ++i)  // in the file's order
      bias[i] = static_cast<float>(architecture == "llama" ? i / 16 * 16 + i % 2 * 8 + i % 16 / 2 : i);
    std::string bytes;
    append_rounded(GgufId::f32, bias, bytes);
    out.add("blk.0.attn_q.bias", 0, {64}, bytes);
    const Loaded loaded(out);
    TensorFiles files(loaded.tensors());
    CHECK(files.names().size() == model.tensors.size() + 1);
    for (const Tensor& tensor : model.tensors) {
      std::vector<float> got;
      std::int64_t rows = 0;
      files.rows(files.weight(tensor.name, tensor.shape), [&](std::int64_t r, std::span<const float> row) {
        CHECK(r == rows++);
        got.insert(got.end(), row.begin(), row.end());
      });
      CHECK(got == tensor.values);
    }
    files.rows(files.find("model.layers.0.self_attn.q_proj.bias"),
               [&](std::int64_t, std::span<const float> row) {
                 for (std::size_t i = 0; i < 64; ++i) CHECK(row[i] == static_cast<float>(i));
               });
  }
}

TEST_CASE("rows as the file has them, in the order of a folder") {
  const TinyModel model;
  for (const GgufId type : {GgufId::f32, GgufId::q4_0, GgufId::q8_0, GgufId::bf16})
    for (const std::string architecture : {"llama", "qwen3"}) {
      const Loaded loaded(tiny_gguf(model, type, architecture));
      const GgufTensors tensors = loaded.tensors();
      for (const Tensor& tensor : model.tensors) {
        const bool matrix = tensor.shape.size() == 2;
        const GgufId stored = matrix ? type : GgufId::f32;
        CHECK(tensors.type_of(tensor.name) == static_cast<std::uint32_t>(stored));
        std::string wanted, got;
        append_rounded(stored, tensor.values, wanted);
        const auto rows = matrix ? static_cast<std::size_t>(tensor.shape[0]) : 1;
        std::int64_t calls = 0;
        tensors.raw_rows(tensor.name, [&](std::int64_t r, const std::byte* row) {
          CHECK(r == calls++);
          got.append(reinterpret_cast<const char*>(row), wanted.size() / rows);
        });
        CHECK(calls == static_cast<std::int64_t>(rows));
        CHECK(got == wanted);
      }
    }
  GgufContainer odd;
  add_keys(odd);
  odd.add("blk.0.attn_k.weight", 2, {6, 64}, std::string(6 * 36, 'x'));
  const Loaded loaded(odd);
  const std::string name = "model.layers.0.self_attn.k_proj.weight",
                    message =
                        "file: tensor 'blk.0.attn_k.weight': shape [6, 64], expected 2 heads of an even size";
  const auto ignored = [](std::int64_t, const auto&) {};
  CHECK_THROWS_WITH_AS(loaded.tensors().raw_rows(name, ignored), message.c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(loaded.tensors().rows(name, ignored), message.c_str(), std::runtime_error);
}

#ifdef __linux__
TEST_CASE("of a file of 64 MiB little is in memory while it is read, and it can be read again") {
  const auto resident = [] {  // MiB of files, of those in a memory file system too
    double total = 0, kib = 0;
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if ((word == "RssFile:" || word == "RssShmem:") && status >> kib) total += kib / 1024;
    return total;
  };
  constexpr std::size_t kRows = 4096, kStride = 2 * 4096, kBytes = kRows * kStride, kHead = kRows / 4;
  std::string matrix(kBytes, 'x');
  for (std::size_t i = 0; i < kBytes; i += 64) matrix[i] = static_cast<char>(i / kStride ^ i >> 6);
  GgufContainer out;
  add_keys(out);
  const std::pair<std::string, std::string> names[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"}};  // four heads of 8 MiB
  for (const auto& name : names) out.add(name.second, 1, {kRows, kStride / 2}, matrix);
  const TemporaryDirectory folder("gguf_resident");
  const auto path = folder.path / "model.gguf";
  write_file(path, out.bytes());

  const GgufTensors tensors{GgufFiles(path)};
  const double before = resident();
  for (const auto& [name, gguf_name] : names) {
    const bool heads = name != names[0].first;
    for (int time = 0; time < 2; ++time) {
      double most = 0;
      bool same = true;
      tensors.raw_rows(name, [&](std::int64_t r, const std::byte* row) {
        const auto n = static_cast<std::size_t>(r), i = n % kHead;
        const std::size_t place = heads ? n - i + i % (kHead / 2) * 2 + i / (kHead / 2) : n;
        same = same && std::memcmp(row, matrix.data() + place * kStride, kStride) == 0;
        if (n % 128 == 127) most = std::max(most, resident() - before);
      });
      CHECK(same);
      CHECK(most > 2);
      CHECK(most < 16);
      CHECK(resident() - before < 4);
    }
  }
  // Without dropping, all of it is there; and rows() drop it.
  for (const auto& [name, gguf_name] : names) {
    const auto bytes = tensors.files().find(gguf_name)->bytes;
    CHECK(std::memcmp(bytes.data(), matrix.data(), kBytes) == 0);
  }
  CHECK(resident() - before > 60);
  for (const auto& [name, gguf_name] : names) tensors.rows(name, [](std::int64_t, std::span<const float>) {});
  CHECK(resident() - before < 4);
}
#endif

TEST_CASE("types that only ggml expands") {
  GgufContainer out;
  add_keys(out);
  out.add("token_embd.weight", 10, {2, 256}, std::string(168, 'x'));  // Q2_K
  const Loaded loaded(out);
  const std::string name = "model.embed_tokens.weight";
  const std::int64_t shape[] = {2, 256};
  const std::string refused =
      "file: tensor 'token_embd.weight': Q2_K is not expanded here, only F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
      "Q5_0, Q5_1, Q4_K, Q5_K and Q6_K, and what ggml expands in programs built with llama.cpp "
      "(-DLLAMA_DIR)" +
      kWayOut + ", or llama-quantize --allow-requantize makes a Q8_0 of it";
  const auto error = [&](const GgufTensors& tensors) {
    try {
      TensorFiles(tensors).weight(name, shape);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  CHECK(error(loaded.tensors()) == refused);
  CHECK(error(loaded.tensors([](std::uint32_t, const std::byte*, std::span<float>) { return false; })) ==
        refused);
  const GgufExpand expand = [](std::uint32_t id, const std::byte* row, std::span<float> numbers) {
    CHECK(id == 10);
    std::fill(numbers.begin(), numbers.end(), static_cast<float>(row[0]));
    return true;
  };
  CHECK(error(loaded.tensors(expand)) == "no error");
  TensorFiles files(loaded.tensors(expand));
  int rows = 0;
  files.rows(files.weight(name, shape), [&](std::int64_t, std::span<const float> row) {
    CHECK(row.size() == 256);
    CHECK(row[255] == static_cast<float>('x'));
    ++rows;
  });
  CHECK(rows == 2);
  GgufContainer strange;
  add_keys(strange);
  strange.add("token_embd.weight", 99, {2, 256}, "");
  const Loaded other(strange);
  CHECK(error(other.tensors(expand))
            .starts_with("file: tensor 'token_embd.weight': type 99 is not expanded here"));
}

TEST_CASE("tensors of another network, of another shape, and missing ones") {
  const TinyModel model;
  const auto error = [&](const std::function<void(GgufContainer&)>& change, const std::string& without = "") {
    GgufContainer out;
    add_keys(out);
    for (const Tensor& tensor : model.tensors)
      if (tensor.name != without) add_tensor(out, tensor, GgufId::f32, true);
    change(out);
    const TemporaryDirectory folder("gguf_errors");
    const auto file = folder.path / "m.gguf";
    write_file(file, out.bytes());
    try {
      load_decoder_weights<float>(file);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what()).substr(folder.path.string().size() + 1);
    }
    return std::string("no error");
  };
  const auto nothing = [](GgufContainer&) {};
  const auto add = [](const char* name, std::vector<std::int64_t> shape) {
    return [=](GgufContainer& out) { out.add(name, 0, shape, std::string(std::size_t{64} * 64 * 4, '\0')); };
  };
  CHECK(error(nothing) == "no error");
  for (const char* name : {"blk.0.ffn_gate_inp.weight", "output_norm.bias", "position_embd.weight"})
    CHECK(error(add(name, {64})) == "m.gguf: tensor '" + std::string(name) +
                                        "': is no part of a Llama, Mistral, Qwen2 or Qwen3" + kWayOut);
  CHECK(error(add("blk.0.attn_rot_embd.weight", {64})) == "no error");
  CHECK(error(nothing, "model.layers.1.mlp.up_proj.weight") ==
        "m.gguf: tensor 'blk.1.ffn_up.weight': is missing");
  CHECK(error(add("blk.1.ffn_up.weight", {64, 64}), "model.layers.1.mlp.up_proj.weight") ==
        "m.gguf: tensor 'blk.1.ffn_up.weight': shape [64, 64], expected [96, 64]");
  CHECK(error(add("blk.2.ffn_up.weight", {64, 64})) ==
        "m.gguf: tensor 'blk.2.ffn_up.weight': is no part of a model of 2 layers of this architecture" +
            kWayOut);
}
