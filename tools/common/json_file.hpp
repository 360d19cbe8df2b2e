// SPDX-License-Identifier: MIT
// JSON that the programs write.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "decoding_options.hpp"
#include "files.hpp"
#include "model_pack.hpp"

namespace specula_tools {

/// As write_file(). What is no UTF-8, such as the name of a file may be, becomes U+FFFD.
inline void write_json(const std::filesystem::path& file, const nlohmann::ordered_json& json) {
  write_file(file, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

/// The last name of a path, with or without a slash at its end: what JSON says of a file or a folder.
inline std::string leaf(const std::filesystem::path& path) {
  return (path / "").parent_path().filename().string();
}

/// Adds how the library's own models calculate.
inline void add_arithmetic_json(nlohmann::ordered_json& out, const ArithmeticOptions& options) {
  out["inputs"] = word_of(inputs_of(options.inputs, isa_of(options.isa)));
  if (options.isa != "auto") out["isa"] = options.isa;
  out["weights"] = options.weights;
  out["cache"] = options.cache;
}

/// Adds what the options say of the texts.
inline void add_decoding_json(nlohmann::ordered_json& out, const DecodingOptions& options) {
  out["max_new_tokens"] = options.max_new_tokens;
  out["temperature"] = options.sampling.temperature;
  out["top_k"] = options.sampling.top_k;
  out["top_p"] = options.sampling.top_p;
  out["min_p"] = options.sampling.min_p;
  out["seed"] = options.seed;
}

}  // namespace specula_tools
