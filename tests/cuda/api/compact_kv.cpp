// SPDX-License-Identifier: MIT
// labels: threads
// compact_kv(): moves keys and values of accepted paths in a KV cache or in arrays of features.
#include <doctest/doctest.h>
#include <specula/cuda/api/compact_kv.cuh>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"
#include "wide_memory.hpp"

using namespace specula_test;
using namespace specula::cuda;

namespace {

using Bytes = std::vector<unsigned char>;

/// The accepted paths of a batch.
struct Paths {
  int width;
  std::vector<NodeId> path;
  std::vector<std::int32_t> count, prefix;
  const std::int32_t* live = nullptr;
  AcceptedPaths args() const {
    return {path.data(), count.data(), prefix.data(), static_cast<int>(count.size()), width, live};
  }
  /// The moves of one sequence.
  std::vector<std::pair<int, int>> moves(std::size_t b) const {
    std::vector<std::pair<int, int>> out;
    for (int i = 0; i < std::min(count[b], width); ++i)
      out.push_back({prefix[b] + path[b * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)],
                     prefix[b] + i});
    return out;
  }
};

/// Ascending nodes, from the root on; then -1.
Paths random_paths(Random& random, int sequences, int width, int nodes, int capacity) {
  Paths out{width, {}, {}, {}, nullptr};
  for (int b = 0; b < sequences; ++b) {
    std::vector<NodeId> path{0};
    const int kind = random.below(4);  // nothing, a chain, a chain at first, anything
    while (kind > 0 && static_cast<int>(path.size()) < width) {
      const bool chain = kind == 1 || (kind == 2 && path.size() < 3);
      const NodeId next = path.back() + 1 + (chain ? 0 : random.below(4));
      if (next >= nodes || random.bernoulli(0.1)) break;
      path.push_back(next);
    }
    out.count.push_back(static_cast<std::int32_t>(path.size()));
    path.resize(static_cast<std::size_t>(width), -1);
    out.path.insert(out.path.end(), path.begin(), path.end());
    out.prefix.push_back(random.below(capacity - nodes + 1));
  }
  return out;
}

/// One of the two kinds of rows, in a memory of its own that is random bytes all over.
struct Part {
  Bytes memory;
  SlotRows rows;
  std::vector<std::int32_t> pages;        // its table
  std::vector<std::int64_t> layer_begin;  // of data(l) in the memory
  std::vector<void*> of_layer;
};

struct Case {
  int page_size = 4, sequences = 1, slots = 32;  // slots of a sequence
  enum Table { contiguous, rectangle, csr } table = contiguous;
  std::vector<std::int32_t> indptr;
  SlotPages pages{1};
  std::vector<Part> parts;

  int pages_of_sequence() const { return (slots + page_size - 1) / page_size; }
};

/// Where a slot's bytes of a layer and head begin: written apart from the kernel's.
std::int64_t place(const Case& c, const Part& part, int b, int slot, int layer, int head) {
  std::int64_t page = 0;
  const auto of = static_cast<std::size_t>(slot / c.page_size);
  switch (c.table) {
    case Case::contiguous:
      page = b;
      break;
    case Case::rectangle:
      page = part.pages[static_cast<std::size_t>(b) * static_cast<std::size_t>(c.pages.max_pages) + of];
      break;
    case Case::csr:
      page = part.pages[static_cast<std::size_t>(c.indptr[static_cast<std::size_t>(b)]) + of];
      break;
  }
  return part.layer_begin[static_cast<std::size_t>(layer)] + page * part.rows.page_stride +
         (slot % c.page_size) * part.rows.token_stride + head * part.rows.head_stride;
}

