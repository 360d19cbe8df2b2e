// SPDX-License-Identifier: MIT
// labels: threads
// layer_similarity(): mean cosines between the inputs and outputs of attention blocks.
#include <doctest/doctest.h>
#include <specula/cuda/api/layer_similarity.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// The definition, in doubles.
template <class Element>
double plain_cosine(const Element* x, const Element* y, int hidden) {
  double xx = 0, xy = 0, yy = 0;
  for (int i = 0; i < hidden; ++i) {
    const double a = static_cast<double>(detail::to_float(x[i])),
                 b = static_cast<double>(detail::to_float(y[i]));
    xx += a * a, xy += a * b, yy += b * b;
  }
  const double lengths = std::sqrt(xx) * std::sqrt(yy);
  return lengths > 0 ? xy / lengths : 1;
}

/// Residual streams of a ragged batch around the blocks of some layers. Memory that no kernel may read is
/// NaN.
template <class Element>
struct Streams {
  int hidden, layers, offset;
  std::vector<std::int32_t> begin;
  std::int64_t before_stride, after_stride;
  std::vector<std::vector<Element>> before, after;  // by layer; the first row begins at `offset`

  Streams(Random& random, std::vector<std::int32_t> lengths, int width, int layer_count, int pad, int shift)
      : hidden(width),
        layers(layer_count),
        offset(shift),
        begin{0},
        before_stride(width + pad),
        after_stride(width + 2 * pad) {
    for (const std::int32_t n : lengths) begin.push_back(begin.back() + n);
    for (int l = 0; l < layers; ++l) {
      before.push_back(filled(before_stride));
      after.push_back(filled(after_stride));
      for (int t = 0; t < begin.back(); ++t) {
        // Some blocks change the stream much, some hardly, some reverse it.
        const double change = std::pow(10.0, random.between(-4, 1)), turn = random.bernoulli(0.1) ? -1 : 1;
        const double size = std::pow(10.0, random.between(-3, 2));
        for (int i = 0; i < hidden; ++i) {
          const double v = size * random.between(-1, 1);
          store(static_cast<float>(v), x(l, t)[i]);
          store(static_cast<float>(turn * v + change * size * random.between(-1, 1)), y(l, t)[i]);
        }
      }
    }
  }
  std::vector<Element> filled(std::int64_t stride) const {
    Element poison;
    store(kNan, poison);
    std::memset(&poison, 0xFF, sizeof poison);  // NaN in all three formats
    return std::vector<Element>(static_cast<std::size_t>(offset + begin.back() * stride), poison);
  }
  Element* x(int layer, int token) {
    return before[static_cast<std::size_t>(layer)].data() + offset + token * before_stride;
  }
  Element* y(int layer, int token) {
    return after[static_cast<std::size_t>(layer)].data() + offset + token * after_stride;
  }
  int sequences() const { return static_cast<int>(begin.size()) - 1; }
  double mean(int sequence, int layer) {
    const std::int32_t first = begin[static_cast<std::size_t>(sequence)],
                       last = begin[static_cast<std::size_t>(sequence) + 1];
    double out = 0;
    for (int t = first; t < last; ++t) out += plain_cosine(x(layer, t), y(layer, t), hidden);
    return out / (last - first);
  }
};

struct Launch {
  int blocks = 3, threads = 64;
  std::uint64_t seed = 1;
  Engine engine = Engine::fibers;
};

template <class Source>
void run(const detail::SimilarityArgs<Source>& args, Launch launch) {
  emulate(
      {.clusters = launch.blocks, .threads = launch.threads, .seed = launch.seed, .engine = launch.engine},
      [&](EmulatedCluster cluster, int index, unsigned char*) {
        detail::measure_similarity(cluster.block(), index, launch.blocks, args);
      });
}

using Sums = std::vector<SimilaritySum>;
bool equal(const Sums& a, const Sums& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SimilaritySum& s, const SimilaritySum& t) {
                      return s.cosines == t.cosines && s.tokens == t.tokens;
                    });
}

/// All layers in one call.
template <class Element>
Sums measure(Streams<Element>& streams, Launch launch = {}) {
  std::vector<const Element*> before, after;
  for (int l = 0; l < streams.layers; ++l)
    before.push_back(streams.x(l, 0)), after.push_back(streams.y(l, 0));
  Sums sums(static_cast<std::size_t>(streams.sequences() * streams.layers));
  const detail::SimilarityArgs<detail::StreamsOfLayers<Element>> args{
      {before.data(), after.data()},
      {streams.begin.data(), streams.before_stride, streams.after_stride, 0, streams.layers},
      sums.data(),
      {streams.begin.back(), streams.sequences(), streams.layers, streams.hidden}};
  run(args, launch);
  return sums;
}
float mean_of(const SimilaritySum& sum) { return detail::mean_cosine(sum); }

