// SPDX-License-Identifier: MIT
// Batches of proposals over paged KV caches, with reference attention in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <specula/cuda/detail/attention/tree_attention_block.cuh>
#include <vector>

#include "random.hpp"
#include "worst.hpp"

namespace specula_test {

enum class KvLayout : std::uint8_t { nhd, hnd, joint_nhd, joint_hnd, contiguous };  // joint: (pages, 2, ...)
enum class KvTable : std::uint8_t { csr, rectangle };

/// Scores of random queries and keys, which weigh many keys; all alike, so that the output is the mean; one
/// far above the rest, so that it is that key's value; growing or falling from key to key, so that each tile
/// has another maximum, or all but the first weigh nothing.
enum class KeyScores : std::uint8_t { random, flat, peaked, rising, falling };
inline constexpr KeyScores kKeyScores[] = {KeyScores::random, KeyScores::flat, KeyScores::peaked,
                                           KeyScores::rising, KeyScores::falling};

struct AttentionCase {
  int query_heads = 4, kv_heads = 1;
  std::vector<int> lengths = {}, nodes = {};
  int page_size = 16;
  KvLayout layout = KvLayout::nhd;
  KvTable table = KvTable::csr;
  bool two_tables = false;
  bool cross = false;
  int window = 0;
  bool by_depth = false;  // positions as prefix + depth
  bool forget = true;     // tokens out of every window have no pages
  float softcap = 0, scale = 0.1f;
  double spread = 1;  // of q, k, v
  KeyScores scores = KeyScores::random;
  bool scaled = false;  // keys and values have scales; 8-bit ones always have
  std::uint64_t seed = 1;
};

/// The value of type Element nearest to x, independent of the library's pack().
inline std::uint16_t nearest_bits(specula::cuda::BFloat16, double x) {
  std::uint32_t best = 0;
  const auto f = static_cast<float>(x);
  std::memcpy(&best, &f, sizeof f);
  return static_cast<std::uint16_t>(best >> 16);  // rounds towards zero: any value will do
}
inline std::uint16_t nearest_bits(specula::cuda::Half, double x) {
  const double a = std::fabs(x);
  const std::uint16_t sign = x < 0 ? 0x8000u : 0;
  if (a < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<unsigned>(a * 0x1p24));
  const int e = std::ilogb(a);
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(e + 15) << 10 |
                                    static_cast<unsigned>((std::ldexp(a, -e) - 1) * 1024));
}

/// Decodes an FP8 byte, and encodes x (at most 448) to the nearest byte, by the format's definition.
inline double plain_value(specula::cuda::Float8E4M3 stored) {
  const int exponent = stored.bits >> 3 & 15, mantissa = stored.bits & 7;
  const double x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return (stored.bits & 0x80) != 0 ? -x : x;
}
inline std::uint8_t nearest_bits(specula::cuda::Float8E4M3, double x) {
  static const std::vector<double> values = [] {
    std::vector<double> out;
    for (std::uint8_t code = 0; code < 0x7F; ++code)
      out.push_back(plain_value(specula::cuda::Float8E4M3{code}));
    return out;
  }();
  auto above = std::lower_bound(values.begin(), values.end() - 1, std::fabs(x));
  if (above != values.begin() && *above - std::fabs(x) > std::fabs(x) - above[-1]) --above;
  return static_cast<std::uint8_t>((above - values.begin()) | (x < 0 ? 0x80 : 0));
}
template <class Element>
double plain_value(Element e) {
  return static_cast<double>(specula::cuda::detail::to_float(e));
}

template <class Of, int kHeadSize, class StoredAs = Of>
struct AttentionScene {
  using Element = Of;
  using Stored = StoredAs;
  static constexpr int kHead = kHeadSize;
  static constexpr bool kBytes = sizeof(Stored) == 1;
  static constexpr Stored kNaN{kBytes ? 0x7F : 0x7FFF};

  AttentionCase c;
  std::vector<Element> q;
  std::vector<Stored> pool_k, pool_v;  // initially NaN; joint layouts use pool_k alone
  std::vector<float> k_scale, v_scale;
  std::vector<std::int32_t> length, begin, indptr, pages_k, pages_v, position, depth;
  std::vector<std::uint64_t> mask;
  std::vector<std::int32_t> parent;
  int words = 0, max_pages = 0;
  std::int64_t q_stride = 0;
  std::vector<double> k, v;  // of sequence b, slot, head: as the reference reads them
  std::vector<std::int64_t> first_slot;
  std::vector<int> aimed;  // of query, head: the key that all its weight is on; -1: none
  specula::cuda::TreeAttentionArgs<Element, Stored> args{};

