#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <thread>

#include "attention.cuh"
#include "random.cuh"

namespace specula_bench {
namespace {

using device::BFloat16;
using device::Half;

enum class Layout { contiguous, pages, pages_by_head, side_by_side };

struct Shape {
  int query_heads = 8, kv_heads = 2, sequences = 3, max_nodes = 20, max_tokens = 300;
  Layout layout = Layout::contiguous;
  int page_size = 16;
  int window = 0;
  float softcap = 0;
  bool tail = true, batch_invariant = false;
  int splits = 0;
  bool full = false;  // all sequences are as long, and all trees as large, as they can be
};

template <class Element, int kHead>
struct Batch {
  Shape shape;
  int words, table_pages = 0;
  std::int64_t page_stride, token_stride, head_stride, value_offset = 0;
  std::vector<std::int32_t> begin{0}, length, depth, pages, indptr{0}, parent;
  std::vector<std::uint64_t> mask;
  std::vector<Element> q, k, v;

  int slot_page(int sequence, int slot) const {
    const int of = slot / shape.page_size;
    if (shape.layout == Layout::contiguous) return sequence;
    if (shape.layout == Layout::pages_by_head)
      return pages[static_cast<std::size_t>(sequence * table_pages + of)];
    return pages[static_cast<std::size_t>(indptr[static_cast<std::size_t>(sequence)] + of)];
  }
  std::size_t row_at(int sequence, int slot, int head) const {
    return static_cast<std::size_t>(slot_page(sequence, slot) * page_stride +
                                    slot % shape.page_size * token_stride + head * head_stride);
  }

  Batch(const Shape& s, std::uint64_t seed) : shape(s), words(s.tail ? (s.max_nodes + 63) / 64 : 0) {
    Random random{seed};
    int pool = 0;
    if (shape.layout == Layout::contiguous) shape.page_size = s.max_tokens + s.max_nodes;
    for (int b = 0; b < s.sequences; ++b) {
      const int nodes = s.full ? s.max_nodes : b == 1 ? 0 : 1 + random.below(s.max_nodes);
      const int half = s.max_tokens / 2;
      length.push_back(s.full ? s.max_tokens : b == 2 ? 0 : s.max_tokens - random.below(half + 1));
      for (int n = 0; n < nodes; ++n) {
        const int p = n == 0 ? -1 : random.below(3) ? n - 1 : random.below(n);
        parent.push_back(p);
        const auto first = static_cast<std::size_t>(begin.back());
        depth.push_back(p < 0 ? 0 : 1 + depth[first + static_cast<std::size_t>(p)]);
        for (int w = 0; w < words; ++w) {
          std::uint64_t word =
              p < 0 ? 0
                    : mask[(first + static_cast<std::size_t>(p)) * static_cast<std::size_t>(words) +
                           static_cast<std::size_t>(w)];
          if (n / 64 == w) word |= std::uint64_t{1} << (n % 64);
          mask.push_back(word);
        }
      }
      begin.push_back(begin.back() + nodes);
      const int slots = length.back() + nodes;
      const int needed = (slots + shape.page_size - 1) / shape.page_size;
      indptr.push_back(indptr.back() + needed);
      table_pages = std::max(table_pages, needed);
      pool += needed;
    }
    if (shape.layout == Layout::contiguous) {
      pool = s.sequences;
    } else {  // pages in a drawn order
      std::vector<std::int32_t> order;
      for (int i = 0; i < pool; ++i) order.push_back(i);
      for (int i = pool - 1; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
      if (shape.layout == Layout::pages_by_head) {
        pages.assign(static_cast<std::size_t>(std::max(1, s.sequences * table_pages)), -1);
        for (int b = 0; b < s.sequences; ++b)
          for (int i = indptr[static_cast<std::size_t>(b)]; i < indptr[static_cast<std::size_t>(b) + 1]; ++i)
            pages[static_cast<std::size_t>(b * table_pages + i - indptr[static_cast<std::size_t>(b)])] =
                order[static_cast<std::size_t>(i)];
      } else {
        pages = order;
      }
      if (pages.empty()) pages.push_back(0);
    }
    const std::int64_t page = static_cast<std::int64_t>(shape.page_size) * s.kv_heads * kHead;
    const bool by_head = shape.layout == Layout::pages_by_head;
    token_stride = by_head ? kHead : s.kv_heads * kHead;
    head_stride = by_head ? static_cast<std::int64_t>(shape.page_size) * kHead : kHead;
    page_stride = page;
    if (shape.layout == Layout::side_by_side) page_stride = 2 * page, value_offset = page;
    Element nan;
    nan.bits = 0x7FFF;
    const auto size = static_cast<std::size_t>(std::max(1, pool) * page_stride);
    k.assign(size, nan);
    if (shape.layout != Layout::side_by_side) v.assign(size, nan);
    std::vector<Element>& values = shape.layout == Layout::side_by_side ? k : v;
    for (int b = 0; b < s.sequences; ++b) {
      const auto at = static_cast<std::size_t>(b);
      for (int slot = 0; slot < length[at] + begin[at + 1] - begin[at]; ++slot)
        for (int h = 0; h < s.kv_heads; ++h)
          for (int d = 0; d < kHead; ++d) {
            const std::size_t place = row_at(b, slot, h) + static_cast<std::size_t>(d);
            k[place] = rounded(random.normal(), Element{});
            values[place + static_cast<std::size_t>(value_offset)] = rounded(random.normal(), Element{});
          }
    }
    for (int i = 0; i < begin.back() * s.query_heads * kHead; ++i)
      q.push_back(rounded(1.5f * random.normal(), Element{}));
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(kHead)); }
  static double at(const std::vector<Element>& from, std::size_t place) { return as_double(from[place]); }

