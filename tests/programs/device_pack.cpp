// SPDX-License-Identifier: MIT
// labels: long vectorised
// specula run --engine cuda: pipelines over the models that come with the sources, on an emulated GPU.

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>

#include "decode.hpp"
#include "device_pack.hpp"
#include "emulated_device.hpp"
#include "errors.hpp"
#include "model_pack.hpp"

using namespace specula_tools;
using specula_test::EmulatedDevice;
namespace fs = std::filesystem;

namespace {

const fs::path kModels = SPECULA_MODELS_DIR;
const std::vector<Token> kPrompt{1, 415, 1014, 318, 99, 270, 1203, 57};

/// The pack with one of its small drafts as the target.
ModelFolders folders() { return {kModels, kModels / "base", {}}; }

struct OnDevice {
  explicit OnDevice(ModelSizes sizes = {.capacity = 64, .max_nodes = 8}, ModelFolders models = folders())
      : held(std::make_unique<EmulatedDevice>()),
        device(*held),
        pack(std::move(held), std::move(models), std::move(sizes), notes) {}
  std::ostringstream notes;
  std::unique_ptr<EmulatedDevice> held;
  EmulatedDevice& device;
  DevicePack<EmulatedDevice> pack;
};

Decoded text_of(specula::PipelineModels& models, const std::string& pipeline) {
  const auto run = specula::prepare_pipeline(pipeline).build(models, {.temperature = 0});
  return decode(*run, kPrompt, {.max_new_tokens = 12, .seed = 1});
}

template <class F>
std::string usage_error(F f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("pipelines on a device write the text of plain decoding there, by drafts of their own") {
  OnDevice on;
  const Decoded plain = text_of(on.pack, "autoregressive");
  REQUIRE(plain.tokens.size() == 12);
  CHECK(plain.stats.target.calls == 12);
  const Decoded drafted = text_of(on.pack, "chain:3@small");
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafted.stats.draft.calls > 0);
  CHECK(drafted.stats.target.calls < 12);  // a wrong draft would be rejected
  CHECK(text_of(on.pack, "chain:3@max-gram").tokens == plain.tokens);
  CHECK(&on.pack.target() == &on.pack.target());  // loaded once
  CHECK(&on.pack.draft("base") != &on.pack.target());
  CHECK(on.device.launches > 0);
  CHECK(on.notes.str() == "");  // their weights arrive as they are

  // The CPU's, whose products have other bits.
  ModelPack cpu(folders(), {.capacity = 64, .max_nodes = 8});
  CHECK(text_of(cpu, "autoregressive").tokens == plain.tokens);
  // Another draft than the one asked for would have another acceptance.
  CHECK(drafted.stats.target.calls == text_of(cpu, "chain:3@small").stats.target.calls);
}

TEST_CASE("drafts that read their target draft for it, and for no other") {
  OnDevice on({.capacity = 64, .max_nodes = 8}, {kModels, {}, {}});
  const Decoded plain = text_of(on.pack, "autoregressive");
  for (const char* pipeline : {"chain:3@hass", "chain:3@glide"}) {
    const Decoded drafted = text_of(on.pack, pipeline);
    CAPTURE(pipeline);
    CHECK(drafted.tokens == plain.tokens);
    CHECK(drafted.stats.target.calls < 12);
  }
  OnDevice other;  // whose target is another model
  try {
    text_of(other.pack, "chain:3@glide");
    FAIL("no error");
  } catch (const std::exception& error) {
    CHECK(has(error.what(), "made for a target with num_hidden_layers 16, given one with 4"));
  }
  CHECK_THROWS_AS(text_of(other.pack, "chain:3@hass"), std::runtime_error);  // of another width
}

TEST_CASE("rounds that stay on the device write the same text in as many calls of the target") {
  OnDevice on({.capacity = 128, .max_nodes = 16});
  const auto rounds = [&](const std::string& pipeline, float temperature = 0) {
    const auto run = on.pack.rounds(pipeline, {.temperature = temperature});
    return decode(*run, kPrompt, {.max_new_tokens = 12, .seed = 1});
  };
  for (const char* pipeline : {"autoregressive", "chain:3@small", "cape:3:budget=8@small",
                               "dynamic-tree:2:2:6@small", "chain:3:rule=token@small"}) {
    CAPTURE(pipeline);
    const Decoded on_host = text_of(on.pack, pipeline), on_device = rounds(pipeline);
    CHECK(on_device.tokens == on_host.tokens);
    CHECK(on_device.stats.target.calls == on_host.stats.target.calls);
    CHECK(on_device.from_draft == on_host.from_draft);
  }
  CHECK(rounds("chain:3:draw=sampled@small", 0.8f).tokens.size() == 12);
  // What is refused runs on the host, as the message says.
  const auto run = on.pack.rounds("chain:3@small", {.temperature = 0});
  CHECK(has(usage_error([&] { run->report_logprobs({}); }),
            "probabilities of tokens stay on the device; take --rounds host"));
  CHECK(text_of(on.pack, "beam:2:2@small").tokens == text_of(on.pack, "autoregressive").tokens);
  const auto refused = [&](const char* pipeline) { return usage_error([&] { rounds(pipeline); }); };
  for (const auto& [pipeline, why] :
       {std::pair("beam:2:2@small",
                  "chain, cape and dynamic-tree have rounds there, and draw=shared has none"),
        std::pair("chain:3@max-gram", "one model as its draft"),
        std::pair("cost-aware:chain:3@small", "sizes by cost"),
        std::pair("chain:exit=0.5@small", "by its length alone"),
        std::pair("chain:3:draw=shared@small", "draw=shared"),
        std::pair("chain:3:rule=gumbel@small", "has no kernel")}) {
    CAPTURE(pipeline);
    CHECK(has(refused(pipeline), "--rounds device: " + std::string(pipeline)));
    CHECK(has(refused(pipeline), why));
    CHECK(has(refused(pipeline), "--rounds host runs every pipeline"));
  }
}

TEST_CASE("what a device does not run is refused by name, before its weights are read") {
  OnDevice on;
  CHECK(has(usage_error([&] { on.pack.draft("nobody"); }), "no model 'nobody'"));
  OnDevice cut({.capacity = 64, .max_nodes = 8, .vocab_size = 2000});
  CHECK(has(usage_error([&] { cut.pack.target(); }), "has 2048 tokens, to be cut to 2000"));
  CHECK(on.device.launches == 0);
}
