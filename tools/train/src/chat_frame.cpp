// SPDX-License-Identifier: MIT
#include "chat_frame.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <specula/files/json_fields.hpp>
#include <stdexcept>
#include <string>

#include "files.hpp"

namespace specula_train {

void write_chat_frame(const ChatFrame& frame, const std::filesystem::path& directory) {
  const nlohmann::ordered_json json{{"ends", frame.ends},
                                    {"before_question", frame.before_question},
                                    {"before_answer", frame.before_answer},
                                    {"before_next_question", frame.before_next_question}};
  specula_tools::write_file(directory / "chat.json", json.dump() + "\n");
}

ChatFrame read_chat_frame(const std::filesystem::path& directory, std::int32_t vocab_size) {
  const auto file = directory / "chat.json";
  if (!std::filesystem::exists(file))
    throw std::runtime_error(file.string() + ": cannot be opened; run `specula-train-text prompts`");
  const auto json = specula::files::parse_json(specula_tools::read_file(file), file.string());
  const specula::files::JsonFields fields(json, file.string());
  const auto read = [&](const char* key) {
    const Document tokens = fields.integers(key);
    for (const Token token : tokens)
      if (token < 0 || token >= vocab_size)
        fields.fail(key, "token " + std::to_string(token) + " is outside the vocabulary of " +
                             std::to_string(vocab_size));
    return tokens;
  };
  return ChatFrame{read("ends"), read("before_question"), read("before_answer"),
                   read("before_next_question")};
}

}  // namespace specula_train
