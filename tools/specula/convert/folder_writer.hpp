// SPDX-License-Identifier: MIT
// Writes a model in GGUF as a Hugging Face folder.
#pragma once

#include <filesystem>

namespace specula_tools {

/// Writes config.json, model.safetensors, the tokenizer (tokenizer.model of a vocabulary with scores,
/// tokenizer.json of one with merges), tokenizer_config.json with the chat template, and
/// generation_config.json with all tokens that end a text. Tensors keep their type, those in blocks become
/// bfloat16, rounded. Throws std::runtime_error naming the file, and the key or tensor, that cannot be read
/// or written. Memory: the weights twice.
void write_folder(const std::filesystem::path& gguf, const std::filesystem::path& folder);

}  // namespace specula_tools
