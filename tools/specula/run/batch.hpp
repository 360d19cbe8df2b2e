// SPDX-License-Identifier: MIT
// The answers to a file of prompts, several texts at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <specula/base/sampling_params.hpp>

#include "answers.hpp"
#include "asked_prompt.hpp"
#include "decode.hpp"
#include "text_batch.hpp"
#include "text_stream.hpp"

namespace specula_tools {

struct BatchRun {
  std::string pipeline;
  specula::SamplingParams params;
  std::int32_t texts = 1;
  std::vector<std::string> stops;  // strings
  /// Called before a text begins or goes on in a slot; or empty.
  std::function<void(std::int32_t slot, std::size_t prompt_tokens)> begin = {};
};

/// Answers all prompts, turn by turn, in a batch of `run.texts` texts; `show(answer)` gets them in the order
/// of the prompts. The `sequence` of an answer is its number (first_numbers()), so a text is the one that it
/// is alone. An answer that fails is shown, too, and the others go on. decode_seconds are those from the
/// first pass of its prompt to its end, beside the others. Says at the end what all together took.
void answer_batch(TextBatch& batch, std::span<AskedPrompt> prompts, const BatchRun& run,
                  const DecodeSettings& settings, const TextStream::BytesOf& bytes_of, std::ostream& notes,
                  const std::function<void(const Answer&)>& show);

}  // namespace specula_tools
