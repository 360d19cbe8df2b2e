// SPDX-License-Identifier: MIT
// What surrounds the parts of a text that a target writes, as tokens: what ends them, and what its chat
// template puts before questions and answers. A target that is given no more than that asks itself.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tokens.hpp"

namespace specula_train {

struct ChatFrame {
  Document ends;  ///< each ends what the model writes
  /// The latter two follow such an end. All empty: there is no chat template.
  Document before_question = {}, before_answer = {}, before_next_question = {};
};

/// DIR/chat.json: {"ends": [2], "before_question": [1, 9690, ...], "before_answer": [...],
/// "before_next_question":
/// [...]}.
void write_chat_frame(const ChatFrame& frame, const std::filesystem::path& directory);

/// Throws std::runtime_error naming file and key if it is missing, of another type, or has a token outside
/// the vocabulary.
ChatFrame read_chat_frame(const std::filesystem::path& directory, std::int32_t vocab_size);

}  // namespace specula_train
