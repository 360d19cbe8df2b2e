// SPDX-License-Identifier: MIT
#include "heldout_loss.hpp"

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/distribution/row_scan.hpp>

#include "token_store.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

namespace specula_tools {

std::map<std::string, double> heldout_loss(const std::filesystem::path& model,
                                           const std::filesystem::path& tokens, std::size_t rows,
                                           std::size_t length) {
  const TokenizedCorpus corpus = read_tokens(tokens);
  specula::cpu::Decoder<float> llama(
      model, {.capacity = static_cast<std::int32_t>(length), .max_nodes = static_cast<std::int32_t>(length)});
  if (llama.vocab_size() != corpus.vocab_size)
    throw std::runtime_error(tokens.string() + ": " + std::to_string(corpus.vocab_size) + " tokens, " +
                             model.string() + " has " + std::to_string(llama.vocab_size()));
  if (has_tokenizer(model) && !may_be_of(corpus.vocabulary, Tokenizer(model).pieces()))
    throw std::runtime_error(tokens.string() + ": tokens of another vocabulary than that of " +
                             model.string());
  specula::detail::RowScan scan(llama.vocab_size());
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
      const specula::LogitsView rows_of = llama.extend(row, parents);
      for (std::size_t i = 0; i + 1 < length; ++i, ++count) {
        const auto logits = rows_of.row(static_cast<std::int32_t>(i));
        sum -= scan.distribution(logits, {}).log_prob(logits[static_cast<std::size_t>(row[i + 1])]);
      }
    }
    if (count > 0) out[style.name] = sum / static_cast<double>(count);
  }
  return out;
}

}  // namespace specula_tools