/// `unit`: what all sizes and addresses are multiples of.
Case random_case(Random& random, int sequences, int slots, int unit, bool small) {
  Case c;
  c.sequences = sequences;
  c.slots = slots;
  c.table = static_cast<Case::Table>(random.below(3));
  c.page_size = c.table == Case::contiguous ? slots : 1 + random.below(9);
  c.pages.page_size = c.page_size;
  const int pages = c.table == Case::contiguous ? 1 : c.pages_of_sequence(), all = sequences * pages + 3;
  if (c.table == Case::rectangle) c.pages.max_pages = pages + random.below(2);
  if (c.table == Case::csr) {
    c.indptr.push_back(random.below(3));
    for (int b = 0; b < sequences; ++b) c.indptr.push_back(c.indptr.back() + pages);
  }
  const int parts = 1 + random.below(2);
  for (int p = 0; p < parts; ++p) {
    Part part;
    SlotRows& rows = part.rows;
    rows.layers = 1 + random.below(small ? 2 : 4);
    rows.heads = 1 + random.below(3);
    rows.head_bytes = unit * (1 + random.below(small ? 2 : 9));
    const std::int64_t pad = unit * random.below(3);
    if (random.bernoulli(0.5)) {  // NHD
      rows.head_stride = rows.head_bytes + pad;
      rows.token_stride = rows.heads * rows.head_stride + pad;
      rows.page_stride = c.page_size * rows.token_stride + pad;
    } else {  // HND
      rows.token_stride = rows.head_bytes + pad;
      rows.head_stride = c.page_size * rows.token_stride + pad;
      rows.page_stride = rows.heads * rows.head_stride + pad;
    }
    const std::int64_t layer = all * rows.page_stride + pad;
    part.memory.resize(static_cast<std::size_t>(rows.layers * layer + 64));
    for (unsigned char& x : part.memory) x = static_cast<unsigned char>(random.bits());
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(part.memory.data()));
    const std::int64_t begin = (unit - address % unit) % unit;
    std::vector<int> order(static_cast<std::size_t>(rows.layers));
    std::iota(order.begin(), order.end(), 0);
    const bool pointers = random.bernoulli(0.5);
    if (pointers) std::reverse(order.begin(), order.end());
    for (const int l : order) part.layer_begin.push_back(begin + l * layer);
    if (pointers) {
      for (const std::int64_t at : part.layer_begin) part.of_layer.push_back(part.memory.data() + at);
      rows.alignment = unit;
    } else {
      rows.base = part.memory.data() + begin;
      rows.layer_stride = layer;
    }
    if (c.table != Case::contiguous) {  // pages of all sequences, shuffled
      std::vector<std::int32_t> numbers(static_cast<std::size_t>(all));
      std::iota(numbers.begin(), numbers.end(), 0);
      for (std::size_t i = numbers.size(); i > 1; --i)
        std::swap(numbers[i - 1],
                  numbers[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(i)))]);
      const std::size_t row = c.table == Case::rectangle ? static_cast<std::size_t>(c.pages.max_pages) : 0;
      if (c.table == Case::csr) part.pages.assign(static_cast<std::size_t>(c.indptr[0]), 1 << 30);
      std::size_t next = 0;
      for (int b = 0; b < sequences; ++b) {
        for (int i = 0; i < pages; ++i) part.pages.push_back(numbers[next++]);
        for (std::size_t i = static_cast<std::size_t>(pages); i < row; ++i) part.pages.push_back(1 << 30);
      }
    }
    c.parts.push_back(std::move(part));
  }
  if (c.table == Case::csr) c.pages.indptr = c.indptr.data();
  for (Part& part : c.parts) {  // after these no slot moves
    part.rows.pages = part.pages.empty() ? nullptr : part.pages.data();
    part.rows.of_layer = part.of_layer.empty() ? nullptr : part.of_layer.data();
  }
  return c;
}

std::vector<Bytes> memories(const Case& c) {
  std::vector<Bytes> out;
  for (const Part& part : c.parts) out.push_back(part.memory);
  return out;
}

