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

TEST_CASE("what a device does not run is refused by name, before its weights are read") {
  OnDevice on;
  for (const auto& [draft, why] :
       {std::pair("glide", "reads its target's"), std::pair("hass", "reads its target's")}) {
    const std::string said = usage_error([&, name = draft] { on.pack.draft(name); });
    CAPTURE(said);
    CHECK(has(said, "--engine cuda: "));
    CHECK(has(said, draft));
    CHECK(has(said, why));
  }
  CHECK(has(usage_error([&] { on.pack.draft("nobody"); }), "no model 'nobody'"));
  OnDevice cut({.capacity = 64, .max_nodes = 8, .vocab_size = 2000});
  CHECK(has(usage_error([&] { cut.pack.target(); }), "has 2048 tokens, to be cut to 2000"));
  CHECK(on.device.launches == 0);
}
