// SPDX-License-Identifier: MIT
// The options of prompts, and prompts as tokens: alike in every command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "asked_prompt.hpp"
#include "chat_options.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "options.hpp"
#include "prompts.hpp"

namespace specula_tools {

struct PromptOptions {
  std::vector<std::string> files;
  std::size_t limit = 0;  // of prompts per file, where a command takes several
  std::string style = "auto";
  ChatOptions chat;
  bool special = false;
};

inline void add_prompt_options(CLI::App& app, PromptOptions& options, const char* files_help) {
  app.add_option("--prompts", options.files, files_help)->allow_extra_args(false);
  app.add_option("--style", options.style, "How prompts are put: auto, question, code or raw")
      ->capture_default_str();
  add_chat_options(app, options.chat);
  app.add_flag("--special", options.special,
               "Put prompts raw, but encode names of control tokens, such as <|im_start|>, as these tokens; "
               "a prompt that begins with the beginning token gets no second one")
      ->excludes("--chat")
      ->excludes("--system");
}

/// How the prompts of a run are put to its target.
class PromptSetting {
 public:
  /// `engine` is open, and outlives it. Throws UsageError for a style that there is not, or that does not go
  /// with a chat.
  PromptSetting(const Engine& engine, const PromptOptions& options)
      : engine_(&engine), style_(parse_style(options.style)), special_(options.special) {
    if (special_) return;
    std::optional<ChatTemplateText> found;
    if (may_chat(options.chat, options.style)) found = engine.chat_template();
    if (auto how = chosen_template(options.chat, options.style, std::move(found), engine.the_target()))
      chats_.emplace(ChatSetting{std::move(*how), engine.chat_vocabulary(), options.chat.system});
  }

  /// Null where prompts are put by --style.
  const ChatSetting* chats() const { return chats_ ? &*chats_ : nullptr; }
  /// For JSON.
  std::string name(const PromptOptions& options) const { return chats_ ? "chat" : options.style; }

  /// As asked_prompt(). `all_turns`: the later turns are asked, too.
  AskedPrompt ask(Prompt prompt, std::int32_t max_new_tokens, bool all_turns) const {
    return asked_prompt(
        std::move(prompt), chats(), special_ ? Style::raw : style_,
        [this](const std::string& text) { return engine_->encode(text, special_); }, max_new_tokens,
        all_turns);
  }

 private:
  const Engine* engine_;
  Style style_;
  bool special_;
  std::optional<ChatSetting> chats_;
};

}  // namespace specula_tools
