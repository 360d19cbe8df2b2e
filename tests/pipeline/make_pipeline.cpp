// labels: numeric
// make_pipeline(): pipelines by name.

#include <specula/pipeline.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include <specula/specula.hpp>

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

}  // namespace

TEST_CASE("a pipeline by name gives the text of the Speculator that it stands for") {
  check_static("chain:small:5", Sampling{}, Chain<>{.length = 5});
  check_static("chain:small:5:rule=match", SampleAndMatch{}, Chain<>{.length = 5});
  check_static("sampled-chain:small:3", Sampling{}, Chain<Draw::sampled>{.length = 3});
  check_static("sampled-chain:small:3:rule=token", Rejection{}, Chain<Draw::sampled>{.length = 3});
  check_static("shared-chain:small:3", GumbelCoupling{}, Chain<Draw::shared>{.length = 3});
  check_static("beam:small:3:2", Sampling{}, Beam{.width = 3, .length = 2});
  check_static("dynamic-tree:small:3:2:9", Sampling{}, DynamicTree{.top_k = 3, .expansions = 2, .total = 9});
  check_static("sampled-tree:small:widths=3-2", Sampling{},
               SampledTree<ProposalKind::sampled_distinct>{.widths = {3, 2}});
  check_static("sampled-chain:small:4:lenient=3:lossy=yes", accept_lossy(Lenient{3}),
               Chain<Draw::sampled>{.length = 4});
}

TEST_CASE(
    "a pair that is not lossless is refused, with the compiler's message, unless the name has lossy=yes") {
  const std::string words =
      "this rule does not keep the target's distribution for proposals drawn as this shape draws them.";
  for (const std::string name : {"chain:small:4:rule=k-seq", "chain:small:lenient=2", "beam:rule=typical",
                                 "shared-chain:rule=token", "sampled-cascade:rule=k-seq"}) {
    CAPTURE(name);
    CHECK(complaint(name).find("'" + name + "'") != std::string::npos);
    CHECK(complaint(name).find(words) != std::string::npos);
    CHECK(prepare_pipeline(name + ":lossy=yes").lossy);
    CHECK(text_of(name + ":lossy=yes", 0.9f).size() == kPrompt.size() + kTokens);
  }
  CHECK_FALSE(prepare_pipeline("chain:small:4:lossy=yes").lossy);
}

TEST_CASE("errors name the pipeline and the missing capability of its model") {
  CHECK(complaint("chian").find("unknown pipeline 'chian'; the nearest are chain") != std::string::npos);
  CHECK(complaint("s2d:base") == "pipeline 's2d:base': the draft 'base' has no exits");
  CHECK(complaint("asd") == "pipeline 'asd': the target cannot leave layers out");
  CHECK(complaint("max-gram:bigram=table")
            .starts_with("pipeline 'max-gram:bigram=table': bigram=table: there is no"));
}

TEST_CASE("the help has a line for each pipeline") {
  for (const PipelineEntry& entry : pipeline_entries())
    CHECK(pipeline_help().find(std::string("  ") + entry.usage + "\n      " + entry.summary) !=
          std::string::npos);
  CHECK(pipeline_entries().size() > 25);
}
