// SPDX-License-Identifier: MIT
// KV compaction: moves the keys and values of accepted paths together, all layers in one launch.
//
// Work: a block has 256 units of a sequence; a thread moves one unit in every slot that moves.
// Traffic: units are read and written once, up to eight at a time; offsets of slots are in shared memory.
// Forms: units of 16, 4 or 1 bytes; size_compaction() takes the largest that strides and addresses allow.
// Reference: plain code in tests/cuda/api/compact_kv.cpp and bench/cuda/helpers.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/compact_kv.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program helpers).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/slots.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

namespace detail {

constexpr int kMaxSlotRows = 2;

struct CompactArgs {
  AcceptedPaths paths;
  SlotPages pages;
  SlotRows rows[kMaxSlotRows];
  int parts;   // of rows
  int chunks;  // blocks per sequence
};

struct alignas(16) Bytes16 {
  std::uint32_t v[4];
};

/// Whether all addresses of the rows are multiples of `unit`, which is a power of two.
inline bool divides(std::int64_t unit, const SlotRows& rows) {
  const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(rows.base));
  const std::int64_t data = rows.of_layer ? rows.alignment : base | rows.layer_stride;
  return (data | rows.page_stride | rows.token_stride | rows.head_stride | rows.head_bytes) % unit == 0;
}
SPECULA_HD std::size_t compact_shared_bytes(int width) {
  return array_bytes<unsigned char>(16) + 2 * array_bytes<std::int64_t>(kMaxSlotRows * width);
}

/// How far from a layer's data a slot is; -1 if it is in no page.
SPECULA_HD std::int64_t slot_offset(const SlotPages& pages, const SlotRows& rows, int sequence,
                                    std::int64_t slot) {
  std::int64_t first = sequence, count = 1;
  if (pages.indptr) {
    first = pages.indptr[sequence];
    count = pages.indptr[sequence + 1] - first;
  } else if (pages.max_pages > 0) {
    first = static_cast<std::int64_t>(sequence) * pages.max_pages;
    count = pages.max_pages;
  }
  const std::int64_t of = slot / pages.page_size;
  if (slot < 0 || of >= count) return -1;
  const std::int64_t page = rows.pages ? rows.pages[first + of] : first + of;
  if (page < 0 || page >= static_cast<std::int64_t>(pages.page_count)) return -1;
  return page * rows.page_stride + (slot - of * pages.page_size) * rows.token_stride;
}

/// Block `index` of B * chunks: a thread has one unit of every slot of a sequence, in one layer and head.
template <class Unit, class Block>
SPECULA_HD void compact(Block block, const CompactArgs& args, int index, unsigned char* shared) {
  const int sequence = index / args.chunks, chunk = index % args.chunks, width = args.paths.width;
  if (!is_live(sequence, args.paths.sequence_count)) return;
  auto* flags = reinterpret_cast<std::int32_t*>(shared);  // paths that do not rise, nodes in place
  const int places = kMaxSlotRows * width;
  auto* from = behind<std::int64_t>(shared, 16);  // (kMaxSlotRows, width)
  auto* to = behind<std::int64_t>(from, places);
  end_array(to, places);
  if (block.rank() == 0) flags[0] = flags[1] = 0;
  block.sync();
  const NodeId* path = args.paths.path + static_cast<std::int64_t>(sequence) * width;
  const int count = smaller(args.paths.count[sequence], width);
  for (int i = block.rank(); i < count; i += block.size()) {
    const NodeId node = path[i];
    if (node <= (i == 0 ? -1 : path[i - 1])) atomic_add(flags, std::int32_t{1});
    if (node == i) atomic_add(flags + 1, std::int32_t{1});
  }
  block.sync();
  const int stay = flags[1];  // a prefix of the path, whose nodes rise
  if (flags[0] != 0 || stay >= count) return;
  const std::int64_t prefix = args.paths.prefix[sequence];
  for (int i = block.rank(); i < args.parts * (count - stay); i += block.size()) {
    const int part = i / (count - stay), step = stay + i % (count - stay), at = part * width + step;
    const std::int64_t source = slot_offset(args.pages, args.rows[part], sequence, prefix + path[step]);
    to[at] = slot_offset(args.pages, args.rows[part], sequence, prefix + step);
    from[at] = to[at] < 0 ? -1 : source;
  }
  block.sync();

  std::int64_t item = static_cast<std::int64_t>(chunk) * block.size() + block.rank();
  constexpr int kUnit = static_cast<int>(sizeof(Unit));
  int part = 0;
  for (; part < args.parts && item >= units_of(args.rows[part], kUnit); ++part)
    item -= units_of(args.rows[part], kUnit);
  if (part >= args.parts) return;
  const SlotRows& rows = args.rows[part];
  const std::int64_t units = rows.head_bytes / kUnit;
  const std::int64_t column = item % units, head = item / units % rows.heads,
                     layer = item / units / rows.heads;
  unsigned char* data = rows.of_layer ? static_cast<unsigned char*>(rows.of_layer[layer])
                                      : rows.base + layer * rows.layer_stride;
  data += head * rows.head_stride + column * kUnit;
  from += part * width;
  to += part * width;
  // Nodes rise, so nothing is written to a slot before the thread has read it.
  constexpr int kAtOnce = 8;
  for (int begin = stay; begin < count; begin += kAtOnce) {
    Unit x[kAtOnce];
    SPECULA_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i < count && from[begin + i] >= 0)
        x[i] = *reinterpret_cast<const Unit*>(data + from[begin + i]);
    SPECULA_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i < count && from[begin + i] >= 0) *reinterpret_cast<Unit*>(data + to[begin + i]) = x[i];
  }
}

