// SPDX-License-Identifier: MIT
// labels: long
// specula compare --tune: probes, rates, costs and forecasts.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>
#include "pass_costs.hpp"
#include "passes.hpp"
#include "toy_model.hpp"
#include "tuning.hpp"

using namespace specula_tools;
using specula::AcceptanceCurve;
using specula::CostCurve;
using specula::TunerObjective;
using specula_test::ToyModel;

namespace {

using Names = std::vector<std::string>;
const Names kThree{"base", "small", "max-gram"};

Outcome outcome(const std::string& name, const std::vector<std::int64_t>& offered,
                const std::vector<std::int64_t>& accepted) {
  Outcome out;
  out.name = name;
  out.pooled.offered = offered;
  out.pooled.accepted = accepted;
  return out;
}
Outcome reviewed(const std::string& name, std::int64_t offered, std::int64_t accepted) {
  Outcome out = outcome(name, {1000}, {1});  // the target's, not a review's
  specula::Reviews reviews;
  reviews.offered[0] = offered;
  reviews.accepted[0] = accepted;
  out.reviews.push_back(reviews);
  return out;
}

/// All probes of base, small and Max-Gram.
std::vector<Outcome> three_outcomes() {
  return {outcome("chain:16@base", {100, 80, 30, 19}, {80, 32, 21, 19}),
          outcome("chain:16@small", {100, 50, 10}, {50, 10, 9}),
          reviewed("vertical:1:10@base,small", 50, 35),
          outcome("chain:16@max-gram", {10, 8}, {8, 8}),
          reviewed("vertical:1:10@base,max-gram", 40, 10),
          reviewed("vertical:1:10@small,max-gram", 30, 12)};
}

/// Rates that do not depend on depth or on earlier turns. `gram`: Max-Gram's acceptance rate.
Measured synthetic(double gram, CostCurve target_cost) {
  Measured m;
  m.by_target = {
      {"base", AcceptanceCurve(0.85)}, {"small", AcceptanceCurve(0.6)}, {"max-gram", AcceptanceCurve(gram)}};
  m.by_drafter = {{{"base", "small"}, AcceptanceCurve(0.65)},
                  {{"base", "max-gram"}, AcceptanceCurve(gram)},
                  {{"small", "max-gram"}, AcceptanceCurve(gram)}};
  m.draft_costs = {{"base", CostCurve({0.3})}, {"small", CostCurve({0.1})}, {"max-gram", CostCurve({0.0})}};
  m.target_costs.at({}) = std::move(target_cost);
  return m;
}

/// Whether `name` has the shape of `text`, and its drafters begin as those of `text` do.
bool is_kind(const std::string& name, const std::string& text) {
  const auto at = text.find('@');
  return name.starts_with(text.substr(0, at) + ":") &&
         name.substr(name.find('@')).starts_with(text.substr(at));
}

const TunedPipeline& find(const std::vector<TunedPipeline>& tuned, const std::string& kind) {
  const auto found =
      std::find_if(tuned.begin(), tuned.end(), [&](const TunedPipeline& t) { return is_kind(t.name, kind); });
  REQUIRE(found != tuned.end());
  return *found;
}

}  // namespace

TEST_CASE("the probes of drafters: each alone, and each under each better one") {
  CHECK(probe_names({"small"}) == Names{"chain:16@small"});
  CHECK(probe_names({"small", "max-gram"}) ==
        Names{"chain:16@small", "chain:16@max-gram", "vertical:1:10@small,max-gram"});
  auto names = probe_names(kThree);
  Names expected;
  for (const Outcome& o : three_outcomes()) expected.push_back(o.name);
  std::sort(names.begin(), names.end());
  std::sort(expected.begin(), expected.end());
  CHECK(names == expected);
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(specula::prepare_pipeline(name).max_nodes <= 20);
  }
}

