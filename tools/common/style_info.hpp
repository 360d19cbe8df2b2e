// SPDX-License-Identifier: MIT
// What is known about each style of text: what it is, under which licence, and what of it is held out. It
// travels from the corpus to the model cards.
//
// DIR/styles.json  {"styles": [{"name": "gsm8k", "description": "...", "licence": "...",
//                               "heldout_every": 50}]}
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace specula_tools {

struct StyleInfo {
  std::string description, licence;  // empty: not stated
  std::size_t heldout_every = 0;     // every n-th document is held out, at least one; 0: not stated
};

using StyleInfos = std::map<std::string, StyleInfo>;

/// By style. Empty if the folder has no styles.json; throws std::runtime_error naming a file of another form.
StyleInfos read_style_infos(const std::filesystem::path& directory);
void write_style_infos(const StyleInfos& infos, const std::filesystem::path& directory);

/// "NAME=VALUE" in two. Throws std::invalid_argument naming the option if there is no NAME or no VALUE, or
/// NAME has other characters than letters, digits, '-', '_' and '.': styles are names of files.
std::pair<std::string, std::string> parse_assignment(std::string_view option, const std::string& text);

}  // namespace specula_tools
