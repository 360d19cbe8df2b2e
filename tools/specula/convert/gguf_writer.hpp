// SPDX-License-Identifier: MIT
// Writes a model as a GGUF file, the format of llama.cpp.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_tools {

/// How matrices are stored; norms and biases always are float. `automatic`: as Q8_0 where that is exact, as
/// it is for weights at 8 bits (specula/cpu/int8_groups.hpp) whose rows are whole blocks of 32, else as
/// bfloat16. `q8_0` and others in blocks: rounded as ggml's quantize_row_*_ref does if rows are whole blocks;
/// the rest as bfloat16. Unlike with llama-quantize this includes the embedding and the LM head.
enum class GgufType { f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, automatic };

/// Throws UsageError unless `name` is one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 and auto.
GgufType parse_gguf_type(std::string_view name);

/// Writes a Llama, Mistral, Qwen2 or Qwen3 to `file`: the one in a Hugging Face folder (config.json,
/// model.safetensors or shards, the tokenizer and the files beside it), or in a GGUF file. Returns the
/// tokens that end a text but for which the file has no place: it has one for the end of documents and for
/// two others that libllama does not know by their texts. Rows of queries and keys are reordered for
/// llama.cpp's "llama", which rotates adjacent elements. Throws std::runtime_error naming the file that
/// cannot be read or written, the feature that such a model in GGUF cannot have, or a vocabulary that does
/// not merge pieces by rank (SentencePiece's unigram models, which llama.cpp would tokenize differently).
/// Memory: the weights once, and the largest matrix in floats.
std::vector<specula::Token> write_gguf(const std::filesystem::path& model, const std::filesystem::path& file,
                                       GgufType type);

}  // namespace specula_tools
