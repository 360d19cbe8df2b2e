// SPDX-License-Identifier: MIT
// TreeSequences: trees as sequences of libllama's KV cache: visibility of nodes, copies of sequences,
// failures.
#include <specula/llama_cpp/detail/tree_sequences.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "count_allocations.hpp"
#include "random.hpp"
#include "random_trees.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::llama_cpp::detail;

namespace {

using List = std::vector<std::int32_t>;
using Ids = std::bitset<256>;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::int32_t length(Nodes nodes) { return static_cast<std::int32_t>(nodes.size()); }

struct Cell {
  llama_pos position;
  std::int32_t serial;  // unique number of the token
  Ids ids;
  bool operator==(const Cell&) const = default;
  bool within(llama_pos first, llama_pos end) const {
    return position >= first && (end < 0 || position < end);
  }
};

/// A model of libllama's KV cache, with its assertions (llama-kv-cells.h, llama_batch_allocr::init()).
struct FakeCache {
  std::vector<Cell> cells;
  std::string broken;  // the rule that was, last
  int copies = 0, removals = 0, copied_cells = 0;
  bool stuck = false;  // cannot drop positions

  llama_memory_t handle() { return reinterpret_cast<llama_memory_t>(this); }
  static FakeCache& of(llama_memory_t memory) { return *reinterpret_cast<FakeCache*>(memory); }

  /// The smallest and the largest position of a sequence; the largest is -1 if it is empty.
  std::pair<llama_pos, llama_pos> range(std::size_t id) const {
    std::pair<llama_pos, llama_pos> out{1 << 30, -1};
    for (const Cell& cell : cells)
      if (cell.ids[id]) out = {std::min(out.first, cell.position), std::max(out.second, cell.position)};
    return out;
  }
  /// Whether libllama accepts the batch; libllama is slightly more permissive about changing sets of ids.
  void check(TreeSequences& batch) {
    std::array<std::pair<llama_pos, llama_pos>, 256> held;
    std::array<llama_pos, 256> next{};
    std::array<Ids, 256> before;
    Ids met;
    for (std::int32_t entry = 0; entry < batch.entries(); ++entry) {
      const auto ids = batch.ids(entry);
      if (ids.empty() || ids.front() < 0 || ids.back() >= 256 ||
          std::adjacent_find(ids.begin(), ids.end(), std::greater_equal()) != ids.end())
        return void(broken = "no ids, or ones that do not ascend, or none of 256");
      Ids now;
      for (const llama_seq_id id : ids) now.set(at(id));
      for (const llama_seq_id id : ids) {
        const std::size_t s = at(id);
        if (!met[s]) held[s] = range(s), next[s] = held[s].second + 1, before[s].set();
        met.set(s);
        if (batch.position(entry) != next[s]++) broken = "a sequence with a gap or going back";
        if (held[s] != held[at(ids[0])]) broken = "coupled sequences that differ in the cache";
        if ((now & ~before[s]).any()) broken = "ids that come in along a sequence";
        before[s] = now;
      }
    }
  }
  void add(TreeSequences& batch, std::int32_t serial) {
    for (std::int32_t entry = 0; entry < batch.entries(); ++entry) {
      cells.push_back({batch.position(entry), serial + entry, {}});
      for (const llama_seq_id id : batch.ids(entry)) cells.back().ids.set(at(id));
    }
  }
  /// The serials that a query of sequence `id` sees, by position; empty if two have the same.
  List seen(llama_seq_id id, llama_pos position) const {
    List serials(at(position + 1), -1);
    for (const Cell& cell : cells) {
      if (!cell.ids[at(id)] || cell.position > position) continue;
      if (std::exchange(serials[at(cell.position)], cell.serial) != -1) return {};
    }
    return serials;
  }
};

List chain(std::int32_t nodes) {
  List parents(at(nodes));
  std::iota(parents.begin(), parents.end(), kNoParent);
  return parents;
}
List star(std::int32_t leaves) { return List(at(leaves), kNoParent); }
/// A tree of any profile; half of them without the root, so that several nodes lie below the context.
List random_parents(Random& random, std::int32_t most) {
  List parents = random_tree(random, 4, most + 1).parents;
  if (length(parents) == 1 || (length(parents) <= most && random.bernoulli(0.5))) return parents;
  parents.erase(parents.begin());
  for (NodeId& parent : parents) --parent;
  return parents;
}

/// The sequences, the cache, and its expected content.
struct Scene {
  FakeCache cache;
  TreeSequences sequences;
  List context, nodes;  // serials
  RandomTree tree;      // of the nodes
  std::int32_t serials = 0, failures = 0;

