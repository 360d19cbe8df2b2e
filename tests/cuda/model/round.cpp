// SPDX-License-Identifier: MIT
// labels: optimised
// Rounds on the device: bad input, limits, stop tokens, lengths, what the host waits for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "small_model.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula::Chain;
using specula::Greedy;
using specula_test::EmulatedDevice;

TEST_CASE("a greedy chain writes plain decoding's text") {
  const auto target = small_weights();
  auto draft = target;  // agrees often: its first layer, embedding and head
  draft.config.layers = 1, draft.layers.resize(1);
  EmulatedDevice device;
  const auto on_device = cuda::upload(device, target, 128),
             draft_on_device = cuda::upload(device, draft, 128);
  cuda::Round run(device, on_device, draft_on_device, Chain<>{.length = 4}, Greedy{}, {.capacity = 128});
  const std::vector<Token> prompt = random_tokens(21, 3);
  std::vector<std::vector<Token>> texts;
  for (const int length : {0, 1, 2, 4}) {
    std::vector<Token> text;
    run.generate(
        prompt, {.max_new_tokens = 40}, 1,
        [&](specula::Tokens t) { text.insert(text.end(), t.begin(), t.end()); }, length);
    CHECK(text.size() == 40);
    MESSAGE(length << ": " << run.rounds());
    texts.push_back(text);
  }
  for (const auto& text : texts) CHECK(text == texts[0]);
}
