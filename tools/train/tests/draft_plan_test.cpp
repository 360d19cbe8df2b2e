// SPDX-License-Identifier: MIT
// From a target to a draft: the stages, each run once, and what their figures mean.
#include "draft_plan.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "folder.hpp"

namespace st = specula_train;

namespace {

const st::Programs kPrograms{.train = "/p/train", .text = "/p/text", .specula = "/p/specula"};

std::string all_calls(const std::vector<st::Stage>& stages) {
  std::string text;
  for (const auto& stage : stages)
    for (const auto& call : stage.calls) text += stage.name + ": " + call.text() + "\n";
  return text;
}

}  // namespace

TEST_CASE("the stages of each method use up the time, and each reads what the one before it wrote") {
  for (const char* method : {"hass", "eagle", "glide", "plain"}) {
    CAPTURE(method);
    const st::DraftRequest request{
        .target = "/t", .output = "/o", .method = method, .hours = 2, .training = {"--batch", "8"}};
    const auto stages = st::plan_draft(request, kPrograms);
    double hours = 0;
    for (const auto& stage : stages) hours += stage.hours;
    CHECK(hours == doctest::Approx(2));
    const auto calls = all_calls(stages);
    CAPTURE(calls);
    for (const char* part :
         {"prompts --target /t --output /o/prompts",
          "sample --target /t --prompts /o/prompts --output /o/drawn",
          "unlike --data /o/drawn --output /o/text", "--data /o/text", "--batch 8", "--resume"})
      CHECK(calls.find(part) != calls.npos);
    CHECK(calls.find("measure: /p/specula compare --target /t") != calls.npos);
    CHECK(calls.find(std::string("/o/") + method + "/export /o/models/" + method) != calls.npos);
    CHECK(calls.find("corpus") == calls.npos);
    CHECK((calls.find("--alignment 1") != calls.npos) ==
          (std::string(method) == "hass" || std::string(method) == "eagle"));
    CHECK((calls.find("--init /o/eagle/export") != calls.npos) == (std::string(method) == "hass"));
  }
}

TEST_CASE("texts, questions and evaluations are handed on; without the other programs nothing is measured") {
  st::DraftRequest request{.target = "/t",
                           .output = "/o",
                           .method = "glide",
                           .hours = 1,
                           .texts = {"mine=/a folder"},
                           .asks = {"mine=Explain: {}"},
                           .evaluation = {"/e.jsonl"}};
  const auto calls = all_calls(st::plan_draft(request, {.train = "/p/train", .text = "/p/text"}));
  CAPTURE(calls);
  CHECK(calls.find("corpus --output /o/corpus --style 'mine=/a folder'") != calls.npos);
  CHECK(calls.find("--data /o/corpus --ask 'mine=Explain: {}'") != calls.npos);
  CHECK(calls.find("unlike --data /o/drawn --output /o/text --prompts /e.jsonl") != calls.npos);
  CHECK(calls.find("measure") == calls.npos);
  request.method = "medusa";
  CHECK_THROWS_WITH_AS(st::plan_draft(request, kPrograms),
                       doctest::Contains("expected hass, eagle, glide or plain"), std::invalid_argument);
  request.method = "hass";
  request.hours = 0;
  CHECK_THROWS_AS(st::plan_draft(request, kPrograms), std::invalid_argument);
}

TEST_CASE("of a GGUF file a folder is made first") {
  const specula_train_test::Folder folder("specula_draft_gguf_test");
  folder.write("m.gguf", "GGUF");
  const auto file = folder.path / "m.gguf";
  const st::DraftRequest request{.target = file, .output = "/o"};
  CHECK_THROWS_WITH_AS(st::plan_draft(request, {.train = "/p/train", .text = "/p/text"}),
                       doctest::Contains("the program specula"), std::invalid_argument);
  const auto calls = all_calls(st::plan_draft(request, kPrograms));
  CHECK(calls.starts_with("folder: /p/specula convert " + file.string() + " /o/target\n"));
  CHECK(calls.find("sample --target /o/target") != calls.npos);
  CHECK(calls.find("--target " + file.string()) == calls.npos);
}