TEST_CASE("acceptance from the probes' counts") {
  const Measured m = acceptance_of(kThree, three_outcomes());
  const AcceptanceCurve& base = m.by_target.at("base");
  CHECK(base(0) == 0.8);
  CHECK(base(1) == 0.4);
  CHECK(base(2) == 0.7);
  CHECK(base(3) == 0.7);   // 19 draft tokens are too few to tell
  CHECK(base(30) == 0.7);  // and the last rate is repeated
  CHECK(m.by_target.at("small")(1) == 0.2);
  CHECK(m.by_target.at("small")(2) == 0.2);
  CHECK(m.by_target.at("max-gram")(0) == 0.8);  // the first depth always counts
  CHECK(m.by_target.at("max-gram")(1) == 0.8);
  CHECK(m.by_drafter.at({"base", "small"})(0) == 0.7);
  CHECK(m.by_drafter.at({"base", "max-gram"})(0) == 0.25);
  CHECK(m.by_drafter.at({"small", "max-gram"})(0) == 0.4);
  CHECK(m.by_drafter.size() == 3);

  auto nothing = three_outcomes();
  nothing[3] = outcome("chain:16@max-gram", {}, {});
  CHECK(acceptance_of(kThree, nothing).by_target.at("max-gram")(0) == 0.0);
  nothing[3] = outcome("chain:16@max-gram", {0, 0}, {0, 0});
  CHECK(acceptance_of(kThree, nothing).by_target.at("max-gram")(0) == 0.0);
}

TEST_CASE("an error names a missing probe") {
  for (std::size_t i = 0; i < three_outcomes().size(); ++i) {
    auto some = three_outcomes();
    const std::string message = "tuning: no outcome of the probe " + some[i].name;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK_THROWS_WITH_AS(acceptance_of(kThree, some), message.c_str(), std::invalid_argument);
  }
}

TEST_CASE("rates of some of the drafters, in their order") {
  const Measured m = synthetic(0.3, CostCurve({1.0, 1.5}));
  const auto rates = m.rates({"base", "max-gram"});
  CHECK(rates.acceptance[0][0](0) == 0.85);
  CHECK(rates.acceptance[0][1](0) == 0.3);
  CHECK(rates.acceptance[1][1](0) == 0.3);
  CHECK(rates.draft_costs.size() == 2);
  CHECK(rates.draft_costs[0](1) == 0.3);
  CHECK(rates.draft_costs[1](1) == 0.0);
  CHECK(rates.target_cost(2) == 1.5);
  const auto all = m.rates(kThree);
  CHECK(all.acceptance[0][1](0) == 0.6);
  CHECK(all.acceptance[1][1](0) == 0.65);
  CHECK(all.acceptance[2][2](0) == 0.3);
  // Draft tokens of the next drafter count as often as they are accepted.
  const std::vector<std::int32_t> counts{2, 3};
  const double reach = 0.85 * 0.85;
  CHECK(specula::forecast_horizontal(rates, counts).tokens ==
        doctest::Approx(1 + 0.85 + reach * (1 + 0.3 + 0.09 + 0.027)).epsilon(1e-12));
  // Its first draft tokens count as depth 1, however deep in the proposal.
  Measured warming = m;
  warming.by_target.at("max-gram") = AcceptanceCurve(std::vector<double>{0.2, 0.5});
  CHECK(specula::forecast_horizontal(warming.rates({"base", "max-gram"}), counts).tokens ==
        doctest::Approx(1 + 0.85 + reach * (1 + 0.2 + 0.1 + 0.05)).epsilon(1e-12));
}

TEST_CASE("tuned pipelines run in the room that the forecast states") {
  const std::vector<CostCurve> costs{CostCurve({1.0}), CostCurve({1.0, 1.3}), CostCurve({1.0, 1.02})};
  for (const CostCurve& cost : costs)
    for (const double gram : {0.0, 0.3, 0.9})
      for (const auto objective : {TunerObjective::swi, TunerObjective::speedup}) {
        const auto tuned = tune(kThree, synthetic(gram, cost), objective);
        Names begins{"chain@base",
                     "chain@small",
                     "chain@max-gram",
                     "cascade@base,max-gram",
                     "cascade@small,max-gram",
                     "cascade@base,small,max-gram"};
        std::size_t kind = 0;  // a cascade may be listed twice: the second time with its first drafter
        for (std::size_t i = 0; i < tuned.size(); ++i) {
          CAPTURE(tuned[i].name);
          const bool again = i > 0 && tuned[i].drafters == tuned[i - 1].drafters;
          if (i > 0 && !again) ++kind;
          REQUIRE(kind < begins.size());
          CHECK(is_kind(tuned[i].name, begins[kind]));
          if (again) {
            CHECK(tuned[i].name.starts_with("cascade:"));
            CHECK(tuned[i - 1].name.find(":limits=0-") != std::string::npos);
            CHECK(tuned[i].name.find(":limits=0-") == std::string::npos);
          }
          const auto factory = specula::prepare_pipeline(tuned[i].name);
          CHECK(factory.drafters == tuned[i].drafters);
          CHECK(factory.max_nodes <= tuned[i].forecast.max_nodes);
          CHECK(tuned[i].forecast.max_nodes <= 128);
          CHECK(tuned[i].forecast.calls.size() == tuned[i].drafters.size());
        }
        CHECK(kind + 1 == begins.size());
      }
  // Without Max-Gram, or alone.
  Measured models = synthetic(0.3, CostCurve({1.0}));
  const auto two = tune({"base", "small"}, models, TunerObjective::swi);
  REQUIRE(two.size() >= 3);
  CHECK(is_kind(two[2].name, "cascade@base,small"));
  CHECK(tune({"small"}, models, TunerObjective::swi).size() == 1);
  CHECK(tune({"max-gram"}, models, TunerObjective::swi).size() == 1);
}

