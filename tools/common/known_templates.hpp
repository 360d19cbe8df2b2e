// SPDX-License-Identifier: MIT
// Chat templates that are known by their text and need no Jinja engine.
#pragma once

#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "chat_template.hpp"

namespace specula_tools {

/// What a template writes besides the turns.
struct TemplateSetting {
  std::string_view begin, end;  // bos_token and eos_token
  std::time_t now;
};

/// Renders turns as ChatTemplate::render() says. Throws std::runtime_error for what the template refuses.
using KnownTemplate = std::string (*)(std::span<const ChatTurn> turns, const TemplateSetting& setting);

/// What renders the template of this fingerprint, one of ChatML, SmolLM2, Qwen 1.5 to 3, Llama 3 to 3.3 and
/// Mistral; null for any other. A text made to have the fingerprint of another is rendered as that one is: in
/// a format that its model does not expect, and nothing worse.
KnownTemplate find_known_template(std::string_view fingerprint);

/// FNV-1a of a template's text, and its size: line ends as Jinja reads them, without the last one.
std::string template_fingerprint(std::string_view source);

}  // namespace specula_tools
