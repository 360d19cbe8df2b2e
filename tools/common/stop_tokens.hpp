// SPDX-License-Identifier: MIT
// The tokens that end a model's texts, as its folder names them.
#pragma once

#include <filesystem>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_tools {

/// The stop tokens of a folder's config.json and generation_config.json (`eos_token_id`), or of a GGUF file
/// (gguf_roles()), ascending; none without such keys. Throws std::runtime_error naming file
/// and key for what is of another type than it should be, and for a token that the model of this config.json
/// does not have.
std::vector<specula::Token> read_stop_tokens(const std::filesystem::path& model);

}  // namespace specula_tools
