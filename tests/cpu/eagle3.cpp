// SPDX-License-Identifier: MIT
// Rows of EAGLE-3 heads as six projects publish them, against their own classes: eagle3/heads.py made them.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "eagle3/head_files.hpp"
#include "specula/cpu/decoder.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;

namespace {

/// The rows of a head after tokens 1 to `row` + 1 and each of two draft tokens, with the states of tokens 0
/// to `row`; a chain in one call, or with other branches around it.
template <class Real>
std::vector<std::vector<Real>> rows_of(Decoder<Real>& head, TargetStates<Real>& states,
                                       const std::vector<Token>& tokens, std::int32_t row, bool branches) {
  head.truncate(0);
  head.set_target_state(states.view(row + 1));
  head.append(Tokens(tokens).first(static_cast<std::size_t>(row) + 1));
  const auto at = [&](std::int32_t i) { return tokens[static_cast<std::size_t>(row + 1 + i)]; };
  const std::vector<Token> chain =
      branches ? std::vector<Token>{at(0), 9, at(1), 77, 8, at(2)} : std::vector<Token>{at(0), at(1), at(2)};
  const std::vector<NodeId> parents =
      branches ? std::vector<NodeId>{kNoParent, kNoParent, 0, 0, 1, 2} : std::vector<NodeId>{kNoParent, 0, 1};
  head.extend(chain, parents);
  std::vector<std::vector<Real>> rows;
  for (const std::int32_t node : branches ? std::vector{0, 2, 5} : std::vector{0, 1, 2}) {
    const auto logits = head.logits(node);
    rows.emplace_back(logits.begin(), logits.end());
  }
  return rows;
}

/// The largest difference from the golden rows of a head, which begin at `expected`.
template <class Real>
double error(const Json& golden, const Json& head, const float* expected, bool branches) {
  const TemporaryDirectory folder("eagle3");
  const auto width = head["width"].get<std::int32_t>();
  const auto tokens = golden["tokens"].get<std::vector<Token>>();
  const auto offsets = golden["d2t"].get<std::vector<std::int32_t>>();
  write_head(folder.path, head["config"], head_tensors(golden, head));
  const auto weights = std::make_shared<const DecoderWeights<Real>>(
      load_decoder_weights<Real>(folder.path, head_target<Real>(width)));
  CHECK(weights->config.eagle3->states == head["states"].get<std::vector<std::int32_t>>());
  TargetStates<Real> states(width, weights->config.feature_layers);
  Decoder<Real> model(weights, {.capacity = 32, .max_nodes = 8});
  const std::size_t count = static_cast<std::size_t>(weights->config.head_rows());
  double worst = 0;
  std::size_t tokens_in = 0;
  for (std::size_t r = 0; r < 2; ++r) {
    const auto rows = rows_of(model, states, tokens, golden["rows"][r].get<std::int32_t>(), branches);
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto token = count < 256 ? i + static_cast<std::size_t>(offsets[i]) : i;
        worst = worse(worst, std::abs(static_cast<double>(rows[step][token]) -
                                      static_cast<double>(expected[(step * 2 + r) * count + i])));
      }
      for (const Real logit : rows[step]) tokens_in += logit > -std::numeric_limits<Real>::infinity();
    }
  }
  CHECK(tokens_in == 6 * count);
  return worst;
}

}  // namespace

TEST_CASE("rows of heads of every writer are those of its class") {
  const Json golden = golden_heads();
  const auto rows = golden_rows();
  std::size_t at = 0;
  for (const Json& head : golden["heads"]) {
    CAPTURE(head["name"].get<std::string>());
    for (const bool branches : {false, true}) {
      CHECK(error<double>(golden, head, rows.data() + at, branches) < 1e-6);
      CHECK(error<float>(golden, head, rows.data() + at, branches) < 1e-4);
    }
    at += 6 * static_cast<std::size_t>(head["tensors"]["lm_head.weight"][0].get<std::int64_t>());
  }
  CHECK(at == rows.size());
  CHECK(golden["heads"].size() == 11);
}
