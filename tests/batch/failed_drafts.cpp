// SPDX-License-Identifier: MIT
// Stats::failed_drafts in a batch: a text whose draft fails counts once, and the others and the next in its
// slot do not.
#include <specula/batch.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <specula/specula.hpp>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;

namespace {

/// Eight texts, three at once; `spoil` is given the target and the draft, whose pass `at` is to fail. Returns
/// the texts whose drafting ended.
template <class Spoil>
std::vector<TextId> failed(std::int64_t at, std::vector<std::vector<Token>>& tokens, Spoil spoil) {
  ToyBatch target(3, 6, 1), draft(3, 6, 2);
  std::vector<SlotOf<ToyBatch>> targets, drafts;
  for (std::int32_t s = 0; s < 3; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  BatchSpeculator batch(
      3,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{targets[s], SampleAndMatch{}}, ModelDrafter{drafts[s]},
                          Chain<>{.length = 2}};
      },
      draft, target);
  spoil(target, draft, at);
  for (Token t = 0; t < 8; ++t)
    batch.join({.prompt = {t % 6, 1, 2},
                .max_new_tokens = 6 + 2 * t,
                .seed = 7,
                .sequence = static_cast<std::uint32_t>(t)});
  tokens.assign(9, {});
  std::vector<TextId> out;
  int repeats = 0;
  while (!batch.empty()) {
    try {
      for (const TextResult& text : batch.step()) {
        CHECK_FALSE(text.failure);
        CHECK(text.stats.failed_drafts <= 1);
        CHECK(text.stats.proposed + text.stats.failed_drafts > 0);
        tokens[text.id] = text.tokens;
        if (text.stats.failed_drafts == 1) out.push_back(text.id);
      }
    } catch (const std::runtime_error&) {  // of the target's pass: the round is repeated
      REQUIRE(++repeats == 1);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a failed pass of the draft counts once for each text that waited for it, a bad row for its text") {
  std::vector<std::vector<Token>> want, tokens;
  const auto nothing = [](ToyBatch&, ToyBatch&, std::int64_t) {};
  CHECK(failed(0, want, nothing).empty());
  for (std::int64_t at = 3; at <= 20; ++at) {
    CAPTURE(at);
    const auto passes = failed(at, tokens, [](ToyBatch&, ToyBatch& d, std::int64_t p) { d.throw_pass = p; });
    CHECK(passes.size() >= 1);
    CHECK(passes.size() <= 3);
    CHECK(tokens == want);
    const auto rows = failed(at, tokens, [](ToyBatch&, ToyBatch& d, std::int64_t p) {
      d.poison_pass = p, d.poison_slot = static_cast<std::int32_t>(p % 3);
    });
    CHECK(rows.size() <= 1);
    CHECK(tokens == want);
    // Where the target's pass fails in the same text, and the round is run again.
    const auto both = failed(at, tokens, [](ToyBatch& t, ToyBatch& d, std::int64_t p) {
      d.throw_pass = p, t.throw_pass = p / 2 + 1;
    });
    CHECK(both.size() <= 3);
    CHECK(tokens == want);
  }
}
