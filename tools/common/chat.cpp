// SPDX-License-Identifier: MIT
#include "chat.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include <specula/base/read_number.hpp>

namespace specula_tools {
namespace {

using specula::Token;
using specula::Tokens;

// Around the number of a control token that a message spelled: U+FDD0 and U+FDD1, which are no characters.
constexpr std::string_view kOpen = "\xef\xb7\x90", kClose = "\xef\xb7\x91", kReplacement = "\xef\xbf\xbd";

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

void append(std::vector<Token>& out, const std::vector<Token>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace

ChatVocabulary chat_vocabulary(const Tokenizer& tokenizer) {
  ChatVocabulary out;
  out.encode = [&tokenizer](std::string_view text, bool controls) {
    if (controls) return tokenizer.encode_chat(text);
    auto tokens = tokenizer.encode(text);
    if (tokenizer.adds_begin() && !tokens.empty()) tokens.erase(tokens.begin());
    return tokens;
  };
  out.bytes = [&tokenizer](Token token) { return tokenizer.bytes(token); };
  for (Token token = 0; token < tokenizer.vocab_size(); ++token)
    if (const std::string& piece = tokenizer.pieces()[static_cast<std::size_t>(token)];
        !piece.empty() && tokenizer.bytes(token).empty())
      out.controls.emplace_back(token, piece);
  return out;
}

Chat::Chat(const ChatTemplate& how, const ChatVocabulary& vocabulary, const std::string& system,
           std::time_t now)
    : template_(&how), vocabulary_(&vocabulary), now_(now) {
  std::vector<AddedToken> controls;
  for (const auto& [token, text] : vocabulary.controls) {
    controls.push_back({.token = token, .text = text});
    is_control_.insert(token);
  }
  controls_ = AddedTokens(std::move(controls));
  if (!system.empty()) turns_.push_back({"system", guard(system)});
}

const std::vector<Token>& Chat::ask(const std::string& text) {
  turns_.push_back({"user", guard(text)});
  try {
    std::string rendered = template_->render(turns_, now_);
    if (keeps_ && rendered.starts_with(rendered_)) {
      append(tokens_, encode(std::string_view(rendered).substr(rendered_.size())));
    } else {
      tokens_ = encode(rendered);
    }
    rendered_ = std::move(rendered);
    keeps_ = false;
  } catch (...) {
    turns_.pop_back();
    throw;
  }
  return tokens_;
}

void Chat::answer(Tokens tokens, const std::string& text) {
  std::string bytes;
  for (const Token token : tokens) bytes += vocabulary_->bytes(token);
  keeps_ = bytes == text && !has_control(tokens);
  tell({"assistant", text});
  rendered_ += guard(text);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Chat::tell(const ChatTurn& turn) {
  std::string guarded = guard(turn.content);
  // The space that the first token of an answer may begin with is the template's to write.
  if (turn.role == "assistant") guarded.erase(0, guarded.find_first_not_of(' '));
  turns_.push_back({turn.role, std::move(guarded)});
}

std::vector<Token> chat_tokens(const ChatTemplate& how, const ChatVocabulary& vocabulary,
                               std::span<const ChatTurn> turns) {
  const bool system = !turns.empty() && turns.front().role == "system";
  Chat chat(how, vocabulary, system ? turns.front().content : "");
  if (system) turns = turns.subspan(1);
  for (std::size_t i = 0; i < turns.size(); ++i)
    if (turns[i].role != (i % 2 == 0 ? "user" : "assistant"))
      throw std::runtime_error("messages must be the user's and the assistant's in turn, the user's first");
  if (turns.size() % 2 == 0) throw std::runtime_error("the last message must be the user's");
  for (const ChatTurn& turn : turns.first(turns.size() - 1)) chat.tell(turn);
  return chat.ask(turns.back().content);
}

/// A message as it is rendered.
std::string Chat::guard(std::string_view text) const {
  std::string plain(text), out;
  replace_all(plain, kOpen, kReplacement);
  replace_all(plain, kClose, kReplacement);
  controls_.split(
      plain,
      [&](std::string_view part) {
        if (has_control(vocabulary_->encode(part, true)))
          throw std::runtime_error(
              "a message spells the name of a control token in another form, which this "
              "model's tokenizer would read as that token: '" +
              std::string(part.substr(0, 200)) + "'; write it otherwise, or " + template_->without());
        out += part;
      },
      [&](Token control) { out.append(kOpen).append(std::to_string(control)).append(kClose); });
  return out;
}

std::vector<Token> Chat::encode(std::string_view rendered) const {
  std::vector<Token> out;
  while (!rendered.empty()) {
    const auto open = std::min(rendered.find(kOpen), rendered.size());
    if (open > 0) append(out, vocabulary_->encode(rendered.substr(0, open), true));
    rendered.remove_prefix(open);
    if (rendered.empty()) break;
    rendered.remove_prefix(kOpen.size());
    Token control = specula::kNoToken;
    const std::size_t digits = std::min(rendered.find(kClose), rendered.size());
    if (digits == rendered.size() || !specula::detail::read_number(rendered.substr(0, digits), control) ||
        !is_control_.contains(control))
      throw std::runtime_error("the chat template cuts a message apart inside the name of a control token; " +
                               template_->without());
    append(out, encode_literal(control));
    rendered.remove_prefix(digits + kClose.size());
  }
  return out;
}

/// The text of a control token, as text.
std::vector<Token> Chat::encode_literal(Token control) const {
  const auto named = std::find_if(vocabulary_->controls.begin(), vocabulary_->controls.end(),
                                  [&](const auto& entry) { return entry.first == control; });
  const std::string_view text = named->second;
  std::vector<Token> out = vocabulary_->encode(text, false);
  if (!has_control(out)) return out;
  // Some files do not mark the ends of texts as control tokens, so these are found in any text: cut it.
  std::size_t first = 1;
  while (first < text.size() && (static_cast<unsigned char>(text[first]) & 0xC0) == 0x80) ++first;
  out = vocabulary_->encode(text.substr(0, first), false);
  append(out, vocabulary_->encode(text.substr(first), false));
  if (has_control(out))
    throw std::runtime_error("a message spells the control token '" + named->second +
                             "', which cannot be read as text; write it otherwise, or " +
                             template_->without());
  return out;
}

bool Chat::has_control(Tokens tokens) const {
  return std::any_of(tokens.begin(), tokens.end(), [&](Token token) { return is_control_.contains(token); });
}

}  // namespace specula_tools
