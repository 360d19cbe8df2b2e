// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/02_own_model.cpp && ./a.out
//
// A model of your own: four functions and three sizes. Then how to see that they are right: check_model()
// finds nothing, and speculation writes, at temperature 0, what the model writes alone.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <specula/model/check_model.hpp>
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
static_assert(specula::LanguageModel<Bigrams>);

/// A text of 100 tokens, and how many a pass of the target gave.
template <class Drafter, class Shape>
std::vector<specula::Token> text_of(Bigrams& target, Drafter drafter, Shape shape) {
  specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0}},
                          std::move(drafter), shape};
  std::vector<specula::Token> text;
  const std::vector<specula::Token> prompt{1, 2, 3};
  run.generate(prompt, {.max_new_tokens = 100}, specula::PhiloxRandom{/*seed*/ 1},
               [&](specula::Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  std::printf("%.2f tokens per pass of the target\n", run.stats().mat());
  return text;
}

int main() {
  Bigrams target(4), draft(2);
  const std::vector<specula::ModelFinding> findings = specula::check_model(target);
  for (const auto& [duty, what] : findings) std::printf("%s: %s\n", duty.c_str(), what.c_str());
  const auto plain = text_of(target, specula::NoDrafter{target.vocab_size()}, specula::Chain<>{.length = 0});
  const auto chain = text_of(target, specula::ModelDrafter{draft}, specula::Chain<>{.length = 4});
  const auto tree = text_of(target, specula::ModelDrafter{draft}, specula::DynamicTree{});
  return findings.empty() && chain == plain && tree == plain ? 0 : 1;
}
