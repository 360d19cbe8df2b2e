// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include <specula/cuda/api/tree_links.cuh>

#include "growth.cuh"
#include "growth_cub.cuh"
#include "random.cuh"
#include "tally.cuh"

namespace specula_bench {
namespace {

struct DraftToken {
  double reach = -1, prob = 0;
  std::int32_t token = -1, parent = -1;
};

/// The k best tokens of a row, ties to the lower one, with their probabilities.
std::vector<std::pair<std::int32_t, double>> best_tokens(const BFloat16* row, int vocab, int k) {
  std::vector<std::int32_t> order;
  double z = 0, top = -std::numeric_limits<double>::infinity();
  for (int x = 0; x < vocab; ++x) top = std::max(top, as_double(row[x]));
  for (int x = 0; x < vocab; ++x) {
    z += std::exp(as_double(row[x]) - top);
    if (as_double(row[x]) > -std::numeric_limits<double>::infinity()) order.push_back(x);
  }
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return as_double(row[a]) != as_double(row[b]) ? as_double(row[a]) > as_double(row[b]) : a < b;
  });
  std::vector<std::pair<std::int32_t, double>> out;
  for (int i = 0; i < k && i < static_cast<int>(order.size()); ++i) {
    const std::int32_t x = order[static_cast<std::size_t>(i)];
    out.emplace_back(x, std::exp(as_double(row[x]) - top) / z);
  }
  return out;
}
/// Places of the `most` likeliest of pool[from, to), the older of equals, in their order of age.
std::vector<int> likeliest(const std::vector<DraftToken>& pool, int from, int to, int most) {
  std::vector<int> out;
  for (int i = from; i < to; ++i)
    if (pool[static_cast<std::size_t>(i)].reach >= 0) out.push_back(i);
  std::sort(out.begin(), out.end(), [&](int a, int b) {
    const double x = pool[static_cast<std::size_t>(a)].reach, y = pool[static_cast<std::size_t>(b)].reach;
    return x != y ? x > y : a < b;
  });
  out.resize(std::min(out.size(), static_cast<std::size_t>(std::max(0, most))));
  std::sort(out.begin(), out.end());
  return out;
}

/// A tree and what follows from it.
struct PlainTree {
  std::vector<std::int32_t> token, parent, position, first_child, next_sibling;
  std::vector<std::uint64_t> ancestors;
  int size = 0;

  PlainTree(const std::vector<DraftToken>& pool, const std::vector<int>& chosen, std::int32_t root,
            std::int32_t origin, int width) {
    const auto words = static_cast<std::size_t>(device::mask_words(width));
    size = 1 + static_cast<int>(chosen.size());
    std::vector<int> depth;
    for (int n = 0; n < width; ++n) {
      const bool there = n < size;
      const DraftToken* draft_token =
          there && n > 0 ? &pool[static_cast<std::size_t>(chosen[static_cast<std::size_t>(n - 1)])] : nullptr;
      token.push_back(!there ? -1 : n == 0 ? root : draft_token->token);
      int p = n == 0 ? -1 : 0;
      if (draft_token && draft_token->parent >= 0)
        p = 1 +
            static_cast<int>(std::find(chosen.begin(), chosen.end(), draft_token->parent) - chosen.begin());
      parent.push_back(p);
      depth.push_back(n == 0 ? 0 : !there ? 1 : depth[static_cast<std::size_t>(p)] + 1);
      position.push_back(origin + depth.back());
      first_child.push_back(-1);
      next_sibling.push_back(-1);
      for (std::size_t w = 0; w < words; ++w) {
        std::uint64_t word = n == 0 ? 0 : ancestors[static_cast<std::size_t>(p) * words + w];
        if (static_cast<std::size_t>(n) / 64 == w) word |= std::uint64_t{1} << (n % 64);
        ancestors.push_back(word);
      }
    }
    for (int n = size - 1; n > 0; --n) {
      auto& first = first_child[static_cast<std::size_t>(parent[static_cast<std::size_t>(n)])];
      next_sibling[static_cast<std::size_t>(n)] = first;
      first = n;
    }
  }
};

