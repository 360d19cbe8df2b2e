// SPDX-License-Identifier: MIT
// What is known of a pipeline before its models are: usage, which drafters a shape takes, the models' names
// and room.
#include <specula/runtime/factory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace specula;
using Kind = PipelineField::Kind;

namespace {

const PipelineField kFields[] = {
    {"max-length", Kind::size, "4"}, {"draw", Kind::word, "greedy|sampled"}, {"at", Kind::numbers, ""}};

PipelineEntry entry(const char* drafters, std::size_t least, std::size_t most, bool copies, bool cost_aware) {
  return {"shape", kFields, "", drafters, least, most, copies, cost_aware, nullptr};
}

/// What is wrong with the drafters of a text, without the quoted text.
std::string wrong(const std::string& text, const PipelineEntry& of) {
  try {
    detail::check_drafters(PipelineSpec(text), of);
  } catch (const PipelineError& error) {
    return std::string(error.what()).substr(("pipeline '" + text + "': ").size());
  }
  return "";
}

}  // namespace

TEST_CASE("how a text is written: sizes in capitals, then keys, each with its fallback, then drafters") {
  CHECK(entry("small", 1, 1, false, true).usage() ==
        "[cost-aware:]shape[:MAX_LENGTH=4][:draw=greedy|sampled][:at=...][@small]");
  CHECK(entry("", 0, 0, false, false).usage() ==
        "shape[:MAX_LENGTH=4][:draw=greedy|sampled][:at=...][@DRAFTER]");
}

TEST_CASE("which drafters a shape takes") {
  const PipelineEntry one = entry("small", 1, 1, true, true), stack = entry("", 2, 3, true, false),
                      rows = entry("small", 1, 1, false, true);
  CHECK(wrong("shape@small", one).empty());
  CHECK(wrong("shape@max-gram", one).empty());
  CHECK(wrong("shape@base,small,max-gram", stack).empty());
  CHECK(wrong("cost-aware:shape@small,max-gram", rows).empty());
  CHECK(wrong("shape@small,max-gram", rows) ==
        "small or max-gram, whichever promises more, is a choice of cost-aware:shape");
  CHECK(wrong("cost-aware:shape@small,base", rows) == "2 drafters, must be 1");
  CHECK(wrong("shape@a,b", one) == "2 drafters, must be 1");
  CHECK(wrong("shape@a", stack) == "1 drafters, must be 2 to 3");
  CHECK(wrong("shape@max-gram", rows) == "max-gram does not draft for shape");
  CHECK(wrong("shape@max-gram,a", stack) == "max-gram can only be the last drafter: it cannot review");
  CHECK(wrong("shape@a,layer-skip", stack) == "layer-skip does not draft for shape");
  CHECK(wrong("shape@a,a", stack) == "two drafters are 'a'");
  CHECK(wrong("shape@a,b,c", stack) == "the last of three drafters must be max-gram or prompt-lookup");
  CHECK(wrong("cost-aware:shape@a,b", stack) == "cost-aware does not go with shape");
}

TEST_CASE("models and room of several pipelines: all names, and twice the largest proposal or draft") {
  PipelineFactory small, large;
  small.drafts = {"a"}, small.exits = {"e"}, small.max_nodes = 5, small.draft_nodes = 3;
  large.drafts = {"a", "b"}, large.max_nodes = 2, large.draft_nodes = 7;
  const std::vector<PipelineFactory> both{small, large};
  CHECK(draft_names(both) == std::vector<std::string>{"a", "e", "a", "b"});
  CHECK(room_for(both, 10, 20).capacity == 10 + 20 + 14);
  CHECK(room_for(both, 10, 20).max_nodes == 7);
  CHECK(room_for({}, 10, 20).max_nodes == 1);
}

TEST_CASE("an unknown shape is an error that names the nearest") {
  CHECK_THROWS_WITH_AS(static_cast<void>(prepare_pipeline("chian")),
                       "unknown pipeline 'chian'; the nearest are chain, cape, beam", PipelineError);
}
