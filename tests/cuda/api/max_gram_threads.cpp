// SPDX-License-Identifier: MIT
// labels: threads
// Data races in max_gram(): every thread is a std::thread.
#include <doctest/doctest.h>
#include <specula/cuda/api/max_gram.cuh>

#include <cstdint>
#include <vector>

#include <specula/draft/max_gram.hpp>

#include "emulated_gpu.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using specula::Token;

TEST_CASE("concurrent threads: searches of all lengths, copies and bigrams") {
  Random random(1);
  std::vector<Token> bigram;
  for (Token t = 0; t < 400; ++t) bigram.push_back((t + 1) % 400);
  std::vector<Token> text(240, 4);  // long runs with one exception: all warps search for the longest
  text[130] = 5;
  std::vector<Token> other;
  for (int i = 0; i < 240; ++i) other.push_back(random.below(6));
  std::vector<Token> fresh;  // no repetition: each draft token comes from the one before
  for (int i = 0; i < 240; ++i) fresh.push_back(i);
  for (const bool past_end : {false, true})
    for (const std::vector<Token>& tokens : {text, other, fresh}) {
      const auto size = static_cast<std::int32_t>(tokens.size());
      std::vector<Token> draft_token(9, -7);
      std::int32_t count = -7, match = -7;
      const device::MaxGramOptions options{.draft_tokens = 9, .past_end = past_end};
      const device::MaxGramBatch batch{tokens.data(),      size,   &size, bigram.data(),
                                       draft_token.data(), &count, &match};
      emulate({.threads = 96,
               .shared_bytes = device::detail::max_gram_shared_bytes(options.draft_tokens),
               .engine = Engine::threads},
              [&](EmulatedCluster cluster, int index, unsigned char* shared) {
                device::detail::max_gram(cluster.block(), batch, options, 400, size, index, shared);
              });

      specula::MaxGram drafter(specula::Bigram(specula::BigramTable(bigram)),
                               {.past_end = past_end, .learn = false});
      drafter.sync(specula::Tokens(tokens).first(tokens.size() - 1), {});
      Token token = tokens.back();
      specula::NodeId parent = specula::kNoParent;
      for (std::int32_t i = 0; i < 9; ++i) {
        token = drafter.extend({&token, 1}, {&parent, 1}).tokens[0];
        CHECK(draft_token[static_cast<std::size_t>(i)] == token);
        parent = i;
      }
      CHECK(count == 9);
    }
}
