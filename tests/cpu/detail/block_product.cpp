// SPDX-License-Identifier: MIT
// labels: vectorised
// Products of weights in blocks: the bits of plain sums of integers on AVX2, AVX-VNNI, AVX512-VNNI and AMX,
// for any number of inputs and panels; the portable ones near them; no overflow; NaN and infinity.
#include <specula/cpu/detail/block_product.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "../random_blocks.hpp"
#include "random.hpp"
#include "specula/cpu/detail/aligned.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;
using namespace specula::cpu::detail;
using specula::Isa;
using specula_test::kBlockTypes;
using specula_test::Random;

/// With inputs of 16 bits, or of 8.
std::vector<BlockIsa> isas(bool bytes = false) {
  std::vector<BlockIsa> out;
  for (const BlockIsa isa :
       {BlockIsa::portable, BlockIsa::avx2, BlockIsa::avx_vnni, BlockIsa::avx512_vnni, BlockIsa::amx})
    if (supported(isa) && !(bytes && isa == BlockIsa::amx)) out.push_back(isa);
  return out;
}

/// Weights in blocks, and inputs.
struct Scene {
  GgufId type;
  std::int32_t panels, cols, columns;
  bool minimum = specula_test::has_minimum(type);
  std::vector<std::byte> memory;           // of the panels
  std::vector<std::int8_t> numbers;        // (rows, cols)
  std::vector<float> scales[2], minimums;  // (rows, groups): of the halves of a group
  std::vector<float> x;                    // (columns, ldx)
  std::ptrdiff_t ldx = cols + 24, ldy = 16 * panels + 32;

  Scene(GgufId t, std::int32_t v, std::int32_t k, std::int32_t n) : type(t), panels(v), cols(k), columns(n) {
    memory.resize(static_cast<std::size_t>(panels * layout().panel_bytes(groups())));
    numbers.resize(static_cast<std::size_t>(rows() * cols));
    for (auto* all : {&scales[0], &scales[1], &minimums})
      all->resize(static_cast<std::size_t>(rows() * groups()));
    x.assign(static_cast<std::size_t>(columns * ldx), std::numeric_limits<float>::quiet_NaN());
  }
  BlockLayout layout() const { return format_of(type); }
  std::int32_t rows() const { return panels * kPanel; }
  std::int32_t groups() const { return cols / kGroup; }
  float* input(std::int32_t c) { return x.data() + c * ldx; }

  void set_row(std::int32_t r, const std::byte* row) {
    std::byte* const panel = memory.data() + r / kPanel * layout().panel_bytes(groups());
    for (std::int32_t g = 0; g < groups(); ++g) {
      BlockGroup group;
      read_group(type, row, g, group);
      pack_group(layout(), group, g, r % kPanel, panel);
    }
    for (std::int32_t k = 0; k < cols; ++k) {
      const auto weight = specula_test::plain_weight(type, row, k);
      const auto at = static_cast<std::size_t>(r * groups() + k / kGroup);
      numbers[static_cast<std::size_t>(r * cols + k)] = static_cast<std::int8_t>(weight.number);
      scales[k / 16 % 2][at] = weight.scale, minimums[at] = weight.minimum;
    }
  }
  /// Rows of all kinds; inputs with groups of zeros, and some that are 2^30 times as large as others.
  void fill(Random& random, bool extreme) {
    for (std::int32_t r = 0; r < rows(); ++r)
      set_row(r, specula_test::random_row(type, cols, random, extreme && r % 3 > 0).data());
    for (std::int32_t c = 0; c < columns; ++c)
      for (std::int32_t g = 0; g < groups(); ++g) {
        const int kind = random.below(8);
        const float by = kind == 0 ? 0.0f : kind == 1 ? 0x1p-30f : 1.0f;
        for (int i = 0; i < kGroup; ++i)
          input(c)[g * kGroup + i] = by * (kind == 2 ? random.bernoulli(0.5) ? 1.0f : -1.0f
                                                     : static_cast<float>(random.between(-1, 1)));
      }
  }

