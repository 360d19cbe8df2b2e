// SPDX-License-Identifier: MIT
#include "draft_vocabulary.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>

#include "stop_tokens.hpp"

namespace specula_train {
namespace {

/// Each token's part of the text: the mean over the styles by their shares; a style without text does not
/// count.
std::vector<double> frequencies(const TokenizedCorpus& corpus, const std::vector<double>& shares,
                                std::vector<Document> TokenizedStyle::*text) {
  std::vector<double> all(static_cast<std::size_t>(corpus.vocab_size));
  for (std::size_t i = 0; i < corpus.styles.size(); ++i) {
    const auto& documents = corpus.styles[i].*text;
    const auto weight = shares[i] / static_cast<double>(count_tokens(documents));
    for (const auto& document : documents)
      for (const Token token : document)
        all[static_cast<std::size_t>(token < 0 ? mark_given(token) : token)] += weight;
  }
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  if (sum > 0)
    for (double& part : all) part /= sum;
  return all;
}

}  // namespace

DraftVocabulary measure_draft_vocabulary(const TokenizedCorpus& corpus, const std::vector<double>& shares,
                                         const std::vector<std::int32_t>& tokens) {
  const auto coverage = [&](std::vector<Document> TokenizedStyle::*text) {
    const auto parts = frequencies(corpus, shares, text);
    double sum = 0;
    for (const Token token : tokens) sum += parts.at(static_cast<std::size_t>(token));
    return sum;
  };
  return {.tokens = tokens,
          .coverage = coverage(&TokenizedStyle::train),
          .heldout_coverage = coverage(&TokenizedStyle::heldout)};
}

DraftVocabulary count_draft_vocabulary(const TokenizedCorpus& corpus, const std::vector<double>& shares,
                                       std::int64_t size, std::span<const Token> ends, double enough) {
  if (size < 0)
    throw std::invalid_argument("--draft-vocabulary " + std::to_string(size) +
                                ": expected 0 (all) or a number of tokens");
  if (size == 0 || size >= corpus.vocab_size) return {};
  std::vector<Token> chosen(ends.begin(), ends.end());
  chosen.push_back(corpus.end);
  for (const Token token : chosen)
    if (token < 0 || token >= corpus.vocab_size)
      throw std::invalid_argument("draft vocabulary: token " + std::to_string(token) +
                                  ", which ends texts, is outside the vocabulary of " +
                                  std::to_string(corpus.vocab_size));
  const auto frequency = frequencies(corpus, shares, &TokenizedStyle::train);
  // What is enough is asked of text that was not counted, if there is any: a small text covers itself with
  // few tokens.
  const auto unseen = frequencies(corpus, shares, &TokenizedStyle::heldout);
  const auto& asked = std::accumulate(unseen.begin(), unseen.end(), 0.0) > 0 ? unseen : frequency;
  const auto of = [&](Token token) { return frequency[static_cast<std::size_t>(token)]; };
  std::vector<Token> order(frequency.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](Token a, Token b) { return of(a) != of(b) ? of(a) > of(b) : a < b; });
  double covered = 0;
  for (std::size_t i = 0;
       i < order.size() && static_cast<std::int64_t>(i) < size && covered < enough && of(order[i]) > 0; ++i) {
    covered += asked[static_cast<std::size_t>(order[i])];
    chosen.push_back(order[i]);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return measure_draft_vocabulary(corpus, shares, chosen);
}

DraftVocabulary count_draft_vocabulary(const std::filesystem::path& folder, std::int64_t size,
                                       double enough) {
  const auto corpus = read_tokens(folder);
  return count_draft_vocabulary(corpus, std::vector<double>(corpus.styles.size(), 1), size,
                                specula_tools::read_stop_tokens(folder), enough);
}

std::string describe(const DraftVocabulary& vocabulary) {
  if (vocabulary.tokens.empty()) return "all tokens";
  char text[120];
  std::snprintf(text, sizeof text,
                "draft vocabulary of %zu tokens: %.1f%% of the text, %.1f%% of the held-out text",
                vocabulary.tokens.size(), 100 * vocabulary.coverage, 100 * vocabulary.heldout_coverage);
  return text;
}

torch::Tensor draft_columns(const std::vector<std::int32_t>& tokens, std::int64_t vocab_size) {
  auto columns = torch::full({vocab_size}, -1, torch::kInt64);
  auto* out = columns.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = static_cast<std::int64_t>(i);
  return columns;
}

}  // namespace specula_train
