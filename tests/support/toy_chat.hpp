// SPDX-License-Identifier: MIT
// A vocabulary of bytes and control tokens, and a chat template, for tests of chats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <specula/base/rows.hpp>

#include "chat.hpp"

namespace specula_test {

using specula::Token;

inline constexpr Token kTurnStart = 256, kTurnEnd = 257, kLoose = 258, kTokens = 259;

/// A token a byte, two control tokens, and one that ends texts but is found in any text, as some files have
/// it. Of other forms, `Z` is one of the second.
inline std::vector<Token> toy_encode(std::string_view text, bool controls) {
  std::vector<Token> out;
  while (!text.empty()) {
    const auto takes = [&](std::string_view name, Token token) {
      if (!text.starts_with(name)) return false;
      out.push_back(token);
      text.remove_prefix(name.size());
      return true;
    };
    if (controls &&
        (takes("<|im_start|>", kTurnStart) || takes("<|im_end|>", kTurnEnd) || takes("Z", kTurnEnd)))
      continue;
    if (takes("<loose>", kLoose)) continue;
    out.push_back(static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return out;
}

inline const specula_tools::ChatVocabulary kToyChat{
    .encode = toy_encode,
    .bytes =
        [](Token token) { return token < 256 ? std::string(1, static_cast<char>(token)) : std::string(); },
    .controls = {{kTurnStart, "<|im_start|>"}, {kTurnEnd, "<|im_end|>"}, {kLoose, "<loose>"}}};

inline const specula_tools::ChatTemplate& chatml() {
  static const specula_tools::ChatTemplate out(
      {.source =
           "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
           "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
           "}}{% endif %}"});
  return out;
}

}  // namespace specula_test