TEST_CASE("needs grow with the target and with the time") {
  const st::DecoderConfig small{
      .vocab_size = 1000, .hidden = 64, .layers = 2, .heads = 4, .kv_heads = 2, .intermediate = 128};
  auto large = small;
  large.layers = 40;
  st::DraftRequest request{.target = "/t", .output = "/o", .hours = 1};
  const auto few = st::needs_of(request, small), more = st::needs_of(request, large);
  CHECK(more.memory > few.memory);
  request.hours = 100;
  CHECK(st::needs_of(request, small).disk > 5 * few.disk);
}

TEST_CASE("the verdict names the fastest pipeline, or says that the draft does not pay") {
  const specula_train_test::Folder folder("specula_verdict_test");
  const auto row = [](const std::string& name, double speedup, double pass, const std::string& drafts) {
    return R"({"name": ")" + name + R"(", "speedup": )" + std::to_string(speedup) +
           R"(, "mat": 1.5, "target_milliseconds_per_call": )" + std::to_string(pass) +
           R"(, "acceptance_by_depth": [0.5, null, 0.25], "drafts": [)" + drafts + "]}";
  };
  const std::string own = R"({"model": "hass", "cost_coefficient": 0.06})";
  const auto write = [&](double draft, double max_gram) {
    folder.write("figures.json", R"({"pipelines": [)" + row("autoregressive", 1, 10, "") + ", " +
                                     row("cost-aware:chain:10@max-gram", max_gram, 11, "") + ", " +
                                     row("chain:2@hass", draft, 12.5, own) + ", " +
                                     row("chain:3@hass", draft - 0.1, 13, own) + "]}");
    return st::verdict(folder.path / "figures.json", "hass");
  };
  const auto pays = write(1.4, 1.2);
  CAPTURE(pays);
  CHECK(pays.find("Use --pipeline chain:2@hass: 1.40 times") != pays.npos);
  CHECK(pays.find("0.50 0.25") != pays.npos);
  CHECK(pays.find("1.25  ") != pays.npos);  // T(3)
  CHECK(pays.find("costs 0.060 passes") != pays.npos);
  const auto other = write(1.1, 1.2);
  CHECK(other.find("does not pay here") != other.npos);
  CHECK(other.find("chain:2@hass") != other.npos);
  CHECK(other.find("cost-aware:chain:10@max-gram needs no training and is faster") != other.npos);
  CHECK(write(0.9, 0.95).find("nothing else pays either") != std::string::npos);
  folder.write("figures.json", R"({"pipelines": 3})");
  CHECK_THROWS_WITH_AS(st::verdict(folder.path / "figures.json", "hass"), doctest::Contains("pipelines"),
                       std::runtime_error);
}

TEST_CASE("stages run once, again where their calls changed, and name what fails") {
  const specula_train_test::Folder folder("specula_stages_test");
  const auto log = folder.path / "log";
  const auto append = [&](const std::string& word) {
    return st::Call{"/bin/sh", {"-c", "printf '%s ' \"$1\" >>\"$2\"", "sh", word, log.string()}};
  };
  const auto lines = [&] {
    std::ifstream in(log);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  st::Stages stages(folder.path / "stages");
  CHECK(stages.run("first", {append("a"), append("it's b")}));
  CHECK(stages.run("first", {append("a"), append("it's b")}));
  CHECK(lines() == "a it's b ");
  CHECK(stages.run("first", {append("c")}));
  CHECK(lines() == "a it's b c ");
  CHECK_THROWS_WITH_AS(stages.run("second", {{"/bin/sh", {"-c", "exit 3"}}}),
                       doctest::Contains("'exit 3': ended with exit code 3"), std::runtime_error);
  CHECK_THROWS_WITH_AS(stages.run("second", {{"/bin/sh", {"-c", "kill -9 $$"}}}),
                       doctest::Contains("by signal 9"), std::runtime_error);
  CHECK_THROWS_WITH_AS(stages.run("second", {{"/no/such/program", {}}}),
                       doctest::Contains("cannot be started"), std::runtime_error);
  CHECK_FALSE(std::filesystem::exists(folder.path / "stages/second.done"));
  CHECK(st::Call{"/bin/echo", {"a b", "it's", "", "x=1"}}.text() == "/bin/echo 'a b' 'it'\\''s' '' x=1");
}