/// The difference of sequence b from the expected result; empty if there is none.
std::string difference(const GrownArrays::Host& got, const PlainTree& want, int b) {
  const auto width = static_cast<int>(want.token.size());
  const auto sequences = static_cast<int>(got.size.size());
  const auto w = static_cast<std::size_t>(width), first = static_cast<std::size_t>(b) * w;
  const auto words = static_cast<std::size_t>(device::mask_words(width));
  if (got.status[static_cast<std::size_t>(b)] != 0) return "status";
  if (got.begin[static_cast<std::size_t>(b)] != b * width ||
      got.begin[static_cast<std::size_t>(sequences)] != sequences * width)
    return "begin";
  if (got.size[static_cast<std::size_t>(b)] != want.size)
    return "size " + std::to_string(got.size[static_cast<std::size_t>(b)]) + " instead of " +
           std::to_string(want.size);
  const auto alike = [&](const auto& all, const auto& one, std::size_t each) {
    return std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(first * each));
  };
  if (!alike(got.token, want.token, 1)) return "tokens";
  if (!alike(got.parent, want.parent, 1)) return "parents";
  if (!alike(got.position, want.position, 1)) return "positions";
  if (!alike(got.first_child, want.first_child, 1)) return "first children";
  if (!alike(got.next_sibling, want.next_sibling, 1)) return "siblings";
  if (!alike(got.ancestors, want.ancestors, words)) return "ancestors";
  return "";
}

PlainTree plain_dynamic_tree(const DynamicTreePlan& plan, const std::vector<BFloat16>& rows, int vocab,
                             int b) {
  const int k = plan.top_k;
  std::vector<DraftToken> pool(static_cast<std::size_t>(plan.pool));
  std::vector<int> frontier;
  for (int level = 0; level <= plan.expansions; ++level) {
    const int first = level == 0 ? 0 : k * (1 + (level - 1) * k), count = level == 0 ? 1 : k;
    for (int r = 0; r < count; ++r) {
      if (level > 0 && r >= static_cast<int>(frontier.size())) continue;
      const std::int64_t row = level == 0 ? b
                                          : plan.sequences * (1 + static_cast<std::int64_t>(level - 1) * k) +
                                                static_cast<std::int64_t>(b) * k + r;
      const int above = level == 0 ? -1 : frontier[static_cast<std::size_t>(r)];
      const double reach = above < 0 ? 1 : pool[static_cast<std::size_t>(above)].reach;
      const auto best = best_tokens(rows.data() + row * vocab, vocab, k);
      for (std::size_t i = 0; i < best.size(); ++i)
        pool[static_cast<std::size_t>(first + r * k) + i] = {reach * best[i].second, best[i].second,
                                                             best[i].first, above};
    }
    frontier = likeliest(pool, first, first + count * k, k);
  }
  const int room = std::min(plan.width, DynamicTreeRun::limit_of(plan, b)) - 1;
  return PlainTree(pool, likeliest(pool, 0, plan.pool, room), b % vocab, 70 + 3 * b, plan.width);
}

/// Two paths may be nearly alike, so a tree in a hundred may differ.
Tally tally_of_trees() {
  Tally out;
  out.allowed = 100;
  return out;
}
void add(Tally& tally, const std::string& wrong, const std::string& where) {
  tally.add(wrong.empty(), 0, where + ": " + wrong);
}

