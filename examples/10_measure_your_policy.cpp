// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/10_measure_your_policy.cpp && ./a.out
//
// What a policy of yours gains: pipelines that differ in it alone, in turns on the same prompts.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <specula/specula.hpp>
#include <specula/study/benchmark.hpp>

/// The model of these lessons: what follows a token depends on that token alone, the more so the
/// larger `sure` is. In place of a network and a KV cache it has a rule and a list of tokens.
class Bigrams {
 public:
  explicit Bigrams(float sure) : sure_(sure) {}
  std::int32_t vocab_size() const { return 64; }
  std::int32_t capacity() const { return 1000; }                                 // committed tokens and nodes
  std::int32_t size() const { return static_cast<std::int32_t>(text_.size()); }  // committed tokens
  void append(specula::Tokens tokens) {  // reads a prompt: its tokens are committed
    nodes_.clear();
    text_.insert(text_.end(), tokens.begin(), tokens.end());
  }
  specula::LogitsView extend(specula::Tokens tokens, specula::Nodes) {  // one pass over new nodes
    rows_.assign(64 * tokens.size(), 0.0f);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      for (int k = 0; k < 8; ++k)
        rows_[64 * i + static_cast<std::size_t>(5 * tokens[i] + 9 * k) % 64] =
            sure_ / static_cast<float>(k + 1);
    nodes_.insert(nodes_.end(), tokens.begin(), tokens.end());
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), 64, /*stride*/ 64};
  }
  void commit(specula::Nodes path) {  // these nodes join the text, the others are dropped
    for (const specula::NodeId node : path) text_.push_back(nodes_[static_cast<std::size_t>(node)]);
    nodes_.clear();
  }
  void truncate(std::int32_t n) {  // goes back to the first n tokens, without nodes
    nodes_.clear();
    text_.resize(static_cast<std::size_t>(n));
  }

 private:
  float sure_;
  std::vector<specula::Token> text_, nodes_;
  std::vector<float> rows_;
};

/// Block verification that stops after `most` draft tokens, so that no text of a batch gets far ahead.
struct ShortBlock {
  std::int32_t most = 2;
  static constexpr bool lossless_for(specula::ProposalKind kind) {
    return specula::Block::lossless_for(kind);
  }

  template <class C>
  void decide(const specula::TokenTree& tree, const specula::TargetDistributions& target, C& rng,
              specula::VerifyResult& out) const {
    specula::Block{}.decide(tree, target, rng, out);
    if (out.accepted_count() <= most) return;
    const auto kept = static_cast<std::size_t>(most) + 1;
    out.next_token = tree.token(out.accepted[kept]);  // an accepted draft token is a right next token
    out.accepted.resize(kept);
  }
};

int main() {
  using namespace specula;
  Bigrams target(4), draft(3);
  const SamplingParams params{.temperature = 0.8f};
  const Chain<Draw::sampled> shape{.length = 4};
  Speculator block{TreeVerifier{target, Block{}, params}, ModelDrafter{draft}, shape};
  Speculator mine{TreeVerifier{target, ShortBlock{}, params}, ModelDrafter{draft}, shape};

  std::vector<std::vector<Token>> prompts;
  for (Token first = 0; first < 20; ++first) prompts.push_back({first, 2, 3});
  PolicyBenchmark benchmark(prompts, {.max_new_tokens = 100, .repeat = 3, .seed = 1});
  benchmark.add("block", block);  // the first is what the others are compared with
  benchmark.add("mine", mine);
  const std::vector<PolicyFigures> figures = benchmark.run();
  std::printf("%s", to_text(figures).c_str());
  return figures[1].mat < figures[0].mat ? 0 : 1;  // it stops early, so it has fewer tokens per pass
}
