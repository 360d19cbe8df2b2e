// SPDX-License-Identifier: MIT
// pipeline.hpp: pipelines by name, of the tables that make_pipeline.hpp compiles in another file.
#include <specula/pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <specula/any.hpp>
#include <specula/specula.hpp>

#include "comma_locale.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

namespace {

class Toys final : public PipelineModels {
 public:
  AnyModel& target() override { return target_.any; }
  AnyModel& draft(const std::string& name) override {
    return drafts_.try_emplace(name, 12, name == "base" ? 7u : 9u, 1.0f, 256).first->second.any;
  }

 private:
  HeldModel<ToyModel> target_{12, 7u, 2.0f, 256};
  std::map<std::string, HeldModel<ToyModel>> drafts_;
};

const std::vector<Token> kPrompt{1, 5, 2, 8};
constexpr std::size_t kTokens = 80;

std::vector<Token> first_tokens(Tokens text) {
  REQUIRE(text.size() >= kPrompt.size() + kTokens);
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(kPrompt.size() + kTokens)};
}

std::vector<Token> text_of(const std::string& name, float temperature) {
  Toys toys;
  const auto pipeline = make_pipeline(name, toys, {.temperature = temperature});
  PhiloxRandom rng(3);
  pipeline->start(kPrompt);
  while (pipeline->text().size() < kPrompt.size() + kTokens) pipeline->step(rng);
  return first_tokens(pipeline->text());
}

/// The text of the Speculator that the name stands for.
template <class Rule, class S>
void check_static(const std::string& name, Rule rule, S shape) {
  CAPTURE(name);
  for (const float temperature : {0.0f, 0.9f}) {
    CAPTURE(temperature);
    ToyModel target(12, 7, 2.0f, 256), draft(12, 9, 1.0f, 256);
    Speculator run{TreeVerifier{target, rule, {.temperature = temperature}}, ModelDrafter{draft}, shape};
    PhiloxRandom rng(3);
    run.start(kPrompt);
    while (run.text().size() < kPrompt.size() + kTokens) run.step(rng);
    CHECK(text_of(name, temperature) == first_tokens(run.text()));
  }
}

std::string complaint(const std::string& name) {
  try {
    Toys toys;
    make_pipeline(name, toys);
  } catch (const PipelineError& error) {
    return error.what();
  }
  return "";
}

/// A text up to the value of an option, and what comes after it.
struct Option {
  std::string before, after;
  std::string with(const std::string& value) const { return before + value + after; }
};

/// Each option of each pipeline, cost-aware ones too, and of each drafter and rule.
std::vector<Option> all_options() {
  std::vector<Option> out;
  const auto add = [&](const std::string& shape, std::span<const PipelineField> fields,
                       const std::string& drafter) {
    for (const PipelineField& field : fields)
      if (field.kind != PipelineField::Kind::size) out.push_back({shape + ":" + field.name + "=", drafter});
  };
  for (const PipelineEntry& entry : pipeline_entries())
    for (const std::string before : {"", "cost-aware:"}) {
      if (!before.empty() && !entry.cost_aware) continue;
      add(before + entry.name, entry.fields, "");
      if (entry.name == std::string("autoregressive")) continue;
      for (const char* key : {"rule", "lenient", "lossy"})
        out.push_back({before + entry.name + ":" + key + "=", ""});
    }
  for (const PipelineDrafter& drafter : pipeline_drafters()) {
    const std::string at = *drafter.name ? "@" + std::string(drafter.name) : "";
    for (const std::string shape : {"chain", "cost-aware:chain"}) add(shape, drafter.fields, at);
  }
  return out;
}

/// Values of which every option takes at least one.
const std::vector<std::string> kValues{"0.5",    "0.3-0.6-0.8", "0.75-0.25", "7-5-3-1", "4-0-10",  "2.5",
                                       "1e-3",   "1.5",         "2",         "0",       "0-1-0.0", "1-3",
                                       "yes",    "sampled",     "token",     "gumbel",  "table",   "both",
                                       "sample", "threshold",   "greedy",    "distinct"};

