// SPDX-License-Identifier: MIT
// Compaction of caches, draft tokens from the text, similarity of layers, distillation: correctness and bars.
//
//   helpers check|bars [--out FILE] [--seed N] [--only BAR] [--tiny] [--once]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include <specula/cuda/api/compact_kv.cuh>
#include <specula/cuda/api/layer_similarity.cuh>
#include <specula/cuda/api/max_gram.cuh>
#include <specula/cuda/api/top_k_distillation.cuh>

#include "program.cuh"
#include "random.cuh"

namespace specula_bench {
namespace {

namespace device = specula::cuda;
using device::BFloat16;
using Bytes = std::vector<unsigned char>;

void write(Json& json, Report& report, const std::string& name, int cases, int wrong, double error,
           double limit) {
  const bool good = cases > 0 && wrong == 0 && error <= limit;
  if (!good) report.fail();
  json.key(name).begin_object().field("cases", cases).field("differ", wrong).field("error", error);
  json.field("limit", limit).field("pass", good).end();
  std::printf("| %s | %d of %d equal | error %.2g | %s |\n", name.c_str(), cases - wrong, cases, error,
              good ? "pass" : "FAIL");
}

// ---- compaction

void check_compaction(const Options& options, const Stream& stream, Json& json, Report& report) {
  Random random{options.seed};
  int cases = 0, wrong = 0;
  for (int round = 0; round < (options.tiny ? 3 : 60); ++round, ++cases) {
    const int sequences = 1 + random.below(8), width = 1 + random.below(12), layers = 1 + random.below(4);
    const int heads = 1 + random.below(4), page_size = 1 + random.below(20), most = 80;
    // Bytes that 16, 4 or only 1 divides.
    const int head_bytes = round % 3 == 0 ? 64 : round % 3 == 1 ? 36 : 7;
    const int pages_each = (most + page_size - 1) / page_size, pages = sequences * pages_each;
    const std::int64_t token_stride = static_cast<std::int64_t>(heads) * head_bytes;
    const std::int64_t page_stride = page_size * token_stride, layer_stride = pages * page_stride;
    std::vector<std::int32_t> table, count, prefix;
    std::vector<device::NodeId> path;
    for (int i = 0; i < pages; ++i) table.push_back(i);
    for (int i = pages - 1; i > 0; --i)
      std::swap(table[static_cast<std::size_t>(i)], table[static_cast<std::size_t>(random.below(i + 1))]);
    for (int b = 0; b < sequences; ++b) {
      count.push_back(random.below(width + 1));
      prefix.push_back(random.below(20));
      int node = -1;
      for (int i = 0; i < width; ++i) {
        node += 1 + (random.below(2) ? random.below(4) : 0);
        path.push_back(i < count.back() ? node : -1);
      }
    }
    Bytes keys(static_cast<std::size_t>(layers * layer_stride)), values(keys.size());
    for (unsigned char& c : keys) c = static_cast<unsigned char>(random.bits());
    for (unsigned char& c : values) c = static_cast<unsigned char>(random.bits());
    const DeviceArray<std::int32_t> device_table(table), device_count(count), device_prefix(prefix),
        device_path(path);
    const DeviceArray<unsigned char> device_keys(keys), device_values(values);
    const auto rows = [&](const DeviceArray<unsigned char>& of) {
      device::SlotRows out;
      out.base = of.data();
      out.layer_stride = layer_stride, out.layers = layers, out.heads = heads;
      out.page_stride = page_stride, out.token_stride = token_stride, out.head_stride = head_bytes;
      out.head_bytes = head_bytes, out.pages = device_table.data();
      return out;
    };
    device::SlotPages in_pages{page_size};
    in_pages.max_pages = pages_each;
    SPECULA_CHECK(
        device::compact_kv({device_path.data(), device_count.data(), device_prefix.data(), sequences, width},
                           in_pages, rows(device_keys), rows(device_values), stream));
    stream.wait();
    for (Bytes* of : {&keys, &values})
      for (int b = 0; b < sequences; ++b)
        for (int i = 0; i < count[static_cast<std::size_t>(b)]; ++i)
          for (int layer = 0; layer < layers; ++layer) {
            const auto place = [&](int slot) {
              const int page = table[static_cast<std::size_t>(b * pages_each + slot / page_size)];
              return of->data() + layer * layer_stride + page * page_stride + slot % page_size * token_stride;
            };
            const int first = prefix[static_cast<std::size_t>(b)];
            std::memmove(place(first + i), place(first + path[static_cast<std::size_t>(b * width + i)]),
                         static_cast<std::size_t>(token_stride));
          }
    wrong += device_keys.download() != keys || device_values.download() != values;
  }
  write(json, report, "compact_kv", cases, wrong, 0, 0);
}

// ---- draft tokens from the text

/// As specula::MaxGram, by looking everywhere.
std::vector<std::int32_t> plain_max_gram(const std::vector<std::int32_t>& text,
                                         const std::vector<std::int32_t>& bigram,
                                         const device::MaxGramOptions& options) {
  std::vector<std::int32_t> all = text;
  const int committed = static_cast<int>(text.size()) - 1;  // the last is the root
  while (static_cast<int>(all.size() - text.size()) < options.draft_tokens) {
    int best = 0, end = -1;
    const int n = static_cast<int>(all.size());
    for (int e = 0; e < committed; ++e) {
      int length = 0;
      while (length <= e && length < n && (options.max_match == 0 || length < options.max_match) &&
             all[static_cast<std::size_t>(e - length)] == all[static_cast<std::size_t>(n - 1 - length)])
        ++length;
      if (length > best) best = length, end = e;
    }
    bool drafted = false;
    if (best >= options.min_match && end + 1 < committed) {
      for (int from = end + 1;
           from < committed && static_cast<int>(all.size() - text.size()) < options.draft_tokens; ++from)
        all.push_back(text[static_cast<std::size_t>(from)]), drafted = true;
    } else if (const std::int32_t next = bigram[static_cast<std::size_t>(all.back())]; next >= 0) {
      all.push_back(next), drafted = true;
    }
    if (!drafted) break;
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(text.size()), all.end()};
}

void check_max_gram(const Options& options, const Stream& stream, Json& json, Report& report) {
  Random random{options.seed + 5};
  int cases = 0, wrong = 0;
  for (int round = 0; round < (options.tiny ? 2 : 40); ++round) {
    const int sequences = 1 + random.below(12), vocab = round % 3 == 0 ? 3 : 30,
              most = options.tiny     ? 60
                     : round % 8 == 7 ? 3000
                                      : 300;
    device::MaxGramOptions how;
    how.draft_tokens = 1 + random.below(20);
    how.min_match = 1 + random.below(3);
    how.max_match = random.below(2) ? 0 : how.min_match + random.below(5);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences * most), -1), length, bigram;
    for (int x = 0; x < vocab; ++x) bigram.push_back(random.below(4) ? random.below(vocab) : -1);
    for (int b = 0; b < sequences; ++b) {
      length.push_back(1 + random.below(most));
      for (int i = 0; i < length.back(); ++i) {  // drawn, or copied from before
        const int period = 1 + random.below(20);
        const auto at = static_cast<std::size_t>(b * most + i);
        tokens[at] = i > period && random.below(5) ? tokens[at - static_cast<std::size_t>(period)]
                                                   : random.below(vocab);
        if (round % 5 == 0) tokens[at] = i % 7;
        if (tokens[at] >= vocab) tokens[at] = vocab - 1;
      }
    }
    device::MaxGramPlan plan;
    SPECULA_CHECK(device::make_max_gram_plan(&plan, {sequences, most, vocab}, how));
    const DeviceArray<std::int32_t> texts(tokens), lengths(length), bigrams(bigram);
    DeviceArray<std::int32_t> draft_tokens(static_cast<std::size_t>(sequences * how.draft_tokens)),
        count(static_cast<std::size_t>(sequences)), match(static_cast<std::size_t>(sequences));
    draft_tokens.fill_bytes(kPoison), count.fill_bytes(kPoison), match.fill_bytes(kPoison);
    SPECULA_CHECK(device::max_gram(
        plan,
        {texts.data(), most, lengths.data(), bigrams.data(), draft_tokens.data(), count.data(), match.data()},
        stream));
    stream.wait();
    const auto got = draft_tokens.download(), got_count = count.download();
    for (int b = 0; b < sequences; ++b, ++cases) {
      const auto first = tokens.begin() + b * most;
      std::vector<std::int32_t> want =
          plain_max_gram({first, first + length[static_cast<std::size_t>(b)]}, bigram, how);
      const bool right = got_count[static_cast<std::size_t>(b)] == static_cast<std::int32_t>(want.size());
      want.resize(static_cast<std::size_t>(how.draft_tokens), -1);
      wrong += !right || !std::equal(want.begin(), want.end(), got.begin() + b * how.draft_tokens);
    }
  }
  write(json, report, "max_gram", cases, wrong, 0, 0);
}

