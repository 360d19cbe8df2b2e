// SPDX-License-Identifier: MIT
// The files of a checkpoint: errors name what is missing. Shards and their index are tested in
// llama_weights.cpp.
#include <specula/cpu/tensor_files.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../files/safetensors_writer.hpp"

TEST_CASE("an error names a folder without tensors") {
  const auto folder = std::filesystem::temp_directory_path() / "specula_no_tensors";
  std::filesystem::create_directories(folder);
  CHECK_THROWS_WITH_AS(specula::cpu::TensorFiles{folder}, doctest::Contains("specula_no_tensors"),
                       std::runtime_error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what would change the model, or stands for it, is refused by name") {
  const specula_test::TemporaryDirectory folder("other_weights");
  const auto error = [&] {
    try {
      const specula::cpu::TensorFiles files(folder.path);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what()).substr(folder.path.string().size());
    }
    return std::string("no error");
  };
  CHECK(error() ==
        ": has neither model.safetensors nor model.safetensors.index.json; download the weights into it");
  specula_test::write_file(folder.path / "pytorch_model.bin", "x");
  CHECK(error() ==
        ": has neither model.safetensors nor model.safetensors.index.json, and pytorch_model.bin is not "
        "read: save the model as safetensors");
  specula_test::write_file(folder.path / "model.safetensors", specula_test::safetensors_bytes("{}", ""));
  CHECK(error() == "no error");
  specula_test::write_file(folder.path / "adapter_config.json", "{}");
  CHECK(error() ==
        "/adapter_config.json: adapters are not read: merge it into the weights, or move it elsewhere");
  std::filesystem::remove(folder.path / "adapter_config.json");
  specula_test::write_file(folder.path / "model.safetensors",
                           "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  CHECK(error().starts_with("/model.safetensors: is a Git LFS pointer, not the file"));
  specula_test::write_file(folder.path / "model.safetensors", "v");  // begins like one
  CHECK(error() == "/model.safetensors: 1 bytes, expected 8 bytes of header length");
}

TEST_CASE("integers: token ids, which are no weights") {
  const specula_test::TemporaryDirectory folder("integers");
  specula_test::write_file(folder.path / "model.safetensors",
                           specula_test::safetensors_bytes(std::vector<specula_test::Tensor>{
                               {"ids", "I32", {3}, {-2, 7, 131072}}, {"none", "I32", {0}, {}}}));
  specula::cpu::TensorFiles files(folder.path);
  CHECK(files.integers("ids", 3) == std::vector<std::int32_t>{-2, 7, 131072});
  CHECK(files.integers("none", 0).empty());
  CHECK_THROWS_WITH_AS(files.integers("ids", 4),
                       doctest::Contains("tensor 'ids': I32 of shape [3], expected I32 of [4]"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(files.integers("id", 3), doctest::Contains("tensor 'id' is missing"),
                       std::runtime_error);
  const std::int64_t shape[] = {3};
  CHECK_THROWS_WITH_AS(files.weight("ids", shape), doctest::Contains("dtype I32 is not supported"),
                       std::runtime_error);
}

TEST_CASE("matrices of 8 bits as blocks of Q8_0, the last group filled with zeros") {
  using specula::files::GgufId;
  const specula_test::TemporaryDirectory folder("blocks");
  const std::int64_t shape[] = {3, 70};
  specula_test::Tensor matrix{"m", "I8", {3, 70}, {}}, exponents{"m.exponents", "I8", {3, 3}, {}};
  for (int i = 0; i < 210; ++i) matrix.values.push_back(static_cast<float>(i * 37 % 255 - 127));
  exponents.values = {-24, 15, 0, -14, -15, 3, -6, -5, 1};
  const auto write = [&] {
    specula_test::write_file(
        folder.path / "model.safetensors",
        specula_test::safetensors_bytes(std::vector<specula_test::Tensor>{matrix, exponents}));
  };
  write();
  specula::cpu::TensorFiles files(folder.path);
  const auto& tensor = files.weight("m", shape);
  CHECK(files.gguf_type(tensor) == ~std::uint32_t{0});
  std::vector<std::vector<float>> want, got;
  files.rows(tensor, [&](std::int64_t, std::span<const float> row) {
    want.emplace_back(row.begin(), row.end()).resize(96);
  });
  files.blocks(tensor, [&](std::int64_t r, const std::byte* row) {
    CHECK(r == static_cast<std::int64_t>(got.size()));
    specula::files::expand(GgufId::q8_0, row, got.emplace_back(96));
  });
  CHECK(got == want);
  CHECK(got[0][69] == matrix.values[69]);

  const auto error = [&] {
    write();
    specula::cpu::TensorFiles broken(folder.path);
    std::string texts[2];
    for (const bool blocks : {false, true}) {
      try {
        const auto take = [](std::int64_t, const auto&) {};
        const auto& weight = broken.weight("m", shape);
        if (blocks)
          broken.blocks(weight, take);
        else
          broken.rows(weight, take);
      } catch (const std::runtime_error& thrown) {
        texts[blocks] =
            std::string(thrown.what()).substr((folder.path / "model.safetensors").string().size());
      }
    }
    CHECK(texts[0] == texts[1]);
    return texts[1];
  };
  CHECK(error().empty());
  for (const float bad : {-25.0f, 16.0f}) {
    exponents.values[7] = bad;
    CHECK(error() == ": tensor 'm': row 2, group 1: exponent " + std::to_string(static_cast<int>(bad)) +
                         ", must be in [-24, 15]");
  }
  exponents.values[7] = 0;
  matrix.values[139] = -128;
  CHECK(error() == ": tensor 'm': row 1, column 69: -128, must be in [-127, 127]");
}

TEST_CASE("errors name the fault of an index") {
  const specula_test::TemporaryDirectory folder("index");
  const auto error_of = [&](const char* index) {
    specula_test::write_file(folder.path / "model.safetensors.index.json", index);
    try {
      const specula::cpu::TensorFiles files(folder.path);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).substr(folder.path.string().size() + 1);
    }
    return std::string("no error");
  };
  const std::string index = "model.safetensors.index.json: ";
  CHECK(error_of("{}") == index + "key 'weight_map': missing, expected an object");
  CHECK(error_of(R"({"weight_map":[]})") ==
        index + "key 'weight_map': expected an object, found an array of 0");
  for (const char* name : {"3", "\"\"", "\"../x\""})
    CHECK(error_of(("{\"weight_map\":{\"a\":" + std::string(name) + "}}").c_str()) ==
          index + "tensor 'a': expected the name of a file in the same directory");
  specula_test::write_file(folder.path / "x", specula_test::safetensors_bytes("{}", ""));
  CHECK(error_of(R"({"weight_map":{"a":"x"}})") ==
        "x: tensor 'a': missing, though model.safetensors.index.json places it here");
  CHECK(error_of(R"({"weight_map":{"a":"y"}})") == "y: cannot be opened");
}
