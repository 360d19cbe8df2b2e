#include "data_loader.hpp"

#include <doctest/doctest.h>

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

TEST_CASE("a long document goes on, its last token first") {
  const st::Document a{1, 3, 4, 5, 6, 7, 2};
  CHECK(st::pack_rows({&a}, 4) == std::vector<st::Document>{{1, 3, 4, 5}, {5, 6, 7, 2}});
}

TEST_CASE("styles alternate, and a restored loader goes on where it was") {
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

TEST_CASE("another seed, another order") {
  const std::vector<st::TokenizedStyle> styles{{.name = "x", .train = documents(50, 7, 100), .heldout = {}}};
  st::BatchLoader one(styles, 1), two(styles, 2);
  CHECK_FALSE(torch::equal(one.next(4, 8), two.next(4, 8)));
}
