// SPDX-License-Identifier: MIT
// A conversation on a terminal.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/base/rows.hpp>

#include "chat.hpp"

namespace specula_tools {

/// Tokens of a conversation up to its last answer, where the model was trained for more.
inline constexpr std::size_t kTalkTokens = 4096;

/// What a model answered: its tokens, without the one that ended it, and the text that they were shown as.
struct ChatAnswer {
  std::vector<specula::Token> tokens;
  std::string text;
};

/// Decodes an answer to a chat of these tokens and shows it; nothing if there is no room for it.
using Answering = std::function<std::optional<ChatAnswer>(const std::vector<specula::Token>& chat)>;

inline constexpr char kTalkHelp[] =
    "/exit, Ctrl-D  end the conversation\n"
    "Ctrl-C         ends an answer while it is written\n"
    "/help          this text\n"
    "Any other line is a question; earlier ones and their answers are kept. --system sets the system "
    "message,\n"
    "--max-new-tokens the length of an answer, --temperature how it is drawn.\n";

/// Asks what stands on each line of `in`, until a line is /exit (/help prints what there is), the input ends,
/// or there is no room left. Empty lines are skipped. `notes` gets a prompt for each line, and why a line was
/// not asked.
inline void converse(Chat& chat, std::istream& in, std::ostream& notes, const Answering& answering) {
  notes << "One question a line; /exit or Ctrl-D ends the conversation, /help says more.\n";
  for (std::string line; notes << "> " << std::flush, std::getline(in, line);) {
    if (line == "/exit") return;
    if (line == "/help") {
      notes << kTalkHelp;
      continue;
    }
    if (line.empty()) continue;
    const std::vector<specula::Token>* asked = nullptr;
    try {
      asked = &chat.ask(line);
    } catch (const std::runtime_error& error) {
      notes << error.what() << '\n';
      continue;
    }
    const std::optional<ChatAnswer> answer = answering(*asked);
    if (!answer) {
      notes << "The conversation is as long as there is room for: it ends here.\n";
      return;
    }
    chat.answer(answer->tokens, answer->text);
  }
  notes << '\n';
}

}  // namespace specula_tools
