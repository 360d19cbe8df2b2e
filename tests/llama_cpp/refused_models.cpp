// SPDX-License-Identifier: MIT
// Models and options that the adapter to libllama refuses.
#include <specula/llama_cpp/model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "../files/safetensors_writer.hpp"
#include "tiny_gguf.hpp"

using namespace specula_test;
using specula::llama_cpp::Model;
using specula::llama_cpp::Options;

namespace {

const TinyVocabulary kWords = tiny_vocabulary({"one", "two", "three"});  // 7 tokens

const std::string kNoCache = "llama_cpp::Model: a model without a cache";

/// The constructor's error for a model of metadata alone.
std::string refusal(const std::string& architecture) {
  const TemporaryDirectory directory("llama_cpp_refused");
  try {
    Model model(tiny_model(directory.path / "tiny.gguf", architecture, kWords), {.capacity = 32});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("models that are not decoders with rollback: an error that says why") {
  quiet();
  CHECK_THROWS_WITH_AS(Model(nullptr), "llama_cpp::Model: a model that is not there", std::invalid_argument);
  // The last three are hybrid: some of their layers are recurrent.
  for (const std::string architecture : {"mamba", "mamba2", "rwkv6", "jamba", "qwen3next", "lfm2"}) {
    CAPTURE(architecture);
    CHECK(refusal(architecture) ==
          "llama_cpp::Model: a model that is recurrent: its state cannot go back to an earlier token");
  }
  for (const std::string architecture : {"t5", "t5encoder", "dream", "llada"}) {
    CAPTURE(architecture);
    CHECK(refusal(architecture) == "llama_cpp::Model: a model that is no decoder that writes token by token");
  }
  // libllama counts models of embeddings as decoders; their context has no cache, as that of a vocabulary
  // alone.
  for (const std::string architecture : {"bert", "llama"}) {
    CAPTURE(architecture);
    CHECK(refusal(architecture) == kNoCache);
  }
}

TEST_CASE("options out of range: an error that names the option and the range") {
  quiet();
  const TemporaryDirectory directory("llama_cpp_options");
  const auto weights = tiny_model(directory.path / "tiny.gguf", "llama", kWords);
  constexpr std::int32_t low = std::numeric_limits<std::int32_t>::min(),
                         high = std::numeric_limits<std::int32_t>::max();
  const auto refused = [&](const char* name, std::int32_t Options::*option, std::int32_t value,
                           const char* range) {
    Options options{.capacity = 32};
    options.*option = value;
    const std::string message =
        std::string("llama_cpp::Model: ") + name + " is " + std::to_string(value) + ", must be " + range;
    CHECK_THROWS_WITH_AS(Model(weights, options), message.c_str(), std::invalid_argument);
  };
  for (const std::int32_t value : {-1, (1 << 30) + 1, low, high})
    refused("capacity", &Options::capacity, value, "0 to 1073741824");
  CHECK_THROWS_WITH_AS(
      Model(weights, {}),
      "llama_cpp::Model: capacity is 0, and the file does not say what the model was trained for",
      std::invalid_argument);
  for (const std::int32_t value : {0, -1, 65537, low, high})
    refused("max_nodes", &Options::max_nodes, value, "1 to 65536");
  for (const std::int32_t value : {0, -1, 257, low, high})
    refused("max_leaves", &Options::max_leaves, value, "1 to 256");
  for (const std::int32_t value : {-1, 4097, low, high})
    refused("threads", &Options::threads, value, "0 to 4096");
  for (const std::int32_t value : {-1, 8, low, high})
    refused("vocab_size", &Options::vocab_size, value, "0 to 7");
  // The limits themselves are in range: these fail at the next check.
  const Options most{
      .capacity = 1 << 30, .max_nodes = 1 << 16, .max_leaves = 256, .threads = 1 << 12, .vocab_size = 7},
      least{.capacity = 1, .max_nodes = 1, .max_leaves = 1};
  CHECK_THROWS_WITH_AS(Model(weights, most), kNoCache.c_str(), std::invalid_argument);
  CHECK_THROWS_WITH_AS(Model(weights, least), kNoCache.c_str(), std::invalid_argument);
}
