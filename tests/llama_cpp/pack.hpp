// SPDX-License-Identifier: MIT
// The pack's models as GGUF files, for tests on a real trained pair.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <specula/llama_cpp/model.hpp>

#include "../files/safetensors_writer.hpp"
#include "gguf_writer.hpp"
#include "tiny_gguf.hpp"

namespace specula_test {

/// The largest difference of two rows. All numbers must be finite.
inline double difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  bool finite = true;
  for (std::size_t i = 0; i < a.size(); ++i) {
    finite = finite && std::isfinite(a[i]);
    most = std::max(most, static_cast<double>(std::abs(a[i] - b[i])));
  }
  REQUIRE(finite);
  return most;
}

/// A file written in floats when a test program first requests it; removed at its end.
inline std::filesystem::path pack_file(const std::string& name) {
  static const TemporaryDirectory folder("gguf");
  quiet();
  const auto file = folder.path / (name + ".gguf");
  if (!std::filesystem::exists(file))
    specula_tools::write_gguf(std::filesystem::path(SPECULA_MODELS_DIR) / name, file,
                              specula_tools::GgufType::f32);
  return file;
}
inline std::shared_ptr<llama_model> pack_model(const std::string& name,
                                               llama_model_params params = llama_model_default_params()) {
  return specula::llama_cpp::load(pack_file(name), params);
}

/// One thread, and keys and values in floats: as exact as libllama gets.
inline specula::llama_cpp::Options exact_options(std::int32_t capacity, std::int32_t max_nodes = 64) {
  return {
      .capacity = capacity, .max_nodes = max_nodes, .threads = 1, .adjust = [](llama_context_params& params) {
        params.type_k = params.type_v = GGML_TYPE_F32;
      }};
}

}  // namespace specula_test
