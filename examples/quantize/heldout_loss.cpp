#include "heldout_loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/eigen/llama.hpp>

#include "../train/src/token_store.hpp"

namespace specula_examples {
namespace {

/// -log of the probability that the row gives to the token.
double surprise(std::span<const float> row, specula::Token token) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - most);
  return std::log(sum) + most - static_cast<double>(row[static_cast<std::size_t>(token)]);
}

}  // namespace

std::map<std::string, double> heldout_loss(const std::filesystem::path& model,
                                           const std::filesystem::path& tokens, std::size_t rows,
                                           std::size_t length) {
  const specula_train::TokenizedCorpus corpus = specula_train::read_tokens(tokens);
  specula::eigen::Llama<float> llama(
      model, {.capacity = static_cast<std::int32_t>(length), .max_nodes = static_cast<std::int32_t>(length)});
  if (llama.vocab_size() != corpus.vocab_size)
    throw std::runtime_error(tokens.string() + ": " + std::to_string(corpus.vocab_size) + " tokens, " +
                             model.string() + " has " + std::to_string(llama.vocab_size()));
  std::vector<specula::NodeId> parents(length);
  for (std::size_t i = 0; i < length; ++i) parents[i] = static_cast<specula::NodeId>(i) - 1;

  std::map<std::string, double> out;
  for (const auto& style : corpus.styles) {
    std::vector<specula::Token> text;
    for (const auto& document : style.heldout) text.insert(text.end(), document.begin(), document.end());
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t r = 0; r < rows && (r + 1) * length <= text.size(); ++r) {
      const std::span row = std::span<const specula::Token>(text).subspan(r * length, length);
      llama.truncate(0);
      const specula::RowsView logits = llama.extend(row, parents);
      for (std::size_t i = 0; i + 1 < length; ++i, ++count)
        sum += surprise(logits.row(static_cast<std::int32_t>(i)), row[i + 1]);
    }
    if (count > 0) out[style.name] = sum / static_cast<double>(count);
  }
  return out;
}

}  // namespace specula_examples
