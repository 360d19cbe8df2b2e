// SPDX-License-Identifier: MIT
// SuffixAutomaton: the longest matching suffix of a growing text.
#include <specula/draft/detail/suffix_automaton.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "count_allocations.hpp"
#include "random.hpp"

using namespace specula;
using specula::detail::SuffixAutomaton;
using specula_test::AllocationCount;
using specula_test::Random;

namespace {

using Text = std::vector<Token>;

/// Where the earliest occurrence of the last `length` tokens of `text` in `corpus` has ended; -1: nowhere.
int occurs(const Text& corpus, const Text& text, std::size_t length) {
  const auto at =
      std::search(corpus.begin(), corpus.end(), text.end() - static_cast<std::ptrdiff_t>(length), text.end());
  return at == corpus.end() && length > 0 ? -1
                                          : static_cast<int>(at - corpus.begin()) + static_cast<int>(length);
}

std::size_t longest(const Text& corpus, const Text& text) {
  std::size_t length = 0;
  while (length < text.size() && occurs(corpus, text, length + 1) >= 0) ++length;
  return length;
}

/// A text of a few tokens, with repeated pieces.
Text random_text(Random& random, std::int32_t vocab, std::size_t size) {
  Text text;
  while (text.size() < size) {
    if (text.size() > 2 && random.bernoulli(0.3)) {
      const auto from = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(text.size()) - 1));
      for (std::size_t i = from; i < std::min(from + 6, text.size()); ++i) text.push_back(text[i]);
    } else {
      text.push_back(random.below(vocab));
    }
  }
  text.resize(size);
  return text;
}

/// Fibonacci words, the worst case for suffix links.
Text fibonacci(std::size_t size) {
  Text a = {0}, b = {0, 1};
  while (b.size() < size) {
    Text c = b;
    c.insert(c.end(), a.begin(), a.end());
    a = std::move(b), b = std::move(c);
  }
  b.resize(size);
  return b;
}

}  // namespace

TEST_CASE("while the text grows: longest matches of any query, and their first occurrences") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const std::int32_t vocab = 1 + random.below(4);
    const Text text = random_text(random, vocab, 60);
    SuffixAutomaton automaton;
    Text corpus;
    for (const Token token : text) {
      CHECK(automaton.whole().length == automaton.size());
      automaton.append(token);
      const Text before = corpus;
      corpus.push_back(token);
      REQUIRE(static_cast<std::size_t>(automaton.repeated().length) == longest(before, corpus));
      REQUIRE(automaton.after(automaton.whole()) == automaton.size());

      // Queries from the end of the text or from its start, with tokens that may not occur; sometimes
      // truncated.
      Text query = random.bernoulli(0.5) ? corpus : Text{};
      SuffixAutomaton::Match match = query.empty() ? SuffixAutomaton::Match{} : automaton.whole();
      for (int i = 0; i < 8; ++i) {
        const Token next = random.below(vocab + (random.bernoulli(0.1) ? 1 : 0));
        query.push_back(next);
        match = automaton.advance(match, next);
        if (random.bernoulli(0.2)) {
          const auto cut = 1 + random.below(5);
          match = automaton.shorten(match, cut);
          query.erase(query.begin(),
                      query.end() - std::min<std::ptrdiff_t>(cut, static_cast<std::ptrdiff_t>(query.size())));
        }
        const std::size_t length = longest(corpus, query);
        REQUIRE(static_cast<std::size_t>(match.length) == length);
        REQUIRE(automaton.after(match) == occurs(corpus, query, length));
      }
    }
    CHECK(std::equal(corpus.begin(), corpus.end(), automaton.text().begin(), automaton.text().end()));
  }
}

TEST_CASE("the empty text") {
  SuffixAutomaton automaton;
  CHECK(automaton.size() == 0);
  CHECK(automaton.repeated().length == 0);
  CHECK(automaton.whole().length == 0);
  CHECK(automaton.advance({}, 3).length == 0);
  CHECK(automaton.shorten({}, 1).length == 0);
}

TEST_CASE("clear() forgets everything") {
  Random random(5);
  SuffixAutomaton again;
  for (int round = 0; round < 20; ++round) {
    const Text text = random_text(random, 3, static_cast<std::size_t>(1 + random.below(200)));
    again.clear();
    for (const Token token : text) again.append(token);
    REQUIRE(static_cast<std::size_t>(again.repeated().length) ==
            longest({text.begin(), text.end() - 1}, text));
  }
}

TEST_CASE("reserve(n) suffices for n tokens of the worst text") {
  for (const std::int32_t n : {1, 2, 5, 64, 1000}) {
    // abbb...b has the most states, abbb...bc the most edges; and one without a repetition.
    for (int kind = 0; kind < 4; ++kind) {
      SuffixAutomaton automaton;
      automaton.reserve(n);
      const AllocationCount allocated;
      for (std::int32_t i = 0; i < n; ++i)
        automaton.append(kind == 3 ? i : i == 0 ? 0 : i == n - 1 && kind == 1 ? 2 : kind == 2 ? i % 2 : 1);
      automaton.clear();
      for (std::int32_t i = 0; i < n; ++i) automaton.append(i % 3);
      const auto count = allocated.count();
      CHECK(count == 0);
    }
  }
  CHECK_THROWS_WITH_AS(SuffixAutomaton().reserve((1 << 29) + 1),
                       "SuffixAutomaton: 536870913 tokens, at most 536870912 fit", std::length_error);
}

TEST_CASE("cost: a few look-ups per token of the text, and a search does not traverse the text") {
  constexpr std::size_t kSize = 100000;
  Random random(9);
  Text loop, line(kSize, 0), blocks;
  while (loop.size() < kSize) loop.push_back(static_cast<Token>(loop.size() % 7));
  while (blocks.size() < kSize) {  // runs of ever new lengths: many states are split late
    blocks.insert(blocks.end(), static_cast<std::size_t>(random.below(400)), 0);
    blocks.push_back(1 + random.below(2));
  }
  blocks.resize(kSize);
  for (const Text& text : {line, loop, blocks, fibonacci(kSize), random_text(random, 2, kSize)}) {
    SuffixAutomaton automaton;
    for (const Token token : text) automaton.append(token);
    CHECK(automaton.steps() < static_cast<std::int64_t>(8 * kSize));
    std::int64_t most = 0;
    for (int query = 0; query < 2000; ++query) {
      // A suffix or an inner piece of the text, then a token that may not follow there.
      SuffixAutomaton::Match match = automaton.whole();
      if (query % 2 == 1) {
        const auto from = static_cast<std::size_t>(random.below(static_cast<std::int32_t>(kSize) - 600));
        match = {};
        for (std::size_t i = from; i < from + 500; ++i) match = automaton.advance(match, text[i]);
      }
      const std::int64_t before = automaton.steps();
      if (query % 3 == 0)
        match = automaton.shorten(match, 1 + random.below(20));
      else
        match = automaton.advance(match, random.below(9));
      most = std::max(most, automaton.steps() - before);
    }
    CHECK(most < 200);  // by suffix links alone, 100,000 of a line
  }
}
