// Command-line options that the programs share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <specula/sampling_params.hpp>

#include "errors.hpp"

namespace specula_examples {

struct DecodingOptions {
  std::int32_t max_new_tokens = 128;
  std::int32_t threads = 1;
  std::uint64_t seed = 0;
  specula::SamplingParams sampling{.temperature = 0.0f};
};

/// Of programs that run the models of the pack.
struct CommonOptions : DecodingOptions {
  std::string models, target, draft;
  std::string inputs = "auto";
};

inline void add_decoding_options(CLI::App& app, DecodingOptions& options) {
  app.add_option("--max-new-tokens", options.max_new_tokens, "Tokens after the prompt, at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "Keep the k likeliest tokens; 0: all")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p, "Keep the likeliest tokens that hold this mass; 1: all")
      ->capture_default_str();
  app.add_option("--min-p", options.sampling.min_p,
                 "Keep tokens of at least this share of the likeliest one's probability")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of all coins: on one machine, the same seed gives the same text")
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Threads of the target; 0: as many as the machine has, 16 at most")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

inline void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--models", options.models,
                 "Folder of models (default: $SPECULA_MODELS, else those that come with the sources)");
  app.add_option("--target", options.target, "Folder of the target (default: MODELS/target)");
  app.add_option("--draft", options.draft, "Folder of a model that takes the place of the default draft");
  add_decoding_options(app, options);
  app.add_option("--inputs", options.inputs,
                 "What products take: full (float), bf16 (rounded, as GPUs do), or auto: bf16 where the "
                 "machine has it")
      ->capture_default_str();
}

/// `asked`, or where that is 0 as many as the machine has, 16 at most.
inline std::int32_t thread_count(std::int32_t asked) {
  if (asked > 0) return asked;
  return static_cast<std::int32_t>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
}

/// Throws UsageError where an option is out of range.
inline void check_options(const DecodingOptions& options) {
  try {
    specula::validate(options.sampling);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

/// Parses; returns true if the program has nothing more to do (--help). Throws UsageError on a wrong command
/// line.
inline bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return false;
  } catch (const CLI::Success& done) {
    app.exit(done);
    return true;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace specula_examples
