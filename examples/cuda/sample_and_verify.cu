// SPDX-License-Identifier: MIT
#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/api/verify.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // Two sequences, chains of 4 draft tokens each. Zeros stand for the logits of a draft and a target.
  constexpr int kSequences = 2, kDraftTokens = 4, kNodes = kDraftTokens + 1, kVocab = 32000;
  const BFloat16* const target_rows = zeros<BFloat16>(std::size_t{kSequences} * kNodes * kVocab);
  const BFloat16* const draft_rows = zeros<BFloat16>(std::size_t{kSequences} * kDraftTokens * kVocab);
  ParamArrays params;  // or one array of SamplingParams
  params.temperature = on_device<float>({0.8f, 1});
  params.top_k = on_device<std::int32_t>({0, 40});
  params.top_p = on_device<float>({0.95f, 1});
  const auto* const seed = on_device<std::uint64_t>({11, 12});
  const auto* const root = on_device<std::int32_t>({100, 33});  // positions of the roots
  Token* const token =
      on_device<Token>({7, 0, 0, 0, 0, 9, 0, 0, 0, 0});  // the roots, and room for draft tokens

  // Outside of graph capture: capacities of the batches.
  SamplePlan<BFloat16> draws;
  RejectionPlan<BFloat16, LogitsDraft<BFloat16>> rejections;
  VerifyCapacity capacity;
  capacity.sequences = kSequences;
  capacity.max_nodes = kNodes;
  capacity.max_depth = kDraftTokens;
  capacity.vocab = kVocab;
  if (make_sample_plan(&draws, kSequences, /*draws*/ 1, kVocab, /*device*/ 0) != cudaSuccess) return 1;
  if (make_verify_plan(&rejections, capacity, /*device*/ 0) != cudaSuccess) return 1;

  // Draft token i of each sequence goes into its tree, and its distribution to where verification reads it:
  // draft token i of the whole batch has row i of the draft. A draft model would run before each of these
  // launches.
  RowStats* const stats = zeros<RowStats>(kSequences * kDraftTokens);
  for (int i = 0; i < kDraftTokens; ++i) {
    SampleArgs<BFloat16> args{};
    args.logits = draft_rows + std::int64_t{i} * kVocab;
    args.stride = std::int64_t{kDraftTokens} * kVocab;  // row r is draft token i of sequence r
    args.seed = seed;
    args.params = params;
    args.stream = RandomStream::draft;
    args.position = on_device<std::int32_t>({100 + i + 1, 33 + i + 1});
    args.origin = root;
    args.token = token + i + 1;
    args.token_stride = kNodes;
    args.stats = stats + i;
    args.stats_stride = kDraftTokens;
    if (sample(draws, args, nullptr) != cudaSuccess) return 1;
  }

  Trees trees{};  // without parents: chains
  trees.begin = on_device<std::int32_t>({0, kNodes, 2 * kNodes});
  trees.token = token;
  trees.position = root;
  trees.seed = seed;
  TargetRows<BFloat16> target{target_rows, kVocab};
  target.params = params;
  LogitsDraft<BFloat16> draft{draft_rows, kVocab, stats};
  draft.rows = kSequences * kDraftTokens;
  constexpr std::size_t kCells = kSequences * (kDraftTokens + 1);  // rows of max_depth + 1
  const VerifyResults out{zeros<Token>(kCells), zeros<NodeId>(kCells), zeros<std::int32_t>(kSequences),
                          zeros<Status>(kSequences), zeros<float>(kCells)};
  if (verify_trees(rejections, trees, target, draft, out, nullptr) != cudaSuccess) return 1;

  const std::vector<std::int32_t> count = to_host(out.count, kSequences);
  const std::vector<Status> status = to_host(out.status, kSequences);
  const std::vector<float> log_prob = to_host(out.log_prob, kCells);
  for (const std::size_t b : {0, 1})
    std::printf("sequence %d emits %d tokens, the first of ln p %.2f, status %d\n", static_cast<int>(b),
                count[b], log_prob[b * (kDraftTokens + 1)], static_cast<int>(status[b]));
}
