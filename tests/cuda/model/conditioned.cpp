// SPDX-License-Identifier: MIT
// labels: optimised
// Drafts on the device that read their target, project its embedding or have a draft vocabulary: rows are the
// reference's in double, through rounds that accept and reject.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>

#include "relative_error.hpp"
#include "small_drafts.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula::kNoParent;
using specula::NodeId;
using specula_test::EmulatedDevice;
using Model = cuda::Model<EmulatedDevice>;

static_assert(specula::TargetConditioned<Model> && specula::TargetConditioned<specula::SlotOf<Model>>);

namespace {

template <class Target, class M>
void give_state(Target& target, M& draft) {
  if (draft.conditioned_on() == Conditioning::features) draft.set_target_state(target.features());
  if (draft.conditioned_on() == Conditioning::key_values) draft.set_target_state(target.key_values());
}

/// Of rows that may have minus infinity, at the same places.
double worst_row(const LogitsView& rows, const LogitsView& reference) {
  double worst = 0;
  REQUIRE(rows.rows == reference.rows);
  for (int r = 0; r < rows.rows; ++r) {
    std::vector<float> found, expected;
    for (std::size_t v = 0; v < rows.row(r).size(); ++v) {
      const float inf = std::numeric_limits<float>::infinity();
      REQUIRE((rows.row(r)[v] == -inf) == (reference.row(r)[v] == -inf));
      if (rows.row(r)[v] != -inf) found.push_back(rows.row(r)[v]), expected.push_back(reference.row(r)[v]);
    }
    worst = std::max(worst, specula_test::relative_error(found, expected));
  }
  return worst;
}

void check_draft(const Draft& how, int prompt_size) {
  CAPTURE(how.name);
  CAPTURE(prompt_size);
  using Weights = cpu::DecoderWeights<double>;
  const auto target_weights = std::make_shared<const Weights>(
      cpu::random_decoder_weights<double>(target_config(how), 3, cpu::WeightType::bf16));
  const auto draft_weights = std::make_shared<const Weights>(
      cpu::random_decoder_weights<double>(draft_config(how), 5, cpu::WeightType::bf16,
                                          draft_config(how).borrows_embedding() ? target_weights : nullptr));
  cpu::Decoder<double> target(target_weights, {.capacity = 256}), draft(draft_weights, {.capacity = 256});
  EmulatedDevice device;
  Model on_device(device, *target_weights, {.capacity = 256, .prefill_chunk = 64, .features = true});
  const cuda::DeviceWeights shared = cuda::upload(device, *draft_weights, 256, &on_device.weights());
  Model draft_on_device(device, shared, {.capacity = 256, .prefill_chunk = 64});
  CHECK(draft_on_device.conditioned_on() == how.reads);
  CHECK(draft_on_device.keeps_speculation() == (how.reads == Conditioning::key_values && how.layers == 1));

  std::vector<Token> fresh = random_tokens(prompt_size, 7);
  double worst = 0;
  for (const int nodes : {9, 1, 12, 4}) {
    const auto round = [&](auto& target_model, auto& draft_model) {
      target_model.append(fresh);
      give_state(target_model, draft_model);
      draft_model.append(fresh);
    };
    round(target, draft), round(on_device, draft_on_device);
    const std::vector<Token> tokens = random_tokens(nodes, static_cast<std::uint64_t>(nodes));
    std::vector<NodeId> parents;
    for (int i = 0; i < nodes; ++i) parents.push_back(i == 0 || i == 5 ? kNoParent : (i - 1) / 2);
    // In two passes, of which the second's nodes are below the first's.
    const std::size_t first = std::min<std::size_t>(3, tokens.size());
    const auto pass = [&](std::size_t from, std::size_t count) {
      if (count == 0) return;
      const auto part = [&](const auto& all) { return std::span(all).subspan(from, count); };
      const LogitsView rows = draft_on_device.extend(part(tokens), part(parents));
      worst = std::max(worst, worst_row(rows, draft.extend(part(tokens), part(parents))));
    };
    pass(0, first), pass(first, tokens.size() - first);
    draft.commit({}), draft_on_device.commit({});
    fresh = random_tokens(nodes / 2 + 1, static_cast<std::uint64_t>(nodes + 50));
  }
  MESSAGE(std::string(how.name) << ": largest relative error of a row " << worst);
  CHECK(worst <= 2e-2);
  CHECK(worst > 0);
}

}  // namespace

