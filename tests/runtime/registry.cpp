// SPDX-License-Identifier: MIT
// The table of pipelines, as factory.hpp shows it and docs/run_time_pipelines.md describes it. It is compiled
// once, elsewhere.
#include <specula/runtime/factory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace specula;

namespace {

struct Row {
  std::string name;
  std::int32_t max_nodes;  // with the default values, the root among them
  bool cost_aware;
  std::size_t models;  // of a text that names none: the others copy
};

const std::vector<Row> kRows{{"autoregressive", 1, false, 0},
                             {"chain", 5, true, 1},
                             {"adaptive-chain", 13, false, 1},
                             {"cape", 33, true, 1},
                             {"beam", 17, true, 1},
                             {"dynamic-tree", 60, true, 1},
                             {"static-tree", 26, true, 1},
                             {"sampled-tree", 21, true, 1},
                             {"horizontal", 2 + 4 + 1, false, 1},
                             {"vertical", 2 * (4 + 1) + 1, false, 1},
                             {"cascade", 4 + 10 + 1, true, 1}};

}  // namespace

TEST_CASE("the rows of the table, with their default values") {
  REQUIRE(pipeline_entries().size() == kRows.size());
  for (std::size_t r = 0; r < kRows.size(); ++r) {
    const Row& row = kRows[r];
    CAPTURE(row.name);
    CHECK(pipeline_entries()[r].name == row.name);
    const PipelineFactory factory = prepare_pipeline(row.name);
    CHECK(factory.max_nodes == row.max_nodes);
    CHECK(factory.drafts.size() == row.models);
    CHECK_FALSE(factory.lossy);
    if (row.cost_aware)
      CHECK(prepare_pipeline("cost-aware:" + row.name).drafts == factory.drafts);
    else
      CHECK_THROWS_AS(prepare_pipeline("cost-aware:" + row.name), PipelineError);
  }
}

TEST_CASE("a draft may be named in each row, and in cascades another") {
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    CHECK_THROWS_AS(prepare_pipeline(row.name + "@a,a"), PipelineError);  // the same twice
    const bool stacks = row.name == "horizontal" || row.name == "vertical" || row.name == "cascade";
    if (stacks)
      CHECK(prepare_pipeline(row.name + "@a,b").drafts == std::vector<std::string>{"a", "b"});
    else
      CHECK_THROWS_AS(prepare_pipeline(row.name + "@a,b"), PipelineError);
    if (!stacks) CHECK(prepare_pipeline(row.name + "@a").drafts == std::vector<std::string>{"a"});
  }
}
