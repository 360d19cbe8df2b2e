// SPDX-License-Identifier: MIT
// The tokens that a draft predicts: the most frequent of the text that it is trained on.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tokens.hpp"

namespace specula_train {

/// A draft vocabulary; without tokens: all of the target's.
struct DraftVocabulary {
  std::vector<std::int32_t> tokens = {};  ///< of the target's vocabulary, ascending
  double coverage = 1;  ///< the part of the training text's tokens, by shares of its styles, that are in it
  double heldout_coverage = 1;  ///< the same of the held-out text; 0 where there is none
};

/// The `size` most frequent tokens of the text to train on (prompts included, styles weighted by their
/// shares; the lower id first where counts are equal), fewer if fewer cover the part `enough` of the held-out
/// text (of the text itself where nothing is held out) or occur at all. The corpus's end and `ends` are
/// always among them, so a result may have these in addition. Size 0: no tokens, all of the vocabulary.
/// Throws std::invalid_argument for a negative size, or an end outside the vocabulary. Cost: O(tokens).
DraftVocabulary count_draft_vocabulary(const TokenizedCorpus& corpus, const std::vector<double>& shares,
                                       std::int64_t size, std::span<const Token> ends = {},
                                       double enough = 0.98);

/// These tokens, and their coverage of this text.
DraftVocabulary measure_draft_vocabulary(const TokenizedCorpus& corpus, const std::vector<double>& shares,
                                         const std::vector<std::int32_t>& tokens);

/// The same of a folder of tokens (token_store.hpp), with equal shares and the stop tokens that files in it
/// name.
DraftVocabulary count_draft_vocabulary(const std::filesystem::path& folder, std::int64_t size,
                                       double enough = 0.98);

/// "draft vocabulary of 16384 tokens: 94.2% of the text, 93.1% of the held-out text"; "all tokens" without
/// one.
std::string describe(const DraftVocabulary& vocabulary);

/// (vocab_size) int64: each token's place among `tokens`, or -1.
torch::Tensor draft_columns(const std::vector<std::int32_t>& tokens, std::int64_t vocab_size);

}  // namespace specula_train
