// SPDX-License-Identifier: MIT
// Texts without what they share with others, such as the prompts of an evaluation.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace specula_train {

/// Whether texts share a run of words with any of those added. Words are runs of letters, digits and bytes
/// beyond ASCII, in lower case; what is between them does not matter. Runs are known by 64-bit hashes.
class WordRuns {
 public:
  explicit WordRuns(std::size_t length = 13) : length_(length) {}

  void add(std::string_view text) {
    for_each_run(text, [&](std::uint64_t run) {
      runs_.insert(run);
      return false;
    });
  }
  bool shares(std::string_view text) const {
    return for_each_run(text, [&](std::uint64_t run) { return runs_.contains(run); });
  }
  std::size_t size() const { return runs_.size(); }

 private:
  /// Calls f of each run until it returns true; whether it did.
  bool for_each_run(std::string_view text, const std::function<bool(std::uint64_t)>& f) const {
    std::vector<std::size_t> words;
    std::string word;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      const auto c = i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(' ');
      if (c >= 0x80 || std::isalnum(c)) {
        word += static_cast<char>(std::tolower(c));
        continue;
      }
      if (word.empty()) continue;
      words.push_back(std::hash<std::string>{}(word));
      word.clear();
      if (words.size() < length_) continue;
      std::uint64_t run = 0;
      for (auto at = words.size() - length_; at < words.size(); ++at)
        run = run * 0x9E3779B97F4A7C15ULL + words[at];
      if (f(run)) return true;
    }
    return false;
  }

  std::size_t length_;
  std::unordered_set<std::uint64_t> runs_;
};

}  // namespace specula_train