/// The device-independent part of `args`, and the unit that is moved; 0 where something is out of range.
inline int size_compaction(CompactArgs* args, int threads) {
  if (!has_paths(args->paths) || args->pages.page_size < 1 || args->pages.max_pages < 0 ||
      any_misaligned(args->pages.indptr) || args->parts < 0 || args->parts > kMaxSlotRows ||
      compact_shared_bytes(args->paths.width) > 48 * 1024)
    return 0;
  int unit = 16;
  for (int p = 0; p < args->parts; ++p) {
    if (!has_slots(args->rows[p], args->pages)) return 0;
    while (!divides(unit, args->rows[p])) unit = unit == 16 ? 4 : 1;
  }
  std::int64_t items = 0;
  for (int p = 0; p < args->parts; ++p) items += units_of(args->rows[p], unit);
  const std::int64_t chunks = ceil_div<std::int64_t>(items, threads);
  if (chunks * args->paths.sequences > 0x7FFFFFFF) return 0;
  args->chunks = static_cast<int>(chunks);
  return unit;
}
/// The same of `parts` rows, which are copied.
inline int size_compaction(CompactArgs* args, const SlotRows* rows, int parts, int threads) {
  if (parts < 0 || parts > kMaxSlotRows || (parts > 0 && !rows)) return 0;
  args->parts = parts;
  for (int p = 0; p < parts; ++p) args->rows[p] = rows[p];
  return size_compaction(args, threads);
}

#ifdef __CUDACC__
template <class Unit>
__global__ void __launch_bounds__(256) compact_kernel(const __grid_constant__ CompactArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  compact<Unit>(DeviceBlock{}, args, static_cast<int>(blockIdx.x), shared);
}
#endif

}  // namespace detail

#ifdef __CUDACC__

/// Moves slot prefix + path[i] to slot prefix + i, for all i below `count`, in place; other slots are
/// unchanged. `parts`, 0 to 2, of `rows` are moved in one launch. Where a path's nodes do not rise nothing
/// moves, and nothing moves from or to a slot that is in no page. Cost: one launch; a read and a write of
/// each slot that moves, none where the path is the beginning of the proposal. Accesses are fewest where
/// strides, bytes and addresses are multiples of 16 (or else of 4). Errors: cudaErrorInvalidValue for
/// negative sizes, for a width above 1,500, for arrays that are null or misaligned, and for heads, slots or
/// layers that overlap.
/// @code
/// const PagedRows<BFloat16> states{hidden_states, page_stride, hidden, 0, page_table};  // kept per slot
/// const SlotRows moved = slot_rows(states, 1, hidden);
/// compact_slots(paths, pages, &moved, 1, stream);
/// @endcode
inline cudaError_t compact_slots(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows* rows,
                                 int parts, cudaStream_t stream) {
  detail::CompactArgs args{paths, pages, {}, 0, 0};
  constexpr int kThreads = 256;
  const int unit = detail::size_compaction(&args, rows, parts, kThreads);
  if (unit == 0) return cudaErrorInvalidValue;
  const auto kernel = unit == 16  ? detail::compact_kernel<detail::Bytes16>
                      : unit == 4 ? detail::compact_kernel<std::uint32_t>
                                  : detail::compact_kernel<unsigned char>;
  return detail::launch(kernel, paths.sequences * args.chunks, 1, kThreads,
                        detail::compact_shared_bytes(paths.width), stream, args);
}

/// compact_slots() of a cache's K and V.
/// @code
/// const AcceptedPaths paths{results.accepted, results.count, prefix, sequences, max_depth + 1};
/// const PagedRows<BFloat16> k{k_cache, page_stride, token_stride, head_stride, page_table};
/// const PagedRows<BFloat16> v{v_cache, page_stride, token_stride, head_stride, page_table};
/// compact_kv(paths, pages, slot_rows(k, kv_heads, 128, layers, layer_stride),
///            slot_rows(v, kv_heads, 128, layers, layer_stride), stream);
/// @endcode
inline cudaError_t compact_kv(const AcceptedPaths& paths, const SlotPages& pages, const SlotRows& keys,
                              const SlotRows& values, cudaStream_t stream) {
  const SlotRows rows[] = {keys, values};
  return compact_slots(paths, pages, rows, 2, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
