// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/03_own_drafter.cpp && ./a.out
//
// A drafter of your own. It may predict as it likes: a bad one costs time, and never changes the text.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
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

/// Predicts the token that followed the same token the last time.
class LastFollower {
 public:
  explicit LastFollower(std::int32_t vocab) : follower_(static_cast<std::size_t>(vocab), specula::kNoToken) {}
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(follower_.size()); }
  std::int32_t capacity() const { return std::numeric_limits<std::int32_t>::max(); }  // it has no cache

  void truncate(std::int32_t) {  // another text, or fewer tokens: reads it from its beginning
    std::fill(follower_.begin(), follower_.end(), specula::kNoToken);
    read_ = 0;
  }
  void sync(specula::Tokens context, specula::Tokens) {  // the text before the round's last token
    for (; read_ + 1 < context.size(); ++read_) follower_[at(context[read_])] = context[read_ + 1];
  }
  specula::PointMasses extend(specula::Tokens tokens, specula::Nodes) {  // a prediction for each
    predicted_.clear();
    for (const specula::Token token : tokens) predicted_.push_back(follower_[at(token)]);
    return {predicted_};
  }

 private:
  static std::size_t at(specula::Token token) { return static_cast<std::size_t>(token); }
  std::vector<specula::Token> follower_, predicted_;
  std::size_t read_ = 0;  // tokens of the context whose followers are known
};
static_assert(specula::Drafter<LastFollower>);

template <class Drafter>
std::vector<specula::Token> text_of(Bigrams& target, Drafter drafter, specula::Chain<> shape) {
  specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.7f}},
                          std::move(drafter), shape};
  std::vector<specula::Token> text;
  const std::vector<specula::Token> prompt{1, 2, 3};
  run.generate(prompt, {.max_new_tokens = 200}, specula::PhiloxRandom{/*seed*/ 1},
               [&](specula::Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  std::printf("%.2f tokens per pass of the target\n", run.stats().mat());
  return text;
}

int main() {
  Bigrams target(8);
  const auto plain = text_of(target, specula::NoDrafter{target.vocab_size()}, {.length = 0});
  const auto drafted = text_of(target, LastFollower{target.vocab_size()}, {.length = 4});
  return drafted == plain ? 0 : 1;  // chosen tokens: one seed gives one text, whatever is drafted
}
