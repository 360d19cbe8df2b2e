// SPDX-License-Identifier: MIT
// Paged KV cache: layouts, page tables and slot addresses.
#pragma once

#include <cstdint>

#include "specula/cuda/args/divisor.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// The K or the V of a layer: token `slot` of a page, KV head h, begins at data + page * page_stride + slot *
/// token_stride + h * head_stride (in elements, 64 bits: offsets never wrap). So all layouts fit: NHD (pages,
/// page_size, Hkv, D), HND (pages, Hkv, page_size, D), K and V apart or side by side in a page. Rows of D
/// elements are contiguous and 16-byte aligned: `data` is, and the strides are multiples of 16 bytes.
template <class Element>
struct PagedRows {
  const Element* data;       ///< 16-byte aligned
  std::int64_t page_stride,  ///< elements from page to page
      token_stride,          ///< from token to token of a page
      head_stride;           ///< from head to head
  /// Indices of pages. As CSR with `indptr`: those of sequence b are indptr[b] .. indptr[b + 1] - 1. As a
  /// rectangle: (B, max_pages). Null: sequence b is page b (a contiguous cache).
  const std::int32_t* pages;
};

/// The cache of B sequences, all arrays on the device. K and V may be in different pages of different pools,
/// but have equally many.
template <class Element>
struct PagedKv {
  PagedRows<Element> k,                   ///< keys
      v;                                  ///< values
  const std::int32_t* length;             ///< (B) committed tokens
  int page_size;                          ///< tokens: any number from 1
  const std::int32_t* indptr = nullptr;   ///< (B + 1) null: no CSR
  int max_pages = 0;                      ///< of the rectangle
  std::uint32_t page_count = 0x7FFFFFFF;  ///< pages from this one on, and negative ones, are read as page 0
};

namespace detail {

/// The pages of one sequence, in the tables.
struct PageSpan {
  std::int64_t first;
  int count;
};
template <class Element>
SPECULA_HD PageSpan page_span(const PagedKv<Element>& kv, int sequence) {
  if (kv.indptr) return {kv.indptr[sequence], larger(0, kv.indptr[sequence + 1] - kv.indptr[sequence])};
  if (kv.max_pages > 0) return {static_cast<std::int64_t>(sequence) * kv.max_pages, kv.max_pages};
  return {sequence, 1};
}

/// Where the row of a token begins: `slot` counts from the sequence's begin.
template <class Element>
SPECULA_HD const Element* row_at(const PagedRows<Element>& rows, PageSpan span, Divisor page_size,
                                 std::uint32_t page_count, std::uint32_t slot, int head) {
  const std::uint32_t of = page_size.quotient(slot);
  const std::int64_t place = span.first + of;
  std::uint32_t page = static_cast<std::uint32_t>(rows.pages ? rows.pages[place] : place);
  if (page >= page_count) page = 0;
  return rows.data + page * rows.page_stride + (slot - of * page_size.by) * rows.token_stride +
         head * rows.head_stride;
}

/// Whether rows are 16-byte aligned.
template <class Element>
bool aligned(const PagedRows<Element>& rows) {
  constexpr std::int64_t kChunk = 16 / sizeof(Element);
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.page_stride % kChunk == 0 &&
         rows.token_stride % kChunk == 0 && rows.head_stride % kChunk == 0;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
