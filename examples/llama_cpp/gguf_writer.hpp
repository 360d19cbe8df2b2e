// Writes a Hugging Face directory as a GGUF file, the format of llama.cpp.
#pragma once

#include <filesystem>
#include <string_view>

namespace specula_examples {

/// How matrices are stored; norms always are float. `automatic`: as Q8_0 where that is exact, as it is for
/// weights at 8 bits (specula/eigen/int8_groups.hpp) whose rows are whole blocks of 32, else as bfloat16.
/// `q8_0` and `q4_0`: in these blocks wherever rows are whole ones, rounded by ggml's own quantiser; the rest
/// as bfloat16. The embedding and the LM head are no exception, as they are for llama-quantize.
enum class GgufType { f32, f16, bf16, q8_0, q4_0, automatic };

/// Throws UsageError unless `name` is f32, f16, bf16, q8_0, q4_0 or auto.
GgufType parse_gguf_type(std::string_view name);

/// Writes the Llama model in `directory` (config.json, model.safetensors or shards, and tokenizer.model) to
/// `file`, through libllama's own GGUF functions. Rows of queries and keys are put into llama.cpp's order,
/// where the two numbers that a rotary angle turns stand side by side. Throws std::runtime_error naming the
/// file that cannot be read or written, what of the model a GGUF file of a Llama has no place for, or a
/// vocabulary that does not merge pieces by rank (SentencePiece's unigram ones, which llama.cpp would split
/// otherwise). Needs the weights in memory once.
void write_gguf(const std::filesystem::path& directory, const std::filesystem::path& file, GgufType type);

}  // namespace specula_examples
