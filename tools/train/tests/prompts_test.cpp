// SPDX-License-Identifier: MIT
// Prompts cut from text, for the target to continue.
#include "prompts.hpp"

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

namespace st = specula_train;

namespace {

/// A text of `size` tokens whose lines begin at every `every`-th one; 0: only the first does.
std::vector<bool> lines(std::size_t size, std::size_t every) {
  std::vector<bool> starts(size);
  for (std::size_t i = 0; i < size; ++i) starts[i] = every == 0 ? i == 0 : i % every == 0;
  return starts;
}

constexpr st::PromptSizes kSizes{.shortest = 4, .longest = 12, .continuation = 10};

}  // namespace

TEST_CASE("questions as they are, or with other digits") {
  CHECK(st::question_of("Question: 2+2?\nAnswer: 4\nAnswer: 5") == "Question: 2+2?\nAnswer:");
  CHECK_FALSE(st::question_of("Question: 2+2?").has_value());
  CHECK_FALSE(st::question_of("A text.\nAnswer: 4").has_value());
  std::mt19937_64 random(1);
  std::set<std::string> seen;
  for (int i = 0; i < 50; ++i) {
    const auto other = st::with_other_numbers("a 107 b", random);
    CHECK(other.size() == 7);
    CHECK(other.substr(0, 2) == "a ");
    CHECK(other[2] != '0');
    CHECK(other.substr(5) == " b");
    seen.insert(other);
  }
  CHECK(seen.size() > 40);
}

TEST_CASE("prompts are pieces from the starts of lines, with room for a continuation between them") {
  std::mt19937_64 random(1);
  std::set<std::size_t> lengths;
  for (int i = 0; i < 100; ++i) {
    const auto pieces = st::cut_prompts(lines(200, 5), kSizes, false, random);
    REQUIRE(pieces.size() >= 5);
    CHECK(pieces[0].begin == 0);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const auto [begin, end] = pieces[p];
      CHECK(begin % 5 == 0);
      CHECK(end - begin >= 4);
      CHECK(end - begin <= 12);
      CHECK(end - begin <= (200 - begin) / 2);
      lengths.insert(end - begin);
      if (p == 0) continue;
      CHECK(begin >= pieces[p - 1].end + 10);
      CHECK(begin < pieces[p - 1].end + 10 + 5);
    }
  }
  CHECK(lengths == std::set<std::size_t>{4, 5, 6, 7, 8, 9, 10, 11, 12});
}

TEST_CASE("a text without lines is cut after each piece and its continuation") {
  std::mt19937_64 random(1);
  const auto pieces = st::cut_prompts(lines(200, 0), kSizes, false, random);
  REQUIRE(pieces.size() > 3);
  for (std::size_t p = 1; p < pieces.size(); ++p) CHECK(pieces[p].begin == pieces[p - 1].end + 10);
}

TEST_CASE("a short document gives half of its tokens, a shorter one no prompt") {
  std::mt19937_64 random(1);
  const auto pieces = st::cut_prompts(lines(8, 0), kSizes, false, random);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].end == 4);
  CHECK(st::cut_prompts(lines(7, 0), kSizes, false, random).empty());
  CHECK(st::cut_prompts({}, kSizes, false, random).empty());
  CHECK(st::cut_prompts({}, kSizes, true, random).empty());
}

TEST_CASE("a piece may be all that is left") {
  std::mt19937_64 random(1);
  auto sizes = kSizes;
  sizes.whole = true;
  std::size_t longest = 0;
  for (int i = 0; i < 50; ++i) {
    const auto pieces = st::cut_prompts(lines(12, 0), sizes, false, random);
    REQUIRE(pieces.size() == 1);
    CHECK(pieces[0].end <= 12);
    longest = std::max(longest, pieces[0].end);
  }
  CHECK(longest == 12);
  CHECK(st::cut_prompts(lines(4, 0), sizes, false, random).size() == 1);
  CHECK(st::cut_prompts(lines(3, 0), sizes, false, random).empty());
}

TEST_CASE("with begins_anywhere, prompts start at other places") {
  std::mt19937_64 random(1);
  std::set<std::size_t> begins;
  for (int i = 0; i < 50; ++i) {
    const auto pieces = st::cut_prompts(lines(200, 3), kSizes, true, random);
    REQUIRE_FALSE(pieces.empty());
    CHECK(pieces[0].begin % 3 == 0);
    CHECK(pieces[0].begin < 12 + 3);
    begins.insert(pieces[0].begin);
  }
  CHECK(begins.size() >= 4);
}

TEST_CASE("sizes that make no prompts are refused") {
  CHECK_NOTHROW(st::PromptSizes{}.check());
  CHECK_THROWS_AS((st::PromptSizes{.shortest = 0}.check()), std::invalid_argument);
  CHECK_THROWS_WITH_AS((st::PromptSizes{.shortest = 9, .longest = 8}.check()),
                       doctest::Contains("prompts of 9 to 8 tokens"), std::invalid_argument);
  CHECK_THROWS_AS((st::PromptSizes{.continuation = 0}.check()), std::invalid_argument);
}
