// SPDX-License-Identifier: MIT
// The config of a model by its path: of a folder or of a GGUF file.
#include <specula/cpu/read_model_config.hpp>

#include "specula/cpu/read_model_config.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "gguf_model.hpp"

using namespace specula::cpu;
using namespace specula_test;

TEST_CASE("a folder and the file made of it have the same config") {
  const TemporaryDirectory folder("model_config");
  const auto file = folder.path / "model.gguf", json = folder.path / "config.json";
  write_file(file, tiny_gguf(TinyModel()).bytes());
  write_file(json, kTinyConfig);
  CHECK(config_path(folder.path) == json);
  CHECK(config_path(file) == file);
  const DecoderConfig one = read_model_config(folder.path), other = read_model_config(file);
  CHECK(one.vocab_size == other.vocab_size);
  CHECK(one.hidden_size == other.hidden_size);
  CHECK(one.intermediate_size == other.intermediate_size);
  CHECK(one.layers == other.layers);
  CHECK(one.heads == other.heads);
  CHECK(one.kv_heads == other.kv_heads);
  CHECK(one.head_dim == other.head_dim);
  CHECK(one.rope_theta == other.rope_theta);
  CHECK(one.rms_norm_eps == other.rms_norm_eps);
  CHECK(one.max_position == other.max_position);
  CHECK(one.tied_head == other.tied_head);
}

TEST_CASE("errors name the file") {
  const TemporaryDirectory folder("model_config");
  CHECK_THROWS_WITH_AS(read_model_config(folder.path),
                       ((folder.path / "config.json").string() + ": cannot be opened").c_str(),
                       std::runtime_error);
  const auto file = folder.path / "model.gguf";
  write_file(file, "text");
  CHECK_THROWS_WITH_AS(read_model_config(file), doctest::Contains("model.gguf: offset 0: is no GGUF file"),
                       std::runtime_error);
}