/// All moves at once, in a copy.
std::vector<Bytes> expected(const Case& c, const Paths& paths) {
  std::vector<Bytes> out = memories(c);
  for (std::size_t p = 0; p < c.parts.size(); ++p)
    for (int b = 0; b < c.sequences; ++b)
      for (const auto& [from, to] : paths.moves(static_cast<std::size_t>(b)))
        for (int l = 0; l < c.parts[p].rows.layers; ++l)
          for (int h = 0; h < c.parts[p].rows.heads; ++h)
            std::memcpy(out[p].data() + place(c, c.parts[p], b, to, l, h),
                        c.parts[p].memory.data() + place(c, c.parts[p], b, from, l, h),
                        static_cast<std::size_t>(c.parts[p].rows.head_bytes));
  return out;
}

/// Runs the kernel; returns the unit that it moved. `together`: blocks of a sequence run side by side.
int run(Case& c, const Paths& paths, int threads, std::uint64_t seed, Engine engine = Engine::fibers,
        bool together = false) {
  detail::CompactArgs args{paths.args(), c.pages, {}, static_cast<int>(c.parts.size()), 0};
  for (std::size_t p = 0; p < c.parts.size(); ++p) args.rows[p] = c.parts[p].rows;
  const int unit = detail::size_compaction(&args, threads);
  REQUIRE(unit > 0);
  if (together) REQUIRE(args.chunks <= 16);
  const int blocks = together ? args.chunks : 1;
  emulate({.clusters = c.sequences * args.chunks / blocks,
           .blocks = blocks,
           .threads = threads,
           .shared_bytes = detail::compact_shared_bytes(paths.width),
           .seed = seed,
           .engine = engine},
          [&](EmulatedCluster cluster, int index, unsigned char* shared) {
            using namespace specula::cuda::detail;
            const auto block = cluster.block();
            const int i = index * blocks + cluster.rank();
            if (unit == 16)
              compact<Bytes16>(block, args, i, shared);
            else if (unit == 4)
              compact<std::uint32_t>(block, args, i, shared);
            else
              compact<unsigned char>(block, args, i, shared);
          });
  return unit;
}

void restore(Case& c, const std::vector<Bytes>& before) {
  for (std::size_t p = 0; p < c.parts.size(); ++p)
    std::copy(before[p].begin(), before[p].end(), c.parts[p].memory.begin());
}

}  // namespace

UNTHREADED_TEST_CASE(
    "any layout, pages, layers and alignment: the right bytes move, and all others are unchanged") {
  Random random(121);
  int seen[17] = {};
  for (int round = 0; round < 60; ++round) {
    const int aligned[] = {16, 16, 4, 2, 1}, unit = aligned[random.below(5)];
    const int nodes = 1 + random.below(round % 3 == 0 ? 60 : 24), slots = nodes + random.below(20);
    Case c = random_case(random, 1 + random.below(4), slots, unit, false);
    const Paths paths = random_paths(random, c.sequences, 1 + random.below(30), nodes, slots);
    const std::vector<Bytes> before = memories(c), after = expected(c, paths);
    for (const int threads : {32, 96, 256}) {
      CAPTURE(round);
      CAPTURE(threads);
      const int moved = run(c, paths, threads, random.bits());
      ++seen[moved];
      CHECK(moved >= (unit == 2 ? 1 : unit));
      CHECK(memories(c) == after);
      restore(c, before);
    }
  }
  CHECK(seen[16] > 0);
  CHECK(seen[4] > 0);
  CHECK(seen[1] > 0);
}

TEST_CASE("concurrent blocks, and concurrent threads") {
  Random random(122);
  for (int round = 0; round < 8; ++round) {
    Case c = random_case(random, 2, 40, 16, round == 0);
    Paths paths = random_paths(random, 2, 12, 36, 40);
    if (round == 0) {
      paths.path = {0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 15, 16, 0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13};
      paths.count = {12, 12};
    }
    const std::vector<Bytes> before = memories(c), after = expected(c, paths);
    run(c, paths, 32, random.bits(), Engine::fibers, true);
    CHECK(memories(c) == after);
    if (round > 0) continue;
    restore(c, before);
    run(c, paths, 32, 1, Engine::threads, true);
    CHECK(memories(c) == after);
  }
}