TEST_CASE("another drafter never makes the best forecast worse") {
  for (const double gram : {0.0, 0.4})
    for (const auto objective : {TunerObjective::swi, TunerObjective::speedup}) {
      const auto score = [&](const TunedPipeline& t) {
        return objective == TunerObjective::swi ? t.forecast.swi : t.forecast.speedup;
      };
      const auto tuned = tune(kThree, synthetic(gram, CostCurve({1.0, 1.05})), objective);
      // A review without draft tokens costs and gives the same as a draft token.
      CHECK(score(find(tuned, "cascade@base,max-gram")) >= score(find(tuned, "chain@base")) - 1e-9);
      CHECK(score(find(tuned, "cascade@small,max-gram")) >= score(find(tuned, "chain@small")) - 1e-9);
      CHECK(score(find(tuned, "cascade@base,small")) >= score(find(tuned, "cascade@base,max-gram")) - 1e-9);
      if (gram > 0)  // free: it pays somewhere
        CHECK(score(find(tuned, "cascade@base,max-gram")) > score(find(tuned, "chain@base")) + 0.01);
    }
}

TEST_CASE("if nodes cost time, proposals tuned for time are shorter than those tuned for calls") {
  const Measured steep = synthetic(0.5, CostCurve({1.0, 1.5}));
  const auto calls = tune(kThree, steep, TunerObjective::swi);
  const auto time = tune(kThree, steep, TunerObjective::speedup);
  for (const std::string begin : {"chain@base", "chain@small", "chain@max-gram", "cascade@base,max-gram",
                                  "cascade@small,max-gram", "cascade@base,small"}) {
    const TunedPipeline &for_calls = find(calls, begin), &for_time = find(time, begin);
    CAPTURE(for_calls.name);
    CAPTURE(for_time.name);
    CHECK(for_time.forecast.proposed <= for_calls.forecast.proposed);
    CHECK(for_time.forecast.speedup >= for_calls.forecast.speedup - 1e-9);
    CHECK(for_time.forecast.swi <= for_calls.forecast.swi + 1e-9);
  }
  // Free draft tokens: as many as allowed, or one if the target pays for each.
  CHECK(find(calls, "chain@max-gram").name == "chain:30@max-gram");
  CHECK(find(time, "chain@max-gram").name == "chain:1@max-gram");
  CHECK(find(time, "chain@base").forecast.proposed < find(calls, "chain@base").forecast.proposed);
}