  /// In doubles, straight from the definition: out (N, Hq, D), lse (N, Hq).
  void reference(std::vector<double>& out, std::vector<double>& lse) const {
    const int nodes = begin.back(), rows = nodes * shape.query_heads;
    out.assign(static_cast<std::size_t>(rows) * kHead, 0.0);
    lse.assign(static_cast<std::size_t>(rows), -std::numeric_limits<double>::infinity());
    const std::vector<Element>& values = shape.layout == Layout::side_by_side ? k : v;
    const auto row = [&](int r) {
      const int query = r / shape.query_heads, head = r % shape.query_heads;
      const int kv_head = head / (shape.query_heads / shape.kv_heads);
      int b = 0;
      while (begin[static_cast<std::size_t>(b) + 1] <= query) ++b;
      const int first = begin[static_cast<std::size_t>(b)], node = query - first;
      const int prefix = length[static_cast<std::size_t>(b)];
      const int position = prefix + depth[static_cast<std::size_t>(query)];
      std::vector<std::pair<double, int>> seen;  // score and slot
      double top = -std::numeric_limits<double>::infinity();
      const auto look = [&](int slot, int key_position) {
        if (shape.window > 0 && position - key_position >= shape.window) return;
        double score = 0;
        const std::size_t qa = static_cast<std::size_t>(r) * kHead, ka = row_at(b, slot, kv_head);
        for (std::size_t d = 0; d < kHead; ++d) score += at(q, qa + d) * at(k, ka + d);
        score *= static_cast<double>(scale());
        if (shape.softcap > 0) {
          const auto cap = static_cast<double>(shape.softcap);
          score = cap * std::tanh(score / cap);
        }
        seen.emplace_back(score, slot);
        top = std::max(top, score);
      };
      for (int slot = 0; slot < prefix; ++slot) look(slot, slot);
      if (shape.tail)
        for (int n = node; n >= 0; n = parent[static_cast<std::size_t>(first + n)])
          look(prefix + n, prefix + depth[static_cast<std::size_t>(first + n)]);
      if (seen.empty()) return;
      double total = 0;
      for (const auto& s : seen) total += std::exp(s.first - top);
      for (const auto& s : seen) {
        const double weight = std::exp(s.first - top) / total;
        const std::size_t va = row_at(b, s.second, kv_head) + static_cast<std::size_t>(value_offset);
        for (std::size_t d = 0; d < kHead; ++d)
          out[static_cast<std::size_t>(r) * kHead + d] += weight * at(values, va + d);
      }
      lse[static_cast<std::size_t>(r)] = top + std::log(total);
    };
    const int count = static_cast<int>(std::max(1u, std::min(32u, std::thread::hardware_concurrency())));
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t)
      threads.emplace_back([&, t] {
        for (int r = t; r < rows; r += count) row(r);
      });
    for (std::thread& t : threads) t.join();
  }
};

/// A batch on the device.
template <class Element, int kHead>
class DeviceBatch {
 public:
  explicit DeviceBatch(const Batch<Element, kHead>& batch) { upload(batch); }
  void upload(const Batch<Element, kHead>& batch) {
    shape_ = batch.shape, words_ = batch.words, table_pages_ = batch.table_pages;
    page_stride_ = batch.page_stride, token_stride_ = batch.token_stride, head_stride_ = batch.head_stride;
    value_offset_ = batch.value_offset, scale_ = batch.scale();
    begin_.upload(batch.begin), length_.upload(batch.length), depth_.upload(batch.depth);
    pages_.upload(batch.pages), indptr_.upload(batch.indptr), mask_.upload(batch.mask);
    q_.upload(batch.q), k_.upload(batch.k), v_.upload(batch.v);
    const auto rows = static_cast<std::size_t>(batch.begin.back() * batch.shape.query_heads);
    out_.reserve(rows * kHead), lse_.reserve(rows);
    poison();
  }
  void poison() {
    out_.fill_bytes(0xFF), lse_.fill_bytes(0xFF);  // NaN
    SPECULA_CHECK(cudaDeviceSynchronize());
  }
  device::TreeAttentionCapacity capacity() const {
    device::TreeAttentionCapacity out;
    out.sequences = shape_.sequences;
    out.max_nodes = shape_.max_nodes;
    out.query_heads = shape_.query_heads;
    out.kv_heads = shape_.kv_heads;
    out.max_tokens = shape_.max_tokens;
    out.splits = shape_.splits;
    out.batch_invariant = shape_.batch_invariant;
    return out;
  }
  /// From sequence `first` on.
  device::TreeAttentionArgs<Element> args(int first = 0) const {
    const bool side = shape_.layout == Layout::side_by_side;
    const std::int32_t* pages = shape_.layout == Layout::contiguous ? nullptr : pages_.data();
    const std::int64_t page = shape_.layout == Layout::contiguous ? first * page_stride_ : 0;
    const std::ptrdiff_t row =
        shape_.layout == Layout::pages_by_head ? static_cast<std::ptrdiff_t>(first) * table_pages_ : 0;
    const Element* keys = k_.data() + page;
    const Element* values = (side ? k_.data() + value_offset_ : v_.data()) + page;
    device::TreeAttentionArgs<Element> out{};
    out.q = q_.data();
    out.q_stride = shape_.query_heads * kHead;
    out.kv.k = {keys, page_stride_, token_stride_, head_stride_, pages ? pages + row : nullptr};
    out.kv.v = {values, page_stride_, token_stride_, head_stride_, pages ? pages + row : nullptr};
    out.kv.length = length_.data() + first;
    out.kv.page_size = shape_.page_size;
    if (shape_.layout == Layout::pages || side) out.kv.indptr = indptr_.data() + first;
    if (shape_.layout == Layout::pages_by_head) out.kv.max_pages = table_pages_;
    out.begin = begin_.data() + first;
    out.mask = mask_.data();
    out.words = words_;
    out.out = out_.data();
    out.out_stride = shape_.query_heads * kHead;
    out.lse = lse_.data();
    out.scale = scale_;
    out.softcap = shape_.softcap;
    out.window = shape_.window;
    out.depth = shape_.window ? depth_.data() : nullptr;
    return out;
  }
  std::vector<Element> out() const { return out_.download(); }
  std::vector<float> lse() const { return lse_.download(); }

