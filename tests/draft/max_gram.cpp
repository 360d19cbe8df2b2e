// SPDX-License-Identifier: MIT
// labels: optimised
// MaxGram: n-gram draft tokens by the longest matching suffix (prompt lookup).

#include <specula/draft/max_gram.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <algorithm>
#include <array>

#include "count_allocations.hpp"
#include "random_rounds.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Text = std::vector<Token>;

/// Max-Gram by its definition: the corpus is searched from the front, for ever shorter suffixes.
class Naive {
 public:
  explicit Naive(MaxGramOptions options, const BigramTable* table = nullptr)
      : options_(options), table_(table) {}

  struct Found {
    std::size_t from;    // of the token to copy; at or beyond end(): none
    std::size_t length;  // of the match
  };
  Found search(const Text& corpus, const Text& text) const {
    const std::size_t longest =
        options_.max_match == 0 ? text.size() : std::min(text.size(), at(options_.max_match));
    for (std::size_t length = longest; length >= at(options_.min_match); --length) {
      const auto found = std::search(corpus.begin(), corpus.end(),
                                     text.end() - static_cast<std::ptrdiff_t>(length), text.end());
      if (found != corpus.end()) return {static_cast<std::size_t>(found - corpus.begin()) + length, length};
    }
    return {static_cast<std::size_t>(-1), 0};
  }
  std::size_t end(const Text& corpus, const Text& text) const {
    return options_.past_end ? text.size() : corpus.size();
  }
  Token draft_token_of(const Text& corpus, const Text& text, const Found& found) const {
    if (found.from < end(corpus, text)) return text[found.from];
    return table_ ? (*table_)(text.back()) : kNoToken;
  }

  /// Updates the counts: whether each new token is the draft token that would have been predicted for it.
  void commit(const Text& corpus, Token token) {
    if (!corpus.empty()) {
      const Text before(corpus.begin(), corpus.end() - 1);
      const Found found = search(before, corpus);
      const Token drafted = draft_token_of(before, corpus, found);
      if (drafted != kNoToken) {
        const std::size_t k = kind(found, end(before, corpus));
        ++tries_[k];
        hits_[k] += drafted == token;
      }
    }
  }
  float confidence(const Found& found, std::size_t end, Token drafted) const {
    constexpr std::array<double, 8> kPriors = {.4, .4, .55, .65, .77, .85, .9, .96};
    if (drafted == kNoToken) return 0;
    const std::size_t k = kind(found, end);
    return static_cast<float>((hits_[k] + 16 * kPriors[k]) / (tries_[k] + 16));
  }

 private:
  static std::size_t at(std::int32_t n) { return static_cast<std::size_t>(n); }
  static std::size_t kind(const Found& found, std::size_t end) {
    if (found.from >= end) return 0;
    const std::size_t n = found.length;
    return n >= 20 ? 7 : n >= 12 ? 6 : n >= 8 ? 5 : n >= 5 ? 4 : n >= 3 ? 3 : n;
  }

  MaxGramOptions options_;
  const BigramTable* table_;
  std::array<double, 8> tries_{}, hits_{};
};

struct Speculation : DraftNodes {
  Text draft_tokens;
  std::vector<Naive::Found> found;
};

