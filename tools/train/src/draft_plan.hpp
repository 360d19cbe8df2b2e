// SPDX-License-Identifier: MIT
// From a target to a draft: which programs run, in which order, on which part of the time; and what their
// result means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "llama.hpp"
#include "stages.hpp"

namespace specula_train {

struct DraftRequest {
  std::filesystem::path target, output;
  std::string method = "hass";  // or eagle, glide, plain
  double hours = 4;
  std::vector<std::string> texts = {},
                           asks = {};  // NAME=PATH, NAME=TEXT: see specula-train-text corpus and prompts
  std::vector<std::filesystem::path> evaluation = {};  // prompts that must not be learned
  std::vector<std::string> training = {};              // further words of the training's command
};

/// Where the programs are.
struct Programs {
  std::filesystem::path train, text;
  std::filesystem::path specula = {};  // empty: not found
};

struct Stage {
  std::string name;
  double hours = 0;  // about
  std::vector<Call> calls;
};

/// The stages: a folder of a target that is a GGUF file, text, training, 8 bits, and measuring. Throws
/// std::invalid_argument for an unknown method, or a time of 0.
std::vector<Stage> plan_draft(const DraftRequest& request, const Programs& programs);

/// What will be on the disk and in memory at most, in bytes, about.
struct Needs {
  double disk = 0, memory = 0;
};
Needs needs_of(const DraftRequest& request, const DecoderConfig& target);

/// The pipelines to measure, plain decoding and Max-Gram among them.
std::vector<std::string> pipelines_of(const std::string& method);

/// What the figures of `specula compare` (JSON) say of the draft: a table of acceptance by depth, costs and
/// speedups, and the pipeline to use, or that none with the draft is worth it. Throws std::runtime_error
/// naming key and file.
std::string verdict(const std::filesystem::path& json, const std::string& method);

}  // namespace specula_train
