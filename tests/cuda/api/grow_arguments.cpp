// SPDX-License-Identifier: MIT
// Argument checks of the kernels that grow proposals.
#include <doctest/doctest.h>
#include <specula/cuda/api/grow.cuh>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

using namespace specula::cuda;

namespace {

template <class Plan, class Rows, class Out>
constexpr bool steps(const Plan* plan, const Rows* rows, const Out* out) {
  return requires { detail::valid_step(*plan, 0, Roots{}, *rows, *out, nullptr, 0); };
}
template <class E>
constexpr const DynamicTreePlan<E>* kTree = nullptr;
template <class E>
constexpr const CapePlan<E>* kCape = nullptr;
template <class E>
constexpr const DraftRows<E>* kRows = nullptr;
constexpr const DraftLevels* kLevels = nullptr;
constexpr const CapeSpine* kSpine = nullptr;

// A plan for rows of one element type does not accept others.
static_assert(steps(kTree<BFloat16>, kRows<BFloat16>, kLevels) && steps(kCape<Half>, kRows<Half>, kSpine));
static_assert(!steps(kTree<BFloat16>, kRows<Half>, kLevels) &&
              !steps(kTree<BFloat16>, kRows<float>, kLevels));
static_assert(!steps(kCape<Half>, kRows<BFloat16>, kSpine) && !steps(kCape<Half>, kRows<float>, kSpine));

template <class T>
T* behind(T* at, std::size_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(at) + bytes);
}

// Never read or written: only addresses count.
alignas(8) unsigned char memory[64];
template <class T>
T* some() {
  return reinterpret_cast<T*>(memory);
}

struct Arguments {
  DynamicTreePlan<BFloat16> tree;
  CapePlan<BFloat16> cape;
  int level = 1;
  Roots roots{some<Token>(), some<std::int32_t>(), some<std::int32_t>()};
  DraftRows<BFloat16> rows{some<BFloat16>(), 1001};
  DraftLevels levels{some<Token>(), some<NodeId>(), some<std::int32_t>(), some<std::uint64_t>()};
  CapeSpine spine{some<Token>(), some<std::int32_t>()};
  GrownTrees trees{some<Token>(), some<NodeId>()};
  Status* status = some<Status>();
  unsigned char* workspace = memory;
  std::size_t tree_bytes, cape_bytes;

  Arguments() {
    REQUIRE(detail::size_plan(&tree, {.sequences = 2, .vocab = 1000}));
    REQUIRE(detail::size_plan(&cape, {.sequences = 2, .vocab = 1000}));
    tree.root_scan.shared_bytes = tree.scan.shared_bytes = cape.scan.shared_bytes = 100;
    tree_bytes = workspace_bytes(tree);
    cape_bytes = workspace_bytes(cape);
  }
  bool tree_step() const {
    return detail::valid_step(tree, level, roots, rows, levels, workspace, tree_bytes);
  }
  bool cape_step() const {
    return detail::valid_step(cape, level, roots, rows, spine, workspace, cape_bytes);
  }
  bool rerank() const { return detail::valid_rerank(tree, roots, trees, status, workspace, tree_bytes); }
  bool finish() const { return detail::valid_finish(cape, roots, trees, status, workspace, cape_bytes); }
};
using Mistake = std::function<void(Arguments&)>;

/// The calls that refuse a mistake: a step of the dynamic tree, its rerank, a step of CAPE, its
/// finish.
std::vector<bool> refused(const Mistake& mistake) {
  Arguments a;
  mistake(a);
  return {!a.tree_step(), !a.rerank(), !a.cape_step(), !a.finish()};
}
using Refused = std::vector<bool>;
const Refused kNone{false, false, false, false}, kAll{true, true, true, true},
    kSteps{true, false, true, false}, kEnds{false, true, false, true}, kTreeStep{true, false, false, false},
    kCapeStep{false, false, true, false};

}  // namespace

TEST_CASE("valid arguments of growth, and arrays that may be null") {
  CHECK(refused([](Arguments&) {}) == kNone);
  CHECK(refused([](Arguments& a) { a.roots.limit = nullptr, a.status = nullptr; }) == kNone);
  CHECK(refused([](Arguments& a) { a.rows.stride = 0; }) == kNone);     // one row for all
  CHECK(refused([](Arguments& a) { a.rows.stride = 1000; }) == kNone);  // one after the other
  CHECK(refused([](Arguments& a) { a.level = 5, a.levels = {}, a.cape.length = 6; }) == kNone);
  CHECK(refused([](Arguments& a) { a.rows.logits = behind(a.rows.logits, 2); }) == kNone);
}

TEST_CASE("workspaces that are null, misaligned or too small, and plans that were not made") {
  CHECK(refused([](Arguments& a) { a.workspace = nullptr; }) == kAll);
  CHECK(refused([](Arguments& a) { a.workspace += 4; }) == kAll);
  CHECK(refused([](Arguments& a) { --a.tree_bytes, --a.cape_bytes; }) == kAll);
  CHECK(refused([](Arguments& a) { ++a.tree_bytes, ++a.cape_bytes; }) == kNone);
  CHECK(refused([](Arguments& a) { a.tree = {}, a.cape = {}; }) == kAll);
  CHECK(refused([](Arguments& a) { a.tree.scan = {}, a.cape.scan = {}; }) == kSteps);
  CHECK(refused([](Arguments& a) { a.level = 0, a.tree.root_scan = {}; }) == kTreeStep);
  CHECK(refused([](Arguments& a) { a.tree.root_scan = {}; }) == kNone);
}