TEST_CASE("predictions are listed beside the measurements of the same pipeline") {
  TunedPipeline chain{"chain:3@base", {}, {"base"}}, cascade{"cascade:limits=1-2-3@base,max-gram", {}, {}};
  TunedPipeline absent{"chain:9@small", {}, {"small"}};
  chain.forecast.tokens = 3.25, chain.forecast.swi = 1.5, chain.forecast.speedup = 1.25;
  chain.forecast.calls = {3.0};
  cascade.drafters = {"base", "max-gram"};
  cascade.forecast.tokens = 4.5, cascade.forecast.swi = 2.5, cascade.forecast.speedup = 2.25;
  cascade.forecast.calls = {1.5, 7.5};
  absent.forecast.calls = {9.0};
  Figures of_cascade, of_chain, plain;
  plain.name = "autoregressive", plain.mat = 9.99;
  of_chain.name = chain.name, of_chain.mat = 3.5, of_chain.swi = 1.2, of_chain.speedup = 1.75;
  of_cascade.name = cascade.name, of_cascade.mat = 4.25, of_cascade.swi = 2.0, of_cascade.speedup = 1.5;
  const std::vector<Figures> figures{plain, of_cascade, of_chain};
  const std::vector<TunedPipeline> tuned{chain, absent, cascade};

  const auto json = forecast_json(tuned, figures);
  REQUIRE(json.size() == 2);
  CHECK(json[0].dump() ==
        "{\"name\":\"chain:3@base\",\"predicted\":{\"mat\":3.25,\"swi\":1.5,\"speedup\":1.25,"
        "\"draft_calls_per_round\":{\"base\":3.0}},\"measured\":{\"mat\":3.5,\"swi\":1.2,\"speedup\":1.75}}");
  CHECK(json[1]["name"] == cascade.name);
  CHECK(json[1]["predicted"]["draft_calls_per_round"].dump() == "{\"base\":1.5,\"max-gram\":7.5}");
  CHECK(json[1]["measured"]["mat"] == 4.25);

  const std::string table = forecast_table(tuned, figures);
  const auto line = [&](const std::string& name) {
    const std::size_t at = table.find(name);
    REQUIRE(at != std::string::npos);
    std::string text = table.substr(at, table.find('\n', at) - at), tight;
    for (const char c : text)  // columns one blank apart
      if (c != ' ' || tight.back() != ' ') tight += c;
    return tight;
  };
  CHECK(line("tuned pipeline").starts_with("tuned pipeline MAT predicted measured SWI predicted measured"));
  CHECK(line("chain:3@base").starts_with("chain:3@base 3.25 3.50 1.50 1.20 25.0%"));
  CHECK(table.find("             1.25x     1.75x\n") != std::string::npos);  // in the second part
  CHECK(line("cascade").starts_with(cascade.name + " 4.50 4.25 2.50 2.00 25.0%"));
  CHECK(table.find("             2.25x     1.50x\n") != std::string::npos);
  CHECK(table.find("chain:9@small") == std::string::npos);
  CHECK(recommendation(tuned, figures) == "recommended: chain:3@base (1.75x plain decoding, measured)");
  std::vector<Figures> slow = figures;
  slow[2].speedup = 0.5;
  CHECK(recommendation({&tuned[0], 1}, slow) ==
        "recommended: autoregressive; the best tuned one, chain:3@base, has 0.50x plain decoding, measured");
  CHECK(recommendation({}, figures) == "no tuned pipeline was run");
  CHECK(table.find("9.99") == std::string::npos);
  CHECK(forecast_json({}, figures).empty());
}

TEST_CASE("subsets: all first, none last, each in order and once") {
  CHECK(subsets({}) == std::vector<Names>{{}});
  CHECK(subsets({"a", "b"}) == std::vector<Names>{{"a", "b"}, {"a"}, {"b"}, {}});
  const auto three = subsets(kThree);
  CHECK(three.size() == 8);
  CHECK(three.front() == kThree);
  CHECK(std::set<Names>(three.begin(), three.end()).size() == 8);
}

TEST_CASE("limits of a subset of the drafters, as limits of all") {
  using specula::CascadeLimits;
  const CascadeLimits three{{3, 2, 4}, {0, 1, 5}, {0, 0, 6}};
  CHECK(embedded(three, kThree, kThree) == three);
  CHECK(embedded({{2}}, {"max-gram"}, kThree) == CascadeLimits{{0, 0, 2}, {0, 0, 0}, {0, 0, 2}});
  // Base's proposals are drafted under row 1 by the drafters present, small's under row 2.
  CHECK(embedded({{3, 4}, {0, 5}}, {"base", "max-gram"}, kThree) ==
        CascadeLimits{{3, 0, 4}, {0, 0, 5}, {0, 0, 5}});
  CHECK(embedded({{3, 4}, {0, 5}}, {"small", "max-gram"}, kThree) ==
        CascadeLimits{{0, 3, 4}, {0, 0, 0}, {0, 0, 5}});
  // It is the same cascade: the others' calls are 0, and reviews and drafting are unchanged.
  const Measured m = synthetic(0.3, CostCurve({1.0, 1.1}));
  for (const Names& part : subsets(kThree)) {
    if (part.empty() || part.back() != "max-gram") continue;
    CascadeLimits limits;
    for (std::size_t row = 0; row < part.size(); ++row) {
      limits.emplace_back(part.size(), 0);
      for (std::size_t i = row; i < part.size(); ++i)
        limits[row][i] = static_cast<std::int32_t>(2 + row + 2 * i);
    }
    const auto alone = specula::forecast_cascade(m.rates(part), limits);
    const auto among = specula::forecast_cascade(m.rates(kThree), embedded(limits, part, kThree));
    CHECK(among.tokens == doctest::Approx(alone.tokens).epsilon(1e-12));
    CHECK(among.cost == doctest::Approx(alone.cost).epsilon(1e-12));
    CHECK(among.max_nodes == alone.max_nodes);
    for (std::size_t d = 0, at = 0; d < kThree.size(); ++d) {
      const bool there = at < part.size() && part[at] == kThree[d];
      CHECK(among.calls[d] ==
            (there ? doctest::Approx(alone.calls[at]).epsilon(1e-12) : doctest::Approx(0.0)));
      at += there;
    }
  }
}

