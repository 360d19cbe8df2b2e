// SentencePiece: training a small vocabulary, and encoding with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "corpus.hpp"
#include "token_store.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace specula_train {

struct TokenizerOptions {
  int vocab_size = 2048;
  std::string model_type = "bpe";  // or "unigram"
};

/// Trains a tokenizer that keeps every byte of the text: newlines and indentation included.
/// Styles weigh equally, whatever their sizes.
void train_tokenizer(const std::vector<Style>& styles, const TokenizerOptions& options,
                     const std::filesystem::path& model_file);

class Tokenizer {
 public:
  /// Throws std::runtime_error if the file is no SentencePiece model with the three ids above.
  explicit Tokenizer(const std::filesystem::path& model_file);
  ~Tokenizer();

  std::int32_t vocab_size() const;
  std::vector<Token> encode(std::string_view text) const;
  std::string decode(const std::vector<Token>& tokens) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

/// Every document of the corpus, between <s> and </s>.
TokenizedCorpus encode_corpus(const std::vector<Style>& styles, const Tokenizer& tokenizer);

}  // namespace specula_train
