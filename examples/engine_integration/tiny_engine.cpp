// SPDX-License-Identifier: MIT
// An engine with its own loop, buffers and KV cache that uses a single acceptance rule of the library.
//
// It generates the same short texts twice, plainly and by speculation over small token trees, and checks that
// the tokens are equally frequent. There is no specula::LanguageModel: the library gets a proposal, raw rows
// and a source of uniform draws.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

namespace {

constexpr int kVocab = 10;     // V
constexpr int kStride = 16;    // floats from one row to the next: rows are padded
constexpr int kWidth = 8;      // H
constexpr int kSlots = 32;     // of the cache
constexpr float kFade = 0.8f;  // decay of the memory per step back
constexpr int kMaxNodes = 7;   // root, two draft tokens after it, two more after each of those

// ---- the engine: a tiny network in plain arrays

struct Weights {
  float embedding[kVocab][kWidth];  // (V, H)
  float head[kWidth][kVocab];       // (H, V)
  float bigram[kVocab][kVocab];     // (V, V) the draft: the network without its memory, plus noise
};

float noise(std::uint32_t& state) {  // in [-1, 1)
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
}

Weights make_weights() {
  Weights w{};
  std::uint32_t state = 2024;
  for (auto& row : w.embedding)
    for (float& x : row) x = noise(state);
  for (auto& row : w.head)
    for (float& x : row) x = 1.5f * noise(state);
  for (int t = 0; t < kVocab; ++t)
    for (int x = 0; x < kVocab; ++x) {
      for (int h = 0; h < kWidth; ++h) w.bigram[t][x] += std::tanh(w.embedding[t][h]) * w.head[h][x];
      w.bigram[t][x] += 0.4f * noise(state);
    }
  return w;
}

/// The cache: one slot for each computed token. Slots [0, used) are the text, followed by the nodes of a
/// proposal.
struct Cache {
  float slot[kSlots][kWidth];  // (slots, H)
  int used = 0;
};

/// Runs the nodes of a proposal in one batch. Each sees the text and its ancestors. Leaves kStride floats of
/// logits a node.
void forward(const Weights& w, Cache& cache, const int* tokens, const int* parents, int nodes,
             float* logits /* (N, stride) */) {
  for (int n = 0; n < nodes; ++n) {
    float* own = cache.slot[cache.used + n];
    for (int h = 0; h < kWidth; ++h) own[h] = w.embedding[tokens[n]][h];
    float state[kWidth];
    for (int h = 0; h < kWidth; ++h) state[h] = own[h];
    float fade = kFade;
    for (int at = parents[n]; at >= 0; at = parents[at], fade *= kFade)
      for (int h = 0; h < kWidth; ++h) state[h] += fade * cache.slot[cache.used + at][h];
    for (int s = cache.used - 1; s >= 0; --s, fade *= kFade)
      for (int h = 0; h < kWidth; ++h) state[h] += fade * cache.slot[s][h];
    float* row = logits + n * kStride;
    for (int x = 0; x < kVocab; ++x) {
      row[x] = 0;
      for (int h = 0; h < kWidth; ++h) row[x] += std::tanh(state[h]) * w.head[h][x];
    }
  }
}

// ---- speculation: the engine's additional code

struct Counts {
  long rounds = 0, draft_tokens = 0, accepted = 0, tokens = 0;
};

/// Everything that lives longer than a round; a round allocates nothing.
class Speculation {
 public:
  explicit Speculation(const Weights& weights) : weights_(weights) {}

  /// One round after `root`, the last token, which the cache does not hold yet: draft tokens, one forward
  /// pass, verification, and compaction of the cache. Appends to `text`. With `speculate` false this is plain
  /// sampling.
  void round(Cache& cache, std::vector<int>& text, bool speculate, specula::PhiloxRandom& rng,
             Counts& counts) {
    tree_.reset(text.back(), cache.used);
    if (speculate) {
      propose(0, rng, 2);
      for (specula::NodeId node = 1, last = tree_.size() - 1; node <= last; ++node) propose(node, rng, 2);
    }
    forward(weights_, cache, tree_.tokens().data(), tree_.parents().data(), tree_.size(), logits_);

    const specula::LogitsView rows{logits_, tree_.size(), kVocab, kStride};
    specula::decide_checked(specula::Rejection{}, tree_,
                            specula::TargetDistributions(rows, params_, workspace_), rng, result_);

    // parents come before children: no slot is lost
    for (std::size_t i = 0; i < result_.accepted.size(); ++i) {
      const specula::NodeId node = result_.accepted[i];
      for (int h = 0; h < kWidth; ++h)
        cache.slot[cache.used + static_cast<int>(i)][h] = cache.slot[cache.used + node][h];
      if (i > 0) text.push_back(tree_.token(node));
    }
    cache.used += static_cast<int>(result_.accepted.size());
    text.push_back(result_.next_token);

    ++counts.rounds;
    counts.draft_tokens += tree_.size() - 1;
    counts.accepted += result_.accepted_count();
    counts.tokens += result_.accepted_count() + 1;
  }

