// SPDX-License-Identifier: MIT
// Which tokens share a pass: counted by launches, of prompts, nodes and several texts.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/detail/device_passes.hpp>

#include "emulated_device.hpp"

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
using specula::kNoParent;
using specula::NodeId;
using specula::SlotNodes;
using specula::Token;
using specula_test::EmulatedDevice;

namespace {

struct Scene {
  EmulatedDevice device;
  cuda::ModelOptions options;
  cuda::DeviceWeights weights;
  cuda::DeviceDecoder<EmulatedDevice> decoder;
  cuda::detail::DeviceTexts texts;
  cuda::detail::DevicePasses<EmulatedDevice, cuda::PaddedProducts> passes;
  std::vector<float> rows;

  explicit Scene(const cuda::ModelOptions& given)
      : options(cuda::detail::checked(given)),
        weights(cuda::upload(device, cpu::random_decoder_weights<float>(config(), 1), options.capacity)),
        decoder(device, weights, options.slots, options.capacity, decltype(passes)::most(options),
                options.height, false),
        texts(options, weights.vocab),
        passes(device, decoder, texts, options),
        rows(200u * static_cast<std::size_t>(weights.vocab)) {}
  static cpu::DecoderConfig config() {
    cpu::DecoderConfig out;
    out.heads = 1, out.kv_heads = 1, out.head_dim = 64, out.layers = 1, out.tied_head = true;
    out.vocab_size = 16, out.hidden_size = 16, out.intermediate_size = 16;
    return out;
  }
  /// Launches of passes with rows and without that a call needs, and how often it waits.
  struct Count {
    int launches, waits;
  };
  template <class F>
  Count count(F call) {
    const int launches = device.launches, waits = device.waits;
    call();
    return {device.launches - launches, device.waits - waits};
  }
};
constexpr int kWithRows = 11, kWithout = 9;

}  // namespace

TEST_CASE("few waiting tokens run with the nodes, many in chunks before them") {
  Scene scene({.capacity = 400, .prefill_chunk = 100});
  const std::vector<Token> one{1};
  const std::vector<NodeId> root{kNoParent};
  const SlotNodes nodes{0, one, root};
  scene.texts.append(0, std::vector<Token>(63, 1));
  auto count = scene.count([&] { scene.passes.extend(std::span(&nodes, 1), scene.rows.data()); });
  CHECK(count.launches == kWithRows);
  CHECK(count.waits == 1);
  CHECK(scene.texts[0].ran == 63);
  // 230: chunks of 100, 100, and 30 with the node.
  scene.texts.append(0, std::vector<Token>(230, 1));
  count = scene.count([&] { scene.passes.extend(std::span(&nodes, 1), scene.rows.data()); });
  CHECK(count.launches == 2 * kWithout + kWithRows);
  CHECK(count.waits == 3);
  CHECK(scene.texts[0].ran == 293);
}

TEST_CASE("a text without nodes runs one chunk, others do not wait for its rest") {
  Scene scene({.capacity = 400, .slots = 2, .prefill_chunk = 80});
  const std::vector<Token> one{1};
  const std::vector<NodeId> root{kNoParent};
  scene.texts.append(0, std::vector<Token>(170, 1));
  const SlotNodes nodes[] = {{0, {}, {}}, {1, one, root}};
  for (const int left : {90, 10, 0}) {
    const auto count = scene.count([&] { scene.passes.extend(nodes, scene.rows.data()); });
    CHECK(scene.texts[0].waiting() == left);
    CHECK(count.launches == (left > 0 ? kWithout : 0) + kWithRows);
    scene.texts.truncate(1, 0);
  }
  // Chunks below 64 are chunks as well.
  Scene narrow({.capacity = 400, .prefill_chunk = 20});
  narrow.texts.append(0, std::vector<Token>(50, 1));
  const SlotNodes none{0, {}, {}};
  for (const int left : {30, 10, 0}) {
    narrow.passes.extend(std::span(&none, 1), nullptr);
    CHECK(narrow.texts[0].waiting() == left);
  }
}

TEST_CASE("nodes beyond the height take several passes, and a moved path one launch before the next") {
  Scene scene({.capacity = 400, .max_nodes = 150, .height = 64});
  const std::vector<Token> tokens(150, 1);
  std::vector<NodeId> parents;
  for (int i = 0; i < 150; ++i) parents.push_back(i == 0 ? kNoParent : 0);
  const SlotNodes nodes{0, tokens, parents};
  const auto count = scene.count([&] { scene.passes.extend(std::span(&nodes, 1), scene.rows.data()); });
  CHECK(count.launches == 3 * kWithRows);
  CHECK(count.waits == 3);
  scene.texts.commit(0, std::vector<NodeId>{0, 149});
  CHECK(scene.count([&] { scene.passes.flush(0); }).launches == 1);
  CHECK(scene.count([&] { scene.passes.flush(0); }).launches == 0);
}
