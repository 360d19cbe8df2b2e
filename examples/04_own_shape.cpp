// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/04_own_shape.cpp && ./a.out
//
// A shape of your own: which draft tokens are proposed, and below which others.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <specula/specula.hpp>

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

/// A chain of the draft's likeliest tokens; where it is unsure, its second choice stands beside the first.
struct TwoWhereUnsure {
  std::int32_t length = 4;
  double sure = 0.5;

  static constexpr specula::ProposalKind kind = specula::ProposalKind::deterministic;  // none is drawn
  specula::NodeCounts nodes() const { return {1 + 2 * length}; }                       // with the root

  template <specula::LogitsDrafter D, specula::RandomSource C>
  specula::Steps propose(D& drafter, const specula::ProposeContext& round, specula::ProposalBuilder& tree,
                         C&) const {
    drafter.sync(round.committed, {});
    specula::NodeId at = 0;                         // in the tree
    specula::NodeId in_draft = specula::kNoParent;  // the drafter numbers the nodes that it was given
    for (std::int32_t level = 0; level < length && tree.room() >= 2; ++level) {
      const specula::Token token = tree.token(at);
      // Waits for the draft's row, in a batch with those of other texts. A call, where the text is alone.
      const specula::LogitsView rows = co_await specula::ask(drafter, tree, {&token, 1}, {&in_draft, 1});
      specula::Top best[2];
      if (tree.top_k(at, rows.row(0), best) < 2) co_return;
      const specula::NodeId first = tree.choose(at, best[0].token, static_cast<float>(best[0].prob));
      if (best[0].prob < sure) tree.choose(at, best[1].token, static_cast<float>(best[1].prob));
      if (round.ends_text(best[0].token)) co_return;
      at = first;
      in_draft = level;
    }
  }
};
static_assert(specula::ProposalShape<TwoWhereUnsure, specula::ModelDrafter<Bigrams>>);

template <class Shape>
std::vector<specula::Token> text_of(Shape shape) {
  Bigrams target(4), draft(3);
  specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.8f}},
                          specula::ModelDrafter{draft}, shape};
  std::vector<specula::Token> text;
  const std::vector<specula::Token> prompt{1, 2, 3};
  run.generate(prompt, {.max_new_tokens = 200}, specula::PhiloxRandom{/*seed*/ 1},
               [&](specula::Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  std::printf("%.2f tokens per pass of the target\n", run.stats().mat());
  return text;
}

int main() {
  const auto chain = text_of(specula::Chain<>{.length = 4});
  return text_of(TwoWhereUnsure{}) == chain ? 0 : 1;  // chosen tokens: one seed gives one text
}
