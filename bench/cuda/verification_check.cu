// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device_cases.cuh"
#include "tally.cuh"

namespace specula_bench {
namespace {

/// Runs a batch by plans of one capacity.
template <class Element>
class BatchRun {
 public:
  BatchRun(const RuleKernels<Element>& kernels, const CaseBatch<Element>& batch, const RulePlan& plan,
           const Stream& stream)
      : kernels_(kernels), stream_(stream), workspace_(plan, stream), results_(plan.sequences, plan.width) {
    cases_.upload(batch);
  }
  const DeviceCases<Element>& cases() const { return cases_; }

  HostResults operator()(const RulePlan& plan) {
    results_.poison();
    SPECULA_CHECK(kernels_.run(plan, cases_.trees(), cases_.target(), cases_.draft(), results_.args(),
                               workspace_.args(), stream_));
    stream_.wait();
    return results_.download();
  }

 private:
  const RuleKernels<Element>& kernels_;
  const Stream& stream_;
  DeviceWorkspace workspace_;
  DeviceResults results_;
  DeviceCases<Element> cases_;
};

/// Threads of blocks, of which verification needs two; and bytes of rings.
constexpr int kThreads[] = {32, 64, 96, 256, 512};
constexpr int kRings[] = {4096, 8192};

/// One batch: against the CPU, with all nodes at once and by following the path if both are possible; and
/// against itself with every launch geometry and sequence by sequence.
template <class Element>
void check_batch(Rule rule, const CaseBatch<Element>& batch, const std::string& name, bool geometries,
                 const Device& device, const Stream& stream, Tally& tally, Tally& same) {
  const RuleKernels<Element> kernels = kernels_of<Element>(rule);
  const int sequences = static_cast<int>(batch.position.size());
  RulePlan plan;
  SPECULA_CHECK(kernels.plan(&plan, {sequences, batch.max_nodes, batch.width - 1, batch.vocab}, device.id));
  BatchRun<Element> run(kernels, batch, plan, stream);
  const auto compare = [&](const HostResults& got, const std::string& how) {
    for (std::size_t b = 0; b < batch.position.size(); ++b) {
      const std::string wrong = difference(batch, got, b, plan.width);
      tally.add(wrong.empty(), batch.margin[b],
                name + how + ", sequence " + std::to_string(b) + ": " + wrong);
    }
  };
  const HostResults got = run(plan);
  compare(got, "");
  std::vector<RulePlan> ways{plan};
  if (plan.all_nodes && !batch.chains) {
    ways.push_back(plan);
    ways.back().all_nodes = false;
    compare(run(ways.back()), ", walking");
  }
  if (!geometries) return;
  for (RulePlan& way : ways) {
    const bool by_sequence = !way.all_nodes || batch.chains;
    const Geometry planned = way.geometry(batch.chains);
    for (const int cluster : device.clusters())
      for (const int threads : kThreads)
        for (const int rows : {1, 2, 5})
          for (const int ring : kRings) {
            if (by_sequence ? threads < 64 : rows > 1) continue;
            const Geometry wanted = spread(planned, cluster, threads, rows, ring);
            bool fits = false;
            SPECULA_CHECK(kernels.reshape(&way, batch.chains, wanted, &fits));
            if (!fits) continue;
            const std::string how = name + (by_sequence ? ", walking, " : ", ") + name_of(wanted);
            same.add(run(way) == got, 1, how);
            if (rows == 1) continue;
            way.odd_rows = 1;
            same.add(run(way) == got, 1, how + ", odd sequences with 1 row first");
            way.odd_rows = 0;
          }
  }
  RulePlan single;
  SPECULA_CHECK(kernels.plan(&single, {1, batch.max_nodes, batch.width - 1, batch.vocab}, device.id));
  const DeviceWorkspace workspace(single, stream);
  const DeviceCases<Element>& cases = run.cases();
  DeviceResults alone(sequences, plan.width);
  for (int b = 0; b < sequences; ++b)
    SPECULA_CHECK(kernels.run(single, cases.trees(b), cases.target(b), cases.draft(), alone.args(b),
                              workspace.args(), stream));
  stream.wait();
  same.add(alone.download() == got, 1, name + ", one by one");
}

template <class Element>
void check_rule(Rule rule, const char* element, const Options& options, const Device& device,
                const Stream& stream, Json& json, Report& report) {
  const std::uint64_t base =
      options.seed * 1000003 + static_cast<std::uint64_t>(rule) * 101 + sizeof(Element);
  const std::string name = std::string(name_of(rule)) + " " + element;
  Tally tally, same;
  constexpr int kVocab[] = {3, 40, 600, 2000};
  constexpr int kSize = 50;  // of a batch
  const int batches = std::max(4, options.trees / kSize);
  for (int first = 0, chunk = 2 * host_threads(); first < batches; first += chunk) {
    const int n = std::min(chunk, batches - first);
    const auto all = make_all<CaseBatch<Element>>(n, [&](int i) {
      const int which = first + i;
      CaseShape shape;
      shape.trees = options.tiny ? 3 : kSize;
      shape.vocab = kVocab[which % 10 < 4 ? 0 : which % 10 < 8 ? 1 : which % 10 - 6];
      if (options.tiny) shape.vocab = which % 2 ? 40 : 9000;  // the larger one on clusters
      if (shape.vocab >= 2000) shape.nodes = 10;
      return make_cases<Element>(rule, shape, base * 7919 + static_cast<std::uint64_t>(which));
    });
    for (int i = 0; i < n; ++i)
      check_batch(rule, all[static_cast<std::size_t>(i)], "batch " + std::to_string(first + i),
                  (first + i) % 10 >= 8 && first + i < 40, device, stream, tally, same);
  }
  write(json, report, name, tally);
  if (options.tiny) return;
  Tally large;
  struct Large {
    int vocab, nodes;
    double wide;
  };
  constexpr Large kLarge[] = {
      {900, 80, 0.95}, {32000, 6, 0.3}, {128256, 6, 0.3}, {151936, 6, 0.3}, {50257, 6, 0.3}};
  const auto all = make_all<CaseBatch<Element>>(20, [&](int i) {
    const Large& l = kLarge[i % 5];
    CaseShape shape;
    shape.trees = 4;
    shape.vocab = l.vocab;
    shape.nodes = l.nodes;
    shape.wide = l.wide;
    return make_cases<Element>(rule, shape, base * 104729 + static_cast<std::uint64_t>(i));
  });
  for (int i = 0; i < 20; ++i)
    check_batch(rule, all[static_cast<std::size_t>(i)], "large batch " + std::to_string(i), i < 5, device,
                stream, large, same);
  write(json, report, name + ", large", large);
  write(json, report, name + ", any geometry, same bits", same);
}

/// The plan without truncation, where nothing is cut.
void check_untruncated(const Options& options, const Device& device, const Stream& stream, Json& json,
                       Report& report) {
  Tally tally;
  const RuleKernels<device::BFloat16> kernels = untruncated_kernels();
  for (int i = 0; i < (options.tiny ? 1 : 20); ++i) {
    CaseShape shape;
    shape.vocab = i % 2 ? 2000 : 40;
    shape.trees = options.tiny ? 3 : 50;
    shape.only_temperature = true;
    const auto batch = make_cases<device::BFloat16>(Rule::rejection, shape,
                                                    options.seed * 57 + static_cast<std::uint64_t>(i));
    RulePlan plan;
    SPECULA_CHECK(kernels.plan(
        &plan, {static_cast<int>(batch.position.size()), batch.max_nodes, batch.width - 1, batch.vocab},
        device.id));
    BatchRun<device::BFloat16> run(kernels, batch, plan, stream);
    const HostResults got = run(plan);
    for (std::size_t b = 0; b < batch.position.size(); ++b) {
      const std::string wrong = difference(batch, got, b, plan.width);
      tally.add(wrong.empty(), batch.margin[b],
                "batch " + std::to_string(i) + ", sequence " + std::to_string(b) + ": " + wrong);
    }
  }
  write(json, report, "rejection without truncation", tally);
}

/// Drafts that are not logits, on the same proposals.
void check_drafts(const Options& options, const Device& device, const Stream& stream, Json& json,
                  Report& report) {
  const int batches = options.tiny ? 1 : 30;
  Tally chosen, probs, sparse;
  for (int i = 0; i < batches; ++i) {
    CaseShape shape;
    shape.vocab = i % 3 == 1 ? 600 : 40;
    shape.trees = options.tiny ? 8 : 50;
    for (const bool is_chosen : {true, false}) {
      shape.only_chosen = is_chosen;
      shape.only_drawn = false;
      const CaseBatch<device::BFloat16> batch = make_cases<device::BFloat16>(
          Rule::rejection, shape, options.seed * 31 + static_cast<std::uint64_t>(i));
      DeviceCases<device::BFloat16> cases;
      cases.upload(batch);
      const int sequences = static_cast<int>(batch.position.size());
      const device::VerifyCapacity capacity{sequences, batch.max_nodes, batch.width - 1, batch.vocab};
      const auto run = [&](auto draft, Tally& tally, const char* what) {
        using Kernels = DraftKernels<decltype(draft)>;
        RulePlan plan;
        SPECULA_CHECK(Kernels::plan(&plan, capacity, device.id));
        DeviceResults results(sequences, plan.width);
        SPECULA_CHECK(Kernels::run(plan, cases.trees(), cases.target(), draft, results.args(), stream));
        stream.wait();
        const HostResults got = results.download();
        for (std::size_t b = 0; b < batch.position.size(); ++b) {
          const std::string wrong = difference(batch, got, b, plan.width);
          tally.add(wrong.empty(), batch.margin[b],
                    std::string(what) + ", batch " + std::to_string(i) + ": " + wrong);
        }
      };
      if (is_chosen) {
        run(device::ChosenDraft{}, chosen, "chosen");
        continue;
      }
      std::vector<float> prob;
      std::vector<std::int32_t> token;
      for (std::size_t r = 0; r < batch.stats.size(); ++r)
        for (int x = 0; x < batch.vocab; ++x) {
          const float l = device::detail::to_float(
              batch.draft[static_cast<std::size_t>(batch.offset) +
                          r * static_cast<std::size_t>(batch.stride) + static_cast<std::size_t>(x)]);
          const device::RowStats& s = batch.stats[r];
          const double p =
              l >= s.min_logit ? std::exp((static_cast<double>(l) - s.shift) / s.temperature - s.log_z) : 0.0;
          prob.push_back(static_cast<float>(p));
          token.push_back(p > 0 ? x : -1);
        }
      if (prob.empty()) continue;
      const DeviceArray<float> device_prob(prob);
      const DeviceArray<std::int32_t> device_token(token);
      run(device::ProbsDraft{device_prob.data(), batch.vocab, cases.draft_rows(), cases.scales(),
                             cases.draft().rows},
          probs, "probabilities");
      run(device::SparseDraft{device_token.data(), device_prob.data(), batch.vocab, cases.draft_rows(),
                              cases.scales(), cases.draft().rows},
          sparse, "sparse");
    }
  }
  write(json, report, "rejection, chosen draft tokens", chosen);
  write(json, report, "rejection, rows of probabilities", probs);
  write(json, report, "rejection, sparse rows", sparse);
}

/// Distributions of rows by sample().
struct Drawn {
  std::vector<std::int32_t> token;
  std::vector<device::RowStats> stats;
};
template <class Element>
Drawn draw(const device::SamplePlan<Element>& plan, const SampleCases<Element>& cases, const Stream& stream) {
  const DeviceArray<Element> logits(cases.logits);
  const DeviceArray<std::uint64_t> seed(cases.seed);
  const DeviceArray<std::int32_t> position(cases.position);
  const DeviceArray<device::SamplingParams> params(cases.params);
  DeviceArray<std::int32_t> token(cases.seed.size());
  DeviceArray<device::RowStats> stats(cases.seed.size());
  token.fill_bytes(kPoison), stats.fill_bytes(kPoison);
  device::SampleArgs<Element> args{};
  args.logits = logits.data() + cases.offset;
  args.stride = cases.stride;
  args.seed = seed.data();
  args.position = position.data();
  args.params = params.data();
  args.token = token.data();
  args.stats = stats.data();
  SPECULA_CHECK(run_sample(plan, args, stream));
  stream.wait();
  return {token.download(), stats.download()};
}
bool same_bits(const Drawn& a, const Drawn& b) {
  if (a.token != b.token || a.stats.size() != b.stats.size()) return false;
  for (std::size_t i = 0; i < a.stats.size(); ++i)
    if (std::memcmp(&a.stats[i].log_z, &b.stats[i].log_z, sizeof(double)) != 0 ||
        std::memcmp(&a.stats[i].min_logit, &b.stats[i].min_logit, sizeof(float)) != 0 ||
        a.stats[i].point != b.stats[i].point || a.stats[i].status != b.stats[i].status)
      return false;
  return true;
}

template <class Element>
void check_sample(const char* element, const Options& options, const Device& device, const Stream& stream,
                  Json& json, Report& report) {
  Tally tally, distributions, same;
  distributions.allowed =
      50;  // large vocabularies have many thresholds, and some as near to top_p as rounding
  const std::vector<int> vocabs =
      options.tiny ? std::vector<int>{1, 513}
                   : std::vector<int>{1,    2,    37,   511,   512,   513,    1024,   5000,
                                      5000, 1000, 3000, 20000, 32000, 128256, 151936, 50257};
  const int rounds = options.tiny ? 1 : 12;
  const auto all = make_all<SampleCases<Element>>(static_cast<int>(vocabs.size()) * rounds, [&](int i) {
    const int vocab = vocabs[static_cast<std::size_t>(i) % vocabs.size()];
    return make_sample_cases<Element>(vocab > 30000 ? 8 : 60, vocab,
                                      options.seed * 15485863 + static_cast<std::uint64_t>(i));
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SampleCases<Element>& cases = all[i];
    const std::string name = "batch " + std::to_string(i) + ", vocabulary " + std::to_string(cases.vocab);
    device::SamplePlan<Element> plan;
    SPECULA_CHECK(plan_sample(&plan, static_cast<int>(cases.seed.size()), 1, cases.vocab, device.id));
    const Drawn got = draw(plan, cases, stream);
    for (std::size_t r = 0; r < cases.want.size(); ++r) {
      tally.add(got.token[r] == cases.want[r], cases.margin[r],
                name + ", row " + std::to_string(r) + ": " + std::to_string(got.token[r]) + " instead of " +
                    std::to_string(cases.want[r]));
      const bool point = got.stats[r].point != device::kNoToken;
      distributions.add(got.stats[r].status == device::Status::ok &&
                            (point || (got.stats[r].min_logit == cases.want_min_logit[r] &&
                                       std::abs(got.stats[r].log_z - cases.want_log_z[r]) <=
                                           1e-6 * std::max(1.0, std::abs(cases.want_log_z[r])))),
                        cases.truncation_margin[r], name + ", row " + std::to_string(r));
    }
    if (i >= vocabs.size()) continue;
    for (const int cluster : device.clusters())
      for (const int threads : kThreads)
        for (const int ring : kRings) {
          const Geometry wanted = spread(plan.scan, cluster, threads, 1, ring);
          bool fits = false;
          SPECULA_CHECK(reshape_sample(&plan, wanted, &fits));
          if (fits) same.add(same_bits(draw(plan, cases, stream), got), 1, name + ", " + name_of(wanted));
        }
  }
  write(json, report, std::string("sample ") + element, tally);
  write(json, report, std::string("sample ") + element + ", cut and log Z", distributions);
  write(json, report, std::string("sample ") + element + ", any geometry, same bits", same);
}

/// Errors that the host and the driver detect, and that errors of different calls are not mixed up.
void check_refusals(const Device& device, const Stream& stream, Json& json, Report& report) {
  Refusals refusals;
  const int other = device.id + 1;  // not the current one, whether there is one or not
  const device::VerifyCapacity capacity{1, 4, 3, 1000};
  for (const Rule rule : kRules) {
    const RuleKernels<float> kernels = kernels_of<float>(rule);
    RulePlan plan;
    refusals.expect(cudaErrorInvalidDevice, kernels.plan(&plan, capacity, other),
                    "a plan for another device");
    refusals.expect(cudaErrorInvalidValue, kernels.plan(&plan, {1, 4, 3, 0}, device.id), "no vocabulary");
    refusals.expect(cudaErrorInvalidValue, kernels.run(plan, {}, {}, {}, {}, {}, stream),
                    "a plan that was not made");
    SPECULA_CHECK(kernels.plan(&plan, capacity, device.id));
    refusals.expect(cudaErrorInvalidValue, kernels.run(plan, {}, {}, {}, {}, {}, stream), "null arrays");
  }
  device::SamplePlan<float> plan;
  refusals.expect(cudaErrorInvalidDevice, plan_sample(&plan, 1, 1, 1000, other),
                  "sampling on another device");
  refusals.expect(cudaSuccess, cudaGetLastError(), "nothing was launched, nothing lingers");

  SPECULA_CHECK(plan_sample(&plan, 1, 1, 1000, device.id));
  DeviceArray<float> logits(1000);
  DeviceArray<std::uint64_t> seed(1);
  DeviceArray<std::int32_t> position(1);
  DeviceArray<device::Token> token(1);
  logits.fill_bytes(0), seed.fill_bytes(0), position.fill_bytes(0);
  device::SampleArgs<float> args{};
  args.logits = logits.data(), args.seed = seed.data(), args.position = position.data();
  args.token = token.data();
  const cudaError_t callers = cudaSetDevice(1 << 20);  // there is none
  refusals.expect(cudaSuccess, run_sample(plan, args, stream), "a launch after another's error");
  refusals.expect(callers, cudaGetLastError(), "the other's error is still there");
  stream.wait();
  write(json, report, "errors that the host sees", refusals.tally());
}

}  // namespace

void check_verification(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  using device::BFloat16;
  using device::Half;
  for (const Rule rule : kRules)
    report.part(name_of(rule), [&](Json& json) {
      check_rule<BFloat16>(rule, "bf16", options, device, stream, json, report);
      if (options.tiny && rule != Rule::rejection) return;
      check_rule<float>(rule, "f32", options, device, stream, json, report);
      if (options.tiny) return;
      check_rule<Half>(rule, "f16", options, device, stream, json, report);
    });
  report.part("without truncation",
              [&](Json& json) { check_untruncated(options, device, stream, json, report); });
  report.part("other drafts", [&](Json& json) { check_drafts(options, device, stream, json, report); });
  report.part("sample", [&](Json& json) {
    check_sample<BFloat16>("bf16", options, device, stream, json, report);
    check_sample<float>("f32", options, device, stream, json, report);
    check_sample<Half>("f16", options, device, stream, json, report);
  });
  if (!options.tiny)
    report.part("chi-square",
                [&](Json& json) { check_distributions(options, device, stream, json, report); });
  report.part("refusals", [&](Json& json) { check_refusals(device, stream, json, report); });
  report.part("sharded", [&](Json& json) { check_sharded(options, device, stream, json, report); });
}

}  // namespace specula_bench