void check_dynamic_tree(const Options& options, const Device& device, const Stream& stream, Json& json,
                        Report& report) {
  struct Shape {
    int sequences, top_k, expansions, total, vocab;
  };
  const std::vector<Shape> shapes =
      options.tiny ? std::vector<Shape>{{2, 4, 2, 9, 600}}
                   : std::vector<Shape>{{16, 10, 5, 59, 2000},  {8, 3, 2, 7, 50},     {5, 10, 5, 59, 32000},
                                        {2, 10, 3, 59, 128256}, {9, 32, 1, 100, 700}, {4, 1, 6, 6, 300},
                                        {7, 4, 3, 30, 2},       {6, 10, 0, 59, 1000}};
  Tally tally = tally_of_trees(), same;
  for (const Shape& shape : shapes)
    for (int round = 0; round < (options.tiny ? 1 : shape.vocab > 10000 ? 3 : 12); ++round) {
      device::DynamicTreeCapacity capacity;
      capacity.sequences = shape.sequences, capacity.top_k = shape.top_k,
      capacity.expansions = shape.expansions;
      capacity.total = shape.total, capacity.vocab = shape.vocab;
      DynamicTreePlan plan;
      SPECULA_CHECK(device::make_dynamic_tree_plan(&plan, capacity, device.id));
      const DynamicTreeRun run(plan, shape.vocab);
      DeviceArray<BFloat16> rows(static_cast<std::size_t>(run.row_count()) *
                                 static_cast<std::size_t>(shape.vocab));
      fill_normal(rows.data(), nullptr, static_cast<std::int64_t>(rows.size()),
                  options.seed * 1009 + static_cast<std::uint64_t>(round), 2.0f);
      SPECULA_CHECK(run.all(rows, stream));
      stream.wait();
      const auto got = run.grown.download();
      const auto host = rows.download();
      const std::string name =
          "vocabulary " + std::to_string(shape.vocab) + ", top " + std::to_string(shape.top_k);
      for (int b = 0; b < shape.sequences; ++b)
        add(tally, difference(got, plain_dynamic_tree(plan, host, shape.vocab, b), b),
            name + ", sequence " + std::to_string(b));
      for (const int cluster : device.clusters()) {
        if (round > 0) continue;
        DynamicTreePlan other = plan;
        other.root_scan.cluster = other.scan.cluster = cluster;
        const DynamicTreeRun again(other, shape.vocab);
        if (!launched(again.all(rows, stream), cluster)) continue;
        stream.wait();
        same.add(again.grown.download().same(got), 1, name + ", cluster " + std::to_string(cluster));
      }
    }
  write(json, report, "dynamic tree", tally);
  write(json, report, "dynamic tree, any geometry, same bits", same);
}