  explicit Scene(std::int32_t max_nodes = 64, std::int32_t max_leaves = 64)
      : sequences(cache.handle(), max_nodes, max_leaves, 600) {}

  /// Stores the batch in the cache.
  void plan(std::int32_t waiting, Nodes parents) {
    sequences.plan(waiting, parents);
    REQUIRE(sequences.entries() == waiting + length(parents));
    cache.check(sequences);
    REQUIRE(cache.broken == "");
    cache.add(sequences, serials);
  }
  /// A pass. Every query sees the context, its ancestors, itself, and nothing else.
  void extend(std::int32_t waiting, Nodes parents) {
    plan(waiting, parents);
    for (std::int32_t i = 0; i < waiting; ++i) context.push_back(serials++);
    const NodeId first = length(nodes);
    for (const NodeId parent : parents) nodes.push_back(serials++), tree.parents.push_back(parent);
    for (std::int32_t entry = 0; entry < sequences.entries(); ++entry) {
      List want = context;
      if (entry < waiting) want.resize(want.size() - at(waiting - entry - 1));
      if (entry >= waiting)
        for (const NodeId n : tree.path_to(first + entry - waiting)) want.push_back(nodes[at(n)]);
      REQUIRE((cache.seen(sequences.ids(entry)[0], sequences.position(entry)) == want));
    }
    sequences.mark_decoded();
    check();
  }
  /// A pass that fails with a part of the batch in the cache.
  void fail(Random& random, std::int32_t waiting, Nodes parents) {
    const std::vector<Cell> before = cache.cells;
    plan(waiting, parents);
    std::erase_if(cache.cells, [&](const Cell& c) { return c.serial >= serials && random.bernoulli(0.5); });
    sequences.take_back();
    REQUIRE((cache.cells == before));
    check();
  }
  /// In one to four passes. Before each some fail, with the same nodes or others.
  void grow(Random& random, const List& parents, double fail_probability) {
    const std::int32_t count = length(parents), passes = 1 + random.below(4);
    for (std::int32_t p = 0, from = 0; p < passes; ++p) {
      const std::int32_t to = p + 1 == passes ? count : from + random.below(count - from + 1);
      const std::int32_t waiting = p == 0 && random.bernoulli(0.4) ? 1 + random.below(17) : 0;
      const auto part = Nodes(parents).subspan(at(from), at(to - from));
      if (waiting == 0 && part.empty()) continue;
      for (; random.bernoulli(fail_probability); ++failures)
        fail(
            random, waiting,
            from == 0 && random.bernoulli(0.5) ? random_parents(random, 64) : List(part.begin(), part.end()));
      extend(waiting, part);
      from = to;
    }
  }
  void commit(Nodes path) {
    sequences.commit(path);
    for (const NodeId n : path) context.push_back(nodes[at(n)]);
    forget();
  }
  void truncate(std::int32_t n) {
    sequences.truncate(n);
    context.resize(at(n));
    forget();
  }
  /// Without nodes: a sequence has the first tokens of the context, sequence 0 all; no other exists.
  void forget() {
    nodes.clear();
    tree = {};
    check();
    std::vector<Ids> ids(context.size());
    for (const Cell& cell : cache.cells) {
      REQUIRE(cell.position < length(context));
      REQUIRE(cell.serial == context[at(cell.position)]);
      REQUIRE(cell.ids[0]);
      ids[at(cell.position)] = cell.ids;
    }
    for (std::size_t i = 1; i < ids.size(); ++i) REQUIRE((ids[i] & ~ids[i - 1]).none());
  }
  void check() {
    REQUIRE(cache.broken == "");
    REQUIRE(cache.cells.size() == context.size() + nodes.size());
    REQUIRE(sequences.cached() == length(context));
    REQUIRE(sequences.node_count() == length(nodes));
    for (NodeId n = 0; n < tree.size(); ++n) REQUIRE(sequences.parent(n) == tree.parent(n));
    sequences.expect_own();
  }
};

}  // namespace