template <class Element>
void compare_with_plain(std::uint64_t seed) {
  Random random(seed);
  double worst = 0;
  for (const int hidden : {1, 2, 3, 4, 7, 8, 31, 100, 127, 128, 255, 257, 300, 1024, 1030, 1500})
    for (const int shift : {0, 1, 8}) {
      Streams<Element> streams(random, {3, 0, 1, 6}, hidden, 2, shift == 1 ? 3 : 8, shift);
      const Sums sums = measure(streams);
      for (int b = 0; b < 4; ++b)
        for (int l = 0; l < 2; ++l) {
          const float got = mean_of(sums[static_cast<std::size_t>(2 * b + l)]);
          if (b == 1) {
            CHECK(std::isnan(got));
            continue;
          }
          const double error = std::abs(static_cast<double>(got) - streams.mean(b, l));
          worst = std::max(worst, std::isnan(error) ? 1 : error);
        }
    }
  CHECK(worst < 4e-7);
}

}  // namespace

UNTHREADED_TEST_CASE("means agree with the definition") {
  SUBCASE("float") { compare_with_plain<float>(1); }
  SUBCASE("bfloat16") { compare_with_plain<BFloat16>(2); }
  SUBCASE("half") { compare_with_plain<Half>(3); }
}

UNTHREADED_TEST_CASE("wide streams meet the error bound") {
  Random random(4);
  Streams<float> streams(random, {2}, 16384, 1, 0, 0);
  CHECK(std::abs(static_cast<double>(mean_of(measure(streams)[0])) - streams.mean(0, 0)) < 1e-6);
}

UNTHREADED_TEST_CASE("a known angle, and vectors that are zero") {
  const float x[] = {3, 0, 0, 0, 0}, y[] = {3, 4, 0, 0, 0}, zero[] = {0, 0, 0, 0, 0},
              back[] = {-1, 0, 0, 0, 0};
  const SerialGroup one;
  CHECK(token_cosine(one, x, y, 5) == doctest::Approx(0.6));
  CHECK(token_cosine(one, x, x, 5) == 1);
  CHECK(token_cosine(one, x, back, 5) == -1);
  CHECK(token_cosine(one, x, zero, 5) == 1);
  CHECK(token_cosine(one, zero, y, 5) == 1);
  CHECK(token_cosine(one, zero, zero, 5) == 1);
}

UNTHREADED_TEST_CASE("results have the same bits for any launch, alignment and batch") {
  Random random(5);
  Streams<BFloat16> streams(random, {5, 1, 9, 0, 4}, 290, 3, 6, 0);
  const Sums want = measure(streams);
  for (const int blocks : {1, 2, 7, 40})
    for (const int threads : {32, 96, 256})
      CHECK(equal(want, measure(streams, {.blocks = blocks, .threads = threads, .seed = random.bits()})));
  for (int b = 0; b < streams.sequences(); ++b) {
    const std::int32_t first = streams.begin[static_cast<std::size_t>(b)],
                       last = streams.begin[static_cast<std::size_t>(b) + 1];
    Streams<BFloat16> alone(random, {last - first}, 290, 3, 5, 3);
    for (int l = 0; l < 3; ++l)
      for (int t = first; t < last; ++t) {
        std::copy_n(streams.x(l, t), 290, alone.x(l, t - first));
        std::copy_n(streams.y(l, t), 290, alone.y(l, t - first));
      }
    const Sums got = measure(alone);
    CHECK(equal(got, {want.begin() + 3 * b, want.begin() + 3 * b + 3}));
  }
}

UNTHREADED_TEST_CASE("chunks of a prompt, layer by layer, add up to the same bits") {
  Random random(6);
  const int layers = 3, hidden = 70;
  Streams<float> whole(random, {13, 4, 8}, hidden, layers, 2, 0);
  const Sums want = measure(whole);
  Sums got(want.size());
  const std::vector<std::vector<std::int32_t>> chunks = {{4, 0, 8}, {0, 4, 0}, {0, 0, 0}, {9, 0, 0}};
  std::vector<std::int32_t> read{0, 0, 0};
  for (const auto& chunk : chunks) {
    Streams<float> part(random, chunk, hidden, layers, 1, 0);
    for (int l = 0; l < layers; ++l)
      for (std::size_t b = 0; b < 3; ++b)
        for (int t = 0; t < chunk[b]; ++t) {
          std::copy_n(whole.x(l, whole.begin[b] + read[b] + t), hidden, part.x(l, part.begin[b] + t));
          std::copy_n(whole.y(l, whole.begin[b] + read[b] + t), hidden, part.y(l, part.begin[b] + t));
        }
    for (std::size_t b = 0; b < 3; ++b) read[b] += chunk[b];
    for (int l = 0; l < layers; ++l) {
      const detail::SimilarityArgs<detail::StreamsOfLayer<float>> args{
          {part.x(l, 0), part.y(l, 0)},
          {part.begin.data(), part.before_stride, part.after_stride, l, 1},
          got.data(),
          {100, 3, layers, hidden}};
      run(args, {.blocks = 2, .threads = 32, .seed = random.bits()});
    }
  }
  CHECK(equal(want, got));
}