void check_cape(const Options& options, const Device& device, const Stream& stream, Json& json,
                Report& report) {
  Tally tally = tally_of_trees();
  struct Shape {
    int sequences, length, budget, vocab;
    float spread;
  };
  const std::vector<Shape> shapes =
      options.tiny
          ? std::vector<Shape>{{2, 2, 9, 600, 2}}
          : std::vector<Shape>{
                {16, 5, 32, 2000, 3}, {9, 3, 100, 40, 2}, {5, 8, 20, 32000, 5}, {3, 4, 3, 128256, 5}};
  for (const Shape& shape : shapes)
    for (int round = 0; round < (options.tiny ? 1 : shape.vocab > 10000 ? 3 : 12); ++round) {
      device::CapeCapacity capacity;
      capacity.sequences = shape.sequences, capacity.length = shape.length, capacity.budget = shape.budget,
      capacity.vocab = shape.vocab;
      CapePlan plan;
      SPECULA_CHECK(device::make_cape_plan(&plan, capacity, device.id));
      const auto b_count = static_cast<std::size_t>(shape.sequences);
      DeviceArray<BFloat16> rows(b_count * static_cast<std::size_t>(shape.length) *
                                 static_cast<std::size_t>(shape.vocab));
      fill_normal(rows.data(), nullptr, static_cast<std::int64_t>(rows.size()),
                  options.seed * 2003 + static_cast<std::uint64_t>(round), shape.spread);
      std::vector<std::int32_t> token, position;
      for (int b = 0; b < shape.sequences; ++b)
        token.push_back(b % shape.vocab), position.push_back(70 + 3 * b);
      const DeviceArray<std::int32_t> root(token), root_position(position);
      DeviceArray<std::int32_t> spine(b_count * static_cast<std::size_t>(shape.length)),
          spine_position(spine.size());
      DeviceArray<unsigned char> workspace(device::workspace_bytes(plan));
      spine.fill_bytes(kPoison), spine_position.fill_bytes(kPoison), workspace.fill_bytes(kPoison);
      const GrownArrays grown(shape.sequences, plan.width);
      const device::Roots roots{root.data(), root_position.data(), nullptr};
      for (int step = 0; step < shape.length; ++step) {
        const device::DraftRows<BFloat16> from{
            rows.data() + static_cast<std::int64_t>(step) * shape.sequences * shape.vocab, shape.vocab};
        SPECULA_CHECK(device::cape_step(plan, step, roots, from,
                                        device::CapeSpine{spine.data(), spine_position.data()},
                                        workspace.data(), workspace.size(), stream));
      }
      SPECULA_CHECK(device::cape_finish(plan, roots, grown.args(), grown.status(), workspace.data(),
                                        workspace.size(), stream));
      stream.wait();
      const auto got = grown.download();
      const auto host = rows.download();
      const auto got_spine = spine.download();
      for (int b = 0; b < shape.sequences; ++b) {
        std::vector<DraftToken> pool(static_cast<std::size_t>(plan.pool));
        std::string wrong;
        for (int step = 0; step < shape.length; ++step) {
          const auto best =
              best_tokens(host.data() + (static_cast<std::int64_t>(step) * shape.sequences + b) * shape.vocab,
                          shape.vocab, 1 + plan.most);
          const double reach = step == 0 ? 1 : pool[static_cast<std::size_t>(step - 1)].reach;
          const int extras = plan.extras(static_cast<float>(best[0].second));
          for (int i = 0; i <= extras && i < static_cast<int>(best.size()); ++i)
            pool[static_cast<std::size_t>(i == 0 ? step : shape.length + step * plan.most + i - 1)] = {
                reach * best[static_cast<std::size_t>(i)].second, best[static_cast<std::size_t>(i)].second,
                best[static_cast<std::size_t>(i)].first, step - 1};
          if (got_spine[static_cast<std::size_t>(step * shape.sequences + b)] != best[0].first)
            wrong = "spine";
        }
        const int room = plan.width - 1, length = std::min(room, shape.length);
        std::vector<int> chosen;
        for (int i = 0; i < length; ++i) chosen.push_back(i);
        for (const int i : likeliest(pool, shape.length, shape.length + length * plan.most, room - length))
          chosen.push_back(i);
        const PlainTree want(pool, chosen, b % shape.vocab, 70 + 3 * b, plan.width);
        if (wrong.empty()) wrong = difference(got, want, b);
        add(tally, wrong, "vocabulary " + std::to_string(shape.vocab) + ", sequence " + std::to_string(b));
      }
    }
  write(json, report, "CAPE", tally);
}

