// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of pipelines whose draft is an EAGLE-3 head in the library's decoder, against the
// target's: how the text was reached changes the head's rows, but not the distribution of the text.
#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "eagle3/random_head.hpp"
#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "one_rule.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// What a target predicts after a text, without a pipeline.
struct PlainTarget {
  HeadWeights<float> weights;
};

std::vector<double> distribution_after(const PlainTarget& target, const std::vector<Token>& text,
                                       const SamplingParams& params) {
  cpu::Decoder<float> model(target.weights, {.capacity = 32});
  model.append(Tokens(text).first(text.size() - 1));
  const NodeId root = kNoParent;
  const LogitsView row = model.extend(Tokens(text).last(1), {&root, 1});
  return plain_distribution(std::vector<float>(row.row(0).begin(), row.row(0).end()), params);
}

template <class Shape>
double error(std::int32_t vocab, std::int32_t drafted, const OneRule& rule, Shape shape, std::size_t horizon,
             const std::vector<Token>& prompt, const SamplingParams& params) {
  const auto target_config = small_target(vocab, 8);
  const auto weights = random_weights<float>(target_config, 3);
  auto head_config = small_head(target_config, drafted);
  head_config.eagle3->fc_norm = head_config.eagle3->norm_output = true;
  cpu::Decoder<float> target(weights,
                             {.capacity = 48, .max_nodes = 16, .feature_layers = head_config.feature_layers});
  cpu::Decoder<float> head(random_weights<float>(head_config, 4, weights), {.capacity = 48, .max_nodes = 16});
  Speculator run{TreeVerifier{target, rule, params}, FeatureHead{head, target}, shape};
  return whole_distribution(run, PlainTarget{weights}, params, prompt, horizon).error;
}

}  // namespace

TEST_CASE("every shape keeps the target's distribution, also of tokens that the head cannot draft") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>([&](const OneRule& rule) {
      CHECK(error(sizes.vocab, sizes.vocab - 1, rule, shape, 2, {0, 1}, {}) < 1e-12);
    });
  });
}

TEST_CASE("longer texts from prompts of one token, at another temperature") {
  const SamplingParams warm{.temperature = 0.7f};
  CHECK(error(3, 2, Rejection{}, Chain<Draw::sampled>{.length = 2}, 3, {0}, warm) < 1e-12);
  CHECK(error(3, 0, Sampling{}, Chain<>{.length = 2}, 4, {0}, warm) < 1e-12);
}
