// SPDX-License-Identifier: MIT
// What compile_decoder_double.hpp defines: all that a file needs for models in double which includes the
// declarations alone, as this does. Both precisions side by side: compile_decoder.cpp.
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cpu/decoder_weights.hpp>

using namespace specula;
using namespace specula::cpu;

TEST_CASE("a model in double gives a token the same row below a node as after a prompt") {
  DecoderConfig config;
  config.vocab_size = 9, config.hidden_size = 8, config.intermediate_size = 8, config.layers = 1;
  config.heads = 2, config.kv_heads = 1, config.head_dim = 4;
  Decoder<double> model(
      std::make_shared<const DecoderWeights<double>>(random_decoder_weights<double>(config, 3)),
      {.capacity = 16});
  const auto row_of = [&](std::vector<Token> prompt, std::vector<Token> tokens, std::vector<NodeId> parents) {
    model.truncate(0);
    model.append(prompt);
    const auto row = model.extend(tokens, parents).row(static_cast<NodeId>(tokens.size()) - 1);
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> row = row_of({1, 2}, {3}, {kNoParent});
  CHECK(row.size() == 9);
  CHECK(row == row_of({1}, {2, 3}, {kNoParent, 0}));
  CHECK(row != row_of({1}, {4, 3}, {kNoParent, 0}));
}

TEST_CASE("a folder without a model is an error in double, too") {
  CHECK_THROWS_AS(load_decoder_weights<double>(std::filesystem::path("no such folder")), std::runtime_error);
}
