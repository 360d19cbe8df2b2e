// SPDX-License-Identifier: MIT
// --trace: a picture of each round's proposal and its result, and a page that steps through them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include <specula/runtime/any_model.hpp>

namespace specula_tools {

/// Writes round-0001.dot, round-0002.dot, ... into a folder; with several prompts prompt-01-round-0001.dot,
/// ...; and trace.html, a self-contained page over all rounds. Until draw() they are in a subfolder, so that
/// an interrupted run leaves an older run's files alone.
class Trace {
 public:
  using TextOf = std::function<std::string(specula::Token)>;  // the bytes of a token

  /// Creates `folder`. Throws std::runtime_error if it cannot, or cannot write there.
  Trace(const std::filesystem::path& folder, std::size_t prompts, TextOf text_of);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// To be called after each round, with the prompt's number from 0. `emitted` is how many of the round's
  /// tokens became text: all but those beyond its end.
  void add(const specula::Pipeline& pipeline, std::size_t prompt, std::size_t emitted);

  /// Moves the rounds into the folder, replacing those of an older run, and draws an .svg beside each .dot if
  /// `dot` is on the PATH; returns a message for the user. The page shows `title`, the pipeline's name. With
  /// a target the page also has its probabilities: the target runs over every proposal once more, so it must
  /// hold what the pipeline's target held. Separate from add(), so that it does not run between timed rounds.
  /// To be called once. Throws std::runtime_error naming a file that cannot be written.
  std::string draw(const std::string& title, specula::AnyModel* target = nullptr);

 private:
  struct Round {
    std::vector<specula::Token> tokens;    // (nodes)
    std::vector<specula::NodeId> parents;  // (nodes)
    std::vector<float> confidences;        // (nodes): the draft's
    specula::VerifyResult result;
    std::size_t emitted = 0;
    std::vector<double> target_probs;  // (nodes + 1): of the root nothing, of the next token last; or empty
  };
  struct Text {
    std::vector<specula::Token> prompt;
    std::vector<Round> rounds;
  };

  void add_target_probs(specula::AnyModel& target);
  std::string page(const std::string& title) const;

  std::filesystem::path folder_, unfinished_;
  std::size_t prompts_;
  TextOf text_of_;
  std::vector<std::filesystem::path> files_;
  std::vector<Text> texts_;  // (prompts)
};

}  // namespace specula_tools
