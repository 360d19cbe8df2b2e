// SPDX-License-Identifier: MIT
// Chat templates: the text in which a model was trained to see turns.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace specula_tools {

/// A message and whose it is: `system`, `user` or `assistant`.
struct ChatTurn {
  std::string role, content;
};

/// How a user puts prompts without the model's template, for messages: in programs that have that option.
inline constexpr char kWithoutTemplate[] = "give --raw";

/// A Jinja template as a model's files have it.
struct ChatTemplateText {
  std::string source;
  std::string begin = {}, end = {};  // its bos_token and eos_token; empty: none
  std::string where = {};            // file and key, for messages
  std::string without = kWithoutTemplate;
};

/// The template of a model, a Hugging Face directory or a GGUF file: the one without a name of
/// read_chat_templates(). Nothing if there is none. `begin` and `end` are left empty. Throws
/// std::runtime_error naming the file and the key for another type, and for templates of which each has a
/// name.
std::optional<ChatTemplateText> find_chat_template(const std::filesystem::path& model,
                                                   const std::string& without = kWithoutTemplate);

/// Renders turns as transformers' apply_chat_template(add_generation_prompt=True) does. A template is
/// untrusted input. Those known by their text are rendered by code of our own (known_templates.hpp), all
/// others by llama.cpp's Jinja engine in a child process of bounded time, memory and output
/// (limited_call.hpp).
class ChatTemplate {
 public:
  static constexpr std::size_t kLongest = std::size_t{1} << 18;  // bytes of a template

  /// Throws std::runtime_error naming `where` if the template is longer than kLongest; or is none of those
  /// known, in a program without the engine, saying how to get it.
  explicit ChatTemplate(ChatTemplateText text);

  /// The text up to where the model answers. `now` is for templates that write the date. Throws
  /// std::runtime_error naming `where` for what the template refuses, such as a system message, and for one
  /// that exceeds a limit.
  std::string render(std::span<const ChatTurn> turns, std::time_t now) const;

  const std::string& without() const { return text_.without; }

 private:
  ChatTemplateText text_;
};

}  // namespace specula_tools