  static constexpr int kGap = 8;

  explicit AttentionScene(const AttentionCase& wanted) : c(wanted) {
    Random random(c.seed);
    const auto sequences = c.lengths.size();
    begin.push_back(0);
    int most_nodes = 0, most_tokens = 1;
    for (std::size_t b = 0; b < sequences; ++b) {
      begin.push_back(begin.back() + c.nodes[b]);
      most_nodes = std::max(most_nodes, c.nodes[b]);
      most_tokens = std::max(most_tokens, tokens(b));
    }
    length.assign(c.lengths.begin(), c.lengths.end());
    grow_trees(random, most_nodes);

    q_stride = c.query_heads * kHead + 2 * kGap;
    q.assign(static_cast<std::size_t>(q_stride * (begin.back() + 1)), Element{0x7FFF});
    for (std::size_t b = 0; b < sequences; ++b)
      for (int n = begin[b]; n < begin[b + 1]; ++n)
        for (int i = 0; i < c.query_heads * kHead; ++i)
          q[static_cast<std::size_t>(n * q_stride + i)] = {
              nearest_bits(Element{}, query_number(random, b, i % kHead))};

    if (c.layout == KvLayout::contiguous) c.page_size = most_tokens + 3;
    lay_out(random, most_tokens);
    if (c.scores == KeyScores::peaked) aim(random);
  }

  /// Committed tokens that no window of the sequence reaches; engines free their pages.
  int forgotten(std::size_t b) const {
    if (c.window == 0 || c.nodes[b] == 0 || !c.forget) return 0;
    const auto first = position.begin() + begin[b];
    const int low = *std::min_element(first, first + c.nodes[b]);
    return std::min(std::max(0, low - c.window + 1), c.lengths[b]);
  }
  int tokens(std::size_t b) const { return c.lengths[b] + (c.cross ? 0 : c.nodes[b]); }

  /// Attention of node n of sequence b, head h: the output, then its log-sum-exp.
  std::vector<double> reference(std::size_t b, int n, int h) const {
    const int group = c.query_heads / c.kv_heads, kv_head = h / group, row = begin[b] + n;
    std::vector<double> scores(static_cast<std::size_t>(tokens(b)), -INFINITY);
    double top = -INFINITY;
    for (int j = 0; j < tokens(b); ++j) {
      if (!sees(b, n, j)) continue;
      double s = 0;
      for (int i = 0; i < kHead; ++i)
        s += plain_value(q[static_cast<std::size_t>(row * q_stride + h * kHead + i)]) *
             k[slot(b, j, kv_head, i)];
      s *= static_cast<double>(c.scale);
      if (c.softcap > 0) s = static_cast<double>(c.softcap) * std::tanh(s / static_cast<double>(c.softcap));
      scores[static_cast<std::size_t>(j)] = s;
      top = std::max(top, s);
    }
    std::vector<double> out(kHead + 1, 0.0);
    double total = 0;
    for (int j = 0; j < tokens(b) && top > -INFINITY; ++j) {
      const double w = std::exp(scores[static_cast<std::size_t>(j)] - top);
      if (w == 0) continue;
      total += w;
      for (int i = 0; i < kHead; ++i) out[static_cast<std::size_t>(i)] += w * v[slot(b, j, kv_head, i)];
    }
    for (int i = 0; i < kHead && total > 0; ++i) out[static_cast<std::size_t>(i)] /= total;
    out[kHead] = total > 0 ? top + std::log(total) : -INFINITY;
    return out;
  }
  /// Whether node n of sequence b attends to the token in slot j.
  bool sees(std::size_t b, int n, int j) const {
    const int node = j - c.lengths[b];
    if (node >= 0 && !is_above(b, node, n)) return false;
    const std::int64_t at = node < 0 ? j : position[static_cast<std::size_t>(begin[b] + node)];
    return c.window == 0 || position[static_cast<std::size_t>(begin[b] + n)] - at < c.window;
  }
  /// Whether the reference's output of node n and head h is what the scores are called.
  bool is_as_called(std::size_t b, int n, int h, const std::vector<double>& output) const {
    if (output[kHead] == -INFINITY || c.softcap > 0) return true;
    if (c.scores == KeyScores::flat) {
      int seen = 0;
      for (int j = 0; j < tokens(b); ++j) seen += sees(b, n, j);
      return std::fabs(output[kHead] - std::log(seen)) < 1e-12;
    }
    const int key = aimed.empty() ? -1 : aimed[static_cast<std::size_t>((begin[b] + n) * c.query_heads + h)];
    if (key < 0) return c.scores != KeyScores::peaked;
    for (int i = 0; i < kHead; ++i)
      if (!(std::fabs(output[static_cast<std::size_t>(i)] -
                      v[slot(b, key, h / (c.query_heads / c.kv_heads), i)]) < 1e-6))
        return false;
    return true;
  }

