// SPDX-License-Identifier: MIT
// Options that the programs share, on the command line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <specula/version.hpp>

#include <specula/base/read_number.hpp>
#include <specula/runtime/nearest.hpp>
#include "decoding_options.hpp"
#include "errors.hpp"
#include "wrapped.hpp"

namespace specula_tools {

/// For options that count: CLI11 alone takes -1 and 2^64 for numbers.
inline CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        if (specula::detail::read_number(text, value)) return std::string();
        return "'" + text + "' must be a whole number from 0 to 18446744073709551615";
      },
      "");
}

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
  app.add_option("--seed", options.seed,
                 "Of all uniform draws: on one machine, the same seed gives the same text")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option(
         "--threads", options.threads,
         "Threads of the target; 0: as many as the machine has, 16 at most, as where a text is shown; "
         "measurements have 1 unless you say so")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_flag("--beyond-context", options.beyond_context,
               "Go on where prompt and new tokens are more positions than the target was trained for");
}

/// Of programs that print text.
inline void add_stop_option(CLI::App& app, std::vector<std::string>& stops) {
  app.add_option("--stop", stops,
                 "End the text before this string, wherever tokens begin and end in it (may be given several "
                 "times)")
      ->allow_extra_args(false);
}

inline void add_limit_option(CLI::App& app, std::size_t& limit, const char* what) {
  app.add_option("--limit", limit, what)->check(whole_number())->capture_default_str();
}

inline void add_arithmetic_options(CLI::App& app, ArithmeticOptions& options) {
  app.add_option(
         "--inputs", options.inputs,
         "What products take: int16 and int8 (of weights in blocks: integers, of others float), bf16 (of "
         "bf16 weights: rounded, as GPUs do), full (float; of blocks int16), or auto: bf16 on machines that "
         "gain by it, else int16")
      ->capture_default_str();
  app.add_option("--weights", options.weights,
                 "How matrices are kept in memory: blocks (those that the file has, of 4 to 8 bits), bf16, "
                 "full (float), or "
                 "auto: as the files have them")
      ->capture_default_str();
  app.add_option(
         "--cache", options.cache,
         "How keys and values are kept in memory: full (float), half (half of it: half floats), or auto: "
         "as goes with the weights")
      ->capture_default_str();
  app.add_option("--isa", options.isa,
                 "Instruction set of the models' products: portable, avx2, avx-vnni (of integers), avx512, "
                 "or auto: the "
                 "widest that the machine has")
      ->capture_default_str();
}

inline std::string version_text() {
  return std::to_string(SPECULA_VERSION_MAJOR) + "." + std::to_string(SPECULA_VERSION_MINOR) + "." +
         std::to_string(SPECULA_VERSION_PATCH);
}

/// What to tell the user of an option, or a command, that there is not.
inline std::string suggestion(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& word : app.remaining()) {
    std::string text;
    for (const auto& name : specula::nearest(word.substr(0, word.find('=')), names, 3))
      if (name.starts_with("--") == word.starts_with("--"))
        text.append(text.empty() ? "; the nearest are " : ", ").append(name);
    if (!text.empty()) return text;
  }
  return {};
}

/// Whether the program ends once its command line, and the pipelines and files in it, are right: the tests of
/// the commands on the pages (scripts/commands) set $SPECULA_PARSE_ONLY.
inline bool only_parses() { return std::getenv("SPECULA_PARSE_ONLY") != nullptr; }

/// Parses the words behind the program's name; returns true if it has nothing more to do (--help, --version).
/// Of an option that takes one value and is given several times, the last counts. Throws UsageError on a
/// wrong command line.
inline bool parse_command_line(CLI::App& app, std::vector<std::string> words) {
  app.set_version_flag("--version", app.get_name() + " " + version_text(), "Print the version and end");
  std::vector<CLI::App*> all = app.get_subcommands([](CLI::App*) { return true; });
  all.insert(all.begin(), &app);
  for (CLI::App* each : all)
    for (CLI::Option* option : each->get_options())
      if (option->get_expected_max() <= 1) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  const auto parsed = [&]() -> const CLI::App& {
    return app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  };
  try {
    app.parse(std::move(words));
    return false;
  } catch (const CLI::CallForHelp&) {
    std::cout << wrapped(app.help(), 100);
    return true;
  } catch (const CLI::Success& done) {
    app.exit(done);
    return true;
  } catch (const CLI::ExtrasError& error) {
    throw UsageError(error.what() + suggestion(parsed()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace specula_tools
