// SPDX-License-Identifier: MIT
// labels: optimised
// cuda::Model: many texts, trees that move, bad input, a device that fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>

#include "relative_error.hpp"
#include "small_model.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula::kNoParent;
using specula::NodeId;
using specula::SlotNodes;
using specula_test::EmulatedDevice;
using specula_test::relative_error;
using Padded = cuda::Model<EmulatedDevice>;
using Free = cuda::Model<EmulatedDevice, cuda::FreeProducts>;

static_assert(specula::LanguageModel<Padded> && specula::CountsChanges<Padded>);
static_assert(specula::BatchedLanguageModel<Padded> && specula::CountsChanges<specula::SlotOf<Padded>>);
static_assert(Padded::kBatchInvariant && !Free::kBatchInvariant);
static_assert(specula::ExposesFeatures<Padded> && specula::ExposesFeatures<specula::SlotOf<Padded>>);
static_assert(specula::ExposesKeyValues<Padded> && specula::ExposesKeyValues<specula::SlotOf<Padded>>);

namespace {

/// A round of a text: its tree, and the path that is committed.
struct Round {
  std::vector<Token> tokens;
  std::vector<NodeId> parents, path;
  int truncate = 0;  // so many tokens less after it
};
std::vector<Round> random_rounds(std::uint64_t seed, int count) {
  specula_test::Random random(seed);
  std::vector<Round> out;
  for (int r = 0; r < count; ++r) {
    Round round;
    const int n = 1 + random.below(12);
    for (int i = 0; i < n; ++i) {
      round.tokens.push_back(random.below(kVocab));
      round.parents.push_back(i == 0 ? kNoParent : random.below(i + 1) - 1);
    }
    for (NodeId at = random.below(n); at != kNoParent; at = round.parents[static_cast<std::size_t>(at)])
      round.path.insert(round.path.begin(), at);
    round.truncate = random.below(4) == 0 ? 1 : 0;
    out.push_back(round);
  }
  return out;
}

}  // namespace

TEST_CASE("a text in a batch has the bits that it has alone") {
  const auto weights = small_weights();
  // Prompts: one waits for the nodes, one has passes of its own, one has both.
  const std::vector<std::vector<Token>> prompts{random_tokens(5, 11), random_tokens(128, 12),
                                                random_tokens(75, 13)};
  constexpr int kRounds = 5;
  std::vector<std::vector<Round>> rounds;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) rounds.push_back(random_rounds(seed, kRounds));

  for (const bool hopper : {false, true}) {
    CAPTURE(hopper);
    std::vector<std::vector<Row>> alone;
    for (std::size_t b = 0; b < prompts.size(); ++b) {
      EmulatedDevice device;
      device.hopper = hopper, device.order_depends_on_rows = true;
      Padded model(device, weights, {.capacity = 256, .prefill_chunk = 64});
      model.append(prompts[b]);
      std::vector<Row>& rows = alone.emplace_back();
      for (const Round& round : rounds[b]) {
        const LogitsView view = model.extend(round.tokens, round.parents);
        for (int i = 0; i < view.rows; ++i) rows.push_back(row_of(view, i));
        model.commit(round.path);
        if (round.truncate > 0) model.truncate(model.size() - 1);
      }
    }
    EmulatedDevice device;
    device.hopper = hopper, device.order_depends_on_rows = true;
    Padded model(device, weights,
                 {.capacity = 256, .max_nodes = 16, .slots = 4, .prefill_chunk = 64, .height = 64});
    std::vector<std::vector<Row>> together(prompts.size());
    for (std::size_t b = 0; b < prompts.size(); ++b) {
      model.append(static_cast<std::int32_t>(b + 1), prompts[b]);
      CHECK(model.queued(static_cast<std::int32_t>(b + 1)) == static_cast<std::int32_t>(prompts[b].size()));
    }
    // A chunk of one prompt at a time, as a driver has it.
    const SlotNodes only{2, {}, {}};
    model.extend(std::span(&only, 1));
    CHECK(model.queued(2) == 64);
    for (int r = 0; r < kRounds; ++r) {
      std::vector<SlotNodes> nodes;  // not in the order of the slots
      for (const std::size_t b : {std::size_t{2}, std::size_t{0}, std::size_t{1}})
        nodes.push_back({static_cast<std::int32_t>(b + 1), rounds[b][static_cast<std::size_t>(r)].tokens,
                         rounds[b][static_cast<std::size_t>(r)].parents});
      const LogitsView view = model.extend(nodes);
      int at = 0;
      for (const SlotNodes& slot_nodes : nodes) {
        const auto b = static_cast<std::size_t>(slot_nodes.slot - 1);
        for (std::size_t i = 0; i < slot_nodes.tokens.size(); ++i) together[b].push_back(row_of(view, at++));
        model.commit(slot_nodes.slot, rounds[b][static_cast<std::size_t>(r)].path);
        if (rounds[b][static_cast<std::size_t>(r)].truncate > 0)
          model.truncate(slot_nodes.slot, model.size(slot_nodes.slot) - 1);
      }
    }
    for (std::size_t b = 0; b < prompts.size(); ++b) {
      REQUIRE(together[b].size() == alone[b].size());
      for (std::size_t i = 0; i < alone[b].size(); ++i) CHECK(same_bits(together[b][i], alone[b][i]));
    }
  }
}

