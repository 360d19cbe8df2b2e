// SPDX-License-Identifier: MIT
// DraftRows: which row a distribution was made from, what is dropped, and which nodes have a slot.
#include <specula/proposal/draft_rows.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

using namespace specula;
using specula::detail::DraftRows;

TEST_CASE("each node has its own slot of logits and of tile masses") {
  DraftRows rows(600, 3);
  const std::vector<float> row(600);
  CHECK(rows.slot(0, row).size() == 600);
  CHECK(rows.masses(0).size() == 2);  // tiles of 512
  CHECK(rows.slot(1, row).data() == rows.slot(0, row).data() + 600);
  CHECK(rows.masses(2).data() == rows.masses(0).data() + 4);
  CHECK_THROWS_WITH_AS(rows.slot(3, row), "ProposalBuilder: node 3 has no row, 3 are kept",
                       std::invalid_argument);
  CHECK_THROWS_AS(rows.slot(-1, row), std::invalid_argument);
  CHECK_THROWS_WITH_AS(rows.slot(2, std::vector<float>(599)),
                       "ProposalBuilder: the row after node 2 has 599 logits, the vocabulary 600 tokens",
                       std::invalid_argument);
}

TEST_CASE("a distribution is found by its row, unless that is the caller's or it is a point mass") {
  DraftRows rows(4, 3);
  const std::vector<float> row(4);
  Distribution stored;
  stored.logits = rows.slot(2, row).data(), stored.log_z = 0.5;
  rows.made(2, stored);
  CHECK(rows.node_of(stored) == 2);
  CHECK(rows.distribution(2) == stored);
  Distribution callers = stored;
  callers.logits = row.data();
  CHECK(rows.node_of(callers) == kNoParent);
  callers.logits = rows.slot(2, row).data() + 4;  // after the last
  CHECK(rows.node_of(callers) == kNoParent);
  CHECK(rows.node_of(Distribution::at(1)) == kNoParent);
  CHECK(DraftRows(4, 0).node_of(stored) == kNoParent);
}

TEST_CASE("dropped nodes have no distribution any more, and those without a slot are no error") {
  DraftRows rows(4, 3);
  Distribution made;
  made.log_z = 1;
  for (NodeId node = 0; node < 3; ++node) rows.made(node, made);
  rows.drop(1, 100);
  CHECK(rows.distribution(0) == made);
  CHECK(rows.distribution(1) == Distribution{});
  CHECK(rows.distribution(2) == Distribution{});
}
