// SPDX-License-Identifier: MIT
// labels: long
// A trained checkpoint (TinyStories), if present: float against double and the naive transcription, trees
// against paths.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "naive_llama.hpp"
#include "skip.hpp"
#include "specula/cpu/decoder.hpp"
#include "worst.hpp"

#ifndef SPECULA_SHARED_DIR
#define SPECULA_SHARED_DIR ""
#endif

namespace {

using namespace specula;
using namespace specula::cpu;

/// Greedy tokens after the start of a story (id 1).
template <class Real>
std::vector<Token> greedy(Decoder<Real>& model, std::size_t count) {
  std::vector<Token> text{1};
  const NodeId parent = kNoParent, node = 0;
  while (text.size() < count) {
    const auto logits = model.extend({&text.back(), 1}, {&parent, 1}).row(0);
    model.commit({&node, 1});
    text.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return text;
}

TEST_CASE("a trained checkpoint") {
  const std::filesystem::path directory =
      std::filesystem::path(SPECULA_SHARED_DIR) / "models" / "tinystories-656k";
  if (!std::filesystem::exists(directory / "model.safetensors"))
    return specula_test::skip("no models/tinystories-656k in SPECULA_SHARED_DIR");

  const auto doubles =
      std::make_shared<const DecoderWeights<double>>(load_decoder_weights<double>(directory));
  Decoder<float> model(directory, {.capacity = 512});
  Decoder<double> reference(doubles, {.capacity = 512});
  CHECK(model.vocab_size() == 2048);

  const auto text = greedy(model, 120);
  CHECK(greedy(reference, 120) == text);
  // "Once upon a time, there was a little girl named": this checkpoint's greedy beginning, as tokens.
  const std::vector<Token> opening{1, 147, 201, 282, 215, 286, 598, 1662, 356, 499, 826};
  CHECK(std::equal(opening.begin(), opening.end(), text.begin()));

  // The whole text as one chain of nodes: float to 1e-4, double to 1e-9 of the transcription.
  std::vector<NodeId> chain;
  for (NodeId i = 0; i < 60; ++i) chain.push_back(i - 1);
  model.truncate(0);
  reference.truncate(0);
  const LogitsView rows = model.extend(Tokens(text).first(60), chain);
  reference.extend(Tokens(text).first(60), chain);
  double worst = 0;
  for (std::int32_t i = 0; i < 60; ++i)
    for (std::int32_t v = 0; v < 2048; ++v)
      worst =
          specula_test::worse(worst, std::abs(static_cast<double>(rows.row(i)[static_cast<std::size_t>(v)]) -
                                              reference.logits(i)[static_cast<std::size_t>(v)]));
  CHECK(worst < 1e-4);
  const auto naive = specula_test::naive_llama(*doubles, {text.begin(), text.begin() + 24});
  double far = 0;
  for (std::size_t v = 0; v < 2048; ++v)
    far = specula_test::worse(far, std::abs(naive[v] - reference.logits(23)[v]));
  CHECK(far < 1e-9);

  // Prefill, then a tree: the same bits as the chain.
  const std::vector<float> expected(rows.row(59).begin(), rows.row(59).end());
  Decoder<float> prefilled(directory, {.capacity = 512, .prefill_chunk = 32});
  prefilled.append(Tokens(text).first(57));
  const std::vector<Token> tokens{text[57], 5, text[58], 6, text[59]};
  const std::vector<NodeId> parents{kNoParent, 0, 0, 1, 2};
  const auto row = prefilled.extend(tokens, parents).row(4);
  CHECK(std::equal(expected.begin(), expected.end(), row.begin()));
}

}  // namespace