/// Texts that grow, are truncated and replaced; draft tokens that are accepted and rejected; trees. Returns
/// the number of compared draft tokens, and adds those that are not from the fallback to `copied`.
int compare_with_naive(std::uint64_t seed, MaxGramOptions options, bool fallback, bool search_again,
                       int& copied) {
  Random random(seed);
  const std::int32_t vocab = 1 + random.below(5);
  Text next(static_cast<std::size_t>(vocab));
  for (Token& t : next) t = random.below(vocab + 1) - 1;
  const BigramTable table(next);
  MaxGram drafter = fallback ? MaxGram(table, options) : MaxGram(vocab, options);
  Naive naive(options, fallback ? &table : nullptr);
  Text context, draft_tokens;
  Speculation nodes;
  int compared = 0;
  bool prompt = true;
  for (int round = 0; round < 40; ++round) {
    if (random.bernoulli(0.06)) {
      const std::int32_t n = random.below(static_cast<std::int32_t>(context.size()) + 3);
      drafter.truncate(n);
      prompt = true;
      context.resize(std::min(context.size(), static_cast<std::size_t>(n)));
    }
    Text more;
    if (random.bernoulli(0.4)) more.insert(more.end(), draft_tokens.begin(), draft_tokens.end());
    if (random.bernoulli(0.4) && !nodes.token.empty())
      more = joined(more, nodes.path(random.below(static_cast<std::int32_t>(nodes.token.size()))));
    for (int i = random.below(4); i > 0; --i) more.push_back(random.below(vocab));
    if (random.bernoulli(0.3) && context.size() > 5) {  // a piece of it again
      const auto from = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(context.size()) - 4));
      for (std::size_t i = from; i < std::min(from + 9, context.size()); ++i) more.push_back(context[i]);
    }
    for (const Token token : more) {
      if (!prompt) naive.commit(context, token);
      context.push_back(token);
    }
    for (int syncs = 1 + random.below(3); syncs > 0; --syncs) {
      draft_tokens.clear();
      for (int i = random.bernoulli(0.5) ? 0 : random.below(5); i > 0; --i)
        draft_tokens.push_back(random.below(vocab));
      drafter.sync(context, draft_tokens);
      if (more.empty()) prompt = false;
      if (random.bernoulli(0.2)) drafter.sync(context, draft_tokens), prompt = false;
      more.clear();
      nodes = {};
      for (int calls = random.below(6); calls > 0; --calls) {
        const std::size_t old = nodes.token.size();
        for (int i = 1 + random.below(3); i > 0; --i) {
          const auto n = static_cast<std::int32_t>(nodes.token.size());
          const NodeId parent = n == 0 || random.bernoulli(0.1) ? kNoParent
                                : random.bernoulli(0.6)         ? n - 1
                                                                : random.below(n);
          // Mostly the token drafted there, if known.
          const bool follow =
              parent != kNoParent && static_cast<std::size_t>(parent) < old && random.bernoulli(0.7);
          const Token said = follow ? nodes.draft_tokens[static_cast<std::size_t>(parent)] : kNoToken;
          nodes.token.push_back(said != kNoToken ? said : random.below(vocab));
          nodes.parent.push_back(parent);
        }
        const PointMasses said =
            drafter.extend(Tokens(nodes.token).subspan(old), Nodes(nodes.parent).subspan(old));
        prompt = false;
        for (std::size_t i = old; i < nodes.token.size(); ++i) {
          const Text text = joined(joined(context, draft_tokens), nodes.path(static_cast<NodeId>(i)));
          Naive::Found found = naive.search(context, text);
          const std::size_t end = naive.end(context, text);
          const auto parent = static_cast<std::size_t>(nodes.parent[i]);
          if (!search_again && nodes.parent[i] != kNoParent) {
            const Naive::Found& above = nodes.found[parent];
            if (above.from < end - (end > context.size()) && above.from + 1 < end &&
                text[above.from] == nodes.token[i])
              found = {above.from + 1, above.length + 1};
          }
          nodes.found.push_back(found);
          const Token want = naive.draft_token_of(context, text, found);
          nodes.draft_tokens.push_back(want);
          REQUIRE(said.tokens[i - old] == want);
          REQUIRE(said.confidence(i - old) == doctest::Approx(naive.confidence(found, end, want)));
          copied += found.from < context.size();
          ++compared;
        }
      }
    }
    if (context.size() > 120) break;
  }
  return compared;
}

