// SPDX-License-Identifier: MIT
// What the host knows of the texts of a model on a device.
#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/cuda/model/detail/device_texts.hpp>

using specula::kNoParent;
using specula::NodeId;
using specula::Token;
using specula::cuda::detail::DeviceText;
using specula::cuda::detail::DeviceTexts;

TEST_CASE("nodes have depths, waiting tokens become cached, a path moves unless it is the first nodes") {
  DeviceTexts texts({.capacity = 20, .max_nodes = 8, .slots = 2}, 10);
  DeviceText& text = texts[1];
  texts.append(1, std::vector<Token>{1, 2, 3});
  CHECK(text.waiting() == 3);
  text.take(2);
  CHECK(text.ran == 2);
  CHECK(text.waiting() == 1);
  CHECK(text.size() == 3);
  text.take(1);
  text.add_nodes(std::vector<Token>{4, 5, 6, 7}, std::vector<NodeId>{kNoParent, 0, 0, 2});
  CHECK(text.nodes[3].depth == 2);
  CHECK(text.nodes[3].token == 7);
  text.in_cache = 4;
  texts.commit(1, std::vector<NodeId>{0, 2, 3});
  CHECK(text.moves());
  CHECK(text.path == std::vector<NodeId>{0, 2, 3});
  CHECK(text.path_after == 3);
  CHECK(text.ran == 6);
  CHECK(text.node_count() == 0);
  text.path.clear();
  text.add_nodes(std::vector<Token>{4, 5}, std::vector<NodeId>{kNoParent, 0});
  CHECK(text.in_cache == 0);  // those of the last round do not count
  texts.commit(1, std::vector<NodeId>{0, 1});
  CHECK(!text.moves());
  CHECK(text.ran == 8);
  // Tokens that wait are cut before those in the cache.
  texts.append(1, std::vector<Token>{1, 2, 3});
  texts.truncate(1, 9);
  CHECK(text.waiting() == 1);
  CHECK(text.ran == 8);
  texts.truncate(1, 5);
  CHECK(text.waiting() == 0);
  CHECK(text.ran == 5);
  CHECK(texts[0].size() == 0);
}

TEST_CASE("what changes a text counts, what is refused does not") {
  DeviceTexts texts({.capacity = 5, .max_nodes = 2, .slots = 1}, 10);
  const auto now = [&] { return texts[0].changes.now(); };
  auto before = now();
  texts.append(0, std::vector<Token>{1});
  CHECK(now() > before);
  before = now();
  texts.commit(0, {});
  CHECK(now() > before);
  before = now();
  texts.truncate(0, 1);
  CHECK(now() > before);
  before = now();
  CHECK_THROWS_AS(texts.append(0, std::vector<Token>{10}), std::invalid_argument);
  CHECK_THROWS_AS(texts.append(0, std::vector<Token>(5, 1)), std::invalid_argument);
  CHECK_THROWS_AS(texts.commit(0, std::vector<NodeId>{0}), std::invalid_argument);
  CHECK_THROWS_AS(texts.truncate(0, 2), std::invalid_argument);
  CHECK_THROWS_AS(texts[1], std::invalid_argument);
  CHECK(now() == before);
  CHECK(texts[0].size() == 1);
}