  /// The outputs of the first `count` inputs by the first panels; what lies around them must stay.
  std::vector<float> multiply(BlockIsa isa, bool bytes, std::int32_t first_panels, std::int32_t count,
                              std::int32_t from = 0) const {
    constexpr float kUntouched = -77.0f;
    std::vector<float> y(static_cast<std::size_t>(count * ldy), kUntouched);
    RoundedInputs inputs(count, cols, isa == BlockIsa::amx);
    round_inputs(isa, bytes, x.data() + from * ldx, ldx, cols, count, inputs);
    block_product(isa, {type, memory.data()}, {first_panels, groups()}, bytes, inputs, y.data(), ldy, count);
    bool untouched = true;
    for (std::int32_t c = 0; c < count; ++c)
      for (std::ptrdiff_t r = 16 * first_panels; r < ldy; ++r)
        untouched = untouched && y[static_cast<std::size_t>(c * ldy + r)] == kUntouched;
    CHECK(untouched);
    return y;
  }
};

/// The sums that the products promise, one input after the other, with std::fma.
struct Plain {
  std::vector<float> y;          // (columns, rows)
  std::vector<double> absolute;  // sums of absolute products

  Plain(const Scene& scene, bool bytes) {
    const float top = bytes ? 127.0f : 32512.0f;
    std::vector<int> numbers(static_cast<std::size_t>(scene.cols));
    std::vector<float> steps(static_cast<std::size_t>(scene.groups()));
    std::vector<int> sums(steps.size());
    for (std::int32_t c = 0; c < scene.columns; ++c) {
      const float* const x = scene.x.data() + c * scene.ldx;
      for (std::int32_t g = 0; g < scene.groups(); ++g) {
        const auto at = static_cast<std::size_t>(g);
        float largest = 0;
        for (std::int32_t k = g * kGroup; k < (g + 1) * kGroup; ++k)
          largest = std::max(largest, std::abs(x[k]));
        steps[at] = largest / top, sums[at] = 0;
        for (std::int32_t k = g * kGroup; k < (g + 1) * kGroup; ++k) {
          const int number = largest > 0 ? static_cast<int>(std::nearbyint(x[k] * (top / largest))) : 0;
          numbers[static_cast<std::size_t>(k)] = number, sums[at] += number;
        }
      }
      for (std::int32_t r = 0; r < scene.rows(); ++r) {
        const std::int8_t* const row = scene.numbers.data() + static_cast<std::ptrdiff_t>(r) * scene.cols;
        float sum = 0;
        double all = 0;
        for (std::int32_t g = 0; g < scene.groups(); ++g) {
          const auto at = static_cast<std::size_t>(g),
                     row_group = static_cast<std::size_t>(r * scene.groups() + g);
          int dots[2] = {};
          for (int i = 0; i < kGroup; ++i)
            dots[i / 16] += row[g * kGroup + i] * numbers[static_cast<std::size_t>(g * kGroup + i)];
          const float step = steps[at], first = scene.scales[0][row_group],
                      second = scene.scales[1][row_group];
          if (scene.minimum) {
            const float total = step * static_cast<float>(sums[at]);
            all += std::abs(double{scene.minimums[row_group]} * double{total});
            sum = std::fma(scene.minimums[row_group], total, sum);
          }
          if (scene.type == GgufId::q6_k) {
            sum = std::fma(static_cast<float>(dots[0]), first * step, sum);
            sum = std::fma(static_cast<float>(dots[1]), second * step, sum);
            all += std::abs(dots[0] * double{first} * double{step}) +
                   std::abs(dots[1] * double{second} * double{step});
          } else {
            sum = std::fma(static_cast<float>(dots[0] + dots[1]), first * step, sum);
            all += std::abs((dots[0] + dots[1]) * double{first} * double{step});
          }
        }
        y.push_back(sum), absolute.push_back(all);
      }
    }
  }

  /// Outputs that differ, of the first panels and inputs.
  int differ(const Scene& scene, const std::vector<float>& got, BlockIsa isa, std::int32_t panels,
             std::int32_t count) const {
    int wrong = 0;
    for (std::int32_t c = 0; c < count; ++c)
      for (std::int32_t r = 0; r < panels * kPanel; ++r) {
        const auto at = static_cast<std::size_t>(c * scene.rows() + r);
        const float &a = got[static_cast<std::size_t>(c * scene.ldy + r)], &b = y[at];
        // 1e-30: of subnormal sums.
        wrong += isa == BlockIsa::portable ? !(std::abs(double{a} - double{b}) <= 1e-6 * absolute[at] + 1e-30)
                                           : std::memcmp(&a, &b, sizeof a) != 0;
      }
    return wrong;
  }
};