UNTHREADED_TEST_CASE("NaN affects only its own mean") {
  for (const float bad : {kNan, kInf, -kInf, 3e38f})
    for (const int where : {1, 2, 3}) {  // before the block, after it, both
      Random random(7);
      Streams<float> streams(random, {3, 3, 3}, 40, 2, 0, 0);
      const Sums before = measure(streams);
      if (where & 1) streams.x(1, 4)[17] = bad;
      if (where & 2) streams.y(1, 4)[17] = bad;
      const Sums sums = measure(streams);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        CHECK(std::isnan(mean_of(sums[i])) == (i == 3));
        if (i != 3) CHECK(mean_of(sums[i]) == mean_of(before[i]));
      }
    }
}

UNTHREADED_TEST_CASE("invalid offsets do no harm, and rows beyond the capacity are not read") {
  Random random(8);
  Streams<float> streams(random, {4, 4}, 40, 1, 0, 0);
  const auto with = [&](std::vector<std::int32_t> begin, int capacity) {
    Sums sums(2);
    const detail::SimilarityArgs<detail::StreamsOfLayer<float>> args{
        {streams.x(0, 0), streams.y(0, 0)}, {begin.data(), 40, 40}, sums.data(), {capacity, 2, 1, 40}};
    run(args, {});
    return sums;
  };
  const auto counts = [&](const Sums& sums) { return std::pair(sums[0].tokens, sums[1].tokens); };
  CHECK(counts(with({0, 4, 8}, 8)) == std::pair(4ull, 4ull));
  CHECK(counts(with({0, 4, 1000}, 8)) == std::pair(4ull, 4ull));
  CHECK(counts(with({0, 4, 8}, 5)) == std::pair(4ull, 1ull));
  CHECK(counts(with({2, 5, 8}, 8)) ==
        std::pair(3ull, 3ull));  // rows before the first sequence belong to none
  CHECK(counts(with({0, 4, -3}, 8)) == std::pair(0ull, 0ull));
  with({7, -5, 8}, 8);
  with({0, 2147483647, 8}, 8);
  with({-2147483647, 3, 8}, 8);
}

UNTHREADED_TEST_CASE("means are written for all sequences, and sums of finished ones are reset") {
  Random random(9);
  Streams<float> streams(random, {2, 3, 4}, 24, 2, 0, 0);
  Sums sums = measure(streams);
  const Sums before = sums;
  std::vector<float> out(6, kNan), again(6, kNan);
  const std::vector<std::int32_t> ended{0, 1, 0};
  for (std::int64_t i = 0; i < 6; ++i) detail::similarity_mean(i, 2, sums.data(), out.data(), nullptr);
  CHECK(equal(sums, before));
  for (std::int64_t i = 0; i < 6; ++i) detail::similarity_mean(i, 2, sums.data(), again.data(), ended.data());
  CHECK(out == again);
  for (std::size_t i = 0; i < 6; ++i) {
    const bool zero = i / 2 == 1;
    CHECK(out[i] == mean_of(before[i]));
    CHECK(sums[i].tokens == (zero ? 0 : before[i].tokens));
    CHECK(sums[i].cosines == (zero ? 0 : before[i].cosines));
  }
}

