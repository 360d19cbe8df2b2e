// SPDX-License-Identifier: MIT
// --chat, --raw, --system: whether prompts are put as turns of a chat.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "asked_prompt.hpp"
#include "chat.hpp"
#include "chat_template.hpp"
#include "errors.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

struct ChatOptions {
  bool chat = false, raw = false;
  std::string system;
};

inline void add_chat_options(CLI::App& app, ChatOptions& options) {
  auto* const chat =
      app.add_flag("--chat", options.chat,
                   "Put prompts as a user's turns, by the model's own chat template: the default where it "
                   "has one and no --style is given");
  auto* const raw =
      app.add_flag("--raw", options.raw, "Put prompts without the model's chat template, by --style");
  app.add_option("--system", options.system, "The system message of each chat")->excludes(raw);
  raw->excludes(chat);
}

/// Whether prompts may be put by the model's own template.
inline bool may_chat(const ChatOptions& options, const std::string& style) {
  return !options.raw && style == "auto";
}

/// The template to put prompts by; nothing: they are put by --style, which is `style`. `found` is the
/// model's, `model` what messages call that. Throws UsageError if a chat is asked for and it has none, or
/// --style is given, too; and as ChatTemplate.
inline std::optional<ChatTemplate> chosen_template(const ChatOptions& options, const std::string& style,
                                                   std::optional<ChatTemplateText> found,
                                                   const std::string& model) {
  const bool asked = options.chat || !options.system.empty(), styled = style != "auto";
  if (asked && styled) throw UsageError("--style " + style + " does not go with --chat and --system");
  if (options.raw || styled) return {};
  if (found) return ChatTemplate(std::move(*found));
  if (asked)
    throw UsageError(
        (options.chat ? "--chat: " : "--system: ") + model +
        " has no chat template (chat_template.jinja, or the key chat_template of tokenizer_config.json or "
        "of a GGUF file's tokenizer)");
  return {};
}

/// That of a Hugging Face directory or a GGUF file, with the tokens that begin and end its texts.
inline std::optional<ChatTemplateText> template_of(const std::filesystem::path& folder,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& without = kWithoutTemplate) {
  std::optional<ChatTemplateText> found = find_chat_template(folder, without);
  const auto piece = [&](specula::Token token) {
    return token == specula::kNoToken ? std::string() : tokenizer.pieces()[static_cast<std::size_t>(token)];
  };
  if (found) found->begin = piece(tokenizer.begin()), found->end = piece(tokenizer.end());
  return found;
}

}  // namespace specula_tools