TEST_CASE("trees whose paths move, in many passes and in few, against the reference") {
  const auto weights = std::make_shared<const cpu::DecoderWeights<double>>(
      cpu::random_decoder_weights<double>(small_config(), 3, cpu::WeightType::bf16));
  cpu::Decoder<double> reference(weights, {.capacity = 512, .max_nodes = 128});
  EmulatedDevice device;
  // 100 nodes are two passes of 64 rows.
  Padded model(device, *weights, {.capacity = 512, .max_nodes = 128, .height = 64, .features = true});
  const auto prompt = random_tokens(30, 4);
  reference.append(prompt), model.append(prompt);
  specula_test::Random random(5);
  for (const int n : {7, 100, 12, 64, 65, 3}) {
    CAPTURE(n);
    Round round = random_rounds(static_cast<std::uint64_t>(100 + n), 1)[0];
    round.tokens.clear(), round.parents.clear(), round.path.clear();
    for (int i = 0; i < n; ++i) {
      round.tokens.push_back(random.below(kVocab));
      round.parents.push_back(i == 0 ? kNoParent : random.below(i + 1) - 1);
    }
    for (NodeId at = n - 1; at != kNoParent; at = round.parents[static_cast<std::size_t>(at)])
      round.path.insert(round.path.begin(), at);
    const LogitsView rows = model.extend(round.tokens, round.parents),
                     expected = reference.extend(round.tokens, round.parents);
    for (int i = 0; i < n; ++i) CHECK(relative_error(rows.row(i), expected.row(i)) < 1.5e-2);
    model.commit(round.path), reference.commit(round.path);
    if (n == 12) model.truncate(model.size() - 3), reference.truncate(reference.size() - 3);
    CHECK(model.size() == reference.size());
  }
  // What the slots keep is that of the committed tokens.
  const cuda::DeviceFeatures<Padded::Decoder> features = model.features();
  const auto expected = reference.features();
  REQUIRE(features.size() == expected.size());
  REQUIRE(features.width() == expected.width());
  for (int i = 0; i < features.size(); ++i) {
    std::vector<float> got, want;
    for (int k = 0; k < features.width(); ++k) {
      got.push_back(cuda::detail::to_float(features.row(i)[k]));
      want.push_back(static_cast<float>(expected.row(i)[static_cast<std::size_t>(k)]));
    }
    CHECK(relative_error(got, want) < 1.5e-2);
  }
  const auto keys = model.key_values();
  CHECK(keys.size() == model.size());
  CHECK(keys.slot() == 0);
  CHECK(keys.layer(1).k.data != keys.layer(0).k.data);
  CHECK_THROWS_WITH_AS(keys.layer(2), "DeviceKeyValues: layer 2, must be 0 to 1", std::invalid_argument);
  CHECK_THROWS_WITH_AS(features.row(features.size()),
                       ("DeviceFeatures::row: row " + std::to_string(features.size()) + ", must be in [0, " +
                        std::to_string(features.size()) + ")")
                           .c_str(),
                       std::invalid_argument);
  model.truncate(3);
  CHECK_THROWS_AS(features.size(), std::logic_error);
  CHECK_THROWS_AS(keys.layer(0), std::logic_error);
}

