// SPDX-License-Identifier: MIT
// The drafters of a text: which values they add, and what PipelineFactory says of them.
#include <specula/runtime/drafters.hpp>

#include <doctest/doctest.h>

#include <string>

#include <specula/pipeline.hpp>

using namespace specula;
namespace pipelines = specula::detail::pipelines;

TEST_CASE("a single drafter: whole, with exits, or the target without some blocks") {
  const auto parsed = [](const char* text) {
    PipelineSpec spec(text);
    const auto drafter = pipelines::parse_drafter(spec);
    spec.done("x");
    return drafter;
  };
  const auto whole = parsed("x@small"), exits = parsed("x:exits=0.5-0:leave=sample@s2d");
  CHECK_FALSE((whole.exits || whole.skips || whole.measures));
  CHECK((exits.exits && !exits.skips && !exits.measures));
  const auto skips = parsed("x:every=2:alike=0.9@layer-skip"), given = parsed("x:mlp=2-3@layer-skip");
  CHECK((skips.skips && skips.measures && !skips.exits));
  CHECK((given.skips && !given.measures));
  CHECK_THROWS_AS(parsed("x:every=2@small"), PipelineError);
  CHECK_THROWS_AS(parsed("x:every=2:mlp=3@layer-skip"), PipelineError);  // given blocks need no rules
  CHECK_THROWS_AS(parsed("x:leave=sample@s2d"), PipelineError);          // without exits
}

TEST_CASE("drafters that copy: the options of Max-Gram, and those of prompt lookup") {
  const auto parsed = [](const char* text) {
    PipelineSpec spec(text);
    const auto choice = pipelines::parse_copies(spec);
    spec.done("x");
    return choice;
  };
  const auto gram = parsed("x@max-gram"), paper = parsed("x:min=1:bigram=table:past-end=no@base,max-gram");
  CHECK(gram.options.min_match == 2);
  CHECK(gram.options.max_match == 0);
  CHECK(gram.options.past_end);
  CHECK(gram.bigram == "both");
  CHECK(paper.options.min_match == 1);
  CHECK_FALSE(paper.options.past_end);
  CHECK(paper.bigram == "table");
  const auto lookup = parsed("x:ngram=4@prompt-lookup");
  CHECK(lookup.options.min_match == 1);
  CHECK(lookup.options.max_match == 4);
  CHECK_FALSE(lookup.options.past_end);
  CHECK(lookup.bigram == "none");
  CHECK_THROWS_AS(parsed("x:min=2@prompt-lookup"), PipelineError);
  CHECK_THROWS_AS(parsed("x:ngram=2@max-gram"), PipelineError);
}