/// The draft tokens of a chain.
Text chain(MaxGram& drafter, const Text& context, Token root, std::size_t length) {
  drafter.sync(context, {});
  Text out;
  NodeId parent = kNoParent;
  for (Token token = root; out.size() < length; ++parent) {
    token = drafter.extend({&token, 1}, {&parent, 1}).tokens[0];
    if (token == kNoToken) break;
    out.push_back(token);
  }
  return out;
}

}  // namespace

static_assert(Drafter<MaxGram>);
static_assert(!LogitsDrafter<MaxGram>);

TEST_CASE("the token after the earliest occurrence of the longest suffix") {
  MaxGram drafter(10);
  CHECK(chain(drafter, {}, 1, 3).empty());
  CHECK(chain(drafter, {5, 6}, 7, 3).empty());
  //     0  1  2  3  4  5  6  7  8      root
  const Text context = {5, 6, 7, 9, 6, 7, 8, 5, 6};
  CHECK(chain(drafter, context, 7, 3) == Text{9, 6, 7});  // 5 6 7 is longer than the other 6 7
  CHECK(chain(drafter, context, 6, 2) == Text{7, 9});     // the earliest 6
  CHECK(chain(drafter, context, 8, 9) == Text{5, 6});     // up to the end of the corpus, the root's place
  drafter.truncate(0);
  CHECK(chain(drafter, {1, 2, 3}, 3, 5).empty());  // occurs, but the token after it is unknown
}

TEST_CASE("the root and draft tokens are part of the suffix, but matches end before them") {
  MaxGram drafter(10);
  drafter.sync(Text{1, 2, 3}, Text{4, 5, 4});
  const Text root = {5};
  CHECK(drafter.extend(root, std::vector<NodeId>{kNoParent}).tokens[0] == kNoToken);  // 4 5 is a draft token
  drafter.sync(Text{1, 2, 3, 7, 8, 2}, Text{1, 2});
  CHECK(drafter.extend(Text{3}, std::vector<NodeId>{kNoParent}).tokens[0] == 7);
  drafter.sync(Text{1, 2, 3, 7, 8, 2}, Text{});
  CHECK(drafter.extend(Text{3, 9}, std::vector<NodeId>{kNoParent, 0}).tokens[1] == kNoToken);
  drafter.sync(Text{1, 2, 3, 7, 8, 2}, Text{3, 9});
  CHECK(drafter.extend(Text{3}, std::vector<NodeId>{kNoParent}).tokens[0] == 7);
}

TEST_CASE("random texts, against the definition") {
  int compared = 0, copied = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const auto min_match = static_cast<std::int32_t>(1 + seed % 3);
    compared += compare_with_naive(seed, {.min_match = min_match}, seed % 2 == 0, true, copied);
  }
  CHECK(compared > 15000);
  CHECK(copied > compared / 3);
  CHECK(copied < compared);
}

TEST_CASE("without max_match, continuing a copy equals searching again") {
  int copied = 0;
  for (std::uint64_t seed = 1000; seed < 1120; ++seed)
    compare_with_naive(seed, {.min_match = static_cast<std::int32_t>(1 + seed % 2)}, seed % 2 == 0, false,
                       copied);
  CHECK(copied > 1000);
}

TEST_CASE("with max_match (prompt lookup), on random texts") {
  int copied = 0;
  for (std::uint64_t seed = 2000; seed < 2200; ++seed) {
    const auto cap = static_cast<std::int32_t>(1 + seed % 4);
    const MaxGramOptions options{.min_match = 1 + static_cast<std::int32_t>(seed / 4 % 2) * (cap > 1),
                                 .max_match = cap};
    compare_with_naive(seed, options, seed % 3 == 0, false, copied);
  }
  CHECK(copied > 1000);
}

TEST_CASE("past the end of the committed tokens, on random texts") {
  int copied = 0;
  for (std::uint64_t seed = 3000; seed < 3200; ++seed) {
    const auto cap = static_cast<std::int32_t>(seed % 3);
    compare_with_naive(seed, {.min_match = 1, .max_match = cap, .past_end = true}, seed % 2 == 0, false,
                       copied);
  }
  CHECK(copied > 1000);
}

