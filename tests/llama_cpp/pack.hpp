// The pack's models as GGUF files, for tests on a real trained pair.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <specula/llama_cpp/model.hpp>

#include "../eigen/safetensors_writer.hpp"
#include "gguf_writer.hpp"

namespace specula_test {

inline void only_errors(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

/// Written when a test program first asks for one, in floats; removed at its end.
inline std::shared_ptr<llama_model> pack_model(const std::string& name) {
  static const TemporaryDirectory folder("gguf");
  static const bool once = (llama_log_set(only_errors, nullptr), true);
  static_cast<void>(once);
  const auto file = folder.path / (name + ".gguf");
  if (!std::filesystem::exists(file))
    specula_examples::write_gguf(std::filesystem::path(SPECULA_MODELS_DIR) / name, file,
                                 specula_examples::GgufType::f32);
  return specula::llama_cpp::load(file);
}

/// One thread, and keys and values in floats: as exact as libllama gets.
inline specula::llama_cpp::Options exact_options(std::int32_t capacity, std::int32_t max_nodes = 64) {
  return {
      .capacity = capacity, .max_nodes = max_nodes, .threads = 1, .adjust = [](llama_context_params& params) {
        params.type_k = params.type_v = GGML_TYPE_F32;
      }};
}

}  // namespace specula_test
