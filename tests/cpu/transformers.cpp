// SPDX-License-Identifier: MIT
// Golden logits of Hugging Face's transformers: tiny models of each family that is read, with each kind of
// scaled angles, by the decoder in float and in double and by the reference decoder. transformers/logits.py
// made them, and has the formula of the weights, too.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "../files/safetensors_writer.hpp"
#include "generated_weights.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/cpu/reference_decoder.hpp"
#include "specula/files/json.hpp"
#include "worst.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;

void write_model(const std::filesystem::path& directory, const Json& model) {
  write_file(directory / "config.json", model["config"].dump());
  std::vector<Tensor> tensors;
  for (const auto& [name, extents] : model["tensors"].items()) {
    const auto shape = extents.get<std::vector<std::int64_t>>();
    tensors.push_back({name, "F32", shape, generated_weights(name, shape)});
  }
  write_file(directory / "model.safetensors", safetensors_bytes(tensors));
}

}  // namespace

TEST_CASE("logits of tiny models are those of transformers") {
  const auto file = std::filesystem::path(SPECULA_MODELS_DIR) / ".." / ".." / "tests" / "cpu" /
                    "transformers" / "logits.json";
  const Json golden = read_json_file(file);
  const auto tokens = golden["tokens"].get<std::vector<Token>>();
  const auto rows = golden["rows"].get<std::vector<std::int32_t>>();
  std::vector<NodeId> chain(tokens.size());
  for (std::size_t i = 0; i < chain.size(); ++i) chain[i] = static_cast<NodeId>(i) - 1;
  double most = 0, most_double = 0, most_float = 0;
  for (const Json& model : golden["models"]) {
    CAPTURE(model["name"].get<std::string>());
    const TemporaryDirectory directory("transformers");
    write_model(directory.path, model);
    ReferenceDecoder reference(directory.path, 64);
    Decoder<double> in_double(directory.path, {.capacity = 64, .max_nodes = 64});
    Decoder<float> in_float(directory.path, {.capacity = 64, .max_nodes = 64});
    reference.extend(tokens, chain);
    in_double.extend(tokens, chain);
    in_float.extend(tokens, chain);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto expected = model["logits"][r].get<std::vector<double>>();
      const auto exact = reference.logits().col(rows[r]);
      const auto doubles = in_double.logits(rows[r]);
      const auto floats = in_float.logits(rows[r]);
      REQUIRE(static_cast<std::size_t>(exact.size()) == expected.size());
      for (std::size_t t = 0; t < expected.size(); ++t) {
        const double here = exact[static_cast<std::ptrdiff_t>(t)];
        REQUIRE(std::isfinite(here + doubles[t] + static_cast<double>(floats[t])));
        most = specula_test::worse(most, std::abs(here - expected[t]));
        most_double = specula_test::worse(most_double, std::abs(here - doubles[t]));
        most_float = specula_test::worse(most_float, std::abs(here - static_cast<double>(floats[t])));
      }
    }
    CHECK(most < 1e-4);
    CHECK(most_double < 1e-9);
    CHECK(most_float < 1e-4);
  }
  CHECK(golden["models"].size() == 11);
}