constexpr bool kBoth[] = {false, true};

}  // namespace

TEST_CASE("the bits of plain sums, for any number of inputs and panels") {
  Random random(1);
  for (const GgufId type : kBlockTypes)
    for (const bool extreme : kBoth) {
      Scene scene(type, 13, 256, extreme ? 9 : 24);
      scene.fill(random, extreme);
      for (const bool bytes : kBoth) {
        const Plain plain(scene, bytes);
        for (const BlockIsa isa : isas(bytes))
          for (std::int32_t n = 1; n <= scene.columns; n += n < 16 ? 1 : 8)
            for (const std::int32_t panels : {1, 2, 3, 5, 7, 12, 13}) {
              if ((extreme || n > 8) && panels != 3 && panels != 13) continue;
              const int wrong = plain.differ(scene, scene.multiply(isa, bytes, panels, n), isa, panels, n);
              CAPTURE(static_cast<int>(type));
              CAPTURE(static_cast<int>(isa));
              CAPTURE(bytes);
              CAPTURE(n);
              CAPTURE(panels);
              CHECK(wrong == 0);
            }
      }
    }
}

TEST_CASE("the bits of plain sums, of any depth") {
  Random random(2);
  for (const GgufId type : kBlockTypes)
    for (const std::int32_t cols : {32, 96, 256, 512, 576, 1024}) {
      if (specula_test::is_k_type(type) && cols % 256 != 0) continue;
      Scene scene(type, 4, cols, 9);
      scene.fill(random, cols % 3 == 0);
      for (const bool bytes : kBoth) {
        const Plain plain(scene, bytes);
        for (const BlockIsa isa : isas(bytes))
          for (const std::int32_t n : {1, 2, 4, 9}) {
            const int wrong = plain.differ(scene, scene.multiply(isa, bytes, 4, n), isa, 4, n);
            CAPTURE(static_cast<int>(type));
            CAPTURE(static_cast<int>(isa));
            CAPTURE(bytes);
            CAPTURE(n);
            CAPTURE(cols);
            CHECK(wrong == 0);
          }
      }
    }
}

TEST_CASE("the bits of plain sums, for prompts of up to 512 inputs") {
  Random random(6);
  for (const GgufId type : kBlockTypes) {
    Scene scene(type, 3, specula_test::is_k_type(type) ? 1024 : 800, 512);
    scene.fill(random, false);
    const Plain plain(scene, false);
    for (const BlockIsa isa : isas())
      for (const std::int32_t n :
           {1, 7, 8, 9, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 31, 32, 33, 64, 100, 512})
        for (const std::int32_t panels : {1, 2, 3}) {
          if (n > 100 && panels != 3) continue;
          const int wrong = plain.differ(scene, scene.multiply(isa, false, panels, n), isa, panels, n);
          CAPTURE(static_cast<int>(type));
          CAPTURE(static_cast<int>(isa));
          CAPTURE(n);
          CAPTURE(panels);
          CHECK(wrong == 0);
        }
  }
}

TEST_CASE("many inputs, which take some panels one after the other: the bits of each alone") {
  Random random(3);
  for (const GgufId type : {GgufId::q4_1, GgufId::q8_0, GgufId::q6_k})
    for (const BlockIsa isa : isas()) {
      Scene scene(type, 25, 1280, 64);  // a panel has more than 256 KiB / 24
      scene.fill(random, false);
      for (const bool bytes : kBoth) {
        if (bytes && (type != GgufId::q4_1 || isa == BlockIsa::amx)) continue;
        const auto all = scene.multiply(isa, bytes, 25, 64);
        for (std::int32_t c = 0; c < 64; c += 7) {
          const auto one = scene.multiply(isa, bytes, 25, 1, c);
          CAPTURE(static_cast<int>(type));
          CAPTURE(static_cast<int>(isa));
          CHECK(std::equal(one.begin(), one.end(), all.begin() + c * scene.ldy));
        }
      }
    }
}