// In place of libllama's, which is not linked; llama.h has declared them.
void llama_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos first,
                         llama_pos end) {
  auto& cache = FakeCache::of(memory);
  ++cache.copies;
  for (Cell& cell : cache.cells) {
    if (!cell.within(first, end) || !cell.ids[at(from)]) continue;
    if (cell.ids[at(to)]) cache.broken = "copied to a sequence that has it";
    cell.ids.set(at(to));
    ++cache.copied_cells;
  }
}
bool llama_memory_seq_rm(llama_memory_t memory, llama_seq_id id, llama_pos first, llama_pos end) {
  auto& cache = FakeCache::of(memory);
  if (cache.stuck) return false;
  ++cache.removals;
  for (Cell& cell : cache.cells)
    if (cell.within(first, end)) cell.ids.reset(at(id));
  std::erase_if(cache.cells, [](const Cell& cell) { return cell.ids.none(); });
  return true;
}

llama_pos llama_memory_seq_pos_min(llama_memory_t memory, llama_seq_id id) {
  const auto [least, most] = FakeCache::of(memory).range(at(id));
  return most < 0 ? -1 : least;
}
llama_pos llama_memory_seq_pos_max(llama_memory_t memory, llama_seq_id id) {
  return FakeCache::of(memory).range(at(id)).second;
}

TEST_CASE("a chain uses sequence 0 only: no copies, and one removal drops the rejected nodes") {
  Random random(1);
  Scene scene;
  for (int round = 0; round < 200; ++round) {
    const std::int32_t nodes = 1 + random.below(9), kept = random.below(nodes + 1);
    scene.grow(random, chain(nodes), 0);
    for (const Cell& cell : scene.cache.cells) REQUIRE((cell.ids == Ids(1)));
    scene.cache.removals = 0;
    scene.commit(Nodes(scene.tree.path_to(nodes - 1)).first(at(kept)));
    REQUIRE(scene.cache.removals == (kept < nodes));
    if (round % 10 == 9) scene.truncate(random.below(1 + scene.sequences.cached()));
  }
  CHECK(scene.cache.copies == 0);
}

TEST_CASE("random trees in several passes, some of which fail; commits of any path; truncations") {
  Random random(2);
  Scene scene;
  int off_the_spine = 0;
  for (int round = 0; round < 3000; ++round) {
    const List parents = random_parents(random, 64);
    scene.grow(random, parents, 0.15);
    const List path = scene.tree.path_to(random.below(length(parents)));
    const std::size_t kept = random.bernoulli(0.4) ? path.size() : at(random.below(9)) % path.size();
    off_the_spine += kept > 0 && at(path[kept - 1]) >= kept;
    if (random.bernoulli(0.9)) scene.commit(Nodes(path).first(kept));
    if (random.bernoulli(0.1) || scene.sequences.cached() > 80 || scene.sequences.node_count() > 0)
      scene.truncate(random.below(1 + scene.sequences.cached()));
  }
  CHECK(off_the_spine > 500);
  CHECK(scene.failures > 500);
}

TEST_CASE("256 leaves: all sequences") {
  Scene scene(600, kMaxSequences);
  List parents = star(kMaxSequences);
  for (NodeId n = 0; n < kMaxSequences; ++n) parents.push_back(n);
  scene.extend(300, parents);
  CHECK(scene.sequences.ids(scene.sequences.entries() - 1)[0] == 255);
  scene.commit(List{255, 511});
  scene.truncate(1);
  scene.extend(0, parents);
}