// ---- similarity of layers

void check_similarity(const Options& options, const Device& device, const Stream& stream, Json& json,
                      Report& report) {
  Random random{options.seed + 9};
  int cases = 0, wrong = 0;
  double error = 0;
  for (int round = 0; round < (options.tiny ? 1 : 12); ++round) {
    const int sequences = 1 + random.below(6), layers = 1 + random.below(3),
              hidden = round % 2 ? 4096 : 100 + random.below(500);
    std::vector<std::int32_t> begin{0};
    for (int b = 0; b < sequences; ++b)  // all but the first may be empty
      begin.push_back(begin.back() + (b == 0) + random.below(options.tiny ? 5 : 40));
    const auto tokens = static_cast<std::size_t>(begin.back()),
               each = tokens * static_cast<std::size_t>(hidden);
    device::SimilarityPlan plan;
    SPECULA_CHECK(device::make_similarity_plan(&plan, {begin.back(), sequences, layers, hidden}, device.id));
    const DeviceArray<std::int32_t> begins(begin);
    DeviceArray<device::SimilaritySum> sums(static_cast<std::size_t>(sequences * layers));
    sums.fill_bytes(0);
    std::vector<double> want(sums.size(), 0.0);
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<BFloat16> x(each), y(each);
      for (std::size_t i = 0; i < each; ++i) {
        const float a = random.normal();
        x[i] = rounded(a, BFloat16{}), y[i] = rounded(a + 0.3f * random.normal(), BFloat16{});
      }
      const DeviceArray<BFloat16> before(x), after(y);
      device::SimilarityTokens where{begins.data(), hidden, hidden};
      where.first_layer = layer;
      SPECULA_CHECK(
          device::measure_similarity(plan, before.data(), after.data(), where, sums.data(), stream));
      stream.wait();
      for (int b = 0; b < sequences; ++b)
        for (int t = begin[static_cast<std::size_t>(b)]; t < begin[static_cast<std::size_t>(b) + 1]; ++t) {
          double xx = 0, xy = 0, yy = 0;
          for (int d = 0; d < hidden; ++d) {
            const std::size_t at =
                static_cast<std::size_t>(t) * static_cast<std::size_t>(hidden) + static_cast<std::size_t>(d);
            xx += as_double(x[at]) * as_double(x[at]), xy += as_double(x[at]) * as_double(y[at]),
                yy += as_double(y[at]) * as_double(y[at]);
          }
          want[static_cast<std::size_t>(b * layers + layer)] +=
              xy / std::sqrt(xx * yy) /
              (begin[static_cast<std::size_t>(b) + 1] - begin[static_cast<std::size_t>(b)]);
        }
    }
    DeviceArray<float> means(sums.size());
    means.fill_bytes(kPoison);
    SPECULA_CHECK(device::similarity_means(plan, sums.data(), means.data(), nullptr, stream));
    stream.wait();
    const std::vector<float> got = means.download();
    for (int b = 0; b < sequences; ++b)
      for (int layer = 0; layer < layers; ++layer, ++cases) {
        const std::size_t at = static_cast<std::size_t>(b * layers + layer);
        if (begin[static_cast<std::size_t>(b)] == begin[static_cast<std::size_t>(b) + 1])
          wrong += !std::isnan(got[at]);
        else
          error = worse(error, std::abs(as_double(got[at]) - want[at]));
      }
  }
  write(json, report, "layer_similarity", cases, wrong, error, 2e-6);
}

