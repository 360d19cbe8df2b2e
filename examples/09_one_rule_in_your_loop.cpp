// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/09_one_rule_in_your_loop.cpp && ./a.out
//
// An engine with a loop, a cache and a sampler of its own, which takes one rule of the library: it hands
// over what was drafted, and rows of logits. docs/one_rule.md has the same for whole batches, and in C.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

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

/// What lives longer than a round; a round allocates nothing more.
struct Speculation {
  specula::ProposalBuilder tree{/*vocab*/ 64, /*nodes*/ 4, /*stored rows*/ 4};
  specula::VerifyWorkspace workspace{64, 4};
  specula::VerifyResult result;
  specula::SamplingParams params{.temperature = 0.9f};
};

/// A round after the last token of `text`, which no cache holds yet.
void round_of(Bigrams& target, Bigrams& draft, std::vector<specula::Token>& text, Speculation& own,
              specula::PhiloxRandom& rng) {
  specula::ProposalBuilder& tree = own.tree;
  tree.reset(text.back(), target.size());
  specula::NodeId parent = specula::kNoParent;
  for (specula::NodeId node = 0; node < 3; parent = node++) {  // three draft tokens, each drawn
    const specula::Token token = tree.token(node);
    const specula::LogitsView row = draft.extend({&token, 1}, {&parent, 1});
    tree.draw(node, tree.store(node, row.row(0), own.params), rng);
  }
  const specula::LogitsView rows = target.extend(tree.tokens(), tree.parents());  // one pass over all
  specula::decide_checked(specula::Block{}, tree,
                          specula::TargetDistributions(rows, own.params, own.workspace), rng, own.result);
  for (const specula::NodeId node : own.result.accepted)
    if (node != 0) text.push_back(tree.token(node));
  text.push_back(own.result.next_token);
  target.commit(own.result.accepted);
  draft.truncate(draft.size());
  const auto known = static_cast<std::size_t>(draft.size());
  draft.append(specula::Tokens(text).subspan(known, text.size() - 1 - known));
}

int main() {
  // The distribution of the token after the first one, of many texts, beside the target's.
  constexpr int kTexts = 20000;
  Bigrams target(4), draft(3);
  Speculation own;
  std::vector<double> seen(64);
  double tokens = 0;
  for (std::uint32_t i = 0; i < kTexts; ++i) {
    specula::PhiloxRandom rng(/*seed*/ 1, /*sequence*/ i);
    std::vector<specula::Token> text{7};
    target.truncate(0);
    draft.truncate(0);
    round_of(target, draft, text, own, rng);
    tokens += static_cast<double>(text.size() - 1);
    seen[static_cast<std::size_t>(text[1])] += 1.0 / kTexts;
  }
  target.truncate(0);
  const specula::Token first = 7;
  const specula::NodeId end = specula::kNoParent;
  const specula::LogitsView row = target.extend({&first, 1}, {&end, 1});
  const specula::TargetDistributions p(row, own.params, own.workspace);
  double apart = 0;
  for (specula::Token x = 0; x < 64; ++x) apart += std::abs(seen[static_cast<std::size_t>(x)] - p[0](x)) / 2;
  std::printf("%.2f tokens per pass of the target; distance from its distribution %.3f\n", tokens / kTexts,
              apart);
  return apart < 0.03 ? 0 : 1;  // some 0.02 is what 20,000 texts are apart by chance
}
