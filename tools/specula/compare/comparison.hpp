// SPDX-License-Identifier: MIT
// Runs several pipelines over the same prompts, interleaved, so that drift of the machine affects all alike.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include "decode.hpp"

namespace specula_tools {

struct Contender {
  std::string name;
  specula::Pipeline* pipeline = nullptr;
  bool lossy = false;
  std::function<void()> before = {};  // called before each of its texts, outside the time
};

struct CompareSettings {
  std::int32_t max_new_tokens = 128;
  std::vector<Token> stop = {};  // any of these ends a text
  std::uint64_t seed = 0;
  std::int32_t repeat = 1;
};

/// One pipeline on one prompt. Counts and text are the first repetition's (the others use the same uniform
/// draws), times are medians over the repetitions.
struct PromptResult {
  Decoded first;
  double prefill_seconds = 0, decode_seconds = 0;
  specula::Stats pooled;                    // over repetitions
  std::vector<specula::DraftUsage> drafts;  // likewise
};

struct Outcome {
  std::string name;
  bool lossy = false;
  std::vector<PromptResult> prompts;
  specula::Stats pooled;                    // over prompts and repetitions
  std::vector<specula::DraftUsage> drafts;  // likewise
  std::vector<specula::Reviews> reviews;    // of a cascade's reviewers, the warm-up included
};

using Progress = std::function<void(std::size_t done, std::size_t total)>;

/// Decodes each prompt with all pipelines, starting with another one each time, after a short untimed run of
/// each. Prompt i uses stream i of the seed's uniform draws in all pipelines.
std::vector<Outcome> compare(std::span<const Contender> contenders,
                             std::span<const std::vector<Token>> prompts, const CompareSettings& settings,
                             const Progress& progress = {});

/// The outcome of a subset of the prompts, without `reviews`, which are not counted per prompt.
Outcome only(const Outcome& outcome, std::span<const std::size_t> prompts);

}  // namespace specula_tools
