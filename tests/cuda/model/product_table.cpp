// SPDX-License-Identifier: MIT
// labels: threads
// Which algorithm multiplies: chosen once, the fastest that is right, kept in a file.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <specula/cuda/model/product_table.hpp>

using namespace specula::cuda;

namespace {

struct File {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("products_" + std::to_string(::getpid()));
  ~File() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("the fastest candidate that is right is taken, and the slower ones are not tried") {
  const std::vector<std::optional<double>> times{3.0, {}, 1.0, 2.0, 4.0};
  std::vector<int> tried;
  const auto seconds = [&](int i) { return times[static_cast<std::size_t>(i)]; };
  const auto right = [&](int i) { return tried.push_back(i), i != 2; };
  CHECK(choose_product(5, seconds, right) == 3);
  CHECK(tried == std::vector<int>{2, 3});
  CHECK(choose_product(5, seconds, [](int) { return false; }) == std::nullopt);
  CHECK(choose_product(0, seconds, right) == std::nullopt);
}

TEST_CASE("a shape is chosen once, by whichever thread asks first") {
  ProductTable table;
  const ProductShape shape{.rows = 8, .cols = 16, .height = 64, .exact = true};
  int chosen = 0;
  std::vector<std::thread> threads;
  std::vector<ProductAlgorithm> got(4);
  for (ProductAlgorithm& algorithm : got)
    threads.emplace_back([&] {
      algorithm = table.get("one", shape, [&] {
        return ProductAlgorithm{1, 2, static_cast<std::uint64_t>(++chosen)};
      });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(chosen == 1);
  for (const ProductAlgorithm& algorithm : got) CHECK(algorithm == ProductAlgorithm{1, 2, 1});
  // Another machine, height, addition or promise is another product.
  ProductShape other = shape;
  other.add = true;
  const auto fresh = [&] { return ProductAlgorithm{9, static_cast<std::uint64_t>(++chosen)}; };
  CHECK(table.get("two", shape, fresh)[0] == 9);
  CHECK(table.get("one", other, fresh)[0] == 9);
  other = shape, other.exact = false;
  CHECK(table.get("one", other, fresh)[0] == 9);
  other = shape, other.height = 128;
  CHECK(table.get("one", other, fresh)[0] == 9);
  CHECK(table.size() == 5);
}

TEST_CASE("a table that was written is read again, and another file is refused whole") {
  const File file;
  ProductTable table;
  const ProductShape shape{.rows = 8, .cols = 16, .height = 64, .add = true, .exact = true};
  const ProductAlgorithm algorithm{~std::uint64_t{0}, 2, 3, 4, 5, 6, 7, 8};
  table.get("a device, version 1", shape, [&] { return algorithm; });
  table.get("another", shape, [] { return ProductAlgorithm{}; });
  table.write(file.path);
  ProductTable read;
  read.get("another", shape, [] { return ProductAlgorithm{4}; });
  read.read(file.path);
  CHECK(read.size() == 2);
  const auto never = []() -> ProductAlgorithm { throw std::logic_error("chosen again"); };
  CHECK(read.get("a device, version 1", shape, never) == algorithm);
  CHECK(read.get("another", shape, never) == ProductAlgorithm{4});  // what was chosen before stays

  const auto refused = [&](const std::string& text) {
    std::ofstream(file.path) << text;
    ProductTable empty;
    CHECK_THROWS_AS(empty.read(file.path), std::runtime_error);
    CHECK(empty.size() == 0);
  };
  const std::string good = "m\t8 16 64 1 1 1 2 3 4 5 6 7 8\n";
  refused(good + "m\t8 16 64 1 1 1 2 3 4 5 6 7\n");
  refused(good + "m\t8 16 64 1 1 1 2 3 4 5 6 7 8 9\n");
  refused(good + "m 8 16\n");
  refused(good + "m\t8 x 64 1 1 1 2 3 4 5 6 7 8\n");
  refused(good + "m\t8 16 64 1 1 1 2 3 4 5 6 7 8");
  CHECK_THROWS_WITH_AS(table.read("/nowhere/products"), "/nowhere/products: cannot be opened",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(table.write("/nowhere/products"), "/nowhere/products: cannot be written",
                       std::runtime_error);
}
