// SPDX-License-Identifier: MIT
// labels: threads
// Decoders over the blocks of GGUF files, of each type: near the exact model, the same bits for any batch,
// tree, number of threads and slots, and with or without VNNI.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "block_model.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "thread_sanitizer.hpp"

namespace {

using namespace specula;
using namespace specula::cpu;
using namespace specula::files;
using specula_test::BlockModel;
using specula_test::BlockSizes;
using specula_test::kBlockTypes;
using specula_test::Random;

template <class Real>
using Weights = std::shared_ptr<const DecoderWeights<Real>>;

/// A context, and a tree below it.
struct Text {
  std::vector<Token> context, tokens;
  std::vector<NodeId> parents{kNoParent, 0, 0, 1, 1, 4, kNoParent, 6};

  explicit Text(std::uint64_t seed, std::int32_t length = 21) {
    Random random(seed);
    for (std::int32_t i = 0; i < length; ++i) context.push_back(random.below(48));
    for (std::size_t i = 0; i < parents.size(); ++i) tokens.push_back(random.below(48));
  }
};

template <class Real>
std::vector<Real> rows_of(Decoder<Real>& model, std::int32_t count) {
  std::vector<Real> out;
  for (std::int32_t i = 0; i < count; ++i)
    out.insert(out.end(), model.logits(i).begin(), model.logits(i).end());
  return out;
}

/// The rows of the tree.
template <class Real>
std::vector<Real> rows(const Weights<Real>& weights, const Text& text, DecoderOptions options = {}) {
  options.capacity = 64;
  Decoder<Real> model(weights, options);
  model.append(text.context);
  model.extend(text.tokens, text.parents);
  return rows_of(model, static_cast<std::int32_t>(text.tokens.size()));
}

/// The mean distance of the tokens' distributions.
double distance(const std::vector<float>& a, const std::vector<double>& b) {
  constexpr std::size_t kVocab = 48;
  double total = a.size() == b.size() ? 0 : NAN;
  for (std::size_t r = 0; r < a.size(); r += kVocab) {
    double sums[2] = {};
    for (std::size_t i = r; i < r + kVocab; ++i) sums[0] += std::exp(double{a[i]}), sums[1] += std::exp(b[i]);
    for (std::size_t i = r; i < r + kVocab; ++i)
      total += std::abs(std::exp(double{a[i]}) / sums[0] - std::exp(b[i]) / sums[1]) / 2;
  }
  return total / static_cast<double>(a.size() / kVocab);
}

/// llama.cpp's mixture.
BlockModel mixture() {
  BlockSizes sizes;
  sizes.tied = false;
  return {sizes, [](const std::string& name) {
            const bool more =
                name == "lm_head" || name.ends_with("v_proj") || name == "model.layers.1.mlp.down_proj";
            return more ? GgufId::q6_k : GgufId::q4_k;
          }};
}

const std::vector<BlockModel>& models() {
  static const std::vector<BlockModel> all = [] {
    std::vector<BlockModel> out;
    for (const GgufId type : kBlockTypes) out.emplace_back(type);
    out.push_back(mixture());
    return out;
  }();
  return all;
}

std::vector<Isa> isas() {
  std::vector<Isa> out{Isa::portable};
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (supported(isa)) out.push_back(isa);
  return out;
}

}  // namespace

UNTHREADED_TEST_CASE("16 bits of inputs are near the exact model, 8 bits are farther, on all instructions") {
  for (const BlockModel& model : models()) {
    CAPTURE(specula_test::about(model.matrices.back().type).name);
    const Text text(1);
    const auto exact = rows(model.weights<double>(), text);
    const auto weights = model.weights<float>();
    for (const Isa isa : isas()) {
      CAPTURE(static_cast<int>(isa));
      const auto of = [&](Inputs inputs, CacheType cache = CacheType::full) {
        return rows(weights, text, {.isa = isa, .inputs = inputs, .cache = cache});
      };
      const auto wide = of(Inputs::int16);
      const double far = distance(of(Inputs::int8), exact);
      CHECK(distance(wide, exact) < 1e-4);
      CHECK(distance(of(Inputs::int16, CacheType::half), exact) < 1e-3);
      CHECK(far > 5e-4);
      CHECK(far < 0.05);
      CHECK(of(Inputs::full) == wide);
    }
  }
}