 private:
  double number(Random& random) const { return c.spread * random.between(-1.7, 1.7); }
  bool is_ramp() const { return c.scores == KeyScores::rising || c.scores == KeyScores::falling; }
  /// Element i of a query and of the key in slot j of sequence b. On a ramp, the first elements make a score
  /// that grows by 0.35 from key to key.
  double query_number(Random& random, std::size_t b, int i) const {
    const double x = number(random);
    if (c.scores == KeyScores::flat) return 0;
    return is_ramp() && i == 0 ? 0.35 * tokens(b) / (4 * static_cast<double>(c.scale)) : x;
  }
  double key_number(Random& random, std::size_t b, int j, int i) const {
    const double x = number(random);
    if (!is_ramp() || i > 0) return x;
    return (c.scores == KeyScores::rising ? 4.0 : -4.0) * (static_cast<double>(j) / tokens(b) - 0.5);
  }
  /// Turns each query to a key that it sees: often the first or the last one.
  void aim(Random& random) {
    for (std::size_t b = 0; b < c.lengths.size(); ++b)
      for (int n = 0; n < c.nodes[b]; ++n)
        for (int h = 0; h < c.query_heads; ++h) {
          std::vector<int> seen;
          for (int j = 0; j < tokens(b); ++j)
            if (sees(b, n, j)) seen.push_back(j);
          const int kind = random.below(4), any = random.below(1 << 20);
          aimed.push_back(seen.empty() ? -1
                          : kind == 0  ? seen.front()
                          : kind == 1  ? seen.back()
                                       : seen[static_cast<std::size_t>(any) % seen.size()]);
          if (seen.empty()) continue;
          const auto key = [&](int i) {
            return k[slot(b, aimed.back(), h / (c.query_heads / c.kv_heads), i)];
          };
          double square = 0;
          for (int i = 0; i < kHead; ++i) square += key(i) * key(i);
          for (int i = 0; i < kHead; ++i)
            q[static_cast<std::size_t>((begin[b] + n) * q_stride + h * kHead + i)] = {
                nearest_bits(Element{}, 100 * key(i) / (square * static_cast<double>(c.scale)))};
        }
  }
  std::size_t slot(std::size_t b, int j, int kv_head, int i) const {
    return static_cast<std::size_t>(((first_slot[b] + j) * c.kv_heads + kv_head) * kHead + i);
  }
  bool is_above(std::size_t b, int node, int below) const {
    for (; below >= 0; below = parent[static_cast<std::size_t>(begin[b] + below)])
      if (below == node) return true;
    return false;
  }

  void grow_trees(Random& random, int most_nodes) {
    words = c.cross ? 0 : (most_nodes + 63) / 64 + random.below(2);
    mask.assign(static_cast<std::size_t>(begin.back() * words) + 1, 0);
    position.reserve(static_cast<std::size_t>(begin.back()) + 1);  // never null
    depth.reserve(static_cast<std::size_t>(begin.back()) + 1);
    for (std::size_t b = 0; b < c.lengths.size(); ++b)
      for (int n = 0; n < c.nodes[b]; ++n) {
        const int p = n == 0 ? -1 : random.bernoulli(0.4) ? n - 1 : random.below(n);
        parent.push_back(p);
        const auto row = static_cast<std::size_t>(begin[b] + n);
        depth.push_back(p < 0 ? 0 : depth[static_cast<std::size_t>(begin[b] + p)] + 1);
        position.push_back(c.lengths[b] + depth.back());
        for (int a = n; a >= 0 && words > 0; a = parent[static_cast<std::size_t>(begin[b] + a)])
          mask[row * static_cast<std::size_t>(words) + static_cast<std::size_t>(a / 64)] |= std::uint64_t{1}
                                                                                            << (a % 64);
      }
  }