UNTHREADED_TEST_CASE("a live count of sequences: the slots of others do not move") {
  Random random(129);
  Case c = random_case(random, 4, 40, 16, false);
  const Paths all = random_paths(random, 4, 12, 36, 40);
  const std::vector<Bytes> before = memories(c);
  for (std::int32_t live = 0; live <= 4; ++live) {
    Paths some = all, first = all;
    for (std::size_t b = static_cast<std::size_t>(live); b < 4; ++b) first.count[b] = 0;
    const std::vector<Bytes> after = expected(c, first);
    some.live = &live;
    run(c, some, 64, 1);
    CHECK(memories(c) == after);
    restore(c, before);
  }
}

UNTHREADED_TEST_CASE("overlapping moves: no slot is overwritten before it was read") {
  for (const int width : {2, 8, 9, 17, 40}) {
    Random random(123);
    Case c = random_case(random, 1, 64, 16, false);
    Paths paths{width, std::vector<NodeId>(static_cast<std::size_t>(width)), {width}, {3}, nullptr};
    for (int by = 1; by <= 9; ++by) {
      for (int i = 0; i < width; ++i) paths.path[static_cast<std::size_t>(i)] = i == 0 ? 0 : i + by;
      const std::vector<Bytes> before = memories(c), after = expected(c, paths);
      run(c, paths, 64, 1);
      CHECK(memories(c) == after);
      restore(c, before);
    }
  }
}

UNTHREADED_TEST_CASE(
    "nothing moves: identities, empty results, paths that do not ascend, and sequences that keep no token") {
  Random random(124);
  Case c = random_case(random, 1, 32, 16, false);
  const std::vector<Bytes> before = memories(c);
  const std::int32_t outside = 1 << 30;
  struct {
    std::vector<NodeId> path;
    std::int32_t count, prefix;
  } cases[] = {{{0, 1, 2, 3}, 4, outside}, {{0, 5, 6, 7}, 1, outside}, {{0, 5, 6, 7}, 0, 4},
               {{0, 5, 6, 7}, -3, 4},      {{0, 5, 5, 7}, 4, 4},       {{0, 5, 4, 7}, 4, 4},
               {{-1, 5, 6, 7}, 4, 4},      {{0, 5, 6, -1}, 4, 4},      {{0, 5, 6, 7}, 4, outside},
               {{0, 5, 6, 7}, 4, -20},     {{0, 1, 2, 3}, 40, 4}};
  for (const auto& one : cases) {
    const Paths paths{4, one.path, {one.count}, {one.prefix}};
    run(c, paths, 32, 1);
    CHECK(memories(c) == before);
  }
  // A path whose count exceeds its capacity is cut.
  Paths longer{4, {0, 5, 6, 7}, {4}, {4}};
  const std::vector<Bytes> after = expected(c, longer);
  longer.count[0] = 1000;
  run(c, longer, 32, 1);
  CHECK(memories(c) == after);
}