/// Links of random trees.
void check_links(const Options& options, const Stream& stream, Json& json, Report& report) {
  Tally tally;
  Random random{options.seed};
  for (int round = 0; round < (options.tiny ? 1 : 40); ++round) {
    const int sequences = 1 + random.below(20), most = 1 + random.below(round % 5 ? 40 : 200);
    const int words = device::mask_words(most);
    std::vector<std::int32_t> begin{0}, parent, first_child, next_sibling, depth;
    std::vector<std::uint64_t> mask;
    for (int b = 0; b < sequences; ++b) {
      const int n = 1 + random.below(most);
      const auto first = static_cast<std::size_t>(begin.back());
      for (int i = 0; i < n; ++i) {
        const int p = i == 0 ? -1 : random.below(i);
        parent.push_back(p), first_child.push_back(-1), next_sibling.push_back(-1);
        depth.push_back(i == 0 ? 0 : 1 + depth[first + static_cast<std::size_t>(p)]);
        for (int w = 0; w < words; ++w)
          mask.push_back((i == 0
                              ? 0
                              : mask[(first + static_cast<std::size_t>(p)) * static_cast<std::size_t>(words) +
                                     static_cast<std::size_t>(w)]) |
                         (i / 64 == w ? std::uint64_t{1} << (i % 64) : 0));
      }
      for (int i = n - 1; i > 0; --i) {
        auto& child =
            first_child[first + static_cast<std::size_t>(parent[first + static_cast<std::size_t>(i)])];
        next_sibling[first + static_cast<std::size_t>(i)] = child;
        child = i;
      }
      begin.push_back(begin.back() + n);
    }
    const DeviceArray<std::int32_t> begins(begin), parents(parent);
    DeviceArray<std::int32_t> c(parent.size()), s(parent.size()), d(parent.size());
    DeviceArray<std::uint64_t> m(mask.size());
    DeviceArray<device::Status> status(static_cast<std::size_t>(sequences));
    c.fill_bytes(kPoison), s.fill_bytes(kPoison), d.fill_bytes(kPoison), m.fill_bytes(kPoison),
        status.fill_bytes(kPoison);
    SPECULA_CHECK(device::tree_links(sequences, most, begins.data(), parents.data(),
                                     {c.data(), s.data(), d.data(), m.data(), status.data()}, stream));
    stream.wait();
    bool ok = true;
    for (const device::Status one : status.download()) ok = ok && one == device::Status::ok;
    const bool right = ok && c.download() == first_child && s.download() == next_sibling &&
                       d.download() == depth && m.download() == mask;
    tally.add(right, 1, "round " + std::to_string(round));
  }
  write(json, report, "links", tally);
}

/// The nodes that a budget keeps of random trees, of which some are empty; equal reaches in every other
/// round.
void check_selection(const Options& options, const Stream& stream, Json& json, Report& report) {
  Tally tally;
  tally.allowed = 0;
  Random random{options.seed};
  for (int round = 0; round < (options.tiny ? 1 : 60); ++round) {
    const int sequences = 1 + random.below(options.tiny ? 3 : 200);
    std::vector<std::int32_t> begin{0}, token, parent, roots;
    std::vector<double> reach;
    for (int b = 0; b < sequences; ++b) {
      const int n = random.below(64);
      const std::size_t first = token.size();
      for (int i = 0; i < n; ++i) {
        const int p = i == 0 ? -1 : random.below(i);
        token.push_back(static_cast<std::int32_t>(token.size())), parent.push_back(p),
            roots.push_back(i == 0);
        const double accept = round % 2 ? 0.5 : (1 + random.below(1 << 20)) / double(1 << 20);
        reach.push_back(i == 0 ? 1 : reach[first + static_cast<std::size_t>(p)] * accept);
      }
      begin.push_back(static_cast<std::int32_t>(token.size()));
    }
    const auto nodes = static_cast<std::int32_t>(token.size());
    const std::int32_t budget = random.below(nodes + 2);
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < nodes; ++i)
      if (!roots[static_cast<std::size_t>(i)]) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const double x = reach[static_cast<std::size_t>(a)], y = reach[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(budget)));
    std::vector<std::int32_t> row(token.size(), -1), want_begin, want_token, want_parent;
    for (const std::int32_t i : order) row[static_cast<std::size_t>(i)] = 0;
    for (int b = 0; b < sequences; ++b) {
      want_begin.push_back(static_cast<std::int32_t>(want_token.size()));
      const auto first = static_cast<std::size_t>(begin[static_cast<std::size_t>(b)]);
      for (std::size_t i = first; i < static_cast<std::size_t>(begin[static_cast<std::size_t>(b) + 1]); ++i) {
        if (row[i] < 0 && !roots[i]) continue;
        row[i] = static_cast<std::int32_t>(want_token.size());
        want_token.push_back(token[i]);
        want_parent.push_back(
            parent[i] < 0 ? -1 : row[first + static_cast<std::size_t>(parent[i])] - want_begin.back());
      }
    }
    want_begin.push_back(static_cast<std::int32_t>(want_token.size()));
    const DeviceArray<std::int32_t> begins(begin),
        tokens(token.empty() ? std::vector<std::int32_t>{0} : token),
        parents(parent.empty() ? std::vector<std::int32_t>{0} : parent),
        budgets(std::vector<std::int32_t>{budget});
    const DeviceArray<double> reaches(reach.empty() ? std::vector<double>{0} : reach);
    DeviceArray<std::int32_t> b(begin.size()), t(tokens.size()), p(tokens.size()), r(tokens.size());
    for (DeviceArray<std::int32_t>* a : {&b, &t, &p, &r}) a->fill_bytes(kPoison);
    SPECULA_CHECK(device::select_nodes(
        sequences, {begins.data(), tokens.data(), parents.data(), reaches.data(), budgets.data()},
        {b.data(), t.data(), p.data(), r.data()}, stream));
    stream.wait();
    auto got_token = t.download(), got_parent = p.download(), got_row = r.download();
    got_token.resize(want_token.size()), got_parent.resize(want_parent.size()), got_row.resize(row.size());
    tally.add(
        b.download() == want_begin && got_token == want_token && got_parent == want_parent && got_row == row,
        1, "round " + std::to_string(round));
  }
  write(json, report, "nodes of a budget", tally);
}

