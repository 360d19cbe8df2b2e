// SPDX-License-Identifier: MIT
// labels: optimised
// max_gram(): n-gram draft tokens on the device, against the definition and the CPU's drafter.
#include <doctest/doctest.h>
#include <specula/cuda/api/max_gram.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <specula/draft/max_gram.hpp>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "serial_block.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using specula::Token;

namespace {

using Text = std::vector<Token>;
using device::MaxGramOptions;

struct DraftTokens {
  Text tokens;
  std::int32_t match = 0;
  friend bool operator==(const DraftTokens&, const DraftTokens&) = default;
};

/// The definition: ever shorter suffixes are searched for from the front.
DraftTokens naive(const Text& committed_and_root, const MaxGramOptions& options, const Text& bigram,
                  Token vocab) {
  Text text = committed_and_root;
  const auto corpus_end = text.end() - text.begin() - 1;
  DraftTokens out;
  std::ptrdiff_t from = -1;  // position of the next token to copy
  std::int32_t match = 0;
  while (static_cast<std::int32_t>(out.tokens.size()) < options.draft_tokens) {
    const auto end = options.past_end ? std::numeric_limits<std::ptrdiff_t>::max() : corpus_end;
    if (from < 0 || from >= end) {
      from = -1;
      match = 0;
      const auto size = static_cast<std::ptrdiff_t>(text.size());
      const std::ptrdiff_t longest =
          options.max_match == 0 ? size : std::min<std::ptrdiff_t>(size, options.max_match);
      for (std::ptrdiff_t n = longest; n >= options.min_match && from < 0; --n) {
        const auto found = std::search(text.begin(), text.begin() + corpus_end, text.end() - n, text.end());
        if (found != text.begin() + corpus_end) {
          from = found - text.begin() + n;
          match = static_cast<std::int32_t>(n);
        }
      }
    }
    Token token = -1;
    if (from >= 0 && from < end) {
      token = text[static_cast<std::size_t>(from++)];
      if (out.tokens.empty()) out.match = match;
    } else {
      from = -1;
      if (!bigram.empty() && text.back() >= 0 && text.back() < vocab)
        token = bigram[static_cast<std::size_t>(text.back())];
    }
    if (token < 0 || token >= vocab) break;
    text.push_back(token);
    out.tokens.push_back(token);
  }
  if (out.tokens.empty()) out.match = 0;
  return out;
}

/// What the library's drafter proposes for a chain.
Text on_cpu(const Text& text, const MaxGramOptions& options, const Text& bigram, Token vocab) {
  const specula::MaxGramOptions same{.min_match = options.min_match,
                                     .max_match = options.max_match,
                                     .past_end = options.past_end,
                                     .learn = false};
  specula::MaxGram drafter = bigram.empty()
                                 ? specula::MaxGram(vocab, same)
                                 : specula::MaxGram(specula::Bigram(specula::BigramTable(bigram)), same);
  drafter.sync(specula::Tokens(text).first(text.size() - 1), {});
  Text out;
  Token token = text.back();
  specula::NodeId parent = specula::kNoParent;
  for (std::int32_t i = 0; i < options.draft_tokens; ++i) {
    const specula::PointMasses draft_token = drafter.extend({&token, 1}, {&parent, 1});
    token = draft_token.tokens[0];
    if (token == specula::kNoToken) break;
    out.push_back(token);
    parent = i;
  }
  return out;
}

/// A block that counts its warps' ballots.
struct CountingBlock {
  struct Warp : EmulatedWarp {
    Warp(const EmulatedWarp& warp, std::int64_t* count) : EmulatedWarp(warp), ballots(count) {}
    std::int64_t* ballots;
    std::uint32_t ballot(bool yes) const {
      *ballots += rank() == 0;
      return EmulatedWarp::ballot(yes);
    }
  };
  EmulatedBlock block;
  std::int64_t* ballots;
  int rank() const { return block.rank(); }
  int size() const { return block.size(); }
  void sync() const { block.sync(); }
  Warp warp() const { return {block.warp(), ballots}; }
  int warp_rank() const { return block.warp_rank(); }
  int warp_count() const { return block.warp_count(); }
};

constexpr Token kPoison = -77;

/// Texts as the kernel's rows.
struct Batch {
  std::vector<Token> tokens;
  std::vector<std::int32_t> length;
  std::int64_t stride = 0;
  std::int32_t capacity = 0;

