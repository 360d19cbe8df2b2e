// SPDX-License-Identifier: MIT
// The target's own text, many texts at once.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "llama.hpp"
#include "tokens.hpp"

namespace specula_train {

/// How a text is made: what it begins with, and what is put each time that the model has ended its part of it
/// (the template's words around an answer, say), after which it goes on.
struct TextPlan {
  std::uint32_t number = 0;  ///< of all texts of a seed: names its random draws and, in turn, its temperature
  Document begin;            ///< at least one token
  std::vector<Document> then = {};
  bool asks = false;  ///< every other part, from the first on, is a question: drawn at temperature 1, since a
                      ///< greedy one would be the same in every text
};

struct SamplerOptions {
  std::int64_t texts = 128;                        ///< at once: rows of a pass
  std::int64_t longest = 1024;                     ///< tokens of a text, at most kMaxPositions
  std::int64_t part = 512;                         ///< tokens that the model adds before it is cut off
  std::vector<float> temperatures = {0, 0.7F, 1};  ///< of texts, in turn
  std::vector<Token> ends = {};                    ///< tokens that end a part
  std::uint64_t seed = 1;
};

/// Samples texts, each a token a pass; what a text begins with is read at once. The draws of a text are
/// functions of the seed, its number and the position, so that it does not depend on what else is in its
/// passes, but for the rounding of products.
///
/// `plans` gives the next text, or nothing if there is none; `done` gets a text when it is complete: it ends
/// with an end, or where it was cut off. Texts in progress when `stopped` says so, which is asked before each
/// pass, are dropped. Throws std::invalid_argument for a text that begins with nothing or has no room to go
/// on.
///
/// Cost: a pass over the model's matrices for each beginning, and for each token of `texts` texts; a cache of
/// Llama::text_cache().
void sample_texts(Llama& model, torch::ScalarType dtype, const SamplerOptions& options,
                  const std::function<std::optional<TextPlan>()>& plans,
                  const std::function<void(const TextPlan& plan, Document text)>& done,
                  const std::function<bool(std::int64_t passes)>& stopped);

}  // namespace specula_train
