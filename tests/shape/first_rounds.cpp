// SPDX-License-Identifier: MIT
// labels: optimised
// CostAware and Either in the first rounds of a first text: what learning costs, over what drafts, copies and
// machines can be. Each text is written by an object that knows nothing.
#include "first_rounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <specula/specula.hpp>

using namespace specula;
using namespace specula_test;
using namespace specula_test::first_rounds;

namespace {

/// T(n): nodes that cost little, SmolLM2 in blocks on AVX-512, nodes that cost much, and tiles of four rows.
const std::vector<std::vector<double>> kCurves = {
    {1, 1.0, 1.03, 1.05, 1.06, 1.07, 1.09, 1.1, 1.12},
    {1, 1.12, 1.21, 1.23, 1.39, 1.48, 1.55, 1.62, 1.9, 2.0, 2.1},
    {1, 1.3, 1.5, 1.7, 1.95, 2.2, 2.4, 2.6, 2.9, 3.1, 3.4},
    {1, 1.5, 1.5, 1.5, 2.2, 2.2, 2.2, 2.2, 3, 3, 3}};

constexpr int kReplays = 16;

/// Speeds over all cells.
struct Speeds {
  double least = 1e9, mean = 0, of_best = 0;  // of plain; of plain; of the best fixed chain
  int cells = 0;
};

template <With with, class S>
Speeds speeds(const S& shape, const std::vector<double>& copied, double jitter, std::int32_t tokens) {
  Speeds out;
  for (const std::vector<double>& target : kCurves)
    for (const double draft : {0.02, 0.06, 0.2})
      for (const double drafted : {0.05, 0.15, 0.3, 0.5, 0.9})
        for (const double copies : copied)
          for (const bool sure : {false, true}) {
            Start start;
            start.target = target, start.draft = draft, start.drafted = drafted, start.copied = copies;
            start.found = copies == 0 ? 1.0 : 0.6, start.jitter = jitter, start.tokens = tokens;
            start.sure = sure, start.unit = out.cells % 2 ? 0.0003 : 0.03;
            start.spikes = jitter > 0 ? 0.005 : 0.0;
            double written = 0, spent = 0, best = 1e9;
            for (std::uint64_t seed = 1; seed <= kReplays; ++seed) {
              const Record record = write<with>(start, shape, seed);
              written += record.tokens, spent += record.spent;
            }
            for (std::int32_t length = 0; length <= kLongest; ++length)
              for (const bool copying : {false, true}) {
                if (copying && with == With::draft) continue;
                double time = 0;
                for (std::uint64_t seed = 1; seed <= kReplays; ++seed)
                  time += fixed(start, copying, length, seed);
                best = std::min(best, time);
              }
            const double speed = written / spent;
            out.least = std::min(out.least, speed);
            out.mean += speed, out.of_best += speed * best / (kReplays * tokens);
            ++out.cells;
          }
  out.mean /= out.cells, out.of_best /= out.cells;
  return out;
}

}  // namespace

TEST_CASE(
    "Either: the first 50 tokens take hardly longer than plain decoding, whatever draft and copies are") {
  const Either<Chain<>> shape(Chain<>{.length = kLongest});
  for (const double jitter : {0.0, 0.1, 0.2}) {
    CAPTURE(jitter);
    const Speeds got = speeds<With::both>(shape, {0, 0.2, 0.6, 0.9}, jitter, 50);
    CAPTURE(got.mean);
    CHECK(got.least > (jitter > 0.1 ? 0.955 : 0.96));  // of 16 texts; the worst of 480 such means
    CHECK(got.of_best > 0.77);
  }
  CHECK(speeds<With::both>(shape, {0, 0.9}, 0.1, 32).least > 0.96);
  CHECK(speeds<With::both>(shape, {0, 0.9}, 0.1, 128).least > 0.975);
}

TEST_CASE("CostAware over a draft: the same") {
  const CostAware<Chain<>> shape(Chain<>{.length = kLongest});
  for (const double jitter : {0.0, 0.1, 0.2}) {
    CAPTURE(jitter);
    const Speeds got = speeds<With::draft>(shape, {0}, jitter, 50);
    CAPTURE(got.mean);
    CHECK(got.least > (jitter > 0.1 ? 0.96 : 0.975));
    CHECK(got.of_best > 0.85);
  }
  CHECK(speeds<With::draft>(shape, {0}, 0.1, 128).least > 0.975);
}

TEST_CASE("Either: a text that begins with copies is drafted after them") {
  // Its draft has read nothing when copies end, so what the first call takes is a guess.
  const Either<Chain<>> shape(Chain<>{.length = kLongest});
  for (const double copied : {0.6, 0.9, 1.0})
    for (const std::int32_t copies : {30, 100, 400}) {
      CAPTURE(copied);
      CAPTURE(copies);
      Start start;
      start.target = kCurves[1], start.draft = 0.06, start.drafted = 0.8, start.tokens = copies + 500;
      start.copied = copied, start.copies = copies;
      const Record record = write<With::both>(start, shape, 1);
      CHECK(record.drafts.tokens > 500);
      CHECK(record.tokens / record.spent > 1.4);
    }
}