 private:
  Shape shape_;
  int words_ = 0, table_pages_ = 0;
  std::int64_t page_stride_ = 0, token_stride_ = 0, head_stride_ = 0, value_offset_ = 0;
  float scale_ = 1;
  DeviceArray<std::int32_t> begin_, length_, depth_, pages_, indptr_;
  DeviceArray<std::uint64_t> mask_;
  DeviceArray<Element> q_, k_, v_, out_;
  DeviceArray<float> lse_;
};

template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0);
}

struct Errors {
  double out = 0, lse = 0;
  bool good(double limit) const { return out <= limit && lse <= 2e-3; }
};
template <class Element>
Errors errors_of(const std::vector<Element>& out, const std::vector<float>& lse,
                 const std::vector<double>& want, const std::vector<double>& want_lse) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double difference = 0, size = 0;
  Errors e;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = as_double(out[i]);
    difference += (x - want[i]) * (x - want[i]);
    size += want[i] * want[i];
  }
  e.out = size > 0 ? std::sqrt(difference / size) : difference > 0 ? nan : difference;  // NaN stays
  for (std::size_t i = 0; i < want_lse.size(); ++i) {
    const auto x = static_cast<double>(lse[i]);
    if (std::isinf(want_lse[i])) {
      if (!(x == want_lse[i])) e.lse = nan;
    } else if (!(std::abs(x - want_lse[i]) <= e.lse)) {
      e.lse = std::abs(x - want_lse[i]);
    }
  }
  return e;
}

