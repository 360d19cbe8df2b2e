// SPDX-License-Identifier: MIT
// Batches of token rows: packing, shares of styles, resuming.
#include "data_loader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

namespace st = specula_train;

namespace {

/// `count` documents of `length` tokens, each told apart by its middle tokens.
std::vector<st::Document> documents(int count, int length, st::Token first) {
  std::vector<st::Document> result;
  for (int i = 0; i < count; ++i) {
    st::Document document(static_cast<std::size_t>(length), first + i);
    document.front() = st::kBegin;
    document.back() = st::kEnd;
    result.push_back(document);
  }
  return result;
}

}  // namespace

TEST_CASE("a short document that is cut starts again in the next row") {
  const st::Document a{1, 10, 2}, b{1, 20, 21, 2};
  const auto rows = st::pack_rows({&a, &b, &a}, 5);
  CHECK(rows == std::vector<st::Document>{{1, 10, 2, 1, 20}, {1, 20, 21, 2, 1}});
}

TEST_CASE("a long document continues in the next row, with its last token first") {
  const st::Document a{1, 3, 4, 5, 6, 7, 2};
  CHECK(st::pack_rows({&a}, 4) == std::vector<st::Document>{{1, 3, 4, 5}, {5, 6, 7, 2}});
}

TEST_CASE("styles alternate, and a restored loader continues at its position") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(20, 7, 100), .heldout = {}},
                                               {.name = "y", .train = documents(5, 30, 200), .heldout = {}}};
  st::BatchLoader loader(styles, 1);
  const auto batch = loader.next(4, 8);
  CHECK(batch.sizes() == torch::IntArrayRef{4, 9});
  for (int row = 0; row < 4; ++row) {
    const auto last = batch[row].max().item<std::int64_t>();
    CHECK((last >= 200) == (row % 2 == 1));
  }
  for (int i = 0; i < 20; ++i) loader.next(3, 8);  // several epochs, and an odd turn

  st::BatchLoader other(styles, 1);
  other.restore(loader.state());
  for (int i = 0; i < 20; ++i) CHECK(torch::equal(loader.next(3, 8), other.next(3, 8)));
  CHECK(torch::equal(loader.next(2, 16), other.next(2, 16)));
}

TEST_CASE("every epoch has the same rows in another order") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(40, 7, 100), .heldout = {}}};
  st::BatchLoader loader(styles, 1);
  const auto epoch = [&] {
    std::vector<st::Document> rows;
    for (int row = 0; row < 30; ++row) {
      const auto tokens = loader.next(1, 8)[0].to(torch::kInt32);
      rows.emplace_back(tokens.data_ptr<std::int32_t>(), tokens.data_ptr<std::int32_t>() + tokens.numel());
    }
    return rows;
  };
  // A document that fits a row and is cut starts again, so each row of 9 tokens has one of 7 whole.
  std::vector<const st::Document*> all;
  for (const auto& document : styles[0].train) all.push_back(&document);
  const auto count = st::pack_rows(all, 9).size();
  REQUIRE(count == 39);
  auto first = epoch();
  for (std::size_t row = 30; row < count; ++row) loader.next(1, 8);
  auto second = epoch();
  CHECK(first != second);
  for (std::size_t row = 30; row < count; ++row) {
    const auto tokens = loader.next(1, 8)[0].to(torch::kInt32);
    second.emplace_back(tokens.data_ptr<std::int32_t>(), tokens.data_ptr<std::int32_t>() + tokens.numel());
  }
  for (const auto& row : first) CHECK(std::count(second.begin(), second.end(), row) == 1);
}

TEST_CASE("held-out rows are spread evenly over the text") {
  st::TokenizedStyle style{.name = "x", .train = {}, .heldout = documents(40, 9, 100)};
  const auto rows = st::heldout_rows(style, 8, 4);
  REQUIRE(rows.sizes() == torch::IntArrayRef{4, 9});
  for (int row = 0; row < 4; ++row) CHECK(rows[row][1].item<std::int64_t>() == 100 + 10 * row);
  CHECK(st::heldout_rows(style, 8, 99).size(0) == 40);
  CHECK(st::heldout_rows(style, 500, 4).size(0) == 0);
}

