// SPDX-License-Identifier: MIT
// Draws of texts in a batch: independent without a seed, and those of the text alone with one.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"

using namespace specula;
using specula_test::BatchModels;
using specula_test::write_all;
using specula_test::WrittenText;

namespace {

/// Every token is as likely as any other, whatever the context.
struct FlatBatch {
  std::vector<std::int32_t> sizes{0, 0};
  std::vector<float> rows = std::vector<float>(16 * 64);

  std::int32_t vocab_size() const { return 16; }
  std::int32_t slots() const { return 2; }
  std::int32_t size(std::int32_t slot) const { return sizes[static_cast<std::size_t>(slot)]; }
  std::int32_t capacity(std::int32_t) const { return 4096; }
  std::int32_t queued(std::int32_t) const { return 0; }
  std::int32_t chunk() const { return 64; }
  void append(std::int32_t slot, Tokens tokens) { grow(slot, tokens.size()); }
  LogitsView extend(std::span<const SlotNodes> nodes) {
    std::int32_t count = 0;
    for (const SlotNodes& slot_nodes : nodes) count += static_cast<std::int32_t>(slot_nodes.tokens.size());
    return {rows.data(), count, 16, 16};
  }
  void commit(std::int32_t slot, Nodes path) { grow(slot, path.size()); }
  void truncate(std::int32_t slot, std::int32_t n) { sizes[static_cast<std::size_t>(slot)] = n; }
  void grow(std::int32_t slot, std::size_t n) {
    sizes[static_cast<std::size_t>(slot)] += static_cast<std::int32_t>(n);
  }
};

/// Texts of these requests, in two slots.
std::vector<std::vector<Token>> write(const std::vector<TextRequest>& requests) {
  BatchModels<> models(2);
  BatchSpeculator batch(2, models.each(Sampling{}, Chain<Draw::sampled>{.length = 2}), models.draft,
                        models.target);
  for (const TextRequest& request : requests) batch.join(request);
  std::vector<std::vector<Token>> texts;
  for (const auto& [id, text] : write_all(batch)) texts.push_back(text.tokens);
  return texts;
}
const TextRequest kHot{.prompt = {1, 2, 3}, .max_new_tokens = 40, .params = {.temperature = 1}};

}  // namespace

TEST_CASE("different texts without a seed draw independently") {
  FlatBatch model;
  std::vector<SlotOf<FlatBatch>> slots{{model, 0}, {model, 1}};
  BatchSpeculator batch(
      2,
      [&](std::int32_t s) {
        return Speculator{TreeVerifier{slots[static_cast<std::size_t>(s)], Sampling{}}, NoDrafter{16},
                          Chain<>{.length = 0}};
      },
      model);
  for (const Token t : {1, 4})
    batch.join({.prompt = {t}, .max_new_tokens = 1000, .params = {.temperature = 1}});
  const auto texts = write_all(batch);
  int same = 0;
  for (std::size_t i = 0; i < 1000; ++i) same += texts.at(1).tokens[i] == texts.at(2).tokens[i];
  CHECK(same > 62 - 40);  // a sixteenth; five standard deviations are 38
  CHECK(same < 62 + 40);
}

TEST_CASE("equal prompts without a seed give different texts, and the same ones once more") {
  const std::vector<TextRequest> eight(8, kHot);
  const auto texts = write(eight);
  CHECK(std::set(texts.begin(), texts.end()).size() == 8);
  CHECK(write(eight) == texts);
}

TEST_CASE("a seed gives the text alone, whatever its number; a sequence alone is of seed 0") {
  TextRequest seeded = kHot, second = kHot, unseeded = kHot;
  seeded.seed = 7;
  second.seed = 7, second.sequence = 1;
  unseeded.sequence = 2;
  const auto texts = write({kHot, seeded, seeded, second, unseeded});
  const auto alone = [](TextRequest request, std::uint64_t seed, std::uint32_t sequence) {
    request.seed = seed, request.sequence = sequence;
    return specula_test::written_alone(request, Sampling{}, Chain<Draw::sampled>{.length = 2}).tokens;
  };
  CHECK(texts[0] == alone(kHot, 0, 1));  // its number
  CHECK(texts[1] == alone(kHot, 7, 0));
  CHECK(texts[2] == texts[1]);
  CHECK(texts[3] == alone(kHot, 7, 1));
  CHECK(texts[4] == alone(kHot, 0, 2));
}