template <class Element, int kHead>
void check_shape(const Shape& shape, const std::string& name, double limit, std::uint64_t seed,
                 const Device& device, const Stream& stream, Json& json, Report& report) {
  using Kernels = AttentionKernels<Element, kHead>;
  const Batch<Element, kHead> batch(shape, seed);
  std::vector<double> want, want_lse;
  batch.reference(want, want_lse);
  DeviceBatch<Element, kHead> on_device(batch);
  device::TreeAttentionPlan plan;
  SPECULA_CHECK(Kernels::plan(&plan, on_device.capacity(), device.id));
  const Workspace workspace(plan);
  SPECULA_CHECK(Kernels::run(plan, on_device.args(), workspace.data(), stream));
  stream.wait();
  const std::vector<Element> out = on_device.out();
  const std::vector<float> lse = on_device.lse();
  const Errors e = errors_of(out, lse, want, want_lse);
  bool again = true;  // the counters are as they were
  for (int i = 0; i < 3; ++i) {
    on_device.poison();
    SPECULA_CHECK(Kernels::run(plan, on_device.args(), workspace.data(), stream));
    stream.wait();
    again = again && same_bits(on_device.out(), out) && same_bits(on_device.lse(), lse);
  }
  // In batch-invariant mode a sequence alone has the same bits.
  bool alone = true;
  if (shape.batch_invariant) {
    on_device.poison();
    device::TreeAttentionCapacity one = on_device.capacity();
    one.sequences = 1;
    device::TreeAttentionPlan single;
    SPECULA_CHECK(Kernels::plan(&single, one, device.id));
    const Workspace single_workspace(single);
    for (int b = 0; b < shape.sequences; ++b)
      SPECULA_CHECK(Kernels::run(single, on_device.args(b), single_workspace.data(), stream));
    stream.wait();
    alone = same_bits(on_device.out(), out) && same_bits(on_device.lse(), lse);
  }
  // Other variants and splits of the same batch.
  Errors other;
  int variants = 0;
  for (const int rows : {16, 32, 64, 128})
    for (const int splits : {1, 3, 16}) {
      if (shape.batch_invariant) continue;
      device::TreeAttentionCapacity capacity = on_device.capacity();
      capacity.splits = splits;
      device::TreeAttentionPlan variant;
      SPECULA_CHECK(Kernels::plan(&variant, capacity, device.id));
      SPECULA_CHECK(Kernels::force_rows(&variant, rows));
      const Workspace variant_workspace(variant);
      on_device.poison();
      SPECULA_CHECK(Kernels::run(variant, on_device.args(), variant_workspace.data(), stream));
      stream.wait();
      const Errors now = errors_of(on_device.out(), on_device.lse(), want, want_lse);
      if (!(now.out <= other.out)) other.out = now.out;
      if (!(now.lse <= other.lse)) other.lse = now.lse;
      ++variants;
    }
  const bool good = e.good(limit) && other.good(limit) && again && alone;
  if (!good) report.fail();
  json.key(name).begin_object().field("error", e.out).field("lse_error", e.lse).field("limit", limit);
  json.field("variants", variants).field("variants_error", other.out).field("variants_lse_error", other.lse);
  json.field("replays_same_bits", again).field("alone_same_bits", alone).field("splits", plan.splits);
  json.field("rows", plan.rows).field("pass", good).end();
  std::printf("| %s | error %.2g | lse %.2g | variants %.2g | same bits: again %s, alone %s | %s |\n",
              name.c_str(), e.out, e.lse, other.out, again ? "yes" : "NO", alone ? "yes" : "NO",
              good ? "pass" : "FAIL");
  std::fflush(stdout);
}