TEST_CASE("rows are the reference's up to bfloat16") {
  const std::vector<Draft> all{
      {.name = "projected embedding", .layers = 2, .projects = true},
      {.name = "draft vocabulary", .vocab = 40, .projects = true},
      {.name = "feature head", .reads = Conditioning::features, .head_dim = 64},
      {.name = "feature head of two layers, draft vocabulary",
       .reads = Conditioning::features,
       .layers = 2,
       .vocab = 56},
      {.name = "GLIDE", .reads = Conditioning::key_values},
      {.name = "GLIDE of two layers, draft vocabulary, projected embedding",
       .reads = Conditioning::key_values,
       .layers = 2,
       .vocab = 64,
       .projects = true},
      {.name = "GLIDE over heads of 32, of another layer",
       .reads = Conditioning::key_values,
       .head_dim = 64,
       .target_head_dim = 32,
       .layers_read = {0}},
      {.name = "GLIDE over heads of 128", .reads = Conditioning::key_values, .target_head_dim = 128},
  };
  for (const Draft& draft : all)
    for (const int prompt : {1, 9, 90}) check_draft(draft, prompt);
}

TEST_CASE("what does not fit is refused, with a way out") {
  using Weights = cpu::DecoderWeights<float>;
  const auto target_weights =
      std::make_shared<const Weights>(cpu::random_decoder_weights<float>(small_config(3), 3));
  const auto draft_of = [&](const Draft& how) {
    return cpu::random_decoder_weights<float>(
        draft_config(how), 5, cpu::WeightType::bf16,
        draft_config(how).borrows_embedding() ? target_weights : nullptr);
  };
  const Weights head_weights = draft_of({.name = "head", .reads = Conditioning::features, .head_dim = 64}),
                glide_weights = draft_of({.name = "GLIDE", .reads = Conditioning::key_values});
  EmulatedDevice device, elsewhere;
  const cuda::ModelOptions options{.capacity = 64, .max_nodes = 8, .slots = 2, .features = true};
  Model target(device, *target_weights, options), other(device, *target_weights, options),
      far(elsewhere, *target_weights, options);
  Model small_target(device, *target_weights, {.capacity = 32, .max_nodes = 8, .features = true});
  Model head(device, head_weights, {.capacity = 64, .max_nodes = 8, .slots = 2}),
      glide(device, glide_weights, {.capacity = 64, .max_nodes = 8});
  const auto refused = [](auto call, const char* what) {
    CHECK_THROWS_WITH_AS(call(), what, std::invalid_argument);
  };
  const std::vector<Token> tokens{3, 4, 5};
  target.append(tokens), other.append(tokens), far.append(tokens), small_target.append(tokens);

  CHECK_THROWS_WITH_AS(head.append(tokens), "cuda::Model: the view of the target is empty: no model gave it",
                       std::logic_error);
  refused([&] { head.set_target_state(target.key_values()); },
          "cuda::Model::set_target_state: this model does not look at keys and values");
  refused([&] { target.set_target_state(target.features()); },
          "cuda::Model::set_target_state: this model does not look at features");
  refused([&] { head.set_target_state(1, target.features()); },
          "cuda::Model::set_target_state: a view of slot 0 for slot 1; on a device a draft's slot is its "
          "target's");
  refused([&] { head.set_target_state(far.features()); },
          "cuda::Model::set_target_state: the target is on another device");
  refused([&] { head.set_target_state(small_target.features()); },
          "cuda::Model::set_target_state: the target's capacity is 32, the draft's 64; make the draft's as "
          "small");
  Model as_small(device, head_weights, {.capacity = 32, .max_nodes = 8});
  as_small.set_target_state(small_target.features());
  as_small.append(tokens);

  head.set_target_state(target.features());
  CHECK_THROWS_WITH_AS(
      head.append(random_tokens(64, 1)),
      "cuda::Model: a draft's token at position 4, but its target has processed 3 tokens; bring the "
      "target there first",
      std::logic_error);
  head.truncate(0);
  target.append(random_tokens(60, 1));
  CHECK_THROWS_AS(head.append(tokens), std::logic_error);  // the view is stale
  head.set_target_state(target.features());
  head.append(random_tokens(63, 1));
  refused([&] { head.set_target_state(other.features()); },
          "cuda::Model::set_target_state: a draft on a device has one target for good");
  // Of GLIDE the target's shape is looked at when the first view is given.
  Model of_two_layers(device, cpu::random_decoder_weights<float>(small_config(2), 3), options);
  of_two_layers.append(tokens);
  refused([&] { glide.set_target_state(of_two_layers.key_values()); },
          "cuda: a draft made for a target with num_hidden_layers 3, given one with 2");
  glide.set_target_state(target.key_values());
  glide.append(tokens);
}
