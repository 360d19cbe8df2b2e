// SPDX-License-Identifier: MIT
// What compile_block_products.hpp defines: all that a file needs which includes the declarations alone, as
// this does; panels that fill no register block, inputs that fill several, and types without products of
// bytes. Bits for all types: detail/block_product.cpp.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <specula/cpu/detail/block_product.hpp>
#include <specula/cpu/panel_matrix.hpp>

using namespace specula::cpu;
using namespace specula::files;
using namespace specula::cpu::detail;

namespace {

constexpr BlockIsa kEach[] = {BlockIsa::portable, BlockIsa::avx2, BlockIsa::avx_vnni, BlockIsa::avx512_vnni,
                              BlockIsa::amx};

/// Weights of row r are all r % 7 - 3, inputs of column c all 127 (c + 1): the steps are powers of two or
/// exact, and so is every output.
std::vector<float> outputs(BlockIsa isa, GgufId type, bool bytes, std::int32_t panels, std::int32_t columns) {
  constexpr std::int32_t kCols = 64;
  const std::int32_t rows = panels * kPanel;
  Arena arena;
  PanelMatrix<float> matrix({{rows, {WeightType::blocks, type}}}, kCols, arena);
  const auto size = static_cast<std::size_t>(BlockFormat(format_of(type)).bytes());
  for (std::int32_t r = 0; r < rows; ++r) {
    std::vector<std::byte> row(2 * size);
    for (std::size_t b = 0; b < 2; ++b) {
      row[b * size + 1] = std::byte{0x3c};  // a scale of 1
      const int number = r % 7 - 3 + (type == GgufId::q4_0 ? 8 : 0);
      for (std::size_t i = 2; i < size; ++i)
        row[b * size + i] = static_cast<std::byte>(type == GgufId::q4_0 ? number * 17 : number);
    }
    matrix.set_blocks(r, row.data());
  }
  std::vector<float> x(static_cast<std::size_t>(columns * kCols)),
      y(static_cast<std::size_t>(columns * rows), -1.0f);
  for (std::int32_t i = 0; i < columns * kCols; ++i)
    x[static_cast<std::size_t>(i)] = 127.0f * static_cast<float>(i / kCols + 1);
  RoundedInputs inputs(columns, kCols, isa == BlockIsa::amx);
  round_inputs(isa, bytes, x.data(), kCols, kCols, columns, inputs);
  matrix.for_panels(0, panels, [&](auto of, std::int32_t, std::int32_t count) {
    if constexpr (std::is_same_v<decltype(of), BlockPanels>)
      block_product(isa, of, {count, kCols / kGroup}, bytes, inputs, y.data(), rows, columns);
  });
  return y;
}

}  // namespace

TEST_CASE("any number of panels and inputs, with inputs of 16 and of 8 bits") {
  for (const BlockIsa isa : kEach) {
    if (!supported(isa)) continue;
    for (const GgufId type : {GgufId::q4_0, GgufId::q8_0})
      for (const bool bytes : {false, true}) {
        if (bytes && isa == BlockIsa::amx) continue;
        for (const std::int32_t panels : {1, 2, 3, 5, 13})
          for (const std::int32_t columns : {1, 4, 5, 8, 9, 17}) {
            CAPTURE(static_cast<int>(isa));
            CAPTURE(static_cast<int>(type));
            CAPTURE(bytes);
            CAPTURE(panels);
            CAPTURE(columns);
            const std::vector<float> y = outputs(isa, type, bytes, panels, columns);
            int wrong = 0;
            for (std::int32_t i = 0; i < columns * panels * kPanel; ++i) {
              const std::int32_t r = i % (panels * kPanel), c = i / (panels * kPanel);
              const auto want = static_cast<float>(64 * 127 * (c + 1) * (r % 7 - 3));
              wrong += y[static_cast<std::size_t>(i)] != want;
            }
            CHECK(wrong == 0);
          }
      }
  }
}