TEST_CASE("for time, the target's cost depends on which models run in the round") {
  // A pass costs twice as much if base runs; over one node no model drafts.
  const CostCurve alone({1.0, 1.05}), beside_base({1.0, 2.05, 2.1}), beside_small({1.0, 1.06, 1.11});
  Measured m = synthetic(0.3, alone);
  m.target_costs.insert(
      {{{"base"}, beside_base}, {{"small"}, beside_small}, {{"base", "small"}, beside_base}});
  CHECK(m.rates({"max-gram"}).target_cost(2) == 1.05);
  CHECK(m.rates({"small", "max-gram"}).target_cost(2) == 1.06);
  CHECK(m.rates({"base", "max-gram"}).target_cost(2) == 2.05);
  CHECK(m.rates(kThree).target_cost(2) == 2.05);
  CHECK(synthetic(0.3, alone).rates(kThree).target_cost(2) == 1.05);  // sets without a measurement

  const auto without = tune(kThree, synthetic(0.3, alone), TunerObjective::speedup);
  const auto with = tune(kThree, m, TunerObjective::speedup);
  CHECK(find(with, "chain@base").forecast.speedup < 0.75 * find(without, "chain@base").forecast.speedup);
  CHECK(find(with, "chain@max-gram").forecast.speedup == find(without, "chain@max-gram").forecast.speedup);
  // The stack of all three leaves base out, and equals that of small and Max-Gram.
  CHECK(find(without, "cascade@base,small").forecast.calls[0] > 0);
  const TunedPipeline &all = find(with, "cascade@base,small"), &two = find(with, "cascade@small,max-gram");
  CHECK(all.forecast.calls[0] == 0);
  CHECK(all.forecast.calls[1] == two.forecast.calls[0]);
  CHECK(all.forecast.calls[2] == two.forecast.calls[1]);
  CHECK(all.forecast.speedup == two.forecast.speedup);
  CHECK(all.name.starts_with("cascade:limits=0-"));
  CHECK(is_kind(all.name, "cascade@base,small,max-gram"));
  CHECK(all.drafters == kThree);
  // Then the one that includes base, at its cost.
  const TunedPipeline& forced = with.back();
  CHECK(forced.drafters == kThree);
  CHECK(forced.name != all.name);
  CHECK(forced.forecast.calls[0] > 0);
  CHECK(forced.forecast.speedup < all.forecast.speedup);
  Names names;
  for (const TunedPipeline& t : with) {
    CAPTURE(t.name);
    CHECK(std::find(names.begin(), names.end(), t.name) == names.end());
    names.push_back(t.name);
    const auto factory = specula::prepare_pipeline(t.name);
    CHECK(factory.max_nodes <= t.forecast.max_nodes);
  }
  // For calls the target's cost does not depend on the models.
  const auto calls = tune(kThree, synthetic(0.3, alone), TunerObjective::swi);
  CHECK(find(calls, "cascade@base,small").forecast.calls[0] > 0);

  // A stack may also do without its last drafter, one draft token of which costs as much as ten of the
  // target.
  Measured dear = synthetic(0.3, alone);
  dear.draft_costs.at("max-gram") = CostCurve({10.0});
  const TunedPipeline tuned = find(tune(kThree, dear, TunerObjective::speedup), "cascade@small,max-gram");
  CHECK(tuned.name.find("-0-0@") != std::string::npos);
  CHECK(tuned.forecast.calls[0] > 0);
  CHECK(tuned.forecast.calls[1] == 0);
}

