// SPDX-License-Identifier: MIT
// Exit codes: 2 for a wrong command line, 1 for everything that goes wrong later.
#pragma once

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include <specula/runtime/spec.hpp>

namespace specula_tools {

/// What was asked for makes no sense: an unknown pipeline, a value out of range, a missing option.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Writes out what waits for the standard output. Throws std::runtime_error if that was ever impossible, say
/// on a full disk: output that is lost is no success.
inline void flush_output() {
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("the standard output cannot be written");
}

inline int report_usage(const char* name, const std::exception& error) {
  std::cerr << name << ": " << error.what() << "\nTry " << name << " --help\n";
  return 2;
}

/// Runs a program's body and turns what it throws, and output that cannot be written, into a line on stderr
/// and an exit code.
template <class Body>
int run_program(const char* name, Body body) {
  try {
    const int code = body();
    flush_output();
    return code;
  } catch (const UsageError& error) {
    return report_usage(name, error);
  } catch (const specula::PipelineError& error) {
    return report_usage(name, error);
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace specula_tools
