// SPDX-License-Identifier: MIT
// labels: optimised
// tree_attention() by mma.sync, against a reference in doubles.
#include <doctest/doctest.h>
#include <specula/cuda/api/tree_attention_mma.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "attention_cases.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::TreeAttentionCapacity;
using device::TreeAttentionGeometry;
using Variant = MmaAttention<AsElements>;

ATTENTION_CASES(Variant);

TEST_CASE("every group of query heads, rows of a node in two tiles") {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int rows : {16, 32}) {
      const AttentionCase c{.query_heads = 2 * group,
                            .kv_heads = 2,
                            .lengths = {33, 70},
                            .nodes = {7, 3},
                            .seed = static_cast<std::uint64_t>(10 * group)};
      check_attention<Variant, BFloat16, 64>(c, {rows});
    }
}

TEST_CASE_TEMPLATE("the judgement sees one key's value in the place of another's, in one head of one node",
                   Element, BFloat16, device::Half) {
  const AttentionScene<Element, 64> scene({.query_heads = 8,
                                           .kv_heads = 2,
                                           .lengths = {450, 60},
                                           .nodes = {40, 20},
                                           .scores = KeyScores::flat,
                                           .seed = 17});
  auto got = Variant::run(scene, plan_for<Variant>(scene));
  const double bound = std::is_same_v<Element, BFloat16> ? 5e-3 : 6e-4;
  CHECK(compare_attention(scene, got).relative < bound);
  const int node = 23, head = 5, key = 300, other = 17;
  const double weight = std::exp(-scene.reference(0, node, head)[64]);  // all weigh alike
  double change = 0, all = 0;
  for (int i = 0; i < 64; ++i) {
    const auto value = [&](int j) { return scene.v[static_cast<std::size_t>((j * 2 + head / 4) * 64 + i)]; };
    Element& x = got.out[static_cast<std::size_t>(node * got.stride + head * 64 + i)];
    const double before = plain_value(x);
    x = {nearest_bits(Element{}, before + weight * (value(other) - value(key)))};
    change += std::pow(plain_value(x) - before, 2);
  }
  for (int n = 0; n < 40; ++n)
    for (int h = 0; h < 8; ++h) {
      const auto output = scene.reference(0, n, h);
      for (std::size_t i = 0; i < 64; ++i) all += output[i] * output[i];
    }
  CHECK(std::sqrt(change / all) < 5e-3);  // hidden by a norm of all outputs
  const AttentionErrors errors = compare_attention(scene, got);
  CHECK(errors.relative > 3 * bound);
  CHECK(errors.sequence == 0);
  CHECK(errors.node == node);
  CHECK(errors.head == head);
}

TEST_CASE("variants fit in the shared memory of every device") {
  using namespace device::detail;
  static constexpr int kSm86 = 99 * 1024, kSm80 = 163 * 1024, kSm90 = 227 * 1024, kProcessor90 = 228 * 1024;
  const auto fits = [&](auto head, auto stored) {
    constexpr int kHead = decltype(head)::value;
    using Stored = decltype(stored);
    for (const int rows : {16, 32, 64, 128})
      for (const int room : {kSm86, kSm80, kSm90}) {
        const int chosen = rows_that_fit<kHead, Stored>(rows, room);
        CHECK((chosen == rows || (rows == 32 && chosen == 16)));
        if (room != kSm86) CHECK(chosen == rows);
        with_shape<kHead, Stored>(chosen, [&](auto shape) {
          using Shape = decltype(shape);
          CHECK(Shape::kRows == chosen);
          CHECK(Shape::kSharedBytes <= room);
          CHECK((Shape::kSharedBytes + 1024) * Shape::kBlocks <=
                kProcessor90);  // 1 KB per block is reserved by the system
          CHECK(Shape::kSharedBytes % 16 == 0);
          return 0;
        });
      }
  };
  fits(std::integral_constant<int, 64>{}, BFloat16{});
  fits(std::integral_constant<int, 128>{}, BFloat16{});
  fits(std::integral_constant<int, 64>{}, device::Float8E4M3{});
  fits(std::integral_constant<int, 128>{}, device::Float8E4M3{});
}
