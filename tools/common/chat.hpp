// SPDX-License-Identifier: MIT
// A chat as tokens: turns in a model's chat template, of which no message can write control tokens.
#pragma once

#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <specula/base/rows.hpp>

#include "added_tokens.hpp"
#include "chat_template.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

/// What a chat needs of a tokenizer.
struct ChatVocabulary {
  /// The tokens of a text, none put in front. `controls`: control tokens that it spells are these tokens.
  std::function<std::vector<specula::Token>(std::string_view text, bool controls)> encode;
  std::function<std::string(specula::Token)> bytes;                   // that a token adds to a text
  std::vector<std::pair<specula::Token, std::string>> controls = {};  // the control tokens and their texts
};

/// Of a Hugging Face tokenizer, which must outlive it: tokens that print nothing are control tokens.
ChatVocabulary chat_vocabulary(const Tokenizer& tokenizer);

/// One conversation. Its text is the template's, rendered anew for every question; its tokens are those of
/// that text, in which control tokens are recognised, with two exceptions.
///
/// A control token that a message spells is read as text: it is taken out of the message before that is
/// rendered, put back afterwards, and encoded on its own.
///
/// What the model answered keeps the tokens that it had, where the template leaves the answer as it was, so
/// that a model which keeps its last text computes only what is new. A template that changes earlier answers
/// (Qwen 3 takes out what the model thought, Mistral's later ones move the system message) has these computed
/// again.
class Chat {
 public:
  /// The template and the vocabulary must outlive it. `system` is the system message; empty: none.
  Chat(const ChatTemplate& how, const ChatVocabulary& vocabulary, const std::string& system,
       std::time_t now = std::time(nullptr));

  /// Adds a question; returns the tokens up to where the model answers, valid until the next call. Throws
  /// std::runtime_error as ChatTemplate::render(), and for a message that the tokenizer's own preparation of
  /// texts (such as Unicode's compatibility forms) would turn into a control token; the chat is then as
  /// before.
  const std::vector<specula::Token>& ask(const std::string& text);

  /// Adds what the model answered: its tokens, without the one that ended it, and the text that they were
  /// shown as.
  void answer(specula::Tokens tokens, const std::string& text);

  /// Adds an earlier turn of which nothing but the text is known. Throws for messages as ask().
  void tell(const ChatTurn& turn);

 private:
  std::string guard(std::string_view text) const;
  std::vector<specula::Token> encode(std::string_view rendered) const;
  std::vector<specula::Token> encode_literal(specula::Token control) const;
  bool has_control(specula::Tokens tokens) const;

  const ChatTemplate* template_;
  const ChatVocabulary* vocabulary_;
  std::time_t now_;
  AddedTokens controls_;
  std::unordered_set<specula::Token> is_control_;
  std::vector<ChatTurn> turns_;         // with guarded contents
  std::string rendered_;                // of the last question
  std::vector<specula::Token> tokens_;  // of it
  bool keeps_ = false;  // the text that is to go on is `rendered_`, and `tokens_` are its tokens
};

/// The tokens of a conversation up to where the model answers, rendered once. `turns`: one of `system` if
/// there is any, then those of `user` and `assistant` in turn; the last one is the user's. Throws
/// std::runtime_error for others, and as Chat::ask().
std::vector<specula::Token> chat_tokens(const ChatTemplate& how, const ChatVocabulary& vocabulary,
                                        std::span<const ChatTurn> turns);

}  // namespace specula_tools
