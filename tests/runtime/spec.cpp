// SPDX-License-Identifier: MIT
// The grammar of pipelines' texts: their parts, the values of fields, and errors that quote the text.
#include <specula/runtime/spec.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

using namespace specula;
using Kind = PipelineField::Kind;

namespace {

const PipelineField kFields[] = {
    {"length", Kind::size, "4", 1, 64},     {"exit", Kind::number, "0", 0, 1},
    {"draw", Kind::word, "greedy|sampled"}, {"widths", Kind::wholes, "2-1", 1, 9, 3},
    {"at", Kind::numbers, "", 0, 1, 2},     {"choices", Kind::paths, "", 0, 9, 4}};

PipelineSpec spec_of(const std::string& text) {
  PipelineSpec spec(text);
  spec.know(kFields);
  return spec;
}

/// The message of what f(spec) throws, without the quoted text.
template <class F>
std::string error(const std::string& text, F f) {
  try {
    PipelineSpec spec = spec_of(text);
    f(spec);
  } catch (const PipelineError& thrown) {
    const std::string what = thrown.what(), begin = "pipeline '" + text + "': ";
    return what.rfind(begin, 0) == 0 ? what.substr(begin.size()) : what;
  }
  return "";
}
std::string grammar(const std::string& text) {
  return error(text, [](PipelineSpec&) {});
}

}  // namespace

TEST_CASE("a text's parts: shape, sizes by place, values by key, drafters; and what cost-aware: says") {
  PipelineSpec spec = spec_of("cost-aware:chain:8:exit=0.25:draw=sampled@base,max-gram");
  CHECK(spec.cost_aware());
  CHECK(spec.shape() == "chain");
  CHECK(spec.drafters() == std::vector<std::string>{"base", "max-gram"});
  CHECK(spec.whole("length") == 8);
  CHECK(spec.number("exit") == 0.25);
  CHECK(spec.is("draw", "sampled"));
  CHECK(spec.given("exit"));
  CHECK_FALSE(spec.given("widths"));
  CHECK_NOTHROW(spec.done("usage"));
}

TEST_CASE("values that are not given, and lists") {
  PipelineSpec spec = spec_of("x:choices=0-1-0.1:at=0.5-1");
  CHECK(spec.whole("length") == 4);
  CHECK(spec.word("draw") == "greedy");
  CHECK(spec.wholes("widths") == std::vector<std::int32_t>{2, 1});
  CHECK(spec.numbers("at") == std::vector<float>{0.5f, 1});
  CHECK(spec.paths("choices") == std::vector<std::vector<std::int32_t>>{{0}, {1}, {0, 1}});
  CHECK(spec_of("x").numbers("at").empty());
}

TEST_CASE("texts that do not follow the grammar") {
  CHECK(grammar("x::y") == "a part is empty");
  CHECK(grammar("x:=3") == "'=3' is not key=value");
  CHECK(grammar("x:a=") == "'a=' is not key=value");
  CHECK(grammar("x:y") == "'y' is neither a size nor key=value; drafters come after an @");
  CHECK(grammar("x@a,,b") == "'' is no drafter");
  CHECK(grammar("x@a:b") == "'a:b' is no drafter");
  CHECK_THROWS_AS(PipelineSpec("x\ty"), PipelineError);
  CHECK_NOTHROW(PipelineSpec(std::string(PipelineSpec::kMaxLength, 'x')));
  CHECK_THROWS_AS(PipelineSpec(std::string(PipelineSpec::kMaxLength + 1, 'x')), PipelineError);
}

TEST_CASE("values out of range, of another kind, or too many") {
  CHECK(error("x:65", [](auto& s) { s.whole("length"); }) == "length is 65, must be 1 to 64");
  CHECK(error("x:exit=0x1", [](auto& s) { s.number("exit"); }) == "exit is '0x1', must be a number");
  CHECK(error("x:exit=nan", [](auto& s) { s.number("exit"); }) == "exit is 'nan', must be a number");
  CHECK(error("x:exit=0.5", [](auto& s) { s.whole("exit"); }) == "exit is 0.5, must be a whole number");
  CHECK(error("x:draw=no", [](auto& s) { s.word("draw"); }) ==
        "draw is 'no', must be one of greedy, sampled");
  CHECK(error("x:widths=1-2-3-4", [](auto& s) { s.wholes("widths"); }) == "widths has more than 3 numbers");
  CHECK(error("x:widths=1.2", [](auto& s) { s.wholes("widths"); }) ==
        "widths is '1.2', must be numbers from 1 to 9 with dashes between them");
  CHECK(error("x:at=0.1-2", [](auto& s) { s.numbers("at"); }) ==
        "at is '0.1-2', must be numbers from 0 to 1 with dashes between them");
}

TEST_CASE("parts that nothing has read are errors, with the key that may have been meant") {
  CHECK(error("chain:exti=0.5", [](auto& s) { s.done("chain[:exit=PROB]"); }) ==
        "has no option 'exti', is exit=0.5 meant? It is written chain[:exit=PROB]");
  CHECK(error("x:7:8", [](auto& s) { s.whole("length"), s.done("x"); }) ==
        "does not know what to do with '8'; it is written x");
  CHECK(error("x:other=1", [](auto& s) { s.done("x"); }) ==
        "does not know what to do with 'other=1'; it is written x");
}
