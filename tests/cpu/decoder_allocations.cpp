// SPDX-License-Identifier: MIT
// A steady round allocates nothing.
#include <doctest/doctest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "all_parts.hpp"
#include "count_allocations.hpp"
#include "specula/cpu/decoder.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;

TEST_CASE("append, extend, commit and truncate allocate nothing") {
  DecoderConfig config;
  config.vocab_size = 50, config.hidden_size = 32, config.intermediate_size = 40, config.layers = 2,
  config.heads = 4, config.kv_heads = 2, config.head_dim = 8;
  using Case = std::tuple<int, bool, CacheType, WeightType, Inputs>;
  constexpr auto kFull = CacheType::full, kHalf = CacheType::half;
  constexpr auto kPairs = WeightType::bf16, kBlocks = WeightType::blocks;
  for (const auto& [threads, drafts, cache, type, inputs] : {Case{1, false, kFull, kPairs, Inputs::full},
                                                             {2, false, kFull, kPairs, Inputs::full},
                                                             {1, true, kFull, kPairs, Inputs::full},
                                                             {2, true, kFull, kPairs, Inputs::full},
                                                             {2, false, kHalf, kPairs, Inputs::full},
                                                             {1, true, kHalf, kPairs, Inputs::full},
                                                             {1, false, kHalf, kBlocks, Inputs::full},
                                                             {2, true, kHalf, kBlocks, Inputs::int16},
                                                             {2, false, kFull, kBlocks, Inputs::int8}}) {
    if (threads == 2) config = specula_test::with_all_parts(config);
    auto target =
        std::make_shared<const DecoderWeights<float>>(random_decoder_weights<float>(config, 1, type));
    DecoderConfig draft = config;  // over the target's embedding, with a draft vocabulary
    draft.target_hidden_size = 32, draft.hidden_size = 24, draft.draft_vocab_size = 20;
    const auto weights = drafts ? std::make_shared<const DecoderWeights<float>>(
                                      random_decoder_weights<float>(draft, 2, type, target))
                                : target;
    Decoder<float> model(
        weights, {.capacity = 300, .max_nodes = 64, .threads = threads, .inputs = inputs, .cache = cache});
    std::vector<Token> tokens(64, 3);
    std::vector<NodeId> chain, tree, path{0, 1, 2};
    for (NodeId i = 0; i < 64; ++i) chain.push_back(i - 1), tree.push_back((i + 1) / 2 - 1);
    const auto rounds = [&] {
      for (int round = 0; round < 5; ++round) {
        model.truncate(0);
        model.append(Tokens(tokens).first(round % 2 == 0 ? 40 : 3));
        model.extend(Tokens(tokens).first(5), Nodes(chain).first(5));
        model.extend(Tokens(tokens).first(2), Nodes(path).first(2));
        model.commit(path);
        model.append(Tokens(tokens).first(2));
        model.extend(tokens, tree);
        model.commit({});
        model.extend(Tokens(tokens).first(1), Nodes(chain).first(1));
        model.truncate(model.size() - 1);
      }
    };
    rounds();
    const specula_test::AllocationCount allocated;
    rounds();
    const auto count = allocated.count();
    CHECK(count == 0);
  }
}

}  // namespace