 private:
  /// Draws `width` different children of `node` from the draft's row; the tree records how they were drawn.
  /// (An engine whose own sampler has drawn them calls tree_.record_distinct(node, token, distribution)
  /// instead; see docs/adapter.md. Here the draws may share the rule's rng: they are keyed by purpose.)
  void propose(specula::NodeId node, specula::PhiloxRandom& rng, int width) {
    const specula::Distribution distribution =
        tree_.store(node, {weights_.bigram[tree_.token(node)], kVocab}, params_);
    for (int i = 0; i < width; ++i) tree_.draw_distinct(node, distribution, rng);
  }

  const Weights& weights_;
  specula::SamplingParams params_{.temperature = 0.9f};
  specula::ProposalBuilder tree_{kVocab, kMaxNodes, /*stored_rows=*/kMaxNodes};
  specula::VerifyWorkspace workspace_{kVocab, kMaxNodes};
  specula::VerifyResult result_;
  float logits_[kMaxNodes * kStride];  // (N, stride)
};

// ---- the check

constexpr int kTexts = 25000;  // n of each side
constexpr int kLength = 6;     // generated tokens; the compared ones are late, after several rounds
constexpr int kCells = kVocab * kVocab;

/// Counts of the last two tokens of texts of kLength tokens.
std::vector<long> pair_counts(const Weights& weights, bool speculate, std::uint64_t seed, Counts& counts) {
  Speculation speculation(weights);
  std::vector<long> pairs(kCells);
  std::vector<int> text;
  text.reserve(kSlots);
  Cache cache;
  for (int i = 0; i < kTexts; ++i) {
    specula::PhiloxRandom rng(seed, static_cast<std::uint32_t>(i));
    text.assign(1, 3);
    cache.used = 0;
    while (text.size() < kLength + 1) speculation.round(cache, text, speculate, rng, counts);
    ++pairs[static_cast<std::size_t>(text[kLength - 1] * kVocab + text[kLength])];
  }
  return pairs;
}

/// The value that a chi-square variable of `freedom` degrees exceeds with probability 0.001 (Wilson and
/// Hilferty).
double critical_value(int freedom) {
  const double k = freedom, part = 2.0 / (9.0 * k), z = 3.0902;
  return k * std::pow(1 - part + z * std::sqrt(part), 3);
}

}  // namespace

int main() {
  const Weights weights = make_weights();
  Counts plain, fast;
  const std::vector<long> a = pair_counts(weights, false, 11, plain),
                          b = pair_counts(weights, true, 12, fast);

  double statistic = 0;  // both sides have n texts: sum of (a - b)^2 / (a + b)
  int freedom = -1;
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    if (a[cell] + b[cell] == 0) continue;
    const auto difference = static_cast<double>(a[cell] - b[cell]);
    statistic += difference * difference / static_cast<double>(a[cell] + b[cell]);
    ++freedom;
  }
  const double limit = critical_value(freedom);
  const bool same = statistic < limit;

  const auto per = [](long x, long y) { return static_cast<double>(x) / static_cast<double>(y); };
  std::printf("plain:       %.2f tokens a forward\n", per(plain.tokens, plain.rounds));
  std::printf("speculation: %.2f tokens a forward; of %.1f draft tokens %.2f are accepted\n",
              per(fast.tokens, fast.rounds), per(fast.draft_tokens, fast.rounds),
              per(fast.accepted, fast.rounds));
  std::printf(
      "same distribution:    chi-square %.1f over %d degrees of freedom, n = 2 x %d texts; %s the limit %.1f "
      "at alpha "
      "= 0.001: %s\n",
      statistic, freedom, kTexts, same ? "below" : "ABOVE", limit, same ? "yes" : "NO");
  return same ? 0 : 1;
}
