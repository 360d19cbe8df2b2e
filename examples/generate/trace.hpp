// --trace: a picture of each round's proposal and its result.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>

namespace specula_examples {

/// Writes round-0001.dot, round-0002.dot, ... into a folder; with several prompts prompt-01-round-0001.dot,
/// ... Until draw() they are in a subfolder, so that an interrupted run leaves an older run's files alone.
class Trace {
 public:
  using TextOf = std::function<std::string(specula::Token)>;  // the bytes of a token

  /// Creates `folder`. Throws std::runtime_error if it cannot, or cannot write there.
  Trace(const std::filesystem::path& folder, std::size_t prompts, TextOf text_of);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// To be called after each round, with the prompt's number from 0.
  void add(const specula::Pipeline& pipeline, std::size_t prompt);

  /// Moves the rounds into the folder, replacing those of an older run, and draws an .svg beside each .dot if
  /// `dot` is on the PATH; returns a message for the user. Separate from add(), so that it does not run
  /// between timed rounds. To be called once. Throws std::runtime_error naming a file that cannot be written.
  std::string draw();

 private:
  std::filesystem::path folder_, unfinished_;
  std::size_t prompts_, prompt_ = 0, round_ = 0;
  TextOf text_of_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace specula_examples