UNTHREADED_TEST_CASE("slots outside the pages are neither moved nor overwritten") {
  // Pages of 4 slots, 16 bytes per slot; invalid page numbers, and slots beyond the table.
  Bytes memory(1024);
  Random random(125);
  for (unsigned char& x : memory) x = static_cast<unsigned char>(random.bits());
  Case c;
  c.page_size = c.pages.page_size = 4;
  c.table = Case::rectangle;
  c.pages.max_pages = 4;
  c.pages.page_count = 9;
  Part part;
  part.memory = memory;
  part.pages = {2, -1, 0, 9, 5, 6};  // the last two are another sequence's
  part.layer_begin = {0};
  c.parts.push_back(std::move(part));
  SlotRows& rows = c.parts[0].rows;
  // Bytes, so that any address will do.
  rows.base = c.parts[0].memory.data();
  rows.page_stride = 64;
  rows.token_stride = 16;
  rows.head_stride = 16;
  rows.head_bytes = 15;
  rows.pages = c.parts[0].pages.data();
  // From slots 1, 3 + 5 = 8, 9 (page 0) to 1, 2, 3 (page 2), then from 11 to 4 (no page), from 13 (no page)
  // to 5, from 17 (beyond the table) to 6.
  const Paths paths{7, {0, 1, 8, 9, 11, 13, 17}, {7}, {0}};
  run(c, paths, 32, 1);
  Bytes wanted = memory;
  for (std::size_t i = 0; i < 15; ++i) {
    wanted[2 * 64 + 2 * 16 + i] = memory[i];
    wanted[2 * 64 + 3 * 16 + i] = memory[16 + i];
  }
  CHECK(c.parts[0].memory == wanted);
  // With 8 pages these exist.
  c.parts[0].memory = memory;
  rows.base = c.parts[0].memory.data();
  c.parts[0].pages[3] = 8;
  run(c, Paths{2, {0, 13}, {2}, {0}}, 32, 1);
  wanted = memory;
  std::copy_n(memory.begin() + 8 * 64 + 16, 15, wanted.begin() + 2 * 64 + 16);
  CHECK(c.parts[0].memory == wanted);
  // The slot beyond the table's end, where another sequence's page would be read.
  c.parts[0].memory = memory;
  rows.base = c.parts[0].memory.data();
  run(c, Paths{2, {0, 16}, {2}, {0}}, 32, 1);
  CHECK(c.parts[0].memory == memory);
  // A page before the first, whose bytes are not, pages being nearer to each other than slots.
  rows.page_stride = 16;
  rows.token_stride = 144;
  run(c, Paths{2, {0, 5}, {2}, {0}}, 32, 1);
  CHECK(c.parts[0].memory == memory);
  run(c, Paths{6, {0, 1, 2, 3, 4, 8}, {6}, {0}}, 32, 1);
  CHECK(c.parts[0].memory == memory);
}

UNTHREADED_TEST_CASE("rows of an engine's cache, and features of a batch in one array") {
  // bf16, two layers, three heads of 8, HND pages of 4 slots.
  std::vector<BFloat16> cache(2 * 5 * 3 * 4 * 8 + 8);
  for (std::size_t i = 0; i < cache.size(); ++i) cache[i].bits = static_cast<std::uint16_t>(i);
  const std::vector<std::int32_t> table = {3, 1};
  const PagedRows<BFloat16> k{cache.data(), 3 * 4 * 8, 8, 4 * 8, table.data()};
  const SlotRows rows = slot_rows(k, 3, 8, 2, 5 * 3 * 4 * 8);
  CHECK(rows.layer_stride == 5 * 3 * 4 * 8 * 2);
  CHECK(rows.head_bytes == 16);
  const Paths paths{3, {0, 2, 4}, {3}, {2}};
  Case c;
  c.pages.page_size = 4;
  c.pages.max_pages = 2;
  c.parts.emplace_back();
  c.parts[0].rows = rows;
  std::vector<BFloat16> wanted = cache;
  const auto at = [](std::size_t l, std::size_t slot, std::size_t h) {
    return l * 480 + (slot / 4 == 0 ? 3 : 1) * std::size_t{96} + h * 32 + slot % 4 * 8;
  };
  for (std::size_t l = 0; l < 2; ++l)
    for (std::size_t h = 0; h < 3; ++h)
      for (std::size_t i = 0; i < 8; ++i) {
        wanted[at(l, 3, h) + i] = cache[at(l, 4, h) + i];
        wanted[at(l, 4, h) + i] = cache[at(l, 6, h) + i];
      }
  run(c, paths, 64, 1);
  CHECK(std::memcmp(cache.data(), wanted.data(), cache.size() * 2) == 0);
  // Features (N, 6) of f32 of trees that begin at 0 and 5: pages that all begin at once.
  std::vector<float> features(11 * 6);
  std::iota(features.begin(), features.end(), 0.0f);
  std::vector<float> moved = features;
  Case f;
  f.sequences = 2;
  f.pages.page_size = 11;
  f.parts.emplace_back();
  SlotRows& slot_rows = f.parts[0].rows;
  slot_rows.base = reinterpret_cast<unsigned char*>(features.data());
  slot_rows.token_stride = slot_rows.head_bytes = 24;
  std::copy_n(moved.begin() + 2 * 6, 6, moved.begin() + 6);
  std::copy_n(std::vector<float>(moved).begin() + 8 * 6, 12, moved.begin() + 6 * 6);
  run(f, Paths{3, {0, 2, -1, 0, 3, 4}, {2, 3}, {0, 5}}, 32, 1);
  CHECK(features == moved);
}

