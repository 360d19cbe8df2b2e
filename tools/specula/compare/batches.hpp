// SPDX-License-Identifier: MIT
// Many texts at once: what pipelines write in a second while always as many texts are being written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "comparison.hpp"
#include "figures.hpp"
#include "text_batch.hpp"

namespace specula_tools {

/// What a pipeline gave, by prompt. A round is timed if all texts had begun to write before it: while one
/// reads its prompt, the time is the prompt's.
struct BatchRuns {
  std::vector<std::vector<Token>> tokens;  // (prompts) its text
  /// (repetitions, prompts) tokens of timed rounds, and their seconds, shared by the texts of the round.
  std::vector<std::vector<double>> written, seconds;
  double timed = 0, passes = 0;  // seconds of all timed rounds, and of the passes in them
  std::int64_t rounds = 0;       // timed ones, all repetitions

  explicit BatchRuns(std::size_t prompts) : tokens(prompts) {}
};

/// Adds a repetition: every prompt, or several copies of each if there are fewer than `texts`, with others
/// after them so that always `texts` are being written. A text's `sequence` is its number, the prompt's for
/// the first copy. Only the first repetition's tokens are kept. Throws what a text failed with, and
/// std::invalid_argument if no round could be timed. `ended` is called with the end of each text that counts.
void write_full(TextBatch& batch, std::span<const std::vector<Token>> prompts, std::int32_t texts,
                const CompareSettings& settings, const specula::SamplingParams& params,
                const std::function<double()>& clock, BatchRuns& runs,
                const std::function<void()>& ended = {});

/// The texts of a repetition that count: all prompts as often as it takes for `texts` at once.
inline std::size_t counted_texts(std::size_t prompts, std::int32_t texts) {
  return (static_cast<std::size_t>(texts) + prompts - 1) / prompts * prompts;
}

/// A pipeline with so many texts at once. Intervals are over prompts; with one prompt they are its values.
struct BatchFigures {
  std::string name;
  std::int32_t texts = 0;
  Interval tokens_per_second;  // of all texts together
  Interval over_plain;         // ratio to plain decoding of as many texts
  Interval over_fewest;        // ratio to the same pipeline with the first number of texts
  double milliseconds_per_token = 0,
         slowest_tenth = 0;     // of one text: median over prompts, and its 90% quantile
  double tokens_per_round = 0;  // of one text
  double own_share = 0;         // of the rounds' time, outside the models
  std::int64_t prompts = 0;
  std::int64_t identical_to_alone = 0;  // prompts whose text is that of `alone`
};

/// `runs` of (numbers of texts, pipelines), the first pipeline plain decoding; `alone` its texts, one at a
/// time, by prompt.
std::vector<BatchFigures> batch_figures(std::span<const std::string> pipelines,
                                        std::span<const std::int32_t> texts,
                                        const std::vector<std::vector<BatchRuns>>& runs,
                                        const Outcome& alone);

std::string batch_table(std::span<const BatchFigures> all);
/// [{"texts": 8, "pipelines": [{"name": ..., "tokens_per_second": [value, low, high], ...}, ...]}, ...]
nlohmann::ordered_json batch_json(std::span<const BatchFigures> all);

/// "1,2,8": ascending numbers of texts. Throws UsageError for anything else.
std::vector<std::int32_t> parse_batches(const std::string& text);

}  // namespace specula_tools