TEST_CASE("bad input is an error that names it, and changes nothing") {
  const auto weights = small_weights(1);
  EmulatedDevice device;
  Padded model(device, weights, {.capacity = 20, .max_nodes = 6, .slots = 2});
  const std::vector<Token> three{1, 2, 3}, bad{1, kVocab}, negative{-1};
  const std::vector<NodeId> under{kNoParent, 0, 1}, later{kNoParent, 4, 1}, two{kNoParent, 0};
  model.append(three);
  model.extend(three, under);
  const auto changes = model.change_count();
  const auto refused = [&](auto call, const char* what) {
    CHECK_THROWS_WITH_AS(call(), what, std::invalid_argument);
    CHECK(model.change_count() == changes);
    CHECK(model.size() == 3);
  };
  refused([&] { model.append(bad); }, "cuda::Model::append: token 200, must be 0 to 199");
  refused([&] { model.extend(negative, std::span(under).first(1)); },
          "cuda::Model::extend: token -1, must be 0 to 199");
  refused([&] { model.extend(three, two); }, "cuda::Model::extend: 3 tokens and 2 parents");
  refused([&] { model.extend(three, later); },
          "cuda::Model::extend: parent 4 of node 4, must be an earlier node or kNoParent");
  refused([&] { model.extend(std::vector<Token>(4, 1), std::vector<NodeId>(4, kNoParent)); },
          "cuda::Model::extend: 3 nodes and 4 more, but max_nodes is 6");
  refused([&] { model.append(std::vector<Token>(18, 1)); },
          "cuda::Model::append: the context is full: 3 of capacity 20 tokens in use, 18 more asked for");
  refused([&] { model.commit(std::vector<NodeId>{1}); },
          "cuda::Model::commit: node 1 is no child of the context, must be a path from the context down");
  refused(
      [&] {
        model.commit(std::vector<NodeId>{0, 2});
      },
      "cuda::Model::commit: node 2 is no child of node 0, must be a path from the context down");
  refused([&] { model.commit(std::vector<NodeId>{7}); }, "cuda::Model::commit: node 7, must be 0 to 2");
  refused([&] { model.truncate(4); }, "cuda::Model::truncate: to 4 tokens, must be 0 to 3");
  refused([&] { model.size(2); }, "cuda::Model::slot 2, must be 0 to 1");
  const SlotNodes twice[] = {{1, three, under}, {1, three, under}};
  refused([&] { model.extend(twice); }, "cuda::Model::extend: slot 1 is named twice");
  CHECK_THROWS_WITH_AS(model.features(), "cuda::Model::features: ModelOptions::features is false",
                       std::logic_error);
  // The nodes are still there.
  model.commit(std::vector<NodeId>{0, 1, 2});
  CHECK(model.size() == 6);
  model.append(std::vector<Token>(14, 1));
  CHECK_THROWS_AS(model.extend(negative, std::span(under).first(1)), std::invalid_argument);

  CHECK_THROWS_WITH_AS(Padded(device, model.weights(), {.capacity = 21}),
                       "ModelOptions::capacity is 21, the weights were uploaded for 20 positions",
                       std::invalid_argument);
}

TEST_CASE("models that are not built for a device are refused by name") {
  EmulatedDevice device;
  const auto refused = [&](cpu::DecoderConfig config, const char* what) {
    CHECK_THROWS_WITH_AS(cuda::detail::device_head_size(config), what, std::invalid_argument);
  };
  auto config = small_config();
  config.head_dim = 130;
  refused(config, "cuda: head_dim is 130, attention is built for up to 128");
  config = small_config(), config.hidden_size = 100;
  refused(config, "cuda: hidden_size is 100, expected a multiple of 8");
  config = small_config(), config.intermediate_size = 164;
  refused(config, "cuda: intermediate_size is 164, expected a multiple of 8");
  config = small_config(), config.target_hidden_size = 9;
  refused(config, "cuda: target_hidden_size is 9, expected a multiple of 8");
  config = small_config(), config.target.head_dim = 256;
  refused(config, "cuda: head_dim is 256, attention is built for up to 128");
  config = small_config(), config.conditioned_on = specula::Conditioning::features,
  config.feature_layers = {1};
  refused(config,
          "cuda: a head that reads hidden states after layers of its target does not run on a device yet; "
          "cpu::Decoder runs it");
}

