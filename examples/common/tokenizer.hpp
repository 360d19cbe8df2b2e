// Text to tokens and back.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <specula/rows.hpp>

#include "tokenizer_codec.hpp"

namespace specula_examples {

class Tokenizer {
 public:
  /// From tokenizer.model (SentencePiece) of a model's folder, or where there is none its tokenizer.json; or
  /// from such a file. Throws std::runtime_error naming the file if there is none or it cannot be read.
  explicit Tokenizer(const std::filesystem::path& folder_or_file);

  std::int32_t vocab_size() const { return codec_->vocab_size(); }
  specula::Token begin() const { return codec_->begin(); }  // begins a text: <s>
  specula::Token end() const { return codec_->end(); }      // ends a text: </s>

  /// <s> and the tokens of `text`.
  std::vector<specula::Token> encode(std::string_view text) const;

  /// The bytes that a token adds to a text that goes on: U+2581 as a space, <0x0A> as that byte, control
  /// tokens as nothing. They need not be whole characters; see TextStream.
  std::string bytes(specula::Token token) const;

  /// A whole continuation at once.
  std::string decode(specula::Tokens tokens) const;

 private:
  std::unique_ptr<TokenizerCodec> codec_;
};

}  // namespace specula_examples
