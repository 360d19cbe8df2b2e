// SPDX-License-Identifier: MIT
// Arguments of KV compaction: accepted paths, and the slots of a cache as bytes.
#pragma once

#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/paged_kv.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// Accepted paths of B proposals, arrays on the device: paths and counts of Verification results can be
/// passed as they are.
struct AcceptedPaths {
  const NodeId* path;          ///< (B, width) node ids that rise; those from `count` on do not matter
  const std::int32_t* count;   ///< (B) nodes of the path, the root included
  const std::int32_t* prefix;  ///< (B) slots before the root's: node n is in slot prefix + n
  int sequences,               ///< B
      width;                   ///< nodes of the longest path
  const std::int32_t* sequence_count = nullptr;  ///< sequences in this call, at most B, as Trees has it
};

/// Where slots lie, as in PagedKv; its arrays on the device.
struct SlotPages {
  int page_size;                          ///< slots of a page
  const std::int32_t* indptr = nullptr;   ///< (B + 1) of tables that are CSR
  int max_pages = 0;                      ///< of tables that are rectangles, (B, max_pages)
  std::uint32_t page_count = 0x7FFFFFFF;  ///< pages from this one on, and negative ones, are left alone
};

/// Per-slot data to move, as bytes: the K of all layers, or the V, or features. In layer l, the data of slot
/// s of a page for head h is `head_bytes` from data(l) + page * page_stride + s * token_stride + h *
/// head_stride on.
struct SlotRows {
  unsigned char* base = nullptr;        ///< data(l) = base + l * layer_stride, or
  std::int64_t layer_stride = 0;        ///< in bytes
  void* const* of_layer = nullptr;      ///< (layers), on the device, if not null: data(l) = of_layer[l]
  int layers = 1,                       ///< with such data
      heads = 1;                        ///< per layer
  std::int64_t page_stride = 0,         ///< from page to page, in bytes
      token_stride = 0,                 ///< from slot to slot of a page, in bytes
      head_stride = 0;                  ///< from head to head, in bytes
  std::int64_t head_bytes = 0;          ///< of a slot's data for one head
  const std::int32_t* pages = nullptr;  ///< table of pages; null: sequence b is page b
  int alignment = 16;                   ///< of what is in `of_layer`, in bytes
};

/// The K or the V of `layers` layers, `rows` being that of the first, others `layer_stride` elements apart.
/// For layers at arbitrary addresses, set `of_layer` of the result.
template <class Element>
SlotRows slot_rows(const PagedRows<Element>& rows, int heads, int head_dim, int layers = 1,
                   std::int64_t layer_stride = 0) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
  SlotRows out;
  out.base = reinterpret_cast<unsigned char*>(const_cast<Element*>(rows.data));
  out.layer_stride = layer_stride * kBytes;
  out.layers = layers;
  out.heads = heads;
  out.page_stride = rows.page_stride * kBytes;
  out.token_stride = rows.token_stride * kBytes;
  out.head_stride = rows.head_stride * kBytes;
  out.head_bytes = head_dim * kBytes;
  out.pages = rows.pages;
  return out;
}

namespace detail {

/// Units that a slot has in all layers.
SPECULA_HD std::int64_t units_of(const SlotRows& rows, int unit) {
  return rows.head_bytes / unit * rows.heads * rows.layers;
}

/// Whether all required arrays are given and aligned, and slots do not overlap.
inline bool has_slots(const SlotRows& rows, const SlotPages& pages) {
  if (rows.layers < 0 || rows.heads < 0 || rows.head_bytes < 0) return false;
  if (units_of(rows, 1) == 0) return true;
  if (rows.of_layer ? rows.alignment < 1 || any_misaligned(rows.of_layer) : !rows.base) return false;
  if (rows.pages && any_misaligned(rows.pages)) return false;
  // Pages may lie within each other, as features of several sequences in one array do.
  return are_apart(rows.heads, rows.head_stride, rows.head_bytes) &&
         are_apart(pages.page_size, rows.token_stride, rows.head_bytes) &&
         (rows.of_layer || are_apart(rows.layers, rows.layer_stride, rows.head_bytes));
}
inline bool has_paths(const AcceptedPaths& paths) {
  if (paths.sequences <= 0 || paths.width <= 0) return paths.sequences >= 0 && paths.width >= 0;
  return !any_null({paths.path, paths.count, paths.prefix}) &&
         !any_misaligned(paths.path, paths.count, paths.prefix, paths.sequence_count);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