TEST_CASE("past the end: a repetitive text is drafted to any length") {
  MaxGram drafter(10, {.past_end = true}), stops(10);
  const Text context = {7, 1, 2, 3, 1, 2, 3, 1};
  CHECK(chain(drafter, context, 2, 7) == Text{3, 1, 2, 3, 1, 2, 3});
  CHECK(chain(stops, context, 2, 7) == Text{3, 1});
  drafter.truncate(0);
  CHECK(chain(drafter, {5}, 5, 3) == Text{5, 5, 5});
  drafter.sync(Text{5}, Text{5, 6, 7, 8});
  CHECK(drafter.extend(Text{5, 6}, std::vector<NodeId>{kNoParent, 0}).tokens[0] ==
        5);  // the first draft token
}

TEST_CASE("prompt lookup matches at most ngram tokens, and continues a copy from its position") {
  const Text context = {1, 2, 3, 4, 8, 9, 2, 3, 4, 7, 1, 2, 3};
  MaxGram any(10), two = MaxGram::prompt_lookup(10, 2);
  CHECK(chain(two, context, 4, 4) == Text{8, 9, 2, 3});
  // From 2 3 | 8 on: 3 4 comes earlier before 8.
  const Text other = {3, 4, 8, 1, 2, 3, 4, 7, 5, 6, 1, 2, 3};
  two.truncate(0);
  CHECK(chain(two, other, 4, 3) == Text{8, 1, 2});
  CHECK(chain(any, other, 4, 3) == Text{7, 5, 6});
  CHECK(MaxGram::prompt_lookup(7).vocab_size() == 7);
}

TEST_CASE("without a match the bigram model is used, also at the end of a copy") {
  MaxGram drafter(BigramTable({1, 2, 3, 4, 0, kNoToken}));
  CHECK(chain(drafter, {}, 1, 4) == Text{2, 3, 4, 0});
  CHECK(chain(drafter, {3, 1}, 3, 4) ==
        Text{1, 2, 3, 1});  // copies 1, which ends the corpus; 1 -> 2 -> 3, then 3 1 again
  drafter.sync(Text{3, 1}, {});
  CHECK(drafter.extend(Text{5}, std::vector<NodeId>{kNoParent}).tokens[0] == kNoToken);

  MaxGram learned(Bigram::online(6), {.min_match = 2});
  CHECK(chain(learned, {1, 2, 1, 3, 1, 3, 4}, 1, 2) ==
        Text{3, 1});  // 3 came after 1 twice; then 1 3 1 -> 3 matches
}

TEST_CASE("confidences depend on the text, not on syncs, draft tokens or nodes") {
  Random random(11);
  MaxGram busy(4), calm(4);
  Text context;
  for (int round = 0; round < 60; ++round) {
    busy.sync(context, Text(static_cast<std::size_t>(random.below(4)), 1));
    busy.extend(Text{1, 2, 3}, std::vector<NodeId>{kNoParent, 0, 0});
    busy.sync(context, {});
    for (int i = random.below(4); i > 0; --i) context.push_back(random.below(4));
  }
  busy.sync(context, {});
  calm.sync({}, {});
  calm.sync(context, {});
  for (Token t = 0; t < 4; ++t) {
    const PointMasses a = busy.extend({&t, 1}, std::vector<NodeId>{kNoParent});
    const PointMasses b = calm.extend({&t, 1}, std::vector<NodeId>{kNoParent});
    CHECK(a.tokens[0] == b.tokens[0]);
    CHECK(a.confidence(0) == b.confidence(0));
  }
}

