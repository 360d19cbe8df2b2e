// SPDX-License-Identifier: MIT
// The names that the commands had as programs of their own: links to the program, for one version.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace specula_tools {

namespace detail {

/// Takes `option` out of `words` and puts `instead` in its place; returns whether it was there.
inline bool replace_option(std::vector<std::string>& words, const std::string& option,
                           const std::string& instead) {
  for (std::string& word : words) {
    const bool joined = word.starts_with(option + "=");
    if (word != option && !joined) continue;
    word = instead + (joined ? word.substr(option.size()) : "");
    return true;
  }
  return false;
}

}  // namespace detail

/// The command line of the program: of `arguments` without the first, if that is its own name. Says what an
/// old name is now.
inline std::vector<std::string> as_specula(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return {};
  const std::string name = std::filesystem::path(arguments.front()).filename().string();
  std::vector<std::string> words(std::next(arguments.begin()), arguments.end()), command;
  const bool llama = name == "specula-llama";
  if (name == "specula-generate" || name == "specula-compare" || llama) {
    const bool compares = detail::replace_option(words, "--compare", "--pipelines");
    const bool passes = detail::replace_option(words, "--passes", "--nodes");
    detail::replace_option(words, "--device", "--engine");
    command = {passes ? "passes" : compares || name == "specula-compare" ? "compare" : "run"};
    if (llama) command.insert(command.end(), {"--engine", "llama.cpp"});
  } else if (name == "specula-gguf") {
    command = {"convert"};
  } else if (name == "specula-quantize" || name == "specula-bigram") {
    command = {name.substr(sizeof "specula-" - 1)};
  } else {
    return words;
  }
  std::cerr << "note: " << name << " is the command `specula " << command.front()
            << "` now; the old name goes with the next version\n";
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace specula_tools
