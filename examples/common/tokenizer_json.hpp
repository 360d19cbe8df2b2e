// A tokenizer from the contents of a tokenizer.json.
#pragma once

#include <filesystem>
#include <string>

#include <specula/cpu/json.hpp>

#include "token_files.hpp"
#include "tokenizer.hpp"

namespace specula_examples {

/// Which of two pairs merges first: the one earlier in the list of merges (`tokenizers`), or the one whose
/// result's first pair is (SentencePiece, which goes by the scores of results).
enum class PairRanks { of_pairs, of_results };

/// Byte-pair encoding: on bytes, as GPT-2, Llama 3, Qwen and SmolLM have it, or on characters with spaces
/// written as U+2581, as Llama 1 and 2. The same tokens as Hugging Face's `tokenizers` gives. `source` names
/// the file in messages, `files` what lies beside it. Throws std::runtime_error naming the file and what it
/// holds that is not read, say a model Unigram.
Tokenizer make_json_tokenizer(const specula::cpu::Json& json, const std::string& source,
                              const TokenFiles& files, PairRanks ranks = PairRanks::of_pairs);

/// The same of a file.
Tokenizer read_tokenizer_json(const std::filesystem::path& file);

}  // namespace specula_examples
