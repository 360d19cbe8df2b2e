// SPDX-License-Identifier: MIT
// What a text of a batch is asked for, and what it gives.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/stats.hpp"
#include "specula/run/limits.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

using TextId = std::uint64_t;  ///< of a text in a batch: from 1 on, never used twice

/// A text that is to be written.
struct TextRequest {
  std::vector<Token> prompt = {};     ///< at least one token
  std::int32_t max_new_tokens = 256;  ///< see Limits
  std::vector<Token> stop = {};       ///< see Limits
  SamplingParams params = {};         ///< of this text
  /// Of PhiloxRandom. None: 0, and a sequence of the text's own, so that texts draw independently, and a
  /// program that joins the same texts in the same order writes them again.
  std::optional<std::uint64_t> seed = {};
  /// Of PhiloxRandom: samples of one prompt under one seed need one each. None: 0 with a seed, so that the
  /// text is the one that it is alone, and without a seed the text's number.
  std::optional<std::uint32_t> sequence = {};
  std::optional<LogprobOptions> logprobs = {};  ///< TextResult::logprobs; see TreeVerifier::report_logprobs()
  /// Called with the slot that the text gets, before its prompt is read there, and again when it goes on
  /// after a pause: to set what the slot has for this text alone, such as its processor. What it throws ends
  /// the text. Or empty.
  std::function<void(std::int32_t slot)> enter = {};
  /// As generate()'s, or empty: called by step() with the tokens of each round.
  std::function<bool(Tokens)> sink = {};
};

/// A text that has ended.
struct TextResult {
  TextId id = 0;                                  ///< that join() returned
  std::vector<Token> tokens = {};                 ///< emitted
  FinishReason reason = FinishReason::cancelled;  ///< why it ended; of no meaning after a failure
  /// What its rule, shape or sink threw, a bad row, or NoRoom; it ended this text alone.
  std::exception_ptr failure = nullptr;
  Stats stats = {};           ///< of this text
  LogprobList logprobs = {};  ///< (tokens), if they were requested
};

}  // namespace specula
