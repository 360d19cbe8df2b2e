// SPDX-License-Identifier: MIT
// Bigram tables on disk: {"vocab_size": 3, "vocabulary": "0123456789abcdef", "next": [2, -1, 0]}, -1 where no
// token is known to follow; `vocabulary` is its fingerprint(), and may be missing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <specula/draft/bigram.hpp>

namespace specula_tools {

struct BigramFile {
  specula::BigramTable table;
  std::string vocabulary = {};  // fingerprint(); empty: unknown
};

/// Throws std::runtime_error naming the file and what is wrong with it.
BigramFile load_bigram(const std::filesystem::path& file);

/// The same for text in memory; `source` is what errors call it.
BigramFile parse_bigram(std::string_view text, const std::string& source);

/// Throws std::runtime_error naming the file if it cannot be written; an old one is then what it was. Makes
/// its folder.
void save_bigram(const BigramFile& bigram, const std::filesystem::path& file);

}  // namespace specula_tools
