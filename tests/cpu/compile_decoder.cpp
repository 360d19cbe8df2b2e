// SPDX-License-Identifier: MIT
// What compile_decoder.hpp defines, and compile_decoder_double.hpp: all that a file needs which includes the
// declarations alone, as this does. The target specula::cpu compiles both.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cpu/decoder_weights.hpp>

using namespace specula;
using namespace specula::cpu;

namespace {

template <class Real>
std::vector<float> last_row() {
  DecoderConfig config;
  config.vocab_size = 9, config.hidden_size = 8, config.intermediate_size = 8, config.layers = 2;
  config.heads = 2, config.kv_heads = 1, config.head_dim = 4, config.exits = {1, 2};
  Decoder<Real> model(std::make_shared<const DecoderWeights<Real>>(random_decoder_weights<Real>(config, 3)),
                      {.capacity = 16});
  model.append(std::vector<Token>{1, 2});
  model.extend_to_exit(std::vector<Token>{3}, std::vector<NodeId>{kNoParent}, 0);
  const auto row = model.resume_to_exit(std::vector<std::int32_t>{0}, 1).row(0);
  return {row.begin(), row.end()};
}

}  // namespace

TEST_CASE("a model in float and one in double, of the same random weights, give the same rows") {
  const std::vector<float> row = last_row<float>(), exact = last_row<double>();
  REQUIRE(row.size() == 9);
  for (std::size_t x = 0; x < row.size(); ++x) CHECK(std::abs(row[x] - exact[x]) < 1e-5f);
  CHECK(row[0] != row[1]);
}

TEST_CASE_TEMPLATE("weights are loaded from a folder", Real, float, double) {
  CHECK_THROWS_AS(load_decoder_weights<Real>(std::filesystem::path("no such folder")), std::runtime_error);
}
