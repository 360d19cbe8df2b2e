// SPDX-License-Identifier: MIT
// Random proposals and the CPU's results for them. The interface is C++17, so that CUDA code may include it;
// cases.cpp, which is C++20, is compiled apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/cuda/args/types.cuh>

namespace specula_bench {

enum class Rule : std::uint8_t { greedy, sample_and_match, rejection, traversal, block };
constexpr Rule kRules[] = {Rule::greedy, Rule::sample_and_match, Rule::rejection, Rule::traversal,
                           Rule::block};
inline const char* name_of(Rule rule) {
  switch (rule) {
    case Rule::greedy:
      return "greedy";
    case Rule::sample_and_match:
      return "sample-and-match";
    case Rule::rejection:
      return "rejection";
    case Rule::traversal:
      return "traversal";
    case Rule::block:
      break;
  }
  return "block";
}

/// Parameters of a batch.
struct CaseShape {
  int trees = 64, vocab = 600;
  int nodes = 20;                 // of a tree at most; each tree has any number of them
  int stride = 0;                 // elements from row to row; 0: drawn, half of them unaligned
  double wide = 0.3;              // how often a child hangs below an early node
  bool only_chosen = false;       // draft tokens are point masses
  bool only_drawn = false;        // each draft token from its row, with replacement
  bool only_temperature = false;  // no top-k, top-p or min-p
};

/// Proposals as flat arrays, as specula_test::DeviceBatch has them, and the CPU's verification results.
template <class Element>
struct CaseBatch {
  int vocab = 0, max_nodes = 1, width = 1;
  std::ptrdiff_t stride = 0, offset = 0;  // rows begin `offset` elements after an aligned address
  bool chains = false;                    // no parents are to be given
  std::vector<std::int32_t> begin, position, token, parent, draft_row;
  std::vector<std::uint64_t> seed;
  std::vector<specula::cuda::SamplingParams> params;
  std::vector<Element> target, draft;
  std::vector<specula::cuda::RowStats> stats;
  std::vector<double> scale;
  std::vector<std::vector<std::int32_t>> want_token, want_path;
  std::vector<std::vector<double>> want_log_prob;
  std::vector<double> margin;  // least distance of a uniform draw to a boundary
};

/// The same for the same seed on every machine.
template <class Element>
CaseBatch<Element> make_cases(Rule rule, const CaseShape& shape, std::uint64_t seed);

/// Rows and what plain sampling draws from each, by the CPU.
template <class Element>
struct SampleCases {
  int vocab = 0;
  std::ptrdiff_t stride = 0, offset = 0;
  std::vector<Element> logits;
  std::vector<specula::cuda::SamplingParams> params;
  std::vector<std::uint64_t> seed;
  std::vector<std::int32_t> position;
  std::vector<std::int32_t> want;
  std::vector<double> want_log_z, margin;
  std::vector<double> truncation_margin;  // distance of top-p's mass to where the cut would be another one
  std::vector<float> want_min_logit;
};
template <class Element>
SampleCases<Element> make_sample_cases(int rows, int vocab, std::uint64_t seed);

}  // namespace specula_bench