TEST_CASE(
    "confidences are kept over texts until reset; prompts do not count; without learning they are the "
    "priors") {
  const Text prompt = {1, 2}, loop = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  // In separate texts: for a match of one token, and of twelve.
  const auto confidences = [&](MaxGram& drafter) {
    std::array<float, 2> out{};
    drafter.truncate(0);
    drafter.sync(prompt, {});
    out[0] = drafter.extend(Text{1}, std::vector<NodeId>{kNoParent}).confidence(0);
    drafter.truncate(0);
    drafter.sync(loop, {});
    out[1] = drafter.extend(Text{1}, std::vector<NodeId>{kNoParent}).confidence(0);
    drafter.truncate(0);
    return out;
  };
  const std::array<float, 2> priors = {0.4f, 0.9f};
  MaxGram drafter(5), fixed(5, {.learn = false});
  CHECK(confidences(drafter) == priors);
  CHECK(confidences(drafter) == priors);  // prompts only
  for (MaxGram* each : {&drafter, &fixed})
    for (int text = 0; text < 3; ++text) {
      each->truncate(0);
      each->sync(prompt, {});
      each->sync(prompt, {});
      each->sync(loop, {});
    }
  CHECK(confidences(fixed) == priors);
  const std::array<float, 2> learned = confidences(drafter);
  CHECK(learned[0] == doctest::Approx((16 * 0.4 + 3) / (16 + 3)));  // 1 -> 2, once per text
  CHECK(learned[1] == doctest::Approx(0.9));                        // 11 was the longest match
  drafter.reset_record();
  CHECK(confidences(drafter) == priors);
}

