// SPDX-License-Identifier: MIT
// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_tools {

/// Of the programs and the trainer. Reads tokenizer.model (SentencePiece) and tokenizer.json, and the files
/// beside them; docs/measuring.md has the table of their keys.
class Tokenizer {
 public:
  /// The tokens of a text in UTF-8, without the one that begins it. `controls`: control tokens that the text
  /// spells are those tokens, else text.
  using Encode = std::function<std::vector<specula::Token>(std::string_view text, bool controls)>;

  struct Parts {
    std::vector<std::string> pieces;  // (vocab_size): each token as its file spells it
    std::vector<std::string> bytes;   // (vocab_size): what each adds to a text
    specula::Token begin = specula::kNoToken, end = specula::kNoToken;
    bool adds_begin = true;            // in front of every text
    std::vector<specula::Token> ends;  // each ends a text; `end` among them
    std::vector<std::string> notes;    // for a user, of what was read otherwise than the file says
    Encode encode;
  };

  /// From tokenizer.model of a model's folder, or where there is none its tokenizer.json; or from such a
  /// file, or a GGUF file. Throws std::runtime_error naming the file if there is none or it cannot be read.
  explicit Tokenizer(const std::filesystem::path& folder_or_file);
  explicit Tokenizer(Parts parts);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(parts_.bytes.size()); }
  /// Begins a text, <s>; kNoToken: nothing does.
  specula::Token begin() const { return parts_.begin; }
  specula::Token end() const { return parts_.end; }  // ends a document: </s>
  /// Every token that ends a text, ascending: `end`, and those that the files beside the tokenizer name.
  const std::vector<specula::Token>& ends() const { return parts_.ends; }
  /// What a user should know of the file: what was read otherwise than it says. Empty where all is well.
  const std::vector<std::string>& notes() const { return parts_.notes; }
  /// Whether encode() begins with begin().
  bool adds_begin() const { return parts_.adds_begin; }

  /// <s>, unless the model's texts begin without, and the tokens of `text`. Control tokens that it spells are
  /// text. Where it is no UTF-8 it is read as U+FFFD, as Python decodes bytes with errors="replace": one for
  /// each longest beginning of a character, and one for each byte that begins none.
  std::vector<specula::Token> encode(std::string_view text) const;

  /// The tokens of what a chat template rendered: control tokens that the text spells are those tokens, and
  /// none is put in front, since templates do that. Otherwise as encode().
  std::vector<specula::Token> encode_chat(std::string_view rendered) const;

  /// The bytes that a token adds to a text that goes on: those that a byte-level vocabulary spells, U+2581 as
  /// a space, <0x0A> as that byte, control tokens and tokens outside the vocabulary as nothing. They need not
  /// be whole characters; see TextStream.
  std::string bytes(specula::Token token) const;

  /// A whole continuation at once.
  std::string decode(specula::Tokens tokens) const;

  /// The tokens as the file spells them; empty: there is none of that number.
  const std::vector<std::string>& pieces() const { return parts_.pieces; }

 private:
  Parts parts_;
};

/// What a piece adds to a text: U+2581 as spaces; <0x0A> as that byte if `spells_bytes`.
std::string bytes_of_piece(std::string_view piece, bool spells_bytes);

/// Whether there is a tokenizer in the folder, or the path is a GGUF file.
bool has_tokenizer(const std::filesystem::path& folder);

}  // namespace specula_tools