UNTHREADED_TEST_CASE("similarity fused into the caller's residual add: by a block's threads, and by a warp") {
  Random random(10);
  const int hidden = 500;
  std::vector<float> x(hidden), added(hidden), y(hidden);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(random.between(-1, 1));
    added[i] = static_cast<float>(random.between(-1, 1));
    y[i] = x[i] + added[i];
  }
  const double want = plain_cosine(x.data(), y.data(), hidden);
  for (const int threads : {32, 64, 160}) {
    std::vector<float> got(static_cast<std::size_t>(threads), kNan), by_warp = got;
    SimilaritySum sum{};
    emulate({.threads = threads, .shared_bytes = 8 * sizeof(CosineSums)},
            [&](EmulatedCluster cluster, int, unsigned char* shared) {
              const auto block = cluster.block();
              for (int repeat = 0; repeat < 2; ++repeat) {  // the scratch memory may be used again
                CosineSums mine;
                for (int i = block.rank(); i < hidden; i += block.size()) {
                  const auto at = static_cast<std::size_t>(i);
                  mine.add(x[at], x[at] + added[at]);
                }
                const float cosine = token_cosine(block, mine, reinterpret_cast<CosineSums*>(shared));
                got[static_cast<std::size_t>(block.rank())] = cosine;
                if (block.rank() == 0) record_cosine(&sum, cosine);
              }
              by_warp[static_cast<std::size_t>(block.rank())] =
                  token_cosine(block.warp(), x.data(), y.data(), hidden);
            });
    for (const float cosine : got) CHECK(std::abs(static_cast<double>(cosine) - want) < 2e-7);
    for (const float cosine : by_warp) CHECK(cosine == by_warp[0]);
    CHECK(std::abs(static_cast<double>(by_warp[0]) - want) < 2e-7);
    CHECK(sum.tokens == 2);
    CHECK(std::abs(static_cast<double>(mean_of(sum)) - want) < 2e-7);
  }
}

TEST_CASE("concurrent threads") {
  Random random(11);
  Streams<Half> streams(random, {7, 2, 5}, 50, 2, 0, 0);
  CHECK(equal(measure(streams), measure(streams, {.blocks = 2, .threads = 64, .engine = Engine::threads})));
}

UNTHREADED_TEST_CASE("invalid plans and arrays are refused") {
  CHECK(detail::is_similarity(SimilarityCapacity{1, 1, 1, 1}));
  for (int SimilarityCapacity::*field : {&SimilarityCapacity::tokens, &SimilarityCapacity::sequences,
                                         &SimilarityCapacity::layers, &SimilarityCapacity::hidden}) {
    SimilarityCapacity bad{1, 1, 1, 1};
    bad.*field = 0;
    CHECK(!detail::is_similarity(bad));
  }
  const SimilarityPlan plan{{10, 2, 3, 64}, 4, 256};
  std::vector<std::int64_t> memory(8);
  const auto* x = reinterpret_cast<const Half*>(memory.data());
  const auto* begin = reinterpret_cast<const std::int32_t*>(memory.data());
  auto* sums = reinterpret_cast<SimilaritySum*>(memory.data());
  const auto odd = [](auto* array) {
    return reinterpret_cast<decltype(array)>(reinterpret_cast<std::uintptr_t>(array) + 1);
  };
  const SimilarityTokens tokens{begin, 64, 64, 1, 2};
  const auto fits = [&](const SimilarityPlan& with, const Half* before, const Half* after,
                        const SimilarityTokens& of, const SimilaritySum* to) {
    return detail::is_similarity(with, before, after, of, to);
  };
  CHECK(fits(plan, x, x, tokens, sums));
  CHECK(!fits(plan, nullptr, x, tokens, sums));
  CHECK(!fits(plan, x, nullptr, tokens, sums));
  CHECK(!fits(plan, x, x, tokens, nullptr));
  CHECK(!fits(plan, odd(x), x, tokens, sums));
  CHECK(!fits(plan, x, odd(x), tokens, sums));
  CHECK(!fits(plan, x, x, tokens, odd(sums)));
  CHECK(!fits(plan, x, x, {nullptr, 64, 64, 1, 2}, sums));
  CHECK(!fits(plan, x, x, {odd(begin), 64, 64, 1, 2}, sums));
  CHECK(!fits(plan, x, x, {begin, 63, 64, 1, 2}, sums));
  CHECK(!fits(plan, x, x, {begin, 64, 63, 1, 2}, sums));
  CHECK(!fits(plan, x, x, {begin, 64, 64, 2, 2}, sums));
  CHECK(!fits(plan, x, x, {begin, 64, 64, -1, 2}, sums));
  CHECK(!fits(plan, x, x, {begin, 64, 64, 1, -1}, sums));
  CHECK(!fits(SimilarityPlan{}, x, x, tokens, sums));
  SimilarityPlan odd_block = plan;
  odd_block.threads = 250;
  CHECK(!fits(odd_block, x, x, tokens, sums));
  const float* const means = reinterpret_cast<const float*>(memory.data());
  CHECK(detail::is_similarity(plan, sums, means, nullptr));
  CHECK(!detail::is_similarity(plan, nullptr, means, nullptr));
  CHECK(!detail::is_similarity(plan, sums, nullptr, nullptr));
  CHECK(!detail::is_similarity(plan, sums, odd(means), nullptr));
  CHECK(!detail::is_similarity(plan, sums, means, odd(begin)));
}
