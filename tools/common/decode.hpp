// SPDX-License-Identifier: MIT
// One prompt through one pipeline, with its figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include <specula/run/limits.hpp>

namespace specula_tools {

using specula::Token;
using specula::Tokens;

struct DecodeSettings {
  std::int32_t max_new_tokens = 128;
  std::vector<Token> stop = {};  // any of these ends the text
  /// Called with each token that would be emitted, in order; true: the text ends with it.
  std::function<bool(Token)> ends = {};
  /// Called before a long prompt is read (done == 0), now and then while it is, and once, before its first
  /// tokens are passed on, when it is: done == total. The prompt is then read in several parts.
  std::function<void(std::size_t done, std::size_t total)> prefill = {};
  /// Asked after each part of the prompt and after each round; true: the text ends there.
  std::function<bool()> interrupted = {};
  /// Called once, when the prompt has been read, before its first tokens are passed on.
  std::function<void(Tokens prompt)> read = {};
  /// Called before the text begins.
  std::function<void(std::size_t prompt_tokens)> begin = {};
  std::uint64_t seed = 0;
  std::uint32_t sequence = 0;  // which of the seed's streams of uniform draws: the prompt's number
  bool keeps_prefix = false;   // computes nothing anew that the pipeline's last text shares with the prompt
  std::optional<specula::LogprobOptions> logprobs = {};  // Decoded::logprobs
  /// What to do if the draft fails: go on plainly, or throw, since the figures would be plain decoding's.
  bool goes_on_plainly = false;
};

inline constexpr std::size_t kContextStep = 64;

/// Rounds that began with so many tokens before the root, and what they emitted.
struct ContextRange {
  std::int64_t rounds = 0;
  std::int64_t new_tokens = 0;
};

/// Draft tokens of one range of the draft's confidence that the target judged, and those of them that it
/// accepted.
struct ConfidenceRange {
  std::int64_t proposals = 0;
  std::int64_t accepted = 0;
};
/// [0, 0.1), [0.1, 0.2), ..., [0.9, 1].
using ByConfidence = std::array<ConfidenceRange, 10>;

/// Adds a round of which `emitted` tokens were emitted: the draft tokens in front of which all were accepted,
/// siblings included, as far as tokens were emitted.
void count_confidences(const specula::TokenTree& proposal, const specula::VerifyResult& result,
                       std::size_t emitted, ByConfidence& ranges);

/// What one prompt gave. Tokens that the last round accepted beyond the limit or after the text's end are
/// neither in `tokens` nor in `stats`.
struct Decoded {
  std::vector<Token> tokens;                // emitted, the stop token included
  std::vector<bool> from_draft;             // (tokens) accepted draft tokens; empty: not known
  specula::LogprobList logprobs;            // (tokens) if settings ask for them
  specula::Stats stats;                     // of this prompt alone
  std::vector<specula::DraftUsage> drafts;  // likewise
  std::vector<ContextRange> by_context;     // contexts of [0, 64) tokens, [64, 128), ...
  ByConfidence by_confidence = {};
  std::size_t prompt_tokens = 0;
  bool interrupted = false;
  double prefill_seconds = 0;                                   // start()
  double decode_seconds = 0;                                    // all step()s, nothing else
  specula::FinishReason ending = specula::FinishReason::limit;  // cancelled: by `ends`, or interrupted
  std::string draft_error = {};                                 // what ended drafting, if settings allow that
};

/// `fresh` are a round's emitted tokens, the first `draft_tokens` of them accepted draft tokens.
using RoundSink = std::function<void(Tokens fresh, std::size_t draft_tokens)>;

/// The pipeline's generate(), which keeps no prefix of an earlier text unless settings say so, so that times
/// of prefill compare. Stop tokens that the models lack are left out. The time inside `sink` and `ends` is
/// not counted. Throws std::runtime_error if the draft fails, unless `goes_on_plainly`.
Decoded decode(specula::Pipeline& pipeline, Tokens prompt, const DecodeSettings& settings,
               const RoundSink& sink = {});

}  // namespace specula_tools