// ---- distillation

void check_distillation(const Options& options, const Device& device, const Stream& stream, Json& json,
                        Report& report) {
  int cases = 0, wrong = 0;
  double error = 0;
  constexpr int kVocabs[] = {600, 1, 37, 2000, 32000, 128256};
  for (int round = 0; round < (options.tiny ? 1 : 12); ++round) {
    const int vocab = kVocabs[round % 6], rows = vocab > 10000 ? 3 : 8;
    device::TopKDistillation loss;
    loss.k = round % 4 == 3 ? 64 : 10;
    device::DistillationPlan<BFloat16, BFloat16, float> plan;
    SPECULA_CHECK((device::make_distillation_plan(&plan, {rows, vocab}, loss, device.id)));
    const std::int64_t n = static_cast<std::int64_t>(rows) * vocab;
    DeviceArray<BFloat16> target(static_cast<std::size_t>(n)), draft(static_cast<std::size_t>(n));
    fill_normal(target.data(), nullptr, n, options.seed * 17 + static_cast<std::uint64_t>(round), 2.5f);
    fill_normal(draft.data(), target.data(), n, options.seed * 19 + static_cast<std::uint64_t>(round), 1);
    DeviceArray<float> gradient(static_cast<std::size_t>(n)), losses(static_cast<std::size_t>(2 * rows));
    DeviceArray<device::Status> status(static_cast<std::size_t>(rows));
    gradient.fill_bytes(0xFF), losses.fill_bytes(0xFF), status.fill_bytes(kPoison);
    const device::DistillationRows<BFloat16, BFloat16, float> args{
        target.data(), vocab,   draft.data(),  vocab,        gradient.data(),
        vocab,         nullptr, losses.data(), status.data()};
    SPECULA_CHECK(device::top_k_distillation(plan, args, stream));
    stream.wait();
    const auto p_rows = target.download(), q_rows = draft.download();
    const auto got = gradient.download(), got_losses = losses.download();
    const auto got_status = status.download();
    for (int r = 0; r < rows; ++r, ++cases) {
      const auto first = static_cast<std::size_t>(r) * static_cast<std::size_t>(vocab),
                 v = static_cast<std::size_t>(vocab);
      std::vector<double> p(v), q(v);
      std::vector<std::size_t> order(v);
      double p_sum = 0, q_sum = 0;
      for (std::size_t x = 0; x < v; ++x) {
        order[x] = x;
        p_sum += p[x] = std::exp(as_double(p_rows[first + x])),
                 q_sum += q[x] = std::exp(as_double(q_rows[first + x]));
      }
      std::sort(order.begin(), order.end(),
                [&](std::size_t a, std::size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
      std::vector<char> best(v, 0);
      for (std::size_t i = 0; i < std::min(v, static_cast<std::size_t>(loss.k)); ++i) best[order[i]] = 1;
      double entropy = 0, part = 0, mass = 0, difference = 0, size = 0;
      for (std::size_t x = 0; x < v; ++x) {
        p[x] /= p_sum, q[x] /= q_sum;
        entropy -= p[x] * std::log(q[x]);
        if (best[x]) part -= p[x] * std::log(q[x]), mass += p[x];
      }
      for (std::size_t x = 0; x < v; ++x) {
        const double want = (loss.cross_entropy_weight + loss.weight * mass) * q[x] -
                            (loss.cross_entropy_weight + (best[x] ? loss.weight : 0)) * p[x];
        const double off = as_double(got[first + x]) - want;
        difference += off * off, size += want * want;
      }
      const auto at = static_cast<std::size_t>(2 * r);
      wrong += got_status[static_cast<std::size_t>(r)] != device::Status::ok ||
               !(std::abs(as_double(got_losses[at]) - entropy) <= 2e-6 * entropy + 1e-6) ||
               !(std::abs(as_double(got_losses[at + 1]) - part) <= 2e-6 * part + 1e-6);
      const double e = size > 1e-20 ? std::sqrt(difference / size) : std::sqrt(difference);
      error = worse(error, e);
    }
  }
  write(json, report, "top_k_distillation", cases, wrong, error, 1e-4);
}

// ---- mistakes of the caller's

void check_refusals(const Device& device, const Stream& stream, Json& json, Report& report) {
  int cases = 0, wrong = 0;
  const auto expect = [&](cudaError_t want, cudaError_t got) { ++cases, wrong += got != want; };
  const auto refused = [&](cudaError_t got) { expect(cudaErrorInvalidValue, got); };
  const int other = device.id + 1;  // not the current one, whether there is one or not
  DeviceArray<std::int32_t> array(64);
  DeviceArray<BFloat16> rows(64);
  DeviceArray<float> floats(64);

  device::SimilarityPlan similarity;
  expect(cudaErrorInvalidDevice, device::make_similarity_plan(&similarity, {4, 1, 1, 8}, other));
  SPECULA_CHECK(device::make_similarity_plan(&similarity, {4, 1, 1, 8}, device.id));
  const device::SimilarityTokens where{array.data(), 8, 8};
  refused(device::measure_similarity<BFloat16>(similarity, rows.data(), nullptr, where, nullptr, stream));
  refused(device::similarity_means(similarity, nullptr, floats.data(), nullptr, stream));

  device::DistillationPlan<BFloat16, BFloat16, float> distillation;
  const auto make = [&](int id) { return device::make_distillation_plan(&distillation, {2, 16}, {}, id); };
  expect(cudaErrorInvalidDevice, make(other));
  SPECULA_CHECK(make(device.id));
  DeviceArray<device::Status> status(2);
  device::DistillationRows<BFloat16, BFloat16, float> of{rows.data(), 16,      rows.data(),  16, nullptr, 0,
                                                         nullptr,     nullptr, status.data()};
  refused(device::top_k_distillation(distillation, of, stream));
  of.loss = floats.data();
  distillation.threads = 100;
  refused(device::top_k_distillation(distillation, of, stream));

  device::MaxGramPlan max_gram;
  SPECULA_CHECK(device::make_max_gram_plan(&max_gram, {2, 16, 100}, {}));
  std::int32_t* const a = array.data();
  refused(device::max_gram(max_gram, {a, 15, a, nullptr, a, a, a}, stream));
  refused(device::compact_slots({a, a, a, 1, 1}, {4}, nullptr, 1, stream));
  expect(cudaSuccess, cudaGetLastError());  // nothing was launched, nothing lingers
  write(json, report, "errors that the host sees", cases, wrong, 0, 0);
}

// ---- bars

constexpr int kLayers = 32, kHeads = 8, kHead = 128, kMoved = 8;

Bar compaction_bar(const Bars& bars, int sequences, double limit) {
  const std::int64_t token = kHeads * kHead;
  const double bytes =
      2.0 * 2 * 2 * kLayers * static_cast<double>(token) * kMoved * sequences;  // read and written, K and V
  const int sets = bars.device.sets_beyond_cache(bytes), span = 2 * kMoved + 2, slots = sets * span;
  const std::int64_t page = slots * token, layer = sequences * page;
  DeviceArray<BFloat16> keys(static_cast<std::size_t>(kLayers * layer)), values(keys.size());
  fill_normal(keys.data(), nullptr, kLayers * layer, 1, 1);
  fill_normal(values.data(), nullptr, kLayers * layer, 2, 1);
  std::vector<std::int32_t> path, count(static_cast<std::size_t>(sequences), kMoved + 1), prefix;
  for (int b = 0; b < sequences; ++b)
    for (int i = 0; i <= kMoved; ++i) path.push_back(2 * i);
  for (int s = 0; s < sets; ++s)
    for (int b = 0; b < sequences; ++b) prefix.push_back(s * span);
  const DeviceArray<std::int32_t> paths(path), counts(count), prefixes(prefix);
  const auto rows = [&](const DeviceArray<BFloat16>& of) {
    return device::slot_rows(device::PagedRows<BFloat16>{of.data(), page, token, kHead, nullptr}, kHeads,
                             kHead, kLayers, layer);
  };
  const device::SlotPages pages{slots};
  Bar bar = bars.timed(limit, bytes, sets, [&](int set, cudaStream_t stream) {
    return device::compact_kv(
        {paths.data(), counts.data(), prefixes.data() + static_cast<std::ptrdiff_t>(set) * sequences,
         sequences, kMoved + 1},
        pages, rows(keys), rows(values), stream);
  });
  bar.note = "8 KV heads of 128, bf16, " + std::to_string(sets) + " sets";
  return bar;
}

Bar max_gram_bar(const Bars& bars, int sequences) {
  constexpr int kTokens = 8192;
  Random random{3};
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < sequences * kTokens; ++i) tokens.push_back(random.below(2000));
  const DeviceArray<std::int32_t> texts(tokens),
      lengths(std::vector<std::int32_t>(static_cast<std::size_t>(sequences), kTokens));
  const DeviceArray<std::int32_t> bigram(std::vector<std::int32_t>(128256, 7));
  DeviceArray<std::int32_t> draft_tokens(static_cast<std::size_t>(sequences) * 10),
      count(static_cast<std::size_t>(sequences)), match(static_cast<std::size_t>(sequences));
  device::MaxGramPlan plan;
  SPECULA_CHECK(device::make_max_gram_plan(&plan, {sequences, kTokens, 128256}, {}));
  return bars.timed(0, 4.0 * sequences * kTokens, 1, [&](int, cudaStream_t stream) {
    return device::max_gram(plan,
                            {texts.data(), kTokens, lengths.data(), bigram.data(), draft_tokens.data(),
                             count.data(), match.data()},
                            stream);
  });
}

Bar similarity_bar(const Bars& bars) {
  constexpr int kTokens = 2048, kHidden = 4096;
  const double bytes = 2.0 * 2 * kTokens * kHidden;
  const int sets = bars.device.sets_beyond_cache(bytes);
  const std::int64_t each = std::int64_t{kTokens} * kHidden;
  DeviceArray<BFloat16> before(static_cast<std::size_t>(sets * each)), after(before.size());
  fill_normal(before.data(), nullptr, sets * each, 1, 1);
  fill_normal(after.data(), before.data(), sets * each, 2, 0.3f);
  const DeviceArray<std::int32_t> begin(std::vector<std::int32_t>{0, kTokens / 2, kTokens});
  DeviceArray<device::SimilaritySum> sums(2);
  sums.fill_bytes(0);
  device::SimilarityPlan plan;
  SPECULA_CHECK(device::make_similarity_plan(&plan, {kTokens, 2, 1, kHidden}, bars.device.id));
  return bars.timed(0, bytes, sets, [&](int set, cudaStream_t stream) {
    return device::measure_similarity(plan, before.data() + set * each, after.data() + set * each,
                                      {begin.data(), kHidden, kHidden}, sums.data(), stream);
  });
}

Bar distillation_bar(const Bars& bars, int rows) {
  constexpr int kVocab = 128256;
  const double bytes = 3.0 * 2 * kVocab * rows;  // both rows read once, a gradient written
  const int sets = bars.device.sets_beyond_cache(bytes);
  const std::int64_t each = std::int64_t{kVocab} * rows;
  DeviceArray<BFloat16> target(static_cast<std::size_t>(sets * each)), draft(target.size()),
      gradient(target.size());
  fill_normal(target.data(), nullptr, sets * each, 1, 2);
  fill_normal(draft.data(), target.data(), sets * each, 2, 1);
  DeviceArray<float> loss(2 * static_cast<std::size_t>(rows));
  DeviceArray<device::Status> status(static_cast<std::size_t>(rows));
  device::DistillationPlan<BFloat16, BFloat16, BFloat16> plan;
  SPECULA_CHECK((device::make_distillation_plan(&plan, {rows, kVocab}, {}, bars.device.id)));
  Bar bar = bars.timed(0, bytes, sets, [&](int set, cudaStream_t stream) {
    const std::int64_t at = set * each;
    return device::top_k_distillation<BFloat16, BFloat16, BFloat16>(
        plan,
        {target.data() + at, kVocab, draft.data() + at, kVocab, gradient.data() + at, kVocab, nullptr,
         loss.data(), status.data()},
        stream);
  });
  bar.note = "clusters of " + std::to_string(plan.cluster);
  return bar;
}

void run_checks(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  report.part("compaction", [&](Json& json) { check_compaction(options, stream, json, report); });
  report.part("max-gram", [&](Json& json) { check_max_gram(options, stream, json, report); });
  report.part("similarity", [&](Json& json) { check_similarity(options, device, stream, json, report); });
  report.part("distillation", [&](Json& json) { check_distillation(options, device, stream, json, report); });
  report.part("refusals", [&](Json& json) { check_refusals(device, stream, json, report); });
}

void run_bars(const Options& options, Report& report) {
  Bars bars(options, report, "helpers");
  for (const int sequences : {1, 64}) {
    const std::string batch = ", B = " + std::to_string(sequences);
    bars.run("compaction of 8 tokens, 32 layers" + batch,
             [&] { return compaction_bar(bars, sequences, sequences == 1 ? 10 : 50); });
    bars.run("max_gram, 8,192 tokens, 10 draft tokens" + batch,
             [&] { return max_gram_bar(bars, sequences); });
  }
  bars.run("layer_similarity, 2,048 tokens of 4,096, one layer", [&] { return similarity_bar(bars); });
  for (const int rows : {1, 64})
    bars.run("top_k_distillation, V = 128,256, rows: " + std::to_string(rows),
             [&] { return distillation_bar(bars, rows); });
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  using namespace specula_bench;
  return run_section(argc, argv, {{"check", run_checks}, {"bars", run_bars}});
}