  void lay_out(Random& random, int most_tokens) {
    const auto sequences = c.lengths.size();
    const bool contiguous = c.layout == KvLayout::contiguous;
    const bool joint = c.layout == KvLayout::joint_nhd || c.layout == KvLayout::joint_hnd;
    const bool nhd = c.layout == KvLayout::nhd || c.layout == KvLayout::joint_nhd || contiguous;
    max_pages = (most_tokens + c.page_size - 1) / c.page_size + 1;
    std::vector<int> needed;
    int all = 0;
    for (std::size_t b = 0; b < sequences; ++b) {
      needed.push_back((tokens(b) + c.page_size - 1) / c.page_size);
      all += needed.back();
    }
    const int pages = contiguous ? static_cast<int>(sequences) : all + 3;
    auto& args_kv = args.kv;
    const std::int64_t token = nhd ? c.kv_heads * kHead : kHead;
    const std::int64_t head = nhd ? kHead : static_cast<std::int64_t>(c.page_size) * kHead;
    const std::int64_t half = static_cast<std::int64_t>(c.page_size) * c.kv_heads * kHead;
    const std::int64_t page = joint ? 2 * half : half + 2 * kGap;
    pool_k.assign(static_cast<std::size_t>(page * pages), kNaN);
    pool_v.assign(joint ? 0 : pool_k.size(), kNaN);
    for (auto* scale : {&k_scale, &v_scale})
      for (int h = 0; h < c.kv_heads; ++h)
        scale->push_back(!kBytes && !c.scaled
                             ? 1
                             : static_cast<float>(random.between(0.5, 2) * (kBytes ? 0.01 : 1.0) *
                                                  (random.bernoulli(0.2) ? -1 : 1)));
    // Pages in random order; with two tables, K and V have different orders.
    const auto order = [&] {
      std::vector<std::int32_t> out;
      for (int p = 0; p < pages; ++p) out.push_back(p);
      for (std::size_t i = out.size(); i > 1 && !contiguous; --i)
        std::swap(out[i - 1], out[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(i)))]);
      return out;
    };
    const auto order_k = order(), order_v = c.two_tables ? order() : order_k;
    // Entries that no token needs point far outside every pool.
    const std::int32_t nowhere = 0x70000000;
    indptr.assign(1, 0);
    std::size_t next = 0;
    for (std::size_t b = 0; b < sequences; ++b) {
      for (int p = 0; p < (c.table == KvTable::csr ? needed[b] : max_pages); ++p) {
        const bool there = p<needed[b], live = (p + 1) * c.page_size> forgotten(b);
        pages_k.push_back(there && live ? order_k[contiguous ? b : next] : nowhere);
        pages_v.push_back(there && live ? order_v[contiguous ? b : next] : nowhere);
        next += there;
      }
      indptr.push_back(static_cast<std::int32_t>(pages_k.size()));
    }
    args_kv.k = {pool_k.data(), page, token, head, contiguous ? nullptr : pages_k.data()};
    args_kv.v = {joint ? pool_k.data() + half : pool_v.data(), page, token, head,
                 contiguous ? nullptr : pages_v.data()};
    args_kv.length = length.data();
    args_kv.page_size = c.page_size;
    if (!contiguous && c.table == KvTable::csr) args_kv.indptr = indptr.data();
    if (!contiguous && c.table == KvTable::rectangle) args_kv.max_pages = max_pages;

    const auto put = [&](std::size_t b, int j, int h, int i, Stored x, Stored y) {
      const auto entry = static_cast<std::size_t>(indptr[b] + j / c.page_size);
      const std::int64_t at_k = contiguous ? static_cast<std::int64_t>(b) : pages_k[entry];
      const std::int64_t at_v = contiguous ? static_cast<std::int64_t>(b) : pages_v[entry];
      const std::int64_t rest = j % c.page_size * token + h * head + i;
      pool_k[static_cast<std::size_t>(at_k * page + rest)] = x;
      (joint ? pool_k : pool_v)[static_cast<std::size_t>(at_v * page + (joint ? half : 0) + rest)] = y;
    };
    std::int64_t slots = 0;
    for (std::size_t b = 0; b < sequences; ++b) {
      first_slot.push_back(slots);
      for (int j = 0; j < tokens(b); ++j)
        for (int h = 0; h < c.kv_heads; ++h)
          for (int i = 0; i < kHead; ++i) {
            const auto of_k = static_cast<double>(k_scale[static_cast<std::size_t>(h)]),
                       of_v = static_cast<double>(v_scale[static_cast<std::size_t>(h)]);
            const Stored x{nearest_bits(Stored{}, key_number(random, b, j, i) / of_k)},
                y{nearest_bits(Stored{}, number(random) / of_v)};
            if (j >= forgotten(b)) put(b, j, h, i, x, y);
            k.push_back(plain_value(x) * of_k);
            v.push_back(plain_value(y) * of_v);
          }
      slots += tokens(b);
    }
    args.q = q.data();
    args.q_stride = q_stride;
    args.begin = begin.data();
    args.mask = c.cross ? nullptr : mask.data();
    args.words = words;
    args.scale = c.scale;
    args.softcap = c.softcap;
    args.window = c.window;
    args.position = c.by_depth ? nullptr : position.data();
    args.depth = c.by_depth ? depth.data() : nullptr;
    if (kBytes || c.scaled) {
      args.k_scale = k_scale.data();
      args.v_scale = v_scale.data();
    }
  }
};

