// SPDX-License-Identifier: MIT
// SentencePiece: training a small vocabulary; and encoding a corpus, with that or with any other tokenizer
// that the example programs read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "corpus.hpp"
#include "tokenizer.hpp"
#include "tokens.hpp"

namespace specula_train {

struct TokenizerOptions {
  int vocab_size = 2048;
  std::string model_type = "bpe";  // or "unigram"
};

/// Trains a tokenizer that keeps every byte of the text: newlines and indentation included.
/// Styles weigh equally, whatever their sizes.
void train_tokenizer(const std::vector<Style>& styles, const TokenizerOptions& options,
                     const std::filesystem::path& model_file);

using specula_tools::Tokenizer;

/// Whether decoding the tokens of a text gives the text, except for a space in front, which some tokenizers
/// add.
bool reproduces(const Tokenizer& tokenizer, const std::string& text);

/// A corpus of this vocabulary, without styles.
TokenizedCorpus no_documents(const Tokenizer& tokenizer);

/// Every document of the corpus, between <s> and </s>.
TokenizedCorpus encode_corpus(const std::vector<Style>& styles, const Tokenizer& tokenizer);

}  // namespace specula_train
