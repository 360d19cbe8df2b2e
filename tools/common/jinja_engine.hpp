// SPDX-License-Identifier: MIT
// Jinja templates by the engine inside llama.cpp's sources, where scripts/llama_cpp has built it.
#pragma once

#include <ctime>
#include <span>
#include <string>

#include "chat_template.hpp"

namespace specula_tools {

/// Whether the program was built with the engine (-DLLAMA_DIR).
bool has_jinja();

/// A chat rendered by any template: of what transformers' apply_chat_template() gives a template, `messages`,
/// `bos_token`, `eos_token`, `add_generation_prompt`, and none for `tools` and `documents`. Calls nothing but
/// the engine: to be called inside limited_call(), since templates may loop without end. Throws
/// std::runtime_error with the engine's message, and if there is none.
std::string render_jinja(const ChatTemplateText& text, std::span<const ChatTurn> turns, std::time_t now);

}  // namespace specula_tools
