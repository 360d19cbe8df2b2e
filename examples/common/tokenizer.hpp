// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_examples {

/// Of the programs and the trainer. Reads tokenizer.model (SentencePiece) and tokenizer.json, and the files
/// beside them; docs/measuring.md has the table of their keys.
class Tokenizer {
 public:
  /// The tokens of a text, without the one that begins it.
  using Encode = std::function<std::vector<specula::Token>(std::string_view text)>;

  struct Parts {
    std::vector<std::string> pieces;  // (vocab_size): each token as its file spells it
    std::vector<std::string> bytes;   // (vocab_size): what each adds to a text
    specula::Token begin = specula::kNoToken, end = specula::kNoToken;
    bool adds_begin = true;            // in front of every text
    std::vector<specula::Token> ends;  // each ends a text; `end` among them
    Encode encode;
  };

  /// From tokenizer.model of a model's folder, or where there is none its tokenizer.json; or from such a
  /// file. Throws std::runtime_error naming the file if there is none or it cannot be read.
  explicit Tokenizer(const std::filesystem::path& folder_or_file);
  explicit Tokenizer(Parts parts);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(parts_.bytes.size()); }
  /// Begins a text, <s>; kNoToken: nothing does.
  specula::Token begin() const { return parts_.begin; }
  specula::Token end() const { return parts_.end; }  // ends a document: </s>
  /// Every token that ends a text, ascending: `end`, and those that the files beside the tokenizer name.
  const std::vector<specula::Token>& ends() const { return parts_.ends; }
  /// Whether encode() begins with begin().
  bool adds_begin() const { return parts_.adds_begin; }

  /// <s>, unless the model's texts begin without, and the tokens of `text`.
  std::vector<specula::Token> encode(std::string_view text) const;

  /// The bytes that a token adds to a text that goes on: U+2581 as a space, <0x0A> as that byte, control
  /// tokens and tokens outside the vocabulary as nothing. They need not be whole characters; see TextStream.
  std::string bytes(specula::Token token) const;

  /// A whole continuation at once.
  std::string decode(specula::Tokens tokens) const;

  /// The tokens as the file spells them; empty: there is none of that number.
  const std::vector<std::string>& pieces() const { return parts_.pieces; }

 private:
  Parts parts_;
};

/// Hugging Face's tokenizer.json where it holds byte-pair encoding as Llama 1 and 2 have it: spaces written
/// as U+2581, no other splitting. The same tokens as the `tokenizers` library gives, but control tokens in a
/// text are spelled like any text. Throws std::runtime_error naming the file and what it holds that is not
/// read, say a pre_tokenizer ByteLevel.
Tokenizer read_tokenizer_json(const std::filesystem::path& file);

/// What a piece adds to a text: U+2581 as spaces; <0x0A> as that byte if `spells_bytes`.
std::string bytes_of_piece(std::string_view piece, bool spells_bytes);

/// Whether there is a tokenizer in the folder.
bool has_tokenizer(const std::filesystem::path& folder);

}  // namespace specula_examples