UNTHREADED_TEST_CASE("slots and layers beyond 32-bit offsets") {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 16;
  const WideMemory memory(static_cast<std::size_t>(5 * kFar));
  if (!memory.data()) return;
  auto* data = static_cast<unsigned char*>(memory.data());
  Case c;
  c.pages.page_size = 1;
  c.pages.max_pages = 2;
  c.parts.emplace_back();
  const std::vector<std::int32_t> table = {2, 1};  // slot 0 in page 2, slot 1 in page 1
  SlotRows& rows = c.parts[0].rows;
  rows.base = data;
  rows.layers = 2;
  rows.layer_stride = kFar + 4096;
  rows.page_stride = kFar;
  rows.token_stride = rows.head_stride = rows.head_bytes = 16;
  rows.pages = table.data();
  for (int l = 0; l < 2; ++l) data[l * rows.layer_stride + kFar + 3] = static_cast<unsigned char>(7 + l);
  run(c, Paths{1, {1}, {1}, {0}}, 32, 1);
  for (int l = 0; l < 2; ++l) CHECK(data[l * rows.layer_stride + 2 * kFar + 3] == 7 + l);
}

UNTHREADED_TEST_CASE("sizes that are refused, and the largest unit that the alignment allows") {
  const Paths paths{4, {0, 5, 6, 7}, {4}, {4}};
  const auto sized = [&](SlotRows rows, SlotPages pages, int width = 4, int sequences = 1) {
    AcceptedPaths accepted = paths.args();
    accepted.width = width;
    accepted.sequences = sequences;
    detail::CompactArgs args{accepted, pages, {rows, rows}, 2, -1};
    return detail::size_compaction(&args, 256);
  };
  SlotRows good;
  good.base = reinterpret_cast<unsigned char*>(std::uintptr_t{1 << 20});
  good.page_stride = 1024, good.token_stride = 80, good.head_stride = 80, good.head_bytes = 64;
  good.layer_stride = 4096;
  CHECK(sized(good, {4}) == 16);
  CHECK(sized(good, {0}) == 0);
  CHECK(sized(good, {4}, 1500) == 16);
  CHECK(sized(good, {4}, 1600) == 0);
  CHECK(sized(good, {4}, -1) == 0);
  CHECK(sized(good, {4}, 4, -1) == 0);
  for (std::int64_t SlotRows::*field :
       {&SlotRows::page_stride, &SlotRows::token_stride, &SlotRows::head_stride, &SlotRows::head_bytes,
        &SlotRows::layer_stride}) {
    SlotRows rows = good;
    rows.*field += 4;
    CHECK(sized(rows, {4}) == 4);
    rows.*field += 2;
    CHECK(sized(rows, {4}) == 1);
  }
  SlotRows rows = good;
  rows.base += 4;
  CHECK(sized(rows, {4}) == 4);
  void* none = nullptr;
  rows.of_layer = &none;
  CHECK(sized(rows, {4}) == 16);
  rows.alignment = 8;
  CHECK(sized(rows, {4}) == 4);
  rows.alignment = 0;
  CHECK(sized(rows, {4}) == 0);
  for (int SlotRows::*field : {&SlotRows::layers, &SlotRows::heads}) {
    SlotRows bad = good;
    bad.*field = -1;
    CHECK(sized(bad, {4}) == 0);
  }
}

