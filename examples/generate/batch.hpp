// The answers to a file of prompts, several texts at once.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <specula/base/sampling_params.hpp>

#include "asked_prompt.hpp"
#include "decode.hpp"
#include "model_pack.hpp"
#include "tokenizer.hpp"

namespace specula_examples {

/// A text that a batch has written.
struct BatchAnswer {
  std::string prompt, text;
  Decoded run;  // decode_seconds: from the first pass of its prompt to its end, beside the others
};

struct BatchRun {
  std::string pipeline;
  specula::SamplingParams params;
  std::int32_t texts = 1;
  std::vector<std::string> stops;  // strings
};

/// Answers all prompts, turn by turn, `run.texts` at once; `show(answer)` gets them in the order of the
/// prompts. The `sequence` of an answer is its number. Says at the end what all together took. Throws what a
/// text failed with.
void answer_batch(ModelPack& models, std::span<AskedPrompt> prompts, const BatchRun& run,
                  const DecodeSettings& settings, const Tokenizer& tokenizer, std::ostream& notes,
                  const std::function<void(const BatchAnswer&)>& show);

}  // namespace specula_examples