/// A text of which no part may get by unnoticed: refused in one line, by a PipelineError that names its
/// beginning.
void check_refused(const std::string& text) {
  CAPTURE(text.substr(0, 80));
  std::string said;
  try {
    prepare_pipeline(text);
  } catch (const PipelineError& error) {
    said = error.what();
  }
  CAPTURE(said.substr(0, 2000));
  const std::size_t shown =
      std::min({text.find(':'), text.find('@'), text.find('\0'), text.size(), std::size_t{20}});
  CHECK(said.find("pipeline '" + text.substr(0, shown)) != std::string::npos);
  CHECK(said.size() < 1500);
  CHECK(said.find('\n') == std::string::npos);
  CHECK(std::strlen(said.c_str()) == said.size());
}

}  // namespace

TEST_CASE("a pipeline by name gives the text of the Speculator that it stands for") {
  check_static("chain:5@small", Sampling{}, Chain<>{.length = 5});
  check_static("chain:5:rule=match@small", SampleAndMatch{}, Chain<>{.length = 5});
  check_static("chain:3:draw=sampled@small", Sampling{}, Chain<Draw::sampled>{.length = 3});
  check_static("chain:3:draw=sampled:rule=token@small", Rejection{}, Chain<Draw::sampled>{.length = 3});
  check_static("chain:3:draw=shared@small", GumbelCoupling{}, Chain<Draw::shared>{.length = 3});
  check_static("beam:3:2@small", Sampling{}, Beam{.width = 3, .length = 2});
  check_static("dynamic-tree:3:2:9@small", Sampling{}, DynamicTree{.top_k = 3, .expansions = 2, .total = 9});
  check_static("sampled-tree:widths=3-2@small", Sampling{},
               SampledTree<ProposalKind::sampled_distinct>{.widths = {3, 2}});
  check_static("chain:4:draw=sampled:lenient=3:lossy=yes@small", accept_lossy(Lenient{3}),
               Chain<Draw::sampled>{.length = 4});
}

TEST_CASE("a pipeline by name generates, and its parameters may change between two texts, and within one") {
  const SamplingParams warm{.temperature = 0.9f}, greedy{.temperature = 0};
  const auto generated = [](Pipeline& pipeline, std::int32_t tokens) {
    std::vector<Token> text;
    const Generated done =
        pipeline.generate(kPrompt, {.max_new_tokens = tokens}, PhiloxRandom(3), [&](Tokens fresh) {
          CHECK(pipeline.logprobs().size() == fresh.size());
          for (std::size_t i = 0; i < fresh.size(); ++i) CHECK(pipeline.logprobs()[i].token == fresh[i]);
          text.insert(text.end(), fresh.begin(), fresh.end());
        });
    CHECK(done == Generated{tokens, FinishReason::limit});
    return text;
  };
  for (const std::string name : {"chain:4@small", "chain:3:draw=sampled@small", "cascade@small,base"}) {
    CAPTURE(name);
    Toys toys, other_toys;
    const auto pipeline = make_pipeline(name, toys, warm), other = make_pipeline(name, other_toys, greedy);
    pipeline->report_logprobs({}), other->report_logprobs({});
    const auto first = generated(*pipeline, 50), second = generated(*other, 50);
    CHECK(first != second);
    pipeline->set_params(greedy), other->set_params(warm);
    CHECK(generated(*pipeline, 50) == second);
    CHECK(generated(*other, 50) == first);
    CHECK_THROWS_AS(other->set_params({.top_p = 2.0f}), std::invalid_argument);
    CHECK(other->params().temperature == 0.9f);
    pipeline->reset_stats();
    generated(*pipeline, 7);
    CHECK(pipeline->stats().new_tokens == 7);
    PhiloxRandom rng(3);
    pipeline->set_params(warm);  // the rest of the greedy text is sampled
    while (pipeline->text().size() < kPrompt.size() + 50) pipeline->step(rng);
    CHECK(std::vector<Token>(pipeline->text().begin() + 4, pipeline->text().begin() + 54) != second);
  }
}