TEST_CASE("sequences keep their cells: a round copies only what was added since the last") {
  // Nodes 0 to 13: two below each, 8 leaves. Its first 6 nodes are a tree of 4 leaves.
  const List parents{kNoParent, kNoParent, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  Random random(3);
  Scene scene;
  FakeCache& cache = scene.cache;
  scene.extend(600, {});
  scene.extend(600, parents);
  CHECK(cache.copied_cells == 7 * 600);  // deferred tokens were added to all sequences with the batch
  scene.commit({});
  for (int round = 0, fresh = 0; round < 100; ++round) {
    cache.copies = cache.removals = cache.copied_cells = 0;
    const bool two_passes = random.bernoulli(0.5), chained = random.bernoulli(0.2);
    if (chained) {  // the other sequences lag for some rounds
      scene.extend(3, chain(4));
      scene.commit(List{0, 1});
      CHECK(cache.copies == 0);
      fresh += 5;
    }
    if (two_passes) scene.extend(0, Nodes(parents).first(6));
    scene.extend(0, Nodes(parents).subspan(two_passes ? 6 : 0));
    REQUIRE(cache.copied_cells <= 7 * fresh + 8 * two_passes);  // 4 new leaves below two nodes
    REQUIRE(cache.copies <= 7 * (fresh > 0) + 4 * two_passes);
    cache.copies = cache.copied_cells = 0;
    fresh = random.below(4);
    scene.commit(Nodes(scene.tree.path_to(6 + random.below(8))).first(at(fresh)));
    REQUIRE(cache.copied_cells <= fresh);  // to sequence 0, which continues with them
    REQUIRE(cache.copies <= 1);
    REQUIRE(cache.removals <= 8 + chained);
  }
}

TEST_CASE("too many leaves: an error that names the limit and changes nothing") {
  Scene scene(64, 4);
  const auto refused = [&](std::int32_t waiting, const List& parents) {
    const std::vector<Cell> before = scene.cache.cells;
    CHECK_THROWS_WITH_AS(scene.sequences.plan(waiting, parents),
                         "llama_cpp::Model: extend: a tree of more than 4 leaves, see Options::max_leaves",
                         std::invalid_argument);
    CHECK((scene.cache.cells == before));
    scene.check();
  };
  for (int round = 0; round < 3; ++round) {
    refused(5, star(5));
    scene.extend(3, List{kNoParent, kNoParent, 0, 1});
    refused(0, List{kNoParent, 4, 1, 0});
    scene.extend(0, List{0, 3, 5, 1});
    refused(0, List{kNoParent});
    refused(0, List{6, 8, 6});
    scene.extend(0, List{6, 8, 2, 7});
    scene.commit(List{1, 3, 5, 6, 8, 9});
    scene.extend(0, star(4));
    scene.commit(List{3});
  }
}

TEST_CASE("a cache that cannot drop positions: an error") {
  Scene scene;
  scene.extend(2, {});
  scene.plan(0, star(2));
  scene.cache.stuck = true;
  const char* const message = "llama_memory_seq_rm: the cache cannot drop positions from 2 on";
  CHECK_THROWS_WITH_AS(scene.sequences.take_back(), message, std::runtime_error);
  scene.sequences.mark_decoded();
  CHECK_THROWS_WITH_AS(scene.sequences.commit({}), message, std::runtime_error);
}

TEST_CASE("tokens removed from the cache by another caller: an error") {
  Scene scene;
  scene.sequences.expect_own();
  scene.extend(5, star(2));
  std::vector<Cell>& cells = scene.cache.cells;
  for (const llama_pos lost : {0, 5}) {  // the first one, as a window does, or the last
    const std::vector<Cell> all = cells;
    std::erase_if(cells, [&](const Cell& cell) { return cell.position == lost; });
    const std::string held = lost == 0 ? "1 to 5" : "0 to 4";
    CHECK_THROWS_WITH_AS(scene.sequences.expect_own(),
                         ("libllama's cache holds positions " + held + " of the context, not 0 to 5").c_str(),
                         std::runtime_error);
    cells = all;
    scene.sequences.expect_own();
  }
}

TEST_CASE("only the constructor allocates") {
  const std::int32_t most = 64, waiting = 500;
  List broom = chain(most / 2);  // holds the largest number of ids
  broom.resize(at(most), most / 2 - 1);
  FakeCache cache;  // without cells, since it would allocate
  TreeSequences sequences(cache.handle(), most, most, waiting);
  const List path{0};
  const List trees[] = {chain(most), star(most), broom};
  const AllocationCount allocated;
  for (int round = 0; round < 8; ++round) {
    const List& tree = trees[round % 3];
    const std::int32_t before = round < 3 ? waiting : 16;
    sequences.plan(before, tree);
    sequences.take_back();
    sequences.plan(before, Nodes(tree).first(20));
    sequences.mark_decoded();
    sequences.plan(0, Nodes(tree).subspan(20));
    sequences.mark_decoded();
    sequences.commit(path);
    sequences.truncate(sequences.cached() / 2);
  }
  const std::int64_t n = allocated.count();
  CHECK(n == 0);
}
