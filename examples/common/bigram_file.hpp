// Bigram tables on disk: {"vocab_size": 3, "next": [2, -1, 0]}, -1 where no token is known to follow.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <specula/draft/bigram.hpp>

namespace specula_examples {

/// Throws std::runtime_error naming the file and what is wrong with it.
specula::BigramTable load_bigram(const std::filesystem::path& file);

/// The same for text in memory; `source` is what errors call it.
specula::BigramTable parse_bigram(std::string_view text, const std::string& source);

/// Throws std::runtime_error naming the file if it cannot be written; an old one is then what it was. Makes
/// its folder.
void save_bigram(const specula::BigramTable& table, const std::filesystem::path& file);

}  // namespace specula_examples