TEST_CASE("errors name the cause, and change nothing") {
  CHECK_THROWS_WITH_AS(MaxGram(0), "MaxGram: the vocabulary has 0 tokens, must be >= 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(MaxGram(3, {.min_match = 0}), "MaxGramOptions::min_match is 0, must be >= 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(MaxGram(3, {.min_match = 3, .max_match = 2}),
                       "MaxGramOptions::max_match is 2, must be 0 or >= min_match", std::invalid_argument);
  CHECK_THROWS_AS(MaxGram(3, {.max_match = -1}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(MaxGram::prompt_lookup(3, -1), "MaxGram::prompt_lookup: ngram is -1, must be >= 1",
                       std::invalid_argument);
  MaxGram drafter(3);
  drafter.sync(Text{0, 1, 2}, {});
  CHECK_THROWS_WITH_AS(drafter.sync(Text{0, 1}, {}),
                       "MaxGram::sync: a context of 2 tokens after one of 3; truncate first",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drafter.sync(Text{0, 1, 2, 0, 3}, {}),
                       "MaxGram::sync: token 4 is 3, the vocabulary has 3 tokens", std::invalid_argument);
  CHECK_THROWS_AS(drafter.sync(Text{0, 1, 2}, Text{3}), std::invalid_argument);
  drafter.sync(Text{0, 1, 2}, {});
  CHECK_THROWS_WITH_AS(drafter.extend(Text{1, 0}, std::vector<NodeId>{kNoParent, 1}),
                       "MaxGram::extend: the parent of node 1 is 1, must be kNoParent or a node before it",
                       std::invalid_argument);
  CHECK_THROWS_AS(drafter.extend(Text{-1}, std::vector<NodeId>{kNoParent}), std::invalid_argument);
  CHECK_THROWS_AS(drafter.extend(Text{1}, {}), std::invalid_argument);
  CHECK(drafter.extend(Text{1}, std::vector<NodeId>{kNoParent}).tokens[0] == 2);
  CHECK(drafter.usage().calls == 1);
  CHECK(drafter.usage().nodes == 1);
}

TEST_CASE("the cost of a round depends on its new tokens only, for any text and context") {
  constexpr std::int32_t kVocab = 50;
  Random random(2);
  for (int kind = 0; kind < 4; ++kind) {
    MaxGram drafter = kind == 3 ? MaxGram::prompt_lookup(kVocab) : MaxGram(kVocab);
    Text context;
    while (context.size() < 100000)
      context.push_back(kind == 0   ? random.below(kVocab)
                        : kind == 1 ? 0
                                    : static_cast<Token>(context.size() % 11));
    drafter.sync(context, {});
    CHECK(drafter.steps() < (kind == 3 ? 100 : 12) * 100000);
    std::int64_t most = 0;
    for (int round = 0; round < 200; ++round) {
      const std::int64_t before = drafter.steps();
      for (int i = 0; i < 3; ++i)
        context.push_back(kind == 0   ? random.below(kVocab)
                          : kind == 1 ? 0
                                      : static_cast<Token>(context.size() % 11));
      drafter.sync(context, Text{random.below(kVocab), random.below(kVocab)});
      NodeId parent = kNoParent;
      for (int node = 0; node < 10;
           ++node, ++parent) {  // draft tokens that diverge from the text at any node
        const Token token = random.below(3);
        drafter.extend({&token, 1}, {&parent, 1});
      }
      most = std::max(most, drafter.steps() - before);
    }
    CHECK(most < 800);
  }
}

TEST_CASE("a round allocates nothing after reserve()") {
  Random random(3);
  for (const MaxGramOptions options : {MaxGramOptions{}, MaxGramOptions{.max_match = 3}}) {
    MaxGram drafter(Bigram::online(20), options);
    drafter.reserve({.tokens = 1300});
    Text context, draft_tokens(3, 1);
    context.reserve(1300);
    for (int text = 0; text < 2; ++text) {
      const AllocationCount allocated;
      while (context.size() < 1250) {
        for (int i = 0; i < 3; ++i) context.push_back(random.below(20));
        for (int syncs = 0; syncs < 2; ++syncs) {
          drafter.sync(context, draft_tokens);
          NodeId parent = kNoParent;
          for (Token token = 3; parent < 9; ++parent) {
            token = drafter.extend({&token, 1}, {&parent, 1}).tokens[0];
            if (token == kNoToken) token = 4;
          }
        }
      }
      const auto count = allocated.count();
      CHECK(count == 0);
      drafter.truncate(0);
      context.clear();
    }
  }
}

TEST_CASE("in a pipeline the text is that of plain decoding, and repetitions are drafted") {
  constexpr std::int32_t kVocab = 6;
  for (const float temperature : {0.0f, 0.7f}) {
    const SamplingParams params{.temperature = temperature};
    ToyModel target(kVocab, 1, 3.0f, 400), plain_target(kVocab, 1, 3.0f, 400);
    Speculator run{TreeVerifier{target, Sampling{}, params}, MaxGram{kVocab}, Chain<>{.length = 8}};
    Speculator plain{TreeVerifier{plain_target, Sampling{}, params}, NoDrafter{kVocab}, Chain<>{}};
    const Text prompt = {1, 2, 3};
    for (int text = 0; text < 2; ++text) {
      Text got, want;
      run.generate(prompt, {.max_new_tokens = 200}, PhiloxRandom(4),
                   [&](Tokens fresh) { got.insert(got.end(), fresh.begin(), fresh.end()); });
      plain.generate(prompt, {.max_new_tokens = 200}, PhiloxRandom(4),
                     [&](Tokens fresh) { want.insert(want.end(), fresh.begin(), fresh.end()); });
      CHECK(got == want);
    }
    CHECK(run.stats().mat() > (temperature == 0.0f ? 3 : 1.2));
    CHECK(run.stats().draft.calls > 0);
  }
}

TEST_CASE("n-gram drafters can be moved, and be assigned to afterwards") {
  const auto moves = [](auto drafter) {
    drafter.sync(Text{0, 1, 0}, {});
    auto other = std::move(drafter);
    CHECK(other.extend(Text{1}, std::vector<NodeId>{kNoParent}).tokens[0] == 0);
    drafter = std::move(other);
    drafter.sync(Text{0, 1, 0}, {});
    CHECK(drafter.extend(Text{1}, std::vector<NodeId>{kNoParent}).tokens[0] == 0);
  };
  moves(MaxGram(3));
  moves(Bigram::online(3));
}
