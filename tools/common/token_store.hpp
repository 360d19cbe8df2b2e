// SPDX-License-Identifier: MIT
// Encoded documents on disk: what lies between the program that knows text and the one that knows models.
//
// DIR/tokens.json         {"vocab_size": 2048, "begin": 1, "end": 2, "styles": ["gsm8k", "python"]};
//                         begin and end are the ids of <s> and </s>, by default 1 and 2; "vocabulary", the
//                         fingerprint() of the tokens, may be missing
// DIR/NAME.train.tokens   int32, little endian: <s> document </s> <s> document </s> ...
// DIR/NAME.heldout.tokens the same
// DIR/NAME.train.documents, DIR/NAME.heldout.documents
//                         int32, one a document: its tokens; where one is missing, documents end with `end`,
//                         which a chat's documents also hold within
// DIR/NAME.train.given    int32, one a document; may be missing: how many tokens at its beginning are a
//                         prompt
// DIR/styles.json         may be missing; see style_info.hpp
// DIR/tokenizer.model     or tokenizer.json: copied into the directories of trained models
//
// So a model whose tokenizer specula-train-text does not read is trained on tokens that another program
// wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <specula/base/rows.hpp>

#include "style_info.hpp"

namespace specula_tools {

using specula::Token;
using Document = std::vector<Token>;  // <s> ... </s>, or what a model wrote

constexpr Token kBegin = 1, kEnd = 2;  // unless tokens.json says otherwise

/// The documents of one style of text (say, `gsm8k`).
struct TokenizedStyle {
  std::string name;
  std::vector<Document> train;
  std::vector<Document> heldout;
  /// Of each document to train on, how many tokens at its beginning are given, not to be learned; empty:
  /// none.
  std::vector<std::int32_t> given = {};
  StyleInfo info = {};
};

struct TokenizedCorpus {
  std::int32_t vocab_size = 0;
  std::string vocabulary = {};  // fingerprint(); empty: unknown
  Token begin = kBegin, end = kEnd;
  std::vector<TokenizedStyle> styles;
};

std::size_t count_tokens(const std::vector<Document>& documents);

/// What marks a token as given; its own inverse. Marked tokens are negative.
constexpr Token mark_given(Token token) { return ~token; }

/// The style's documents to train on, their given tokens marked.
void mark_given(TokenizedStyle& style);

void write_tokens(const TokenizedCorpus& corpus, const std::filesystem::path& directory);

/// Copies a tokenizer: a file, or of a folder tokenizer.model or else tokenizer.json. It takes
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json along, which name its <s> and </s>
/// and its added tokens. Any other file than a tokenizer.json becomes tokenizer.model. Throws
/// std::runtime_error if there is none.
void copy_tokenizer(const std::filesystem::path& folder_or_file, const std::filesystem::path& directory);

/// Throws std::runtime_error naming the file that is missing, cut short, or holds an id outside the
/// vocabulary.
TokenizedCorpus read_tokens(const std::filesystem::path& directory);

}  // namespace specula_tools
