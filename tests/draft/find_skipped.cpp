// SPDX-License-Identifier: MIT
// find_skipped: which blocks a model misses least, alone and together.
#include <specula/draft/find_skipped.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Each block that is left out changes the likeliest token after some tokens: the share of block i (attention
/// first) is damage[i] of 64, from token i * apart on. A pass takes 10 seconds for each node, half of which
/// the blocks share evenly.
class Damaged : public ToyModel {
 public:
  explicit Damaged(std::vector<int> damage, int apart = 0)
      : ToyModel(64, 1, 2.0f, 200), damage_(std::move(damage)), apart_(apart) {}
  std::int32_t layers() const { return static_cast<std::int32_t>(damage_.size() / 2); }
  std::int32_t node_count() const { return nodes_; }
  std::span<const double> attention_similarity() { return {}; }
  double pass_seconds() const { return seconds_; }

  LogitsView extend(Tokens tokens, Nodes parents) {
    REQUIRE_FALSE(skips_);
    return pass(tokens, parents, nullptr);
  }
  LogitsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& out) {
    REQUIRE(nodes_ == 0);
    skips_ = true;
    return pass(tokens, parents, &out);
  }
  void append(Tokens tokens) { ToyModel::append(tokens), drop(); }
  void commit(Nodes path) {
    REQUIRE(path.empty());
    ToyModel::commit(path), drop();
  }
  void truncate(std::int32_t n) { ToyModel::truncate(n), drop(); }

 private:
  void drop() { nodes_ = 0, skips_ = false; }
  LogitsView pass(Tokens tokens, Nodes parents, const SkippedBlocks* out) {
    for (std::size_t i = 0; i < tokens.size(); ++i) CHECK(parents[i] == static_cast<NodeId>(i) - 1);
    nodes_ += static_cast<std::int32_t>(tokens.size());
    rows_.assign(tokens.size() * 64, 0.0f);
    const auto count = static_cast<std::size_t>(layers());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      int token = (tokens[i] * 5 + 3) % 64;
      for (std::size_t b = 0; out != nullptr && b < damage_.size(); ++b)
        if (((b < count ? out->attention[b] : out->mlp[b - count]) != 0) &&
            (tokens[i] + 64 - static_cast<int>(b) * apart_) % 64 < damage_[b])
          token = (token + 1) % 64;
      rows_[i * 64 + static_cast<std::size_t>(token)] = 1;
    }
    const double left_out =
        out == nullptr ? 0 : static_cast<double>(out->count()) / static_cast<double>(damage_.size());
    seconds_ += 5 + 5 * static_cast<double>(tokens.size()) * (1 - left_out);
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), 64, 64};
  }

  std::vector<int> damage_;
  int apart_;
  std::vector<float> rows_;
  std::int32_t nodes_ = 0;
  bool skips_ = false;
  double seconds_ = 0;
};

static_assert(SkipsLayers<Damaged> && TimesItself<Damaged>);

/// Every token once, in three texts.
std::vector<std::vector<Token>> all_tokens() {
  std::vector<std::vector<Token>> texts(3);
  for (Token x = 0; x < 64; ++x) texts[static_cast<std::size_t>(x % 3)].push_back(x);
  return texts;
}

}  // namespace

TEST_CASE("each block alone, then the least missed together, and the fastest chain of them") {
  Damaged model({64, 4, 2, 32, 16, 1});    // attention of layers 1 to 3, then their MLPs
  model.append(std::vector<Token>{1, 2});  // of an earlier text
  const auto texts = all_tokens();
  for (const std::int32_t piece : {1, 5, 16, 64}) {
    const FoundBlocks found = find_skipped(model, texts, {.piece = piece, .longest = 3});
    CHECK(model.size() == 0);
    CHECK(found.attention == std::vector<double>{0, 60.0 / 64, 62.0 / 64});
    CHECK(found.mlp == std::vector<double>{0.5, 0.75, 63.0 / 64});
    REQUIRE(found.trials.size() == 3);
    CHECK(found.trials[0].blocks == SkippedBlocks::given(3, {}, std::vector<std::int32_t>{3}));
    CHECK(found.trials[1].blocks ==
          SkippedBlocks::given(3, std::vector<std::int32_t>{3}, std::vector<std::int32_t>{3}));
    CHECK(found.trials[2].blocks ==
          SkippedBlocks::given(3, std::vector<std::int32_t>{2, 3}, std::vector<std::int32_t>{3}));
    CHECK(found.trials[2].agreement == 60.0 / 64);
    for (int t = 0; t < 3; ++t) {
      const auto& trial = found.trials[static_cast<std::size_t>(t)];
      CHECK(trial.cost == doctest::Approx(1 - 0.5 * (t + 1) / 6));
      // By hand: a chain of n gives 1 + a + ... + a^n tokens, and costs n c and the target's 1 + n / 2.
      double best = 0, tokens = 1, power = 1;
      for (int n = 1; n <= 3; ++n) {
        tokens += power *= trial.agreement;
        best = std::max(best, tokens / (n * trial.cost + 1 + 0.5 * n));
      }
      CHECK(trial.speedup == doctest::Approx(best));
    }
    CHECK(found.best == 2);
    CHECK(&found.found() == &found.trials[2]);
  }
}

TEST_CASE("blocks that are missed together end the search") {
  // 16 blocks, 4 tokens each: n of them together agree on 64 - 4 n of 64.
  Damaged model(std::vector<int>(16, 4), 4);
  const auto sets = [&](double worst) { return find_skipped(model, all_tokens(), {.worst = worst}).trials; };
  CHECK(sets(0).size() == 8);  // as many as layers
  CHECK(sets(0.8).size() == 4);
  CHECK(sets(0.7).size() == 8);
  CHECK(sets(0.8).back().agreement == 0.75);
}

TEST_CASE("where every block matters, the whole model is what is left") {
  Damaged model({64, 64, 60, 60});
  const FoundBlocks found = find_skipped(model, all_tokens());
  REQUIRE(found.trials.size() == 1);
  CHECK(found.found().blocks.count() == 0);
  CHECK(found.found().agreement == 1);
  CHECK(found.found().speedup < 1);
}

TEST_CASE("what cannot be searched is refused") {
  Damaged model({1, 1});
  const auto refuses = [&](const std::vector<std::vector<Token>>& texts, const FindSkipped& how = {}) {
    CHECK_THROWS_AS(find_skipped(model, texts, how), std::invalid_argument);
  };
  refuses({});
  refuses({{1}});
  refuses({std::vector<Token>(197, 1)});
  refuses(all_tokens(), {.piece = 0});
  refuses(all_tokens(), {.longest = 0});
  refuses(all_tokens(), {.repeats = 0});
  find_skipped(model, std::vector<std::vector<Token>>{std::vector<Token>(196, 1)});
}