TEST_CASE("another seed gives another order") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(50, 7, 100), .heldout = {}}};
  st::BatchLoader one(styles, 1), two(styles, 2);
  CHECK_FALSE(torch::equal(one.next(4, 8), two.next(4, 8)));
}

TEST_CASE("styles have their shares of the rows, and a restored loader keeps them") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(20, 30, 100), .heldout = {}},
                                               {.name = "y", .train = documents(20, 30, 200), .heldout = {}},
                                               {.name = "z", .train = documents(20, 30, 300), .heldout = {}}};
  const auto shares = st::parse_shares(styles, {"z=0", "x=0.7"});
  REQUIRE(shares.size() == 3);
  CHECK(shares[0] == doctest::Approx(0.7));
  CHECK(shares[1] == doctest::Approx(0.3));
  CHECK(shares[2] == 0);
  st::BatchLoader loader(styles, 1, shares);
  CHECK(loader.epochs() == "x 1, y 1");
  std::vector<int> counts(3);
  for (int row = 1; row <= 500; ++row) {
    const auto style = loader.next(1, 8).max().item<std::int64_t>() / 100 - 1;
    ++counts[static_cast<std::size_t>(style)];
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(counts[i] - row * shares[i]) < 3);
  }
  CHECK(counts == std::vector<int>{350, 150, 0});
  loader.next(2, 8);

  st::BatchLoader other(styles, 1, shares);
  other.restore(loader.state());
  for (int i = 0; i < 20; ++i) CHECK(torch::equal(loader.next(3, 8), other.next(3, 8)));
}

TEST_CASE("errors name invalid shares") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = {}, .heldout = {}},
                                               {.name = "y", .train = {}, .heldout = {}}};
  CHECK(st::parse_shares(styles, {}) == std::vector<double>{0.5, 0.5});
  CHECK(st::parse_shares(styles, {"y=0.25", "x=0.75"}) == std::vector<double>{0.75, 0.25});
  CHECK(st::parse_shares(styles, {"y=1"}) == std::vector<double>{0, 1});
  const auto refuses = [&](const std::vector<std::string>& given, const char* why) {
    CAPTURE(why);
    CHECK_THROWS_WITH_AS(st::parse_shares(styles, given), doctest::Contains(why), std::invalid_argument);
  };
  refuses({"u=0.5"}, "--share u=0.5: no style of this name; there are x, y");
  refuses({"x=0.5", "x=0.5"}, "given twice");
  refuses({"x=-0.1"}, "expected a number from 0 to 1");
  refuses({"x=half"}, "expected a number from 0 to 1");
  refuses({"x=0.5.1"}, "expected a number from 0 to 1");
  refuses({"x=nan"}, "expected a number from 0 to 1");
  refuses({"x=0.8", "y=0.8"}, "add up to 1.6");
  refuses({"x=0.3", "y=0.3"}, "add up to 0.6");
  refuses({"x"}, "expected NAME=VALUE");
}

TEST_CASE("an error names a style without a whole row") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(1, 4, 9), .heldout = {}}};
  st::BatchLoader loader(styles, 1);
  CHECK_THROWS_WITH_AS(loader.next(1, 8), doctest::Contains("less than one row of 9 tokens"),
                       std::runtime_error);
}

TEST_CASE("prompts are given, but for those of styles that learn them") {
  const auto styles = [] {
    std::vector<st::TokenizedStyle> out(2);
    for (auto& style : out) style.train = {{5, 6, 7}}, style.given = {2};
    out[0].name = "x", out[1].name = "y";
    return out;
  };
  using Documents = std::vector<st::Document>;
  const Documents whole{{5, 6, 7}}, given{{st::mark_given(5), st::mark_given(6), 7}};
  auto both = styles(), one = styles(), all = styles(), none = styles();
  CHECK(st::mark_prompts(both, {}));
  CHECK((both[0].train == given && both[1].train == given));
  CHECK(st::mark_prompts(one, {"y"}));
  CHECK((one[0].train == given && one[1].train == whole));
  CHECK(st::mark_prompts(all, {"x", "y"}));
  CHECK((all[0].train == whole && all[1].train == whole));
  for (auto& style : none) style.given.clear();
  CHECK_FALSE(st::mark_prompts(none, {}));
  CHECK_THROWS_WITH_AS(st::mark_prompts(none, {"z"}), "--learn-prompts z: no style of this name",
                       std::invalid_argument);
}