TEST_CASE(
    "a pair that is not lossless is refused, with the compiler's message, unless the name has lossy=yes") {
  const std::string words =
      "this rule does not keep the target's distribution for proposals drawn as this shape draws them.";
  for (const std::string name : {"chain:4:rule=k-seq", "chain:lenient=2", "beam:rule=typical",
                                 "chain:3:draw=shared:rule=token", "cascade:draw=sampled:rule=k-seq"}) {
    CAPTURE(name);
    CHECK(complaint(name).find("'" + name + "'") != std::string::npos);
    CHECK(complaint(name).find(words) != std::string::npos);
    CHECK(prepare_pipeline(name + ":lossy=yes").lossy);
    CHECK(text_of(name + ":lossy=yes", 0.9f).size() == kPrompt.size() + kTokens);
  }
  CHECK_FALSE(prepare_pipeline("chain:4:lossy=yes@small").lossy);
}

TEST_CASE("errors name the pipeline and the missing capability of its model") {
  CHECK(complaint("chian").find("unknown pipeline 'chian'; the nearest are chain") != std::string::npos);
  CHECK(complaint("CHAIN").find("unknown pipeline 'CHAIN'; the nearest are chain,") != std::string::npos);
  CHECK(complaint("chain:4:exits=0.5-0@base") ==
        "pipeline 'chain:4:exits=0.5-0@base': the draft 'base' has no exits");
  CHECK(complaint("chain@layer-skip") == "pipeline 'chain@layer-skip': the target cannot leave layers out");
  CHECK(complaint("chain:10:bigram=table@max-gram")
            .starts_with("pipeline 'chain:10:bigram=table@max-gram': bigram=table: there is no"));
}

TEST_CASE("numbers of every option of every pipeline are read alike in every locale") {
  const auto outcomes = [] {
    std::vector<std::string> all;
    for (const Option& option : all_options())
      for (const std::string& value : kValues) try {
          const PipelineFactory factory = prepare_pipeline(option.with(value));
          all.push_back("taken: " + std::to_string(factory.max_nodes));
        } catch (const PipelineError& error) {
          all.push_back(error.what());
        }
    return all;
  };
  const std::vector<std::string> plain = outcomes();
  std::size_t at = 0;
  for (const Option& option : all_options()) {
    int taken = 0;
    for (std::size_t v = 0; v < kValues.size(); ++v)
      taken += plain[at].starts_with("taken") || plain[at].find("not lossless") != std::string::npos, ++at;
    CAPTURE(option.with("..."));
    // lenient is lossy; leave goes with exits
    CHECK((taken > 0 || option.before.ends_with("lenient=") || option.before.ends_with("leave=")));
  }
  const specula_test::CommaLocale comma;
  if (!comma.in_c()) MESSAGE("C's locale is not tested: localedef makes none");
  CHECK(outcomes() == plain);
  for (const Option& option : all_options())
    for (const std::string value : {"0,5", "1,5", "2,0"}) check_refused(option.with(value));
}

TEST_CASE("no option of any pipeline takes half a number, or another way to write one") {
  using namespace std::string_literals;
  for (const Option& option : all_options())
    for (const std::string& value : {"0.5\0junk"s,
                                     "1\0"s,
                                     "\0"s,
                                     "0x1"s,
                                     "0x1p-1"s,
                                     "inf"s,
                                     "infinity"s,
                                     "nan"s,
                                     "nan(1)"s,
                                     " 0.5"s,
                                     " 1"s,
                                     "1 "s,
                                     "+1"s,
                                     "+0.5"s,
                                     "\t1"s,
                                     "1\n"s,
                                     "1e999"s,
                                     "1e-999"s,
                                     "-1e999"s,
                                     std::string(400, '9'),
                                     std::string(5000, '1'),
                                     "0." + std::string(4000, '3') + "x"})
      check_refused(option.with(value));
  for (const std::string& bad :
       {"chain@small\0"s, "chain\0@small"s, "\0"s, "chain:1\0"s, "chain@sm\nall"s, "chain:sm\nall"s})
    check_refused(bad);
}

