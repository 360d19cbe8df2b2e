// SPDX-License-Identifier: MIT
// The chat templates of a model's files, to be kept when these are converted.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <specula/files/gguf.hpp>

namespace specula_tools {

/// Names and texts; the default one has no name.
using ChatTemplates = std::vector<std::pair<std::string, std::string>>;

/// Of a Hugging Face folder: chat_template.jinja, and `chat_template` of tokenizer_config.json, a text or a
/// list of them with names, of which "default" is the one without. Of a GGUF file: tokenizer.chat_template
/// and what tokenizer.chat_templates names. Throws std::runtime_error naming file and key for another type.
ChatTemplates read_chat_templates(const std::filesystem::path& model);

}  // namespace specula_tools