TEST_CASE("levels and steps out of range, and rows that overlap") {
  CHECK(refused([](Arguments& a) { a.level = -1; }) == kSteps);
  CHECK(refused([](Arguments& a) { a.level = 4; }) == kCapeStep);  // steps are 0 to 3, levels 0 to 5
  CHECK(refused([](Arguments& a) { a.level = 6; }) == kSteps);
  CHECK(refused([](Arguments& a) { a.rows.stride = 999; }) == kSteps);
  CHECK(refused([](Arguments& a) { a.rows.stride = -1000; }) == kSteps);
}

TEST_CASE("arrays that are null or misaligned") {
  CHECK(refused([](Arguments& a) { a.rows.logits = nullptr; }) == kSteps);
  CHECK(refused([](Arguments& a) { a.rows.logits = behind(a.rows.logits, 1); }) == kSteps);
  CHECK(refused([](Arguments& a) { a.roots.position = nullptr; }) == kAll);
  CHECK(refused([](Arguments& a) { a.roots.position = behind(a.roots.position, 2); }) == kAll);
  CHECK(refused([](Arguments& a) { a.roots.sequence_count = behind(some<std::int32_t>(), 2); }) == kAll);
  CHECK(refused([](Arguments& a) { a.roots.token = nullptr; }) == kEnds);
  CHECK(refused([](Arguments& a) { a.roots.token = behind(a.roots.token, 1); }) == kEnds);
  CHECK(refused([](Arguments& a) { a.roots.limit = behind(a.roots.limit, 1); }) == kEnds);
  CHECK(refused([](Arguments& a) { a.status = behind(a.status, 2); }) == kEnds);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
    // At an offset of 4 bytes only arrays of 8-byte elements are misaligned.
    const auto wrong = [bytes](auto*& at) { at = bytes == 0 ? nullptr : behind(at, bytes); };
    const Refused ends = bytes == 4 ? kNone : kEnds, tree = bytes == 4 ? kNone : kTreeStep,
                  cape = bytes == 4 ? kNone : kCapeStep;
    CHECK(refused([&](Arguments& a) { wrong(a.levels.token); }) == tree);
    CHECK(refused([&](Arguments& a) { wrong(a.levels.parent); }) == tree);
    CHECK(refused([&](Arguments& a) { wrong(a.levels.position); }) == tree);
    CHECK(refused([&](Arguments& a) { wrong(a.levels.ancestors); }) == kTreeStep);
    CHECK(refused([&](Arguments& a) { wrong(a.spine.token); }) == cape);
    CHECK(refused([&](Arguments& a) { wrong(a.spine.position); }) == cape);
    CHECK(refused([&](Arguments& a) { wrong(a.trees.token); }) == ends);
    CHECK(refused([&](Arguments& a) { wrong(a.trees.parent); }) == ends);
    if (bytes == 0) continue;  // the others may be null
    const auto odd = [bytes](auto*& at) {
      at = behind(some<std::remove_reference_t<decltype(*at)>>(), bytes);
    };
    CHECK(refused([&](Arguments& a) { odd(a.trees.begin); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.size); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.position); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.confidence); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.first_child); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.next_sibling); }) == ends);
    CHECK(refused([&](Arguments& a) { odd(a.trees.ancestors); }) == kEnds);
    CHECK(refused([&](Arguments& a) { odd(a.trees.reach); }) == kEnds);
  }
}

TEST_CASE("links: sizes, missing begins, alignment") {
  const auto* begin = some<const std::int32_t>();
  CHECK(detail::valid_links(1, 64, begin, nullptr, {}, nullptr));
  CHECK(detail::valid_links(0, 12000, nullptr, nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(1, 64, nullptr, nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(-1, 64, begin, nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(1, 0, begin, nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(1, 12001, begin, nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(1, 64, behind(begin, 1), nullptr, {}, nullptr));
  CHECK_FALSE(detail::valid_links(1, 64, begin, behind(some<NodeId>(), 2), {}, nullptr));
  TreeLinks out;
  out.ancestors = behind(some<std::uint64_t>(), 4);
  CHECK_FALSE(detail::valid_links(1, 64, begin, nullptr, out, nullptr));
  out.ancestors = some<std::uint64_t>();
  CHECK(detail::valid_links(1, 64, begin, nullptr, out, nullptr));
  for (auto TreeLinks::*array : {&TreeLinks::first_child, &TreeLinks::next_sibling, &TreeLinks::depth}) {
    TreeLinks odd;
    odd.*array = behind(some<std::int32_t>(), 2);
    CHECK_FALSE(detail::valid_links(1, 64, begin, nullptr, odd, nullptr));
  }
  TreeLinks odd;
  odd.status = behind(some<Status>(), 2);
  CHECK_FALSE(detail::valid_links(1, 64, begin, nullptr, odd, nullptr));
}
