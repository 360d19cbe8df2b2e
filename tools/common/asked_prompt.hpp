// SPDX-License-Identifier: MIT
// A prompt as tokens: as it is put, or as the turns of a chat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/base/rows.hpp>

#include "chat.hpp"
#include "prompts.hpp"

namespace specula_tools {

/// What the chats of a program have in common.
struct ChatSetting {
  ChatTemplate how;
  ChatVocabulary vocabulary;
  std::string system;

  Chat start() const { return {how, vocabulary, system}; }  ///< refers to this object
};

struct AskedPrompt {
  std::string text;                    // of the turn that is asked
  std::vector<specula::Token> tokens;  // up to the answer
  std::optional<Chat> chat = {};
  std::vector<std::string> later = {};  // turns to be asked after its answer
  std::size_t longest = 0;              // tokens that may precede the last answer

  std::string shown() const { return chat ? "> " + text + "\n" : text; }

  /// Adds an answer and asks the next turn, if there is one. Throws std::runtime_error if it has more tokens
  /// than `longest`, and as Chat::ask().
  bool next(specula::Tokens answer, const std::string& answer_text) {
    if (later.empty()) return false;
    chat->answer(answer, answer_text);
    text = std::move(later.front());
    later.erase(later.begin());
    tokens = chat->ask(text);
    if (tokens.size() > longest)
      throw std::runtime_error("a chat of " + std::to_string(tokens.size()) +
                               " tokens, and there is room for " + std::to_string(longest) +
                               ": ask shorter or fewer turns");
    return true;
  }
};

/// The number of each prompt's first answer, where the answers to all turns of the prompts before it are
/// counted, whether they are asked or not: the `sequence` of its draws, so that a text does not depend on
/// others.
inline std::vector<std::size_t> first_numbers(std::span<const AskedPrompt> prompts) {
  std::vector<std::size_t> numbers;
  std::size_t next = 0;
  for (const AskedPrompt& prompt : prompts) {
    numbers.push_back(next);
    next += 1 + prompt.later.size();
  }
  return numbers;
}

/// "prompt 2 failed: ..."; a turn after the first is named, too. Both are counted from 0.
inline std::string failure_text(std::size_t prompt, std::size_t turn, const std::string& why) {
  std::string text = "prompt " + std::to_string(prompt + 1);
  if (turn > 0) text += ", turn " + std::to_string(turn + 1);
  return text + " failed: " + why;
}

/// A prompt as a chat of `setting`, or where that is null as `style` puts it and `encode` encodes it.
/// `all_turns`: the further turns are asked, too, each after an answer of at most `max_new_tokens`.
inline AskedPrompt asked_prompt(Prompt prompt, const ChatSetting* setting, Style style,
                                const std::function<std::vector<specula::Token>(const std::string&)>& encode,
                                std::int32_t max_new_tokens, bool all_turns) {
  constexpr std::size_t kAround = 64;  // tokens that a template may put around a turn and its answer
  AskedPrompt out;
  if (setting) {
    out.text = prompt.text;
    out.chat = setting->start();
    out.tokens = out.chat->ask(out.text);
    if (all_turns) out.later = std::move(prompt.later);
  } else {
    out.text = prompt.put(style);
    out.tokens = encode(out.text);
  }
  out.longest = out.tokens.size();
  for (const std::string& turn : out.later)
    out.longest +=
        setting->vocabulary.encode(turn, false).size() + static_cast<std::size_t>(max_new_tokens) + kAround;
  return out;
}

}  // namespace specula_tools
