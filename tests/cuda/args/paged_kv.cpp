// SPDX-License-Identifier: MIT
// Addresses of rows in paged KV caches.

#include <doctest/doctest.h>
#include <specula/cuda/args/paged_kv.cuh>

#include <cstdint>
#include <vector>

#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::PagedKv;
using device::PagedRows;
using device::detail::Divisor;
using device::detail::page_span;
using device::detail::row_at;

TEST_CASE("division by any page size") {
  Random random(1);
  for (std::uint32_t d = 1; d < 3000; ++d) {
    const Divisor by(d);
    for (const std::uint32_t n :
         {0u, 1u, d - 1, d, d + 1, 2 * d - 1, 0x7FFFFFFFu, 0x7FFFFFFFu / d * d, 0x7FFFFFFFu / d * d - 1})
      CHECK(by.quotient(n) == n / d);
    for (int i = 0; i < 20; ++i) {
      const auto n = static_cast<std::uint32_t>(random.bits() >> 33);
      CHECK(by.quotient(n) == n / d);
    }
  }
  for (const std::uint32_t d : {0x7FFFFFFFu, 0x40000000u, 0x40000001u, 131072u, 131073u, 99999989u}) {
    const Divisor by(d);
    for (const std::uint32_t n : {0u, d - 1, d, d + 1, 0x7FFFFFFFu, 0x7FFFFFFEu})
      CHECK((n > 0x7FFFFFFFu || by.quotient(n) == n / d));
  }
  CHECK(Divisor().quotient(77) == 77);
  int n = 45;
  CHECK(Divisor(7).divide(&n) == 6);
  CHECK(n == 3);
}

TEST_CASE("rows of pages: tables, layouts, and offsets beyond 32 bits") {
  const std::vector<std::int32_t> indptr = {0, 2, 2, 5}, pages = {7, 3, 100000, 1, 2};
  PagedKv<BFloat16> kv{};
  const auto* base = reinterpret_cast<const BFloat16*>(std::uintptr_t{1} << 40);
  const std::int64_t page = std::int64_t{1} << 21, token = 1024, head = 128;
  kv.k = {base, page, token, head, pages.data()};
  kv.page_size = 48;
  kv.indptr = indptr.data();
  const Divisor size(48);
  const auto offset = [&](int b, std::uint32_t slot, int h, std::uint32_t count = 0x7FFFFFFF) {
    return row_at(kv.k, page_span(kv, b), size, count, slot, h) - base;
  };
  CHECK(page_span(kv, 0).count == 2);
  CHECK(page_span(kv, 1).count == 0);
  CHECK(page_span(kv, 2).count == 3);
  CHECK(offset(0, 0, 0) == 7 * page);
  CHECK(offset(0, 47, 2) == 7 * page + 47 * token + 2 * head);
  CHECK(offset(0, 48, 1) == 3 * page + head);
  CHECK(offset(2, 10, 7) == 100000 * page + 10 * token + 7 * head);
  CHECK(offset(2, 50, 0) == page + 2 * token);
  // Missing pages are read as page 0.
  CHECK(offset(2, 10, 7, 100000) == 10 * token + 7 * head);
  CHECK(offset(2, 10, 7, 100001) == 100000 * page + 10 * token + 7 * head);
  const std::vector<std::int32_t> bad = {-1, -2, -3, -4, -5};
  kv.k.pages = bad.data();
  CHECK(offset(0, 3, 1) == 3 * token + head);

  kv.k.pages = pages.data();
  kv.indptr = nullptr;
  kv.max_pages = 2;
  CHECK(page_span(kv, 1).count == 2);
  CHECK(offset(1, 49, 0) == page + token);
  kv.max_pages = 0;
  kv.k.pages = nullptr;
  CHECK(page_span(kv, 5).count == 1);
  CHECK(offset(5, 40, 3) == 5 * page + 40 * token + 3 * head);
  const std::vector<std::int32_t> backwards = {4, 1};
  kv.indptr = backwards.data();
  CHECK(page_span(kv, 0).count == 0);
}

TEST_CASE("rows must be 16-byte aligned") {
  alignas(16) static const BFloat16 data[16] = {};
  using device::detail::aligned;
  CHECK(aligned(PagedRows<BFloat16>{data, 64, 16, 8, nullptr}));
  CHECK_FALSE(aligned(PagedRows<BFloat16>{data + 4, 64, 16, 8, nullptr}));
  CHECK_FALSE(aligned(PagedRows<BFloat16>{data, 60, 16, 8, nullptr}));
  CHECK_FALSE(aligned(PagedRows<BFloat16>{data, 64, 20, 8, nullptr}));
  CHECK_FALSE(aligned(PagedRows<BFloat16>{data, 64, 16, 4, nullptr}));
  const auto* bytes = reinterpret_cast<const device::Float8E4M3*>(data);
  CHECK(aligned(PagedRows<device::Float8E4M3>{bytes, 64, 32, 16, nullptr}));
  CHECK_FALSE(aligned(PagedRows<device::Float8E4M3>{bytes + 8, 64, 32, 16, nullptr}));
  CHECK_FALSE(aligned(PagedRows<device::Float8E4M3>{bytes, 72, 32, 16, nullptr}));
  CHECK_FALSE(aligned(PagedRows<device::Float8E4M3>{bytes, 64, 40, 16, nullptr}));
  CHECK_FALSE(aligned(PagedRows<device::Float8E4M3>{bytes, 64, 32, 8, nullptr}));
}
