// SPDX-License-Identifier: MIT
// labels: long
// Searches over pipeline names with braces.

#include "search.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "errors.hpp"
#include "given_costs.hpp"

using namespace specula_tools;

namespace {

Figures figures_of(const std::string& name, double speedup, double mat) {
  Figures f;
  f.name = name;
  f.prompts = 7;
  f.speedup = speedup;
  f.mat = mat;
  return f;
}

}  // namespace

TEST_CASE("a search has all expansions of its braces, each once") {
  const Search search = parse_search("chain:{2..3}@{small,base} chain:4@max-gram chain:2@small");
  CHECK(search.candidates == std::vector<std::string>{"chain:2@small", "chain:2@base", "chain:3@small",
                                                      "chain:3@base", "chain:4@max-gram"});
  CHECK_THROWS_AS(parse_search("chain:{0,2}@small"), specula::PipelineError);
  CHECK_THROWS_AS(parse_search("chian:{2,3}"), specula::PipelineError);
  CHECK_THROWS_AS(parse_search("chain:{2,3"), UsageError);
}

TEST_CASE("the best by the objective is picked, the first of equals") {
  const Search search = parse_search("chain:{2..4}");
  const std::vector<Figures> developed{figures_of("autoregressive", 1, 1), figures_of("chain:2", 1.5, 2.0),
                                       figures_of("chain:3", 1.7, 2.4), figures_of("chain:4", 1.7, 2.6)};
  const Found by_time = choose(search, developed, "time");
  CHECK(by_time.picked() == "chain:3");
  CHECK(by_time.candidates[1].name == "chain:4");
  CHECK(by_time.candidates[2].name == "chain:2");
  CHECK(choose(search, developed, "mat").picked() == "chain:4");
  CHECK(search_text(std::vector{by_time}, "time") ==
        "search chain:{2..4}\n  picked chain:3 of 3: 1.70x on 7 development prompts; next chain:4 with "
        "1.70x\n");
  const auto json = search_json(std::vector{by_time}, "time");
  CHECK(json[0]["picked"] == "chain:3");
  CHECK(json[0]["search"] == "chain:{2..4}");
  CHECK(json[0]["development_prompts"] == 7);
  CHECK(json[0]["candidates"].size() == 3);
  CHECK(json[0]["candidates"][2]["speedup"] == 1.5);
  CHECK_THROWS_AS(choose(parse_search("chain:5"), developed, "time"), std::invalid_argument);
}

TEST_CASE("given costs are parsed, and useless sets are refused") {
  const GivenCosts set = parse_costs("PW:base=0.04,small=.02,max-gram=0");
  CHECK(set.name == "PW");
  CHECK(set.costs.at("base") == 0.04);
  CHECK(set.costs.at("small") == 0.02);
  CHECK(set.costs.at("max-gram") == 0);
  CHECK(parse_costs("small=1e-2").name == "given");
  for (const char* wrong : {":small=1", "small", "small=", "=1", "small=x", "small=-1", "small=nan",
                            "small=inf", "small=1,small=2", "small=1,,base=2", "", "a:"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_costs(wrong), UsageError);
  }
  const std::vector<std::vector<std::string>> drafters{{}, {"small"}, {"base", "max-gram"}};
  check_costs(std::vector{set}, drafters);
  CHECK_THROWS_AS(check_costs(std::vector{set, set}, drafters), UsageError);
  CHECK_THROWS_AS(check_costs(std::vector{parse_costs("smal=1")}, drafters), UsageError);
  CHECK_THROWS_AS(check_costs(std::vector{parse_costs("base=1")}, drafters), UsageError);  // and max-gram
}

TEST_CASE("SWI by a set of costs is an objective if the set names the drafters") {
  const std::vector<GivenCosts> given{parse_costs("PW:small=0.5")};
  check_objective("PW", given);
  check_objective("tau", given);
  CHECK_THROWS_AS(check_objective("MS", given), UsageError);
  std::vector<Figures> developed{figures_of("chain:2", 1.5, 2.0), figures_of("chain:3", 1.7, 2.4)};
  developed[0].given_swi = {{"PW", RatioTerms{.over = {9}, .under = {3}}}};
  developed[1].given_swi = {{"PW", RatioTerms{.over = {9}, .under = {4}}}};
  const Search search = parse_search("chain:{2,3}");
  CHECK(choose(search, developed, "PW").picked() == "chain:2");
  developed[1].given_swi = {{"PW", std::nullopt}};
  CHECK_THROWS_WITH_AS(choose(search, developed, "PW"),
                       "--search-for PW: its costs do not name all drafters of 'chain:3'", UsageError);
}
