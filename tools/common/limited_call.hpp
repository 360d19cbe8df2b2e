// SPDX-License-Identifier: MIT
// Work on untrusted input in a child process of bounded time and memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace specula_tools {

/// What a call may use.
struct CallLimits {
  unsigned seconds = 2;                       // of processor time
  std::size_t memory = std::size_t{1} << 28;  // bytes beyond those that the process has now
  std::size_t output = std::size_t{1} << 24;  // bytes of the result
};

/// The result of `work`, which runs in a child process (fork): endless loops, recursion without end, memory
/// without end and a crash end the child, not the caller. What `work` changes is lost. Throws
/// std::runtime_error with the message of what `work` throws, or saying which limit the call met; naming the
/// system's error if there is no child. Memory is bounded on Linux. Cost: a fork, that is some milliseconds
/// with large models in memory.
std::string limited_call(const std::function<std::string()>& work, const CallLimits& limits = {});

}  // namespace specula_tools
