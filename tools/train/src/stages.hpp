// SPDX-License-Identifier: MIT
// Programs that are run one after the other, each in a process of its own, and once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace specula_train {

/// A program with its arguments.
struct Call {
  std::filesystem::path program;
  std::vector<std::string> arguments;

  /// As a shell reads it, to be shown or typed.
  std::string text() const;
};

/// Runs it and waits; its output is this process's. SIGINT and SIGTERM are passed on. Throws
/// std::runtime_error naming the command if it cannot be started or fails.
void run(const Call& call);

/// Calls that are each done once: what is done is noted in a file, so that the same stages go on where they
/// were stopped.
class Stages {
 public:
  explicit Stages(std::filesystem::path directory);

  /// Runs the calls of a stage, unless it is done. Another stage of that name with other calls is run again.
  /// Returns false where this process was told to stop.
  bool run(const std::string& name, const std::vector<Call>& calls);

 private:
  std::filesystem::path directory_;
};

}  // namespace specula_train
