// SPDX-License-Identifier: MIT
// The table of pipelines, as factory.hpp shows it and docs/run_time_pipelines.md describes it. It is compiled
// once, elsewhere.
#include <specula/runtime/factory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace specula;

namespace {

/// Of texts without values: the nodes of a proposal, its root among them.
const std::map<std::string, std::int32_t> kNodes{{"autoregressive", 1},
                                                 {"chain", 5},
                                                 {"adaptive-chain", 13},
                                                 {"cape", 33},
                                                 {"beam", 17},
                                                 {"dynamic-tree", 60},
                                                 {"static-tree", 26},
                                                 {"sampled-tree", 21},
                                                 {"horizontal", 2 + 4 + 1},
                                                 {"vertical", 2 * (4 + 1) + 1},
                                                 {"cascade", 4 + 10 + 1}};

}  // namespace

TEST_CASE("the rows of the table, with their default values") {
  std::set<std::string> names;
  for (const PipelineEntry& row : pipeline_entries()) {
    const std::string name = row.name;
    CAPTURE(name);
    names.insert(name);
    const PipelineFactory factory = prepare_pipeline(name);
    CHECK(factory.max_nodes >= 1);
    if (kNodes.contains(name)) CHECK(factory.max_nodes == kNodes.at(name));
    CHECK(factory.drafts.size() == (row.least_drafters == 0 ? 0u : 1u));
    CHECK_FALSE(factory.lossy);
    if (row.cost_aware)
      CHECK(prepare_pipeline("cost-aware:" + name).drafts == factory.drafts);
    else
      CHECK_THROWS_AS(prepare_pipeline("cost-aware:" + name), PipelineError);
  }
  CHECK(names.size() == pipeline_entries().size());
  for (const auto& [name, nodes] : kNodes) CHECK(names.contains(name));
}

TEST_CASE("a draft may be named in each row, and in cascades another") {
  for (const PipelineEntry& row : pipeline_entries()) {
    const std::string name = row.name;
    CAPTURE(name);
    CHECK_THROWS_AS(prepare_pipeline(name + "@a,a"), PipelineError);  // the same twice
    if (row.most_drafters > 1)
      CHECK(prepare_pipeline(name + "@a,b").drafts == std::vector<std::string>{"a", "b"});
    else
      CHECK_THROWS_AS(prepare_pipeline(name + "@a,b"), PipelineError);
    if (row.most_drafters == 1) CHECK(prepare_pipeline(name + "@a").drafts == std::vector<std::string>{"a"});
  }
}
