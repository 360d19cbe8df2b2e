// SPDX-License-Identifier: MIT
// DecoderStages: which tokens each stage of layers has computed.
#include <specula/cpu/detail/decoder_stages.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace specula;
using cpu::detail::BatchToken;
using cpu::detail::DecoderStages;

namespace {

std::vector<std::int32_t> path_of(const BatchToken& column) {
  return {column.path, column.path + column.path_size};
}

}  // namespace

TEST_CASE("a deferred chunk: each token sees those before it, in order") {
  DecoderStages stages({2, 5}, {.max_nodes = 4, .prefill_chunk = 8});
  CHECK(stages.part(1).first_layer == 2);
  CHECK(stages.part(1).last_layer == 5);
  CHECK(stages.part(0, 1).first_layer == 0);
  CHECK(stages.part(0, 1).last_layer == 5);
  stages.append(std::vector<Token>{7, 8, 9});
  CHECK(stages.size() == 3);
  stages.start_columns(0, 3);
  REQUIRE(stages.columns().size() == 3);
  CHECK(stages.columns()[2].token == 9);
  CHECK(stages.columns()[2].position == 2);
  CHECK(stages.columns()[2].slot == 2);
  CHECK(stages.columns()[2].in_order == 3);
  CHECK(path_of(stages.columns()[1]) == std::vector<std::int32_t>{0, 1});
  stages.mark_computed(0, 3);
  CHECK(stages.pending() == 0);
  CHECK(stages.waiting(0) == 0);
  CHECK(stages.waiting(1) == 3);  // the second stage does not have these tokens
  stages.start_columns(1, 2);
  CHECK(stages.columns()[1].token == kNoToken);
  stages.mark_computed(1, 2);
  CHECK(stages.waiting(1) == 1);
}

TEST_CASE("nodes see deferred tokens and their ancestors; a committed path keeps its stages") {
  DecoderStages stages({1, 2}, {.max_nodes = 8, .prefill_chunk = 8});
  stages.append(std::vector<Token>{7, 8});
  stages.start_columns(0, 2);
  stages.mark_computed(0, 2);
  stages.append(std::vector<Token>{9});
  stages.add_nodes(std::vector<Token>{1, 2, 3}, std::vector<NodeId>{kNoParent, 0, 0}, false);
  CHECK(stages.node(2).depth == 1);
  stages.start_columns(0, 1);
  for (NodeId node = 0; node < 3; ++node) {
    stages.push_node(node, 0);
    stages.pass_stages(node, 1);
  }
  REQUIRE(stages.columns().size() == 4);
  // Slots: two computed, one deferred, nodes after the context of three.
  CHECK(path_of(stages.columns()[2]) == std::vector<std::int32_t>{2, 3, 4});
  CHECK(path_of(stages.columns()[3]) == std::vector<std::int32_t>{2, 3, 5});
  CHECK(stages.columns()[2].in_order == 3);
  CHECK(stages.columns()[3].in_order == 2);  // slot 5 is not the next
  CHECK(stages.columns()[3].position == 4);
  stages.mark_computed(0, 1);
  stages.commit(std::vector<NodeId>{0, 2});
  CHECK(stages.size() == 5);
  CHECK(stages.computed(0) == 5);
  CHECK(stages.computed(1) == 0);
  CHECK(stages.node_count() == 0);
}

TEST_CASE("truncation drops tokens from all stages, deferred ones too") {
  DecoderStages stages({1, 2}, {.max_nodes = 2, .prefill_chunk = 8});
  stages.append(std::vector<Token>{1, 2, 3, 4});
  stages.mark_computed(0, 3);
  stages.mark_computed(1, 2);
  stages.add_nodes(std::vector<Token>{5}, std::vector<NodeId>{kNoParent}, true);
  CHECK(stages.skips());
  stages.truncate(3);
  CHECK_FALSE(stages.skips());
  CHECK(stages.pending() == 0);
  CHECK(stages.size() == 3);
  CHECK(stages.waiting(1) == 1);
  stages.truncate(1);
  CHECK(stages.computed(0) == 1);
  CHECK(stages.computed(1) == 1);
}