UNTHREADED_TEST_CASE("with or without VNNI: the same bits") {
  for (const BlockModel& model : models()) {
    const Text text(2);
    const auto weights = model.weights<float>();
    for (const Isa isa : isas())
      for (const Inputs inputs : {Inputs::int16, Inputs::int8}) {
        CAPTURE(static_cast<int>(isa));
        CHECK(rows(weights, text, {.isa = isa, .inputs = inputs, .vnni = true}) ==
              rows(weights, text, {.isa = isa, .inputs = inputs, .vnni = false}));
      }
  }
}

UNTHREADED_TEST_CASE("a node of a tree has the bits of its path, token by token") {
  for (const BlockModel& model : models()) {
    const Text text(3, 9);
    const auto weights = model.weights<float>();
    for (const Isa isa : isas())
      for (const Inputs inputs : {Inputs::int16, Inputs::int8}) {
        const DecoderOptions options{.capacity = 64, .prefill_chunk = 5, .isa = isa, .inputs = inputs};
        const auto all = rows(weights, text, options);
        Decoder<float> single(weights, options);
        const NodeId root = kNoParent, first = 0;
        const auto run = [&](Token token) {
          single.extend({&token, 1}, {&root, 1});
          single.commit({&first, 1});
        };
        for (const Token token : text.context) run(token);
        const std::int32_t before = single.size();
        bool same = true;
        for (NodeId node = 0; node < static_cast<NodeId>(text.parents.size()); ++node) {
          single.truncate(before);
          std::vector<Token> path;
          for (NodeId n = node; n != kNoParent; n = text.parents[static_cast<std::size_t>(n)])
            path.insert(path.begin(), text.tokens[static_cast<std::size_t>(n)]);
          for (const Token token : path) run(token);
          same =
              same && std::equal(single.logits(0).begin(), single.logits(0).end(), all.begin() + node * 48);
        }
        CAPTURE(static_cast<int>(isa));
        CAPTURE(static_cast<int>(inputs));
        CHECK(same);
      }
  }
}

UNTHREADED_TEST_CASE("a prompt at once, in chunks of any size, or token by token: the same bits") {
  for (const GgufId type : {GgufId::q4_0, GgufId::q4_1, GgufId::q6_k}) {
    const BlockModel model(type);
    const auto weights = model.weights<float>();
    const Text text(7, 150);
    for (const Isa isa : isas())
      for (const CacheType cache : {CacheType::full, CacheType::half}) {
        const auto of = [&](std::int32_t chunk) {
          Decoder<float> decoder(weights,
                                 {.capacity = 192, .prefill_chunk = chunk, .isa = isa, .cache = cache});
          decoder.append(text.context);
          decoder.extend(text.tokens, text.parents);
          return rows_of(decoder, 8);
        };
        const auto once = of(150);
        CAPTURE(static_cast<int>(type));
        CAPTURE(static_cast<int>(isa));
        for (const std::int32_t chunk : {1, 7, 11, 12, 13, 33, 64, 100, 128}) CHECK(of(chunk) == once);
      }
  }
}

TEST_CASE("any number of threads, and texts beside it in a pass: the same bits") {
  for (const GgufId type : {GgufId::q4_1, GgufId::q6_k}) {
    const BlockModel model(type);
    const auto weights = model.weights<float>();
    const Text texts[] = {Text(4), Text(5, 3), Text(6, 40)};
    for (const std::int32_t threads : {1, 3}) {
      Decoder<float> batch(weights, {.capacity = 64, .slots = 3, .threads = threads});
      std::vector<SlotNodes> nodes;
      for (std::int32_t s = 0; s < 3; ++s) {
        const Text& text = texts[s];
        batch.append(s, text.context);
        nodes.push_back({s, text.tokens, text.parents});
      }
      const LogitsView got = batch.extend(nodes);
      REQUIRE(got.rows == 24);
      for (std::int32_t s = 0; s < 3; ++s) {
        const auto want = rows(weights, texts[s]);
        CHECK(rows(weights, texts[s], {.threads = threads}) == want);
        for (std::int32_t i = 0; i < 8; ++i)
          CHECK(std::equal(got.row(8 * s + i).begin(), got.row(8 * s + i).end(), want.begin() + i * 48));
      }
    }
  }
}
