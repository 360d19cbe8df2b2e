// A picture of each round: what was proposed and what became of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipeline.hpp"

namespace specula_examples {

/// Writes round-0001.dot, round-0002.dot, ... into a folder; with several prompts prompt-01-round-0001.dot,
/// ...
class Trace {
 public:
  using TextOf = std::function<std::string(Token)>;  // the bytes of a token

  /// Creates `folder`. Throws std::runtime_error if it cannot.
  Trace(const std::filesystem::path& folder, std::size_t prompts, TextOf text_of);

  /// To be called after each round, with the prompt's number from 0.
  void add(const Pipeline& pipeline, std::size_t prompt);

  /// Draws an .svg beside each .dot, if `dot` is on the PATH; returns what to tell the user. Apart from
  /// add(), so that it does not run between rounds whose time is taken.
  std::string draw() const;

 private:
  std::filesystem::path folder_;
  std::size_t prompts_, prompt_ = 0, round_ = 0;
  TextOf text_of_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace specula_examples