  explicit Batch(const std::vector<Text>& texts) {
    for (const Text& text : texts)
      capacity = std::max(capacity, static_cast<std::int32_t>(text.size())),
      length.push_back(static_cast<std::int32_t>(text.size()));
    stride = capacity + 3;
    tokens.assign(texts.size() * static_cast<std::size_t>(stride),
                  1);  // the padding after a text is a valid token
    for (std::size_t b = 0; b < texts.size(); ++b)
      std::copy(texts[b].begin(), texts[b].end(),
                tokens.begin() + static_cast<std::ptrdiff_t>(b) * static_cast<std::ptrdiff_t>(stride));
  }
};

Batch one(const Text& text) { return Batch(std::vector<Text>{text}); }

struct Launch {
  int threads = 64;
  std::uint64_t seed = 1;
  std::int64_t* ballots = nullptr;
};

template <class Run>
std::vector<DraftTokens> run_all(const Batch& batch, const MaxGramOptions& options, const Text& bigram,
                                 Run run) {
  const std::size_t n = batch.length.size(), k = static_cast<std::size_t>(options.draft_tokens);
  std::vector<Token> draft_token(n * k + 1, kPoison);
  std::vector<std::int32_t> count(n + 1, kPoison), match(n + 1, kPoison);
  run(device::MaxGramBatch{batch.tokens.data(), batch.stride, batch.length.data(),
                           bigram.empty() ? nullptr : bigram.data(), draft_token.data(), count.data(),
                           match.data()});
  CHECK(draft_token.back() == kPoison);
  CHECK(count.back() == kPoison);
  CHECK(match.back() == kPoison);
  std::vector<DraftTokens> out;
  for (std::size_t b = 0; b < n; ++b) {
    const auto row = draft_token.begin() + static_cast<std::ptrdiff_t>(b * k);
    REQUIRE(count[b] >= 0);
    REQUIRE(count[b] <= options.draft_tokens);
    out.push_back({Text(row, row + count[b]), match[b]});
    CHECK(std::all_of(row + count[b], row + static_cast<std::ptrdiff_t>(k), [](Token t) { return t == -1; }));
  }
  return out;
}
std::vector<DraftTokens> emulated(const Batch& batch, const MaxGramOptions& options, const Text& bigram,
                                  Token vocab, Launch launch = {}) {
  return run_all(batch, options, bigram, [&](const device::MaxGramBatch& arrays) {
    emulate({.clusters = static_cast<int>(batch.length.size()),
             .threads = launch.threads,
             .shared_bytes = device::detail::max_gram_shared_bytes(options.draft_tokens),
             .seed = launch.seed},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              std::int64_t ignored = 0;
              device::detail::max_gram(
                  CountingBlock{cluster.block(), launch.ballots ? launch.ballots : &ignored}, arrays, options,
                  vocab, batch.capacity, index, shared);
            });
  });
}
std::vector<DraftTokens> serial(const Batch& batch, const MaxGramOptions& options, const Text& bigram,
                                Token vocab) {
  return run_all(batch, options, bigram, [&](const device::MaxGramBatch& arrays) {
    std::vector<std::uint64_t> shared(device::detail::max_gram_shared_bytes(options.draft_tokens) / 8 + 1,
                                      ~0ull);
    for (int b = 0; b < static_cast<int>(batch.length.size()); ++b)
      device::detail::max_gram(SerialBlock{}, arrays, options, vocab, batch.capacity, b,
                               reinterpret_cast<unsigned char*>(shared.data()));
  });
}