TEST_CASE("a long text is an error of one line, in little time") {
  const auto before = std::chrono::steady_clock::now();
  const auto many = [](const std::string& part, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  for (const std::size_t size : {std::size_t{4000}, std::size_t{300'000}}) {
    check_refused(many("c", size));
    for (const PipelineEntry& entry : pipeline_entries()) {
      const std::string name = entry.name;
      for (const char* part :
           {":w", ":longer-word", ":1", ":k=v", ":exit=0.5", ":", "\xC3\xA4", "@a", ",b", "@"})
        check_refused(name + many(part, size));
      for (const char* part : {"0.", "0-", "1"}) {
        check_refused(name + ":choices=0-" + many(part, size));
        if (size > PipelineSpec::kMaxLength) check_refused(name + ":" + many(part, size));
      }
    }
  }
  check_refused(many("c", 10'000'000));
  // Seconds of margin for sanitizers and loaded machines; a part of these alone took minutes.
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(60));
  const std::string longest = "chain:4@" + std::string(PipelineSpec::kMaxLength - 8, 'a');
  CHECK(prepare_pipeline(longest).max_nodes == 5);
  check_refused(longest + 'a');
  CHECK(detail::quoted("\xC3\xA4") == "'\xC3\xA4'");
  CHECK(detail::cut("ab\xC3\xA4", 3) == "ab...");
}

TEST_CASE("what a text asks of the vocabulary is refused with the text, before the first round") {
  Toys toys;  // 12 tokens
  int built = 0, refused = 0;
  const auto check = [&](const std::string& text) {
    CAPTURE(text);
    try {
      PhiloxRandom rng(3);
      const auto pipeline = make_pipeline(text, toys);
      ++built;
      pipeline->start(kPrompt);
      for (int round = 0; round < 2; ++round) pipeline->step(rng);
    } catch (const PipelineError& error) {
      ++refused;
      CHECK(std::string(error.what()).starts_with("pipeline '" + text + "': "));
    }
  };
  for (const Option& option : all_options())
    for (const std::string value :
         {"0-11", "0-12", "0-0.12", "1023", "63", "64", "1", "1-1-1-63", "1000", "256-256-256"})
      check(option.with(value)), check(Option{option.before, ":lossy=yes" + option.after}.with(value));
  for (const PipelineEntry& entry : pipeline_entries())
    for (const std::string sizes : {":64", ":64:64", ":13:13:13", ":64:63:1024", ":1", ":256:256"}) {
      check(entry.name + sizes);
      if (entry.cost_aware) check(std::string("cost-aware:") + entry.name + sizes);
    }
  CHECK(built > 100);
  CHECK(refused > 100);
  CHECK(complaint("static-tree:choices=0-12") ==
        "pipeline 'static-tree:choices=0-12': choices has the rank 12, must be below the target's 12 tokens");
  class Odd final : public PipelineModels {  // a draft of another vocabulary
   public:
    AnyModel& target() override { return target_.any; }
    AnyModel& draft(const std::string&) override { return draft_.any; }

   private:
    HeldModel<ToyModel> target_{12, 7u, 2.0f, 256}, draft_{13, 9u, 1.0f, 256};
  } odd;
  for (const std::string name : {"chain", "sampled-tree", "horizontal", "cost-aware:beam", "adaptive-chain"})
    CHECK_THROWS_AS(make_pipeline(name, odd), PipelineError);
}

TEST_CASE("the help has a line for each pipeline") {
  const std::string help = pipeline_help();
  const auto has = [&](const std::string& text) { return help.find(text) != std::string::npos; };
  for (const PipelineEntry& entry : pipeline_entries())
    CHECK(has("  " + entry.usage() + "\n      " + entry.summary));
  for (const PipelineDrafter& drafter : pipeline_drafters())
    CHECK(has(std::string("\n      ") + drafter.summary));
  for (const NamedRule& rule : kRules) CHECK(has(std::string("      ") + rule.name + "  " + rule.summary));
  CHECK(pipeline_entries().size() == 11);
}