/// A tree of no expansions is the best tokens of the root's row, in order: CUB's are an independent
/// reference.
void check_best_tokens(const Options& options, const Device& device, const Stream& stream, Json& json,
                       Report& report) {
  Tally tally;
  tally.allowed = 0;
  struct Shape {
    int sequences, top_k, vocab;
  };
  const std::vector<Shape> shapes =
      options.tiny
          ? std::vector<Shape>{{2, 4, 600}}
          : std::vector<Shape>{{9, 10, 2000}, {5, 32, 50}, {6, 32, 32000}, {3, 10, 128256}, {2, 32, 128256}};
  for (const Shape& shape : shapes)
    for (int round = 0; round < (options.tiny ? 1 : 4); ++round) {
      device::DynamicTreeCapacity capacity;
      capacity.sequences = shape.sequences, capacity.top_k = capacity.total = shape.top_k,
      capacity.expansions = 0, capacity.vocab = shape.vocab;
      DynamicTreePlan plan;
      SPECULA_CHECK(device::make_dynamic_tree_plan(&plan, capacity, device.id));
      const DynamicTreeRun run(plan, shape.vocab);
      DeviceArray<BFloat16> rows(static_cast<std::size_t>(shape.sequences) *
                                 static_cast<std::size_t>(shape.vocab));
      // The narrower, the more of the 16-bit logits are equal.
      fill_normal(rows.data(), nullptr, static_cast<std::int64_t>(rows.size()),
                  options.seed * 4001 + static_cast<std::uint64_t>(round), round % 2 == 0 ? 2.0f : 0.01f);
      SortedRows sorted(shape.sequences, shape.vocab);
      SPECULA_CHECK(sorted.sort(rows.data(), stream));
      SPECULA_CHECK(run.all(rows, stream));
      stream.wait();
      const auto got = run.grown.download();
      const auto want = sorted.tokens();
      for (int b = 0; b < shape.sequences; ++b) {
        const int size = got.size[static_cast<std::size_t>(b)];
        const auto first = got.token.begin() + static_cast<std::ptrdiff_t>(b) * plan.width + 1;
        tally.add(size == DynamicTreeRun::limit_of(plan, b) &&
                      std::equal(first, first + size - 1,
                                 want.begin() + static_cast<std::ptrdiff_t>(b) * shape.vocab),
                  1, "vocabulary " + std::to_string(shape.vocab) + ", sequence " + std::to_string(b));
      }
    }
  write(json, report, "best tokens are those of " + cub_version(), tally);
}

