// SPDX-License-Identifier: MIT
// What the programs' options say of decoding. options.hpp puts them on the command line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <specula/base/sampling_params.hpp>

#include "errors.hpp"

namespace specula_tools {

struct DecodingOptions {
  std::int32_t max_new_tokens = 128;
  std::int32_t threads = 1;  // for measurements; programs that show texts set 0
  std::uint64_t seed = 0;
  specula::SamplingParams sampling{.temperature = 0.0f};
  bool beyond_context = false;
};

/// How specula's own models calculate; the words are those of model_pack.hpp.
struct ArithmeticOptions {
  std::string inputs = "auto", weights = "auto", cache = "auto", isa = "auto";
};

/// The models of a command, and where they run.
struct ModelOptions : DecodingOptions, ArithmeticOptions {
  std::string engine = "auto", models, target, bigram;
  std::vector<std::string> drafts;  // [NAME=]PATH
  bool cut_vocabulary = false;
  std::string rounds = "host";  // of cuda: or "device"
  // Of llama.cpp.
  std::int32_t draft_threads = 0, gpu_layers = -1;
  bool same_bits = false, verbose = false;
  std::vector<std::string> rpc, draft_rpc;
  int rpc_limit = 300;  // seconds that a server may let wait
  std::vector<double> rpc_delays;  // milliseconds of one way to the servers
};

/// `asked`, or where that is 0 as many as the machine has, 16 at most.
inline std::int32_t thread_count(std::int32_t asked) {
  if (asked > 0) return asked;
  return static_cast<std::int32_t>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
}

/// What a program that took the threads that the machine has says at its start.
inline std::string threads_line(std::int32_t asked) {
  const std::int32_t count = thread_count(asked);
  return std::to_string(count) + (count == 1 ? " thread" : " threads") + "; --threads takes another number\n";
}

/// Throws UsageError where an option is out of range. Tells the user of more threads than cores.
inline void check_options(const DecodingOptions& options) {
  const auto cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  if (cores > 0 && options.threads > cores)
    std::cerr << "note: --threads " << options.threads << " on " << cores << (cores == 1 ? " core" : " cores")
              << ": more threads than cores are slower\n";
  try {
    specula::validate(options.sampling);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

/// Throws UsageError for an empty stop string.
inline void check_stops(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops)
    if (stop.empty()) throw UsageError("--stop is empty: every text would end before it begins");
}

/// Throws UsageError for an empty prompt, whether it was given or read.
inline void check_prompt(const std::string& prompt) {
  if (prompt.empty()) throw UsageError("no prompt: give --prompt, --prompts or one on the standard input");
}

}  // namespace specula_tools
