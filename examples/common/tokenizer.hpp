// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/rows.hpp>

namespace specula_examples {

/// Of the programs and the trainer. Reads tokenizer.model (SentencePiece) and tokenizer.json.
class Tokenizer {
 public:
  /// The tokens of a text, without the one that begins it.
  using Encode = std::function<std::vector<specula::Token>(std::string_view text)>;

  /// From tokenizer.model of a model's folder, or where there is none its tokenizer.json; or from such a
  /// file. Throws std::runtime_error naming the file if there is none or it cannot be read.
  explicit Tokenizer(const std::filesystem::path& folder_or_file);
  /// Of given parts: per token its bytes, and the tokens that begin and end a text.
  Tokenizer(std::vector<std::string> bytes, specula::Token begin, specula::Token end, Encode encode);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(bytes_.size()); }
  specula::Token begin() const { return begin_; }  // begins a text: <s>
  specula::Token end() const { return end_; }      // ends a text: </s>

  /// <s> and the tokens of `text`.
  std::vector<specula::Token> encode(std::string_view text) const;

  /// The bytes that a token adds to a text that goes on: U+2581 as a space, <0x0A> as that byte, control
  /// tokens and tokens outside the vocabulary as nothing. They need not be whole characters; see TextStream.
  std::string bytes(specula::Token token) const;

  /// A whole continuation at once.
  std::string decode(specula::Tokens tokens) const;

 private:
  std::vector<std::string> bytes_;  // (vocab_size)
  specula::Token begin_, end_;
  Encode encode_;
};

/// Hugging Face's tokenizer.json where it holds byte-pair encoding as Llama 1 and 2 have it: spaces written
/// as U+2581, no other splitting. The same tokens as the `tokenizers` library gives, but control tokens in a
/// text are spelled like any text. <s> and </s> are those that tokenizer_config.json or
/// special_tokens_map.json beside it name. Throws std::runtime_error naming the file and what it holds
/// that is not read, say a pre_tokenizer ByteLevel.
Tokenizer read_tokenizer_json(const std::filesystem::path& file);

/// What a piece adds to a text: U+2581 as spaces; <0x0A> as that byte if `spells_bytes`.
std::string bytes_of_piece(std::string_view piece, bool spells_bytes);

}  // namespace specula_examples