template <class Element, int kHead>
void check_all(const char* element, double limit, const Options& options, const Device& device,
               const Stream& stream, Report& report) {
  struct Named {
    const char* name;
    Shape shape;
  };
  std::vector<Named> shapes;
  const auto add = [&](const char* name, auto change) {
    Named one{name, {}};
    change(one.shape);
    shapes.push_back(one);
  };
  add("contiguous", [](Shape&) {});
  add("pages of 16", [](Shape& s) { s.layout = Layout::pages; });
  if (!options.tiny) {
    add("groups of 1", [](Shape& s) { s.query_heads = s.kv_heads = 3; });
    add("groups of 7, pages of 1",
        [](Shape& s) { s.query_heads = 14, s.layout = Layout::pages, s.page_size = 1; });
    add("groups of 8, K beside V", [](Shape& s) { s.query_heads = 16, s.layout = Layout::side_by_side; });
    add("pages by head, of 48", [](Shape& s) { s.layout = Layout::pages_by_head, s.page_size = 48; });
    add("100 nodes", [](Shape& s) { s.max_nodes = 100, s.max_tokens = 700; });
    add("200 nodes, groups of 5", [](Shape& s) { s.max_nodes = 200, s.query_heads = 10, s.full = true; });
    add("window of 50", [](Shape& s) { s.window = 50; });
    add("window of 7", [](Shape& s) { s.window = 7, s.layout = Layout::pages; });
    add("softcap 30", [](Shape& s) { s.softcap = 30; });
    add("softcap 3, window of 100", [](Shape& s) { s.softcap = 3, s.window = 100; });
    add("no tail", [](Shape& s) { s.tail = false; });
    add("batch-invariant, 5,000 tokens", [](Shape& s) { s.batch_invariant = true, s.max_tokens = 5000; });
    add("12,000 tokens",
        [](Shape& s) { s.max_tokens = 12000, s.full = true, s.sequences = 2, s.max_nodes = 9; });
    add("32,768 tokens, one sequence",
        [](Shape& s) { s.max_tokens = 32768, s.full = true, s.sequences = 1, s.max_nodes = 8; });
    add("7 sequences of one node", [](Shape& s) { s.max_nodes = 1, s.sequences = 7, s.max_tokens = 2000; });
    add("no tokens at all", [](Shape& s) { s.max_tokens = 0; });
  }
  report.part(std::string(element) + ", heads of " + std::to_string(kHead), [&](Json& json) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      check_shape<Element, kHead>(shapes[i].shape,
                                  std::string(element) + " " + std::to_string(kHead) + ", " + shapes[i].name,
                                  limit, options.seed * 4049 + i, device, stream, json, report);
  });
}

/// A captured launch whose batch is changed: against a fresh one.
void check_graph(const Options& options, const Device& device, const Stream& stream, Json& json,
                 Report& report) {
  using Kernels = AttentionKernels<BFloat16, 128>;
  Shape shape;
  shape.max_tokens = 3000;
  shape.max_nodes = 40;
  Shape full = shape;
  full.full = true;
  DeviceBatch<BFloat16, 128> on_device(Batch<BFloat16, 128>(full, 1));  // all that is ever needed
  device::TreeAttentionPlan plan;
  SPECULA_CHECK(Kernels::plan(&plan, on_device.capacity(), device.id));
  const Workspace workspace(plan);
  const auto args = on_device.args();
  const Graph graph(stream, [&](cudaStream_t s) { return Kernels::run(plan, args, workspace.data(), s); });
  bool same = true;
  const int rounds = options.tiny ? 2 : 10;
  for (int i = 0; i < rounds; ++i) {
    const Batch<BFloat16, 128> batch(shape, options.seed * 211 + static_cast<std::uint64_t>(i));
    on_device.upload(batch);
    graph.launch(stream);
    stream.wait();
    DeviceBatch<BFloat16, 128> fresh(batch);
    const Workspace fresh_workspace(plan);
    SPECULA_CHECK(Kernels::run(plan, fresh.args(), fresh_workspace.data(), stream));
    stream.wait();
    same = same && same_bits(on_device.out(), fresh.out()) && same_bits(on_device.lse(), fresh.lse());
  }
  if (!same) report.fail();
  json.field("replays", rounds).field("pass", same);
  std::printf("| attention: %d replays are fresh launches | %s |\n", rounds, same ? "pass" : "FAIL");
}

}  // namespace

void check_attention(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  check_all<BFloat16, 128>("bf16", 6e-3, options, device, stream, report);
  check_all<Half, 64>("f16", 1.5e-3, options, device, stream, report);
  if (options.tiny) return;
  check_all<BFloat16, 64>("bf16", 6e-3, options, device, stream, report);
  check_all<Half, 128>("f16", 1.5e-3, options, device, stream, report);
}

void check_attention_graphs(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  report.part("bf16", [&](Json& json) { check_graph(options, device, stream, json, report); });
}

}  // namespace specula_bench
