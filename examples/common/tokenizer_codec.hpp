// What a tokenizer does, whichever file it was read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <specula/rows.hpp>

namespace specula_examples {

class TokenizerCodec {
 public:
  virtual ~TokenizerCodec() = default;
  virtual std::int32_t vocab_size() const = 0;
  virtual specula::Token begin() const = 0;                                     // <s>
  virtual specula::Token end() const = 0;                                       // </s>
  virtual std::vector<specula::Token> encode(std::string_view text) const = 0;  // without <s>
  virtual std::string bytes(specula::Token token) const = 0;                    // 0 <= token < vocab_size()
};

/// Throws std::runtime_error naming the file if it is no SentencePiece model, or has no <s> or </s>.
std::unique_ptr<TokenizerCodec> read_sentencepiece(const std::filesystem::path& file);

/// Hugging Face's tokenizer.json where it holds byte-pair encoding as Llama 1 and 2 have it: spaces written
/// as U+2581, no other splitting. The same tokens as the `tokenizers` library gives, but control tokens in a
/// text are spelled like any text. <s> and </s> are those that tokenizer_config.json or
/// special_tokens_map.json beside it name. Throws std::runtime_error naming the file and what it holds
/// that is not read, say a pre_tokenizer ByteLevel.
std::unique_ptr<TokenizerCodec> read_tokenizer_json(const std::filesystem::path& file);

/// `piece` with U+2581 as spaces.
std::string with_spaces(std::string_view piece);
/// The byte that a piece like <0x0A> stands for, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace specula_examples
