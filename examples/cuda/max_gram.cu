// SPDX-License-Identifier: MIT
#include <specula/cuda/api/max_gram.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // Texts in rows of 4096 tokens, their lengths (the last emitted token, the root, included), up to 10
  // draft tokens each.
  constexpr int kSequences = 2, kStride = 4096, kDraftTokens = 10;
  std::vector<Token> text(kSequences * kStride);
  for (const int b : {0, 1})
    for (int i = 0; i < 100; ++i) text[static_cast<std::size_t>(b * kStride + i)] = i % (7 + 5 * b);
  MaxGramPlan plan;
  if (make_max_gram_plan(&plan, {kSequences, kStride, /*vocab*/ 128256}, {kDraftTokens}) != cudaSuccess)
    return 1;

  Token* const draft_token = zeros<Token>(kSequences * kDraftTokens);
  std::int32_t *const count = zeros<std::int32_t>(kSequences), *const match = zeros<std::int32_t>(kSequences);
  const MaxGramBatch batch{
      on_device(text), kStride, on_device<std::int32_t>({100, 90}), /*bigram*/ nullptr, draft_token,
      count,           match};
  if (max_gram(plan, batch, nullptr) != cudaSuccess) return 1;
  const std::vector<std::int32_t> made = to_host(count, kSequences), found = to_host(match, kSequences);
  for (const std::size_t b : {0, 1})
    std::printf("%d draft tokens after a match of %d tokens\n", made[b], found[b]);
}