/// Texts with repetitions of many kinds, or without any.
Text random_text(Random& random, std::int32_t size, Token vocab) {
  Text out;
  while (static_cast<std::int32_t>(out.size()) < size) {
    const auto there = static_cast<std::int32_t>(out.size());
    const std::int32_t n = 1 + random.below(random.bernoulli(0.3) ? 80 : 8);
    if (there > 0 && random.bernoulli(0.5)) {  // copies of earlier pieces, copies among them
      const std::int32_t from = random.below(there);
      for (std::int32_t i = 0; i < n; ++i) out.push_back(out[static_cast<std::size_t>(from + i)]);
    } else {
      for (std::int32_t i = 0; i < n; ++i) out.push_back(random.below(vocab));
    }
  }
  out.resize(static_cast<std::size_t>(size));
  return out;
}
Text random_bigram(Random& random, Token vocab) {
  Text out;
  for (Token t = 0; t < vocab; ++t) out.push_back(random.bernoulli(0.2) ? -1 : random.below(vocab));
  return out;
}
Text repeated(const Text& what, std::int32_t size) {
  Text out;
  for (std::int32_t i = 0; i < size; ++i) out.push_back(what[static_cast<std::size_t>(i) % what.size()]);
  return out;
}
/// A B AB BAB ABBAB ...: the most repetitive text without a period.
Text fibonacci(std::int32_t size) {
  Text one{4}, two{5};
  while (static_cast<std::int32_t>(two.size()) < size) {
    Text both = two;
    both.insert(both.end(), one.begin(), one.end());
    one = std::move(two);
    two = std::move(both);
  }
  two.resize(static_cast<std::size_t>(size));
  return two;
}
Text joined(std::initializer_list<Text> parts) {
  Text out;
  for (const Text& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

void check_all(const std::vector<Text>& texts, const MaxGramOptions& options, const Text& bigram, Token vocab,
               Launch launch = {}) {
  const Batch batch(texts);
  const std::vector<DraftTokens> got = emulated(batch, options, bigram, vocab, launch);
  CHECK(got == serial(batch, options, bigram, vocab));
  for (std::size_t b = 0; b < texts.size(); ++b) {
    CAPTURE(b);
    CHECK(got[b] == naive(texts[b], options, bigram, vocab));
    CHECK(got[b].tokens == on_cpu(texts[b], options, bigram, vocab));
  }
}

}  // namespace

TEST_CASE("an example by hand") {
  //                0  1  2  3  4  5  6  7  8
  const Text text{5, 1, 2, 7, 8, 1, 2, 9, 1, 2};
  // The longest suffix that occurs is 1 2, first before 7.
  const Batch batch = one(text);
  CHECK(emulated(batch, {.draft_tokens = 3}, {}, 10)[0] == DraftTokens{{7, 8, 1}, 2});
  CHECK(emulated(batch, {.draft_tokens = 3, .max_match = 1}, {}, 10)[0] == DraftTokens{{7, 8, 1}, 1});
  CHECK(emulated(batch, {.draft_tokens = 3, .min_match = 3}, {}, 10)[0] == DraftTokens{{}, 0});
  const Text bigram{-1, -1, 3, 4, -1, -1, -1, -1, -1, -1};
  CHECK(emulated(batch, {.draft_tokens = 3, .min_match = 3}, bigram, 10)[0] == DraftTokens{{3, 4}, 0});
  // At the end of the committed tokens (the second 9) it is searched again, draft tokens included.
  CHECK(emulated(batch, {.draft_tokens = 9}, {}, 10)[0].tokens ==
        naive(text, {.draft_tokens = 9}, {}, 10).tokens);
}

TEST_CASE("random texts, against the definition and the CPU's drafter") {
  Random random(1);
  int copied = 0, drafted = 0, all = 0, deep = 0;
  for (int round = 0; round < 60; ++round) {
    const Token vocab = std::vector<Token>{1, 2, 3, 5, 20, 1000}[static_cast<std::size_t>(round % 6)];
    MaxGramOptions options{.draft_tokens = 1 + random.below(12)};
    if (random.bernoulli(0.3)) options.min_match = 1 + random.below(4);
    if (random.bernoulli(0.4))
      options.max_match = options.min_match + random.below(random.bernoulli(0.5) ? 3 : 40);
    options.past_end = random.bernoulli(0.4);
    const Text bigram = random.bernoulli(0.5) ? random_bigram(random, vocab) : Text{};
    std::vector<Text> texts;
    for (int b = 0; b < 8; ++b) texts.push_back(random_text(random, 1 + random.below(400), vocab));
    check_all(texts, options, bigram, vocab, {.threads = 32 * (1 + random.below(4)), .seed = random.bits()});
    for (const Text& text : texts) {
      const DraftTokens draft_tokens = naive(text, options, bigram, vocab);
      copied += draft_tokens.match > 0;
      deep += draft_tokens.match > 16;
      drafted += draft_tokens.match == 0 && !draft_tokens.tokens.empty();
      ++all;
    }
  }
  CHECK(copied > all / 3);
  CHECK(deep > all / 10);
  CHECK(drafted > all / 20);
}

TEST_CASE("texts of one long repetition, with and without exceptions") {
  Random random(2);
  std::vector<Text> texts;
  for (const std::int32_t n : {1, 2, 3, 15, 16, 17, 18, 31, 33, 34, 64, 65, 129, 300}) {
    texts.push_back(repeated({4}, n));
    texts.push_back(repeated({4, 5}, n));
    texts.push_back(repeated({4, 5, 5, 6, 4}, n));
    texts.push_back(joined({repeated({4}, n), {5}, repeated({4}, n)}));
    texts.push_back(joined({repeated({4}, n + 20), {5}, repeated({4}, n)}));
    texts.push_back(joined({repeated({4}, n), {5}, repeated({4}, n + 20)}));
    texts.push_back(joined({repeated({4}, n), {5}, repeated({4}, n), {5}}));
    texts.push_back(
        joined({repeated({1, 2, 3}, n), {9}, repeated({1, 2, 3}, n), {8}, repeated({1, 2, 3}, n)}));
    // Equally long matches at several positions, of which the first counts.
    const Text phrase = random_text(random, n, 7);
    texts.push_back(joined({{8}, phrase, {1, 9}, phrase, {2, 8}, phrase, {3, 9}, phrase}));
  }
  for (const bool past_end : {false, true})
    for (const std::int32_t max_match : {0, 15, 16, 17, 40})
      check_all(texts, {.draft_tokens = 7, .max_match = max_match, .past_end = past_end}, {}, 10,
                {.threads = 96, .seed = random.bits()});
}

TEST_CASE("draft tokens do not depend on the launch or on the rest of the batch") {
  Random random(3);
  std::vector<Text> texts;
  for (int b = 0; b < 6; ++b) texts.push_back(random_text(random, 1 + random.below(700), 2 + b));
  const MaxGramOptions options{.draft_tokens = 9};
  const Text bigram = random_bigram(random, 10);
  const std::vector<DraftTokens> want = serial(Batch(texts), options, bigram, 10);
  for (const int threads : {32, 64, 512})
    CHECK(want == emulated(Batch(texts), options, bigram, 10, {.threads = threads, .seed = random.bits()}));
  for (std::size_t b = 0; b < texts.size(); ++b)
    CHECK(want[b] == emulated(one(texts[b]), options, bigram, 10)[0]);
}

TEST_CASE("no draft tokens: none requested, a text of the root alone, lengths out of range") {
  const Text bigram{1, -1, 2, 7};
  CHECK(emulated(one({0, 0, 0}), {.draft_tokens = 0}, bigram, 4)[0] == DraftTokens{});
  CHECK(emulated(one({0}), {.draft_tokens = 2}, {}, 4)[0] == DraftTokens{});
  CHECK(emulated(one({0}), {.draft_tokens = 2}, bigram, 4)[0] == DraftTokens{{1}, 0});
  CHECK(emulated(one({2}), {.draft_tokens = 4}, bigram, 4)[0] == DraftTokens{{2, 2, 2, 2}, 0});
  CHECK(emulated(one({3}), {.draft_tokens = 4}, bigram, 4)[0] == DraftTokens{});  // 7 is no token of four
  for (const std::int32_t length : {0, -1, 4, 1 << 30, std::numeric_limits<std::int32_t>::min()}) {
    Batch batch = one({0, 0, 0});
    batch.length[0] = length;
    CHECK(emulated(batch, {.draft_tokens = 2}, bigram, 4)[0] == DraftTokens{});
  }
}

TEST_CASE("a live count of texts: what belongs to others is not touched") {
  const Batch batch(std::vector<Text>{{1, 2, 1}, {3, 4, 3}, {5, 5}});
  for (std::int32_t live = 0; live <= 3; ++live) {
    std::vector<Token> draft_token(6, kPoison);
    std::vector<std::int32_t> count(3, kPoison), match(3, kPoison);
    device::MaxGramBatch arrays{batch.tokens.data(), batch.stride, batch.length.data(), nullptr,
                                draft_token.data(),  count.data(), match.data()};
    arrays.sequence_count = &live;
    const MaxGramOptions options{.draft_tokens = 2};
    emulate({.clusters = 3, .threads = 64, .shared_bytes = device::detail::max_gram_shared_bytes(2)},
            [&](EmulatedCluster cluster, int index, unsigned char* shared) {
              device::detail::max_gram(cluster.block(), arrays, options, 9, batch.capacity, index, shared);
            });
    for (std::int32_t b = 0; b < 3; ++b) {
      CHECK((count[static_cast<std::size_t>(b)] == kPoison) == (b >= live));
      CHECK((match[static_cast<std::size_t>(b)] == kPoison) == (b >= live));
      CHECK((draft_token[static_cast<std::size_t>(2 * b)] == kPoison) == (b >= live));
    }
  }
}

TEST_CASE("invalid tokens are compared but never drafted") {
  const MaxGramOptions options{.draft_tokens = 4};
  CHECK(emulated(one({1, 2, -5, 3, 1}), options, {}, 4)[0] == DraftTokens{{2}, 1});
  CHECK(emulated(one({1, 9, 3, 1}), options, {}, 4)[0] == DraftTokens{});
  CHECK(emulated(one({-5, 2, 3, -5}), options, {}, 4)[0] == DraftTokens{{2, 3}, 1});
  CHECK(emulated(one({2, 3, 9}), options, {0, 1, 2, 3}, 4)[0] == DraftTokens{});
  // Beyond the first 32 copies too.
  Text text = repeated({1}, 50);
  text[40] = 9;
  text.insert(text.begin(), {3, 2});
  text.insert(text.end(), {3, 2});
  const DraftTokens got = emulated(one(text), {.draft_tokens = 100}, {}, 4)[0];
  CHECK(got == DraftTokens{Text(40, 1), 2});
}

TEST_CASE("many draft tokens") {
  Random random(4);
  std::vector<Text> texts;
  for (int b = 0; b < 4; ++b) texts.push_back(random_text(random, 150, 30));
  for (const bool past_end : {false, true})
    check_all(texts, {.draft_tokens = 130, .past_end = past_end}, random_bigram(random, 30), 30);
}

TEST_CASE("long repetitive texts cost a few comparisons per token") {
  const std::int32_t n = 50000;
  Random random(5);
  Text noisy = repeated({4}, n);
  for (int i = 0; i < 20; ++i) noisy[static_cast<std::size_t>(random.below(n))] = 5;
  const std::vector<Text> texts{
      repeated({4}, n),
      repeated({4, 5, 6}, n),
      repeated(random_text(random, 1000, 50), n),
      joined({repeated({4}, n / 2), {5}, repeated({4}, n / 2)}),
      joined({repeated({4}, n / 3), {5}, repeated({4}, n / 2)}),
      joined({repeated({4}, n / 2), {5}, repeated({4}, n / 3)}),
      joined({random_text(random, n / 2, 1000), repeated({4, 5}, n / 2)}),
      noisy,
      fibonacci(n),
  };
  for (const Text& text : texts) {
    std::int64_t ballots = 0;
    const std::int32_t size = static_cast<std::int32_t>(text.size());
    const DraftTokens got =
        emulated(one(text), {.draft_tokens = 1, .past_end = true}, {}, 1000, {.ballots = &ballots})[0];
    CHECK(got.tokens.size() == 1);
    CHECK(got.tokens == on_cpu(text, {.draft_tokens = 1, .past_end = true}, {}, 1000));
    CAPTURE(ballots);

    CHECK(ballots < size / 4);  // of the two scans n / 16, of a comparison of the whole text n / 32
  }
}

TEST_CASE("invalid plans and arrays are refused") {
  const device::MaxGramCapacity capacity{2, 100, 1000};
  const device::MaxGramOptions options;
  CHECK(device::detail::is_max_gram(capacity, options));
  for (int device::MaxGramCapacity::*field :
       {&device::MaxGramCapacity::sequences, &device::MaxGramCapacity::tokens,
        &device::MaxGramCapacity::vocab}) {
    device::MaxGramCapacity bad = capacity;
    bad.*field = 0;
    CHECK(!device::detail::is_max_gram(bad, options));
  }
  CHECK(!device::detail::is_max_gram({2, (1 << 30) + 1, 1000}, options));
  CHECK(!device::detail::is_max_gram(capacity, {-1}));
  CHECK(!device::detail::is_max_gram(capacity, {4097}));
  CHECK(!device::detail::is_max_gram(capacity, {10, 0}));
  CHECK(!device::detail::is_max_gram(capacity, {10, 3, 2}));

  std::vector<std::int32_t> array(8);
  std::int32_t *const good = array.data(), *const odd = reinterpret_cast<std::int32_t*>(
                                               reinterpret_cast<char*>(good) + 1);
  device::MaxGramPlan plan{capacity, options, 512,
                           device::detail::max_gram_shared_bytes(options.draft_tokens)};
  const device::MaxGramBatch batch{good, 100, good, nullptr, good, good, good};
  CHECK(device::detail::is_max_gram(plan, batch));
  const auto refused = [&](auto change) {
    device::MaxGramBatch bad = batch;
    change(bad);
    return !device::detail::is_max_gram(plan, bad);
  };
  CHECK(refused([](auto& b) { b.stride = 99; }));
  for (std::int32_t* wrong : {static_cast<std::int32_t*>(nullptr), odd}) {
    CHECK(refused([&](auto& b) { b.tokens = wrong; }));
    CHECK(refused([&](auto& b) { b.length = wrong; }));
    CHECK(refused([&](auto& b) { b.draft_token = wrong; }));
    CHECK(refused([&](auto& b) { b.count = wrong; }));
    CHECK(refused([&](auto& b) { b.match = wrong; }));
  }
  CHECK(refused([&](auto& b) { b.bigram = odd; }));
  plan.threads = 100;
  CHECK(!device::detail::is_max_gram(plan, batch));
  CHECK(!device::detail::is_max_gram(device::MaxGramPlan{}, batch));
  plan = {{1, 100, 1000}, {0}, 512, device::detail::max_gram_shared_bytes(0)};
  CHECK(device::detail::is_max_gram(
      plan, {good, 0, good, nullptr, nullptr, good, good}));  // one row, no draft token
}