TEST_CASE("costs of passes: a time for each number of nodes; afterwards the model is as new") {
  ToyModel model(12, 7, 2.0f, 64);
  const std::vector<specula::Token> before{3, 4}, prompt{1, 5, 2, 8};
  model.append(before);
  specula::AnyModel any(model);
  const auto seconds = pass_seconds(any, prompt, 6);
  REQUIRE(seconds.size() == 6);
  for (const double s : seconds) {
    CHECK(s > 0);
    CHECK(s < 1);
  }
  CHECK(model.size() == 0);
  CHECK(model.appended == 2 + 3);  // the prompt's last token is run and committed: nothing is deferred
  CHECK(pass_seconds(any, prompt, 1).size() == 1);
  CHECK(model.size() == 0);
}

TEST_CASE(
    "--passes: the products of a pass and what is beside them; what drafts gain is said of targets only") {
  ToyModel target(12, 7, 2.0f, 64), draft(12, 7, 2.0f, 64);
  specula::AnyModel any_target(target), any_draft(draft);
  const std::vector<specula::Token> prompt{1, 5, 2, 8};
  std::int32_t before = 0, last = 0;
  const auto products = [&](std::int32_t nodes) {
    last = nodes;
    return 1e-3 * nodes;
  };
  const std::vector<NamedModel> models{
      {.name = "target", .model = &any_target},
      {.name = "draft", .model = &any_draft, .products = products, .drafts = true, .before = [&] {
         ++before;
       }}};
  const auto all = passes_in_turn(models, prompt, 3, 2);
  REQUIRE(all.size() == 2);
  CHECK(last == 3);
  CHECK(before == 3);  // of each turn, and of the comparison of rows
  CHECK(all[0].products.empty());
  CHECK(all[1].products == std::vector<double>{1e-3, 2e-3, 3e-3});
  CHECK(all[1].seconds.size() == 3);
  CHECK(all[1].differences == std::vector<double>(3));
  const std::string text = passes_table(all);
  CHECK(text.starts_with("target:\nnodes  "));
  CHECK(text.find("us  T(n)/T(1)  rows differ by\n") != std::string::npos);
  CHECK(text.find("\n\ndraft:\nnodes  ") != std::string::npos);
  CHECK(text.find("us  products  beside  T(n)/T(1)  rows differ by\n") != std::string::npos);
  CHECK(text.find("\ntarget: drafts that cost nothing") != std::string::npos);
  CHECK(text.find("\ndraft: ") == std::string::npos);  // what drafts gain
  const auto json = passes_json(all);
  CHECK_FALSE(json[0].contains("product_microseconds"));
  CHECK(json[0].contains("best"));
  CHECK(json[1]["product_microseconds"][2].get<double>() == doctest::Approx(3000));
  CHECK_FALSE(json[1].contains("best"));
}

TEST_CASE("code that runs before each pass is not timed") {
  ToyModel model(12, 7, 2.0f, 64);
  const std::vector<specula::Token> prompt{1, 5, 2, 8};
  std::int64_t times = 0, alternating = 0;
  specula::AnyModel any(model);
  const auto seconds = pass_seconds(any, prompt, 4, [&] {
    ++times;
    alternating += model.calls == times && model.size() == 4;  // one call first, then one after each
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  CHECK(times >= 4);
  CHECK(alternating == times);
  CHECK(model.calls == times + 1);
  CHECK(*std::min_element(seconds.begin(), seconds.end()) < 0.9e-3);
  CHECK(model.size() == 0);
}

TEST_CASE("models in turn run equally many passes, and are as new afterwards") {
  ToyModel one(12, 7), two(12, 8), three(12, 9);
  specula::AnyModel any_one(one), any_two(two), any_three(three);
  const std::vector<specula::Token> prompt{1, 5, 2, 8};
  CHECK(std::abs(turn_seconds({&any_one, &any_two, &any_three}, prompt)) < 1);
  CHECK(one.calls == two.calls);
  CHECK(one.calls == three.calls);
  for (const ToyModel* model : {&one, &two, &three}) CHECK(model->size() == 0);
  ToyModel alone(12, 7);
  specula::AnyModel any_alone(alone);
  turn_seconds({&any_alone}, prompt);
  CHECK(one.calls > 1.9 * static_cast<double>(alone.calls));  // besides its own: two for others
}
