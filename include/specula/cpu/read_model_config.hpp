// SPDX-License-Identifier: MIT
// The config of a model, whatever its files: a Hugging Face folder, or GGUF.
#pragma once

#include <filesystem>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/gguf_config.hpp"
#include "specula/cpu/read_decoder_config.hpp"
#include "specula/files/gguf_files.hpp"
#include "specula/files/json.hpp"

namespace specula::cpu {

/// Which file has it: `model` itself if it is a file (GGUF), else its config.json.
inline std::filesystem::path config_path(const std::filesystem::path& model) {
  return files::is_gguf(model) ? model : model / "config.json";
}

/// The config of a Hugging Face folder, or of a GGUF file (of several parts the first). Throws
/// std::runtime_error naming the file and the key that is missing, malformed or not supported.
inline DecoderConfig read_model_config(const std::filesystem::path& model) {
  const auto file = config_path(model);
  return read_decoder_config(
      files::is_gguf(model) ? gguf_config(files::GgufFiles(file)) : files::read_json_file(file),
      file.string());
}

}  // namespace specula::cpu