TEST_CASE("the largest numbers and inputs do not overflow") {
  Random random(7);
  for (const GgufId type : kBlockTypes) {
    const auto size = static_cast<std::size_t>(specula_test::about(type).bytes);
    Scene scene(type, 2, 256, 6);
    for (std::int32_t r = 0; r < scene.rows(); ++r) {
      std::vector<std::byte> row(256 / specula_test::about(type).block * size);
      // All numbers at one end, or at the other, or in turn; of Q8_0 -128 and 127; scales of 6 or 8 bits as
      // well.
      const int ends[] = {0, 255, 0x80, 0x7f};
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = static_cast<std::byte>(ends[r % 4 < 2 || i % 2 ? r % 4 : r / 4 % 4]);
      for (std::size_t b = 0; b < row.size(); b += size) {
        specula_test::put_half(row.data() + b + specula_test::place_of_d(type), r % 8 < 4 ? 0x3c00 : 0xbc00);
        if (specula_test::has_minimum(type)) specula_test::put_half(row.data() + b + 2, 0x3c00);
      }
      scene.set_row(r, row.data());
    }
    for (std::int32_t k = 0; k < 256; ++k) {
      scene.input(0)[k] = 1, scene.input(1)[k] = -1;
      scene.input(2)[k] = k % 2 ? 1 : -1, scene.input(3)[k] = k / 16 % 2 ? 1 : -1;
      // Sums of more than 24 bits, the last ones among them.
      scene.input(4)[k] = static_cast<float>(random.between(0.9, 1)), scene.input(5)[k] = -scene.input(4)[k];
    }
    for (const bool bytes : kBoth) {
      const Plain plain(scene, bytes);
      for (const BlockIsa isa : isas(bytes)) {
        CAPTURE(static_cast<int>(type));
        CAPTURE(static_cast<int>(isa));
        CAPTURE(bytes);
        CHECK(plain.differ(scene, scene.multiply(isa, bytes, 2, 6), isa, 2, 6) == 0);
      }
    }
  }
}

TEST_CASE("NaN and infinity in an input reach all of its outputs, and no other input's") {
  Random random(5);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const GgufId type : kBlockTypes) {
    Scene scene(type, 3, 512, 7);
    scene.fill(random, false);
    for (const bool bytes : kBoth)
      for (const BlockIsa isa : isas(bytes)) {
        const auto before = scene.multiply(isa, bytes, 3, 7);
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
          float& value = scene.input(4)[random.below(512)];
          const float kept = value;
          value = bad;
          auto after = scene.multiply(isa, bytes, 3, 7);
          value = kept;
          bool all = true;
          for (std::int32_t r = 0; r < scene.rows(); ++r)
            all = all && std::isnan(after[static_cast<std::size_t>(4 * scene.ldy + r)]);
          std::copy_n(before.begin() + 4 * scene.ldy, scene.ldy, after.begin() + 4 * scene.ldy);
          CAPTURE(static_cast<int>(type));
          CAPTURE(static_cast<int>(isa));
          CHECK(all);
          CHECK(after == before);
        }
      }
  }
}

TEST_CASE("which instructions a model takes") {
  CHECK(block_isa(Isa::portable) == BlockIsa::portable);
  CHECK(supported(BlockIsa::portable));
  if (supported(BlockIsa::avx512_vnni)) CHECK(block_isa(Isa::avx512) == BlockIsa::avx512_vnni);
  if (!specula::supported(Isa::avx2)) return;
  CHECK(block_isa(Isa::avx2, false) == BlockIsa::avx2);
  CHECK(block_isa(Isa::avx2) == (supported(BlockIsa::avx_vnni) ? BlockIsa::avx_vnni : BlockIsa::avx2));
  if (specula::supported(Isa::avx512)) CHECK(block_isa(Isa::avx512, false) == BlockIsa::avx2);
  for (const BlockIsa isa : {BlockIsa::portable, BlockIsa::avx2, BlockIsa::avx_vnni})
    CHECK(for_many(isa) == isa);
  CHECK(for_many(BlockIsa::avx512_vnni) ==
        (supported(BlockIsa::amx) ? BlockIsa::amx : BlockIsa::avx512_vnni));
  if (supported(BlockIsa::amx)) CHECK(supported(BlockIsa::avx512_vnni));
}