TEST_CASE("what memory is missing is said before a weight is copied") {
  const auto weights = small_weights();
  const cuda::ModelOptions options{.capacity = 100, .slots = 2, .features = true};
  const std::size_t needed = Padded::bytes(weights.config, options);
  EmulatedDevice device;
  device.memory = needed - 1;
  CHECK_THROWS_WITH_AS(
      Padded(device, weights, options),
      ("cuda::Model: needs " + std::to_string(needed) + " bytes of the device's memory, of which " +
       std::to_string(needed - 1) + " are free; a smaller ModelOptions::capacity or fewer slots need less")
          .c_str(),
      std::runtime_error);
  CHECK(device.used_bytes() == 0);
  device.memory = needed;
  const Padded model(device, weights, options);
  CHECK(device.used_bytes() <= needed);
  CHECK(static_cast<double>(device.used_bytes()) > 0.99 * static_cast<double>(needed));
}

TEST_CASE("after an error of the device the text stays, and every call says the first error") {
  const auto weights = small_weights(1);
  const std::vector<Token> three{1, 2, 3};
  const std::vector<NodeId> under{kNoParent, 0, 0}, path{0, 2};
  for (int failing = 0;; ++failing) {
    CAPTURE(failing);
    EmulatedDevice device;
    Padded model(device, weights, {.capacity = 200});
    device.failing_launch = failing;
    std::int32_t size = 0;
    const auto rounds = [&] {
      model.append(std::vector<Token>(70, 1)), size = 70;
      for (int i = 0; i < 2; ++i) {
        model.extend(three, under);
        model.commit(path), size += 2;
      }
    };
    try {
      rounds();
      CHECK(failing > 20);
      break;
    } catch (const cuda::DeviceError& error) {
      CHECK(std::string(error.what()) == "the emulated device fails");
    }
    CHECK(model.size() == std::max(size, 70));
    const std::int32_t before = model.size();
    CHECK_THROWS_WITH_AS(model.append(three), "the emulated device fails", cuda::DeviceError);
    CHECK(model.size() == before);
    for (int again = 0; again < 2; ++again)
      CHECK_THROWS_WITH_AS(model.extend(three, under), "the emulated device fails", cuda::DeviceError);
    CHECK_THROWS_WITH_AS(model.key_values(), "the emulated device fails", cuda::DeviceError);
    model.truncate(0);  // needs no device
  }
}

TEST_CASE("a model that cannot be made, and one that ends, give their memory back") {
  const auto weights = small_weights(1);
  const std::vector<Token> three{1, 2, 3};
  const std::vector<NodeId> under{kNoParent, 0, 0};
  EmulatedDevice device;
  const auto make = [&](std::size_t nodes) {
    Padded model(device, weights, {.capacity = 100});
    model.extend(std::span(three).first(1), std::span(under).first(1));
    model.extend(std::span(three).first(nodes), std::span(under).first(nodes));  // more rows than before
  };
  make(3);
  CHECK(device.held() == 0);
  const Padded lasting(device, weights, {.capacity = 50});
  const int held = device.held(), needed = static_cast<int>(device.allocations());
  for (int failing = needed; failing < 2 * needed; ++failing) {
    device.failing_allocation = static_cast<int>(device.allocations()) + failing - needed;
    try {
      make(3);
    } catch (const cuda::DeviceError&) {
    }
    CHECK(device.held() == held);
  }
  device.failing_allocation = -1;
  Padded sharing(device, lasting.weights(), {.capacity = 50});
  CHECK(device.held() > held);
}
