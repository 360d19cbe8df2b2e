// SPDX-License-Identifier: MIT
// Byte-pair encoding of words. The rules are those of Hugging Face's `tokenizers` (models/bpe: merge_word,
// Word::merge_all), where pairs merge by the rank of the pair.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_tools {

class PairEncoding {
 public:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Vocabulary = std::unordered_map<std::string, specula::Token, TextHash, std::equal_to<>>;

  struct Options {
    bool bytes = false;          // words begin as their bytes, not as their characters
    bool whole_words = false;    // a word of the vocabulary is that token, whatever merges: `ignore_merges`
    bool byte_fallback = false;  // unknown characters are spelled <0xE6> <0x97> <0xA5>
    bool fuses_unknown = false;  // unknown characters next to each other are one unknown token
    specula::Token unknown = specula::kNoToken;  // kNoToken: what is unknown adds nothing
  };

  PairEncoding() = default;
  /// `vocabulary` by what the tokens spell in words: bytes or characters.
  PairEncoding(Vocabulary vocabulary, const Options& options);

  /// The token that spells this; kNoToken: none.
  specula::Token find(std::string_view text) const;

  /// For so many merges.
  void reserve(std::size_t merges) { merges_.reserve(merges); }
  /// The pair merges into `result`. The lower its rank, the earlier; the last call for a pair counts.
  void merge(specula::Token left, specula::Token right, specula::Token result, std::uint32_t rank);

  /// Whether all bytes are tokens.
  bool knows_all_bytes() const;

  /// Appends the tokens of a word. O(n log n).
  void encode(std::string_view word, std::vector<specula::Token>& out) const;

 private:
  struct Merge {
    std::uint32_t rank;
    specula::Token result;
  };
  struct Symbol {
    specula::Token token;          // kNoToken: merged into the one before
    std::ptrdiff_t before, after;  // -1: none
  };
  static std::uint64_t pair(specula::Token left, specula::Token right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  struct PairHash {  // std::hash is the identity, whose buckets would depend on the right token only
    std::size_t operator()(std::uint64_t key) const { return (key ^ key >> 29) * 0x9E3779B97F4A7C15u >> 7; }
  };

  void append_character(std::string_view character, std::vector<Symbol>& out, bool& after_unknown) const;
  std::vector<Symbol> symbols_of(std::string_view word) const;

  Options options_;
  Vocabulary vocabulary_;
  std::array<specula::Token, 256> byte_tokens_{};  // if `bytes`, of the bytes; else of <0x00> to <0xFF>
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
};

}  // namespace specula_tools