UNTHREADED_TEST_CASE("arrays that are missing, misaligned or overlap") {
  const Paths owner{4, {0, 5, 6, 7}, {4}, {4}};
  const AcceptedPaths paths = owner.args();
  std::vector<std::int64_t> memory(64);
  std::vector<std::int32_t> table(8);
  void* layers[] = {memory.data(), memory.data()};
  SlotRows good;
  good.base = reinterpret_cast<unsigned char*>(memory.data());
  good.layers = 2, good.heads = 2;
  good.layer_stride = 128, good.page_stride = 64, good.token_stride = 32, good.head_stride = 16;
  good.head_bytes = 16;
  good.pages = table.data();
  const SlotPages pages{2, nullptr, 1};
  const auto sized = [](const AcceptedPaths& of, const SlotPages& where, const SlotRows* rows, int parts) {
    detail::CompactArgs args{of, where, {}, 0, 0};
    return detail::size_compaction(&args, rows, parts, 256) > 0;
  };
  const auto fits = [&](const SlotRows& rows) { return sized(paths, pages, &rows, 1); };
  CHECK(fits(good));
  CHECK(!sized(paths, pages, nullptr, 1));
  CHECK(sized(paths, pages, nullptr, 0));
  CHECK(!sized(paths, pages, &good, -1));
  CHECK(!sized(paths, pages, &good, 3));

  SlotRows rows = good;
  rows.base = nullptr;
  CHECK(!fits(rows));
  rows.layers = 0;  // nothing to move
  CHECK(fits(rows));
  rows = good;
  rows.of_layer = layers;
  CHECK(fits(rows));
  rows.of_layer = reinterpret_cast<void* const*>(reinterpret_cast<unsigned char*>(layers) + 4);
  CHECK(!fits(rows));
  rows = good;
  rows.pages = reinterpret_cast<const std::int32_t*>(reinterpret_cast<unsigned char*>(table.data()) + 2);
  CHECK(!fits(rows));
  for (std::int64_t SlotRows::*stride :
       {&SlotRows::layer_stride, &SlotRows::token_stride, &SlotRows::head_stride}) {
    rows = good;
    rows.*stride = 8;
    CHECK(!fits(rows));
  }
  rows.of_layer = layers, rows.layers = rows.heads = 1, rows.layer_stride = rows.head_stride = 0;
  CHECK(fits(rows));  // unused strides

  for (int missing = 0; missing < 3; ++missing) {
    AcceptedPaths bad = paths;
    if (missing == 0) bad.path = nullptr;
    if (missing == 1) bad.count = nullptr;
    if (missing == 2) bad.prefix = nullptr;
    CHECK(!sized(bad, pages, &good, 1));
    for (int AcceptedPaths::*empty : {&AcceptedPaths::sequences, &AcceptedPaths::width}) {
      AcceptedPaths none = bad;
      none.*empty = 0;  // nothing to move: no array is needed
      CHECK(sized(none, pages, &good, 1));
      none.*empty = -1;
      CHECK(!sized(none, pages, &good, 1));
    }
  }
  AcceptedPaths bad = paths;
  bad.path = reinterpret_cast<const NodeId*>(reinterpret_cast<const unsigned char*>(paths.path) + 1);
  CHECK(!sized(bad, pages, &good, 1));
  SlotPages csr = pages;
  csr.indptr = reinterpret_cast<const std::int32_t*>(reinterpret_cast<unsigned char*>(table.data()) + 1);
  CHECK(!sized(paths, csr, &good, 1));
  csr = pages;
  csr.max_pages = -1;
  CHECK(!sized(paths, csr, &good, 1));
}
