// Writes a Hugging Face directory as a GGUF file, the format of llama.cpp.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_examples {

/// How matrices are stored; norms always are float. `automatic`: as Q8_0 where that is exact, as it is for
/// weights at 8 bits (specula/cpu/int8_groups.hpp) whose rows are whole blocks of 32, else as bfloat16.
/// `q8_0` and `q4_0`: in these blocks if rows are whole blocks, rounded by ggml's quantiser; the rest as
/// bfloat16. Unlike with llama-quantize this includes the embedding and the LM head.
enum class GgufType { f32, f16, bf16, q8_0, q4_0, automatic };

/// Throws UsageError unless `name` is f32, f16, bf16, q8_0, q4_0 or auto.
GgufType parse_gguf_type(std::string_view name);

/// Writes the Llama, Mistral, Qwen2 or Qwen3 model in `directory` (config.json, model.safetensors or shards,
/// tokenizer.model and the files beside it) to `file`, through libllama's own GGUF functions. Returns the
/// tokens that end a text but for which the file has no place: it has one for the end of documents and for
/// two others that libllama does not know by their texts. Rows of queries and keys are reordered for
/// llama.cpp's "llama", which rotates adjacent elements. Throws std::runtime_error naming the file that
/// cannot be read or written, the feature that such a model in GGUF cannot have, or a vocabulary that does
/// not merge pieces by rank (SentencePiece's unigram models, which llama.cpp would tokenize differently).
/// Memory: the weights once.
std::vector<specula::Token> write_gguf(const std::filesystem::path& directory,
                                       const std::filesystem::path& file, GgufType type);

}  // namespace specula_examples