/// Errors that the host detects.
void check_refusals(const Device& device, Json& json, Report& report) {
  Refusals refusals;
  DynamicTreePlan tree;
  CapePlan cape;
  const int other = device.id + 1;  // not the current one, whether there is one or not
  device::DynamicTreeCapacity tree_capacity;
  device::CapeCapacity cape_capacity;
  refusals.expect(cudaErrorInvalidValue, device::make_dynamic_tree_plan(&tree, tree_capacity, device.id),
                  "no vocabulary");
  refusals.expect(cudaErrorInvalidValue, device::make_cape_plan(&cape, cape_capacity, device.id),
                  "no vocabulary");
  tree_capacity.vocab = cape_capacity.vocab = 1000;
  refusals.expect(cudaErrorInvalidDevice, device::make_dynamic_tree_plan(&tree, tree_capacity, other),
                  "dynamic tree");
  refusals.expect(cudaErrorInvalidDevice, device::make_cape_plan(&cape, cape_capacity, other), "CAPE");
  refusals.expect(
      cudaErrorInvalidValue,
      device::dynamic_tree_step(tree, 0, {}, device::DraftRows<BFloat16>{}, {}, nullptr, 0, nullptr),
      "a plan that was not made");
  refusals.expect(cudaErrorInvalidValue,
                  device::cape_step(cape, 0, {}, device::DraftRows<BFloat16>{}, {}, nullptr, 0, nullptr),
                  "a plan that was not made");
  refusals.expect(cudaSuccess, cudaGetLastError(), "nothing was launched, nothing lingers");
  write(json, report, "errors that the host sees", refusals.tally());
}

void check_graph(const Options& options, const Device& device, const Stream& stream, Json& json,
                 Report& report) {
  device::DynamicTreeCapacity capacity;
  capacity.sequences = 6, capacity.vocab = 3000;
  DynamicTreePlan plan;
  SPECULA_CHECK(device::make_dynamic_tree_plan(&plan, capacity, device.id));
  DynamicTreeRun run(plan, capacity.vocab);
  DeviceArray<BFloat16> rows(static_cast<std::size_t>(run.row_count()) * 3000);
  const Graph graph(stream, [&](cudaStream_t s) { return run.all(rows, s); });
  Tally same;
  for (int i = 0; i < (options.tiny ? 2 : 8); ++i) {
    fill_normal(rows.data(), nullptr, static_cast<std::int64_t>(rows.size()),
                options.seed * 31 + static_cast<std::uint64_t>(i), 2);
    run.grown.poison();
    graph.launch(stream);
    stream.wait();
    const DynamicTreeRun fresh(plan, capacity.vocab);
    SPECULA_CHECK(fresh.all(rows, stream));
    stream.wait();
    same.add(run.grown.download().same(fresh.grown.download()), 1, "replay " + std::to_string(i));
  }
  write(json, report, "dynamic tree: replays are fresh launches", same);
}

}  // namespace

void check_growth(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  report.part("dynamic tree", [&](Json& json) { check_dynamic_tree(options, device, stream, json, report); });
  report.part("CAPE", [&](Json& json) { check_cape(options, device, stream, json, report); });
  report.part("links", [&](Json& json) { check_links(options, stream, json, report); });
  report.part("selection", [&](Json& json) { check_selection(options, stream, json, report); });
  report.part("refusals", [&](Json& json) { check_refusals(device, json, report); });
  report.part("best tokens", [&](Json& json) { check_best_tokens(options, device, stream, json, report); });
}

void check_growth_graphs(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  report.part("dynamic tree", [&](Json& json) { check_graph(options, device, stream, json, report); });
}

}  // namespace specula_bench