/// The outputs of a run.
template <class Element>
struct AttentionOutput {
  std::vector<Element> out;
  std::vector<float> lse;
  std::vector<specula::cuda::Status> status;
  std::int64_t stride = 0;
  bool operator==(const AttentionOutput& other) const {
    const auto same = [](Element a, Element b) { return a.bits == b.bits; };
    return std::equal(out.begin(), out.end(), other.out.begin(), other.out.end(), same) &&
           lse.size() == other.lse.size() &&
           (lse.empty() || std::memcmp(lse.data(), other.lse.data(), 4 * lse.size()) == 0);
  }
};

/// Distance of a run from the reference: the relative error of the worst output, that of one head of one
/// node, and where it is; the largest difference of log-sum-exps, of 1 or of a sixteenth of the largest one
/// if that is more; and defects (NaN, missing writes, writes out of place, a reference that is not what its
/// scores are called).
struct AttentionErrors {
  double relative = 0, lse = 0;
  int wrong = 0;
  std::size_t sequence = 0;
  int node = 0, head = 0;
};
template <class Scene>
AttentionErrors compare_attention(const Scene& scene, const AttentionOutput<typename Scene::Element>& got) {
  constexpr int kHead = Scene::kHead;
  AttentionErrors errors;
  for (const specula::cuda::Status status : got.status)
    if (status != specula::cuda::Status::ok) ++errors.wrong;
  for (std::size_t b = 0; b < scene.c.lengths.size(); ++b)
    for (int n = 0; n < scene.c.nodes[b]; ++n)
      for (int h = 0; h < scene.c.query_heads; ++h) {
        const auto want = scene.reference(b, n, h);
        if (!scene.is_as_called(b, n, h, want)) ++errors.wrong;
        const std::int64_t query = scene.begin[b] + n;
        double difference = 0, norm = 0;
        for (int i = 0; i < kHead; ++i) {
          const double x = plain_value(got.out[static_cast<std::size_t>(query * got.stride + h * kHead + i)]);
          const double y = want[static_cast<std::size_t>(i)];
          if (!std::isfinite(x) || (want[kHead] == -INFINITY && x != 0)) ++errors.wrong;
          difference += (x - y) * (x - y);
          norm += y * y;
        }
        const double relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
        if (!(relative <= errors.relative)) errors.sequence = b, errors.node = n, errors.head = h;
        errors.relative = worse(errors.relative, relative);
        const auto lse =
            static_cast<double>(got.lse[static_cast<std::size_t>(query * scene.c.query_heads + h)]);
        if (want[kHead] == -INFINITY ? lse != -INFINITY : !std::isfinite(lse))
          ++errors.wrong;
        else if (want[kHead] > -INFINITY)
          errors.lse =
              worse(errors.lse, std::fabs(lse - want[kHead]) / std::max(1.0, std::fabs(want[kHead]) / 16));
      }
  const auto used = static_cast<std::int64_t>(scene.c.query_heads) * kHead;
  for (std::size_t i = 0; i < got.out.size(); ++i)
    if (static_cast<std::int64_t>(i) % got.stride >= used && got.out[i].bits != 0x7FFE) ++errors.wrong;
  if (!std::isnan(got.lse.back())) ++errors.wrong;
  return errors;
}

}  // namespace specula_test
