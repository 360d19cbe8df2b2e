// Text to tokens and back, by SentencePiece.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <specula/rows.hpp>

#include "utf8_gate.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace specula_examples {

class Tokenizer {
 public:
  /// Throws std::runtime_error naming the file if it is missing or no SentencePiece model.
  explicit Tokenizer(const std::filesystem::path& model_file);
  ~Tokenizer();

  std::int32_t vocab_size() const;
  specula::Token end() const;  // ends a text: </s>

  /// <s> and the tokens of `text`.
  std::vector<specula::Token> encode(std::string_view text) const;

  /// The bytes that a token adds to a text that goes on: U+2581 as a space, <0x0A> as that byte, control
  /// tokens as nothing. They need not be whole characters; see TextStream.
  std::string bytes(specula::Token token) const;

  /// A whole continuation at once.
  std::string decode(specula::Tokens tokens) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

/// Prints tokens as they come: whole characters only.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string put(specula::Token token) { return gate_.push(tokenizer_->bytes(token)); }
  std::string flush() { return gate_.flush(); }

 private:
  const Tokenizer* tokenizer_;
  Utf8Gate gate_;
};

}  // namespace specula_examples
