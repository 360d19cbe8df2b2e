// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "device_cases.cuh"

namespace specula_bench {
namespace {

using device::BFloat16;

constexpr int kVocab = 128256;
constexpr float kSpread = 2.0f;  // standard deviation of the logits

/// Parameters of a bar's proposals.
struct WorkShape {
  Rule rule = Rule::rejection;
  int sequences = 1;
  int nodes = 5;     // of a tree, the root included
  int depth = 4;     // of a tree
  double alpha = 1;  // acceptance rate of a chain's draft tokens; 1: the draft is the target
  float top_p = 1;
  bool untruncated = false;  // by the plan without truncation
};

/// Sets of inputs on the device. Chains have draft tokens that were drawn from the draft's rows; bushes have,
/// on one path, the tokens that the target will draw, so that `depth` draft tokens are accepted.
class BarWork {
 public:
  BarWork(const WorkShape& shape, const Device& device, const Stream& stream)
      : shape_(shape),
        kernels_(shape.untruncated ? untruncated_kernels() : kernels_of<BFloat16>(shape.rule)),
        chain_(shape.nodes == shape.depth + 1),
        nodes_(shape.sequences * shape.nodes),
        draft_tokens_(chain_ ? shape.sequences * shape.depth : 0) {
    const double row = 2.0 * kVocab;
    sets_ = device.sets_beyond_cache(row * shape.sequences * (shape.depth + 1));
    const std::int64_t rows = static_cast<std::int64_t>(sets_) * nodes_;
    target_.reserve(static_cast<std::size_t>(rows) * kVocab);
    fill_normal(target_.data(), nullptr, rows * kVocab, 11, kSpread);
    SPECULA_CHECK(kernels_.plan(&plan_, {shape.sequences, shape.nodes, shape.depth, kVocab}, device.id));
    workspace_ = std::make_unique<DeviceWorkspace>(plan_, stream);
    host_arrays();
    if (chain_)
      draw_draft_tokens(device, stream);
    else
      place_samples(device, stream);
    const auto n = static_cast<std::size_t>(sets_);
    for (std::size_t s = 0; s < n; ++s) out_.emplace_back(shape.sequences, plan_.width);
    for (int s = 0; s < sets_; ++s) SPECULA_CHECK(launch(plan_, s, stream));
    stream.wait();
    for (std::size_t s = 0; s < n; ++s) count(out_[s].download());
  }

  int sets() const { return sets_; }
  bool chain() const { return chain_; }
  const RuleKernels<BFloat16>& kernels() const { return kernels_; }
  const RulePlan& plan() const { return plan_; }
  double bytes() const { return bytes_ / sets_; }  // a set, from the verification results
  double accepted() const { return accepted_ / sets_ / shape_.sequences; }  // draft tokens per sequence

  cudaError_t launch(const RulePlan& plan, int set, cudaStream_t stream) const {
    const std::ptrdiff_t b = static_cast<std::ptrdiff_t>(set) * shape_.sequences;
    const std::int64_t first = static_cast<std::int64_t>(set) * nodes_;
    const device::Trees trees{
        begin_.data(),    token_.data() + first, chain_ ? nullptr : parent_.data() + first,
        position_.data(), seed_.data() + b,      nullptr};
    const std::int64_t draft_token = static_cast<std::int64_t>(set) * draft_tokens_;
    return kernels_.run(
        plan, trees, {target_.data() + first * kVocab, kVocab, nullptr, params_.data()},
        {draft_.data() + draft_token * kVocab, kVocab, stats_.data() + draft_token, nullptr, nullptr},
        out_[static_cast<std::size_t>(set)].args(), workspace_->args(), stream);
  }

 private:
  void host_arrays() {
    std::vector<std::int32_t> begin, position;
    for (int b = 0; b <= shape_.sequences; ++b) begin.push_back(b * shape_.nodes);
    for (int b = 0; b < shape_.sequences; ++b) position.push_back(1000 + 17 * b);
    begin_.upload(begin), position_.upload(position);
    std::vector<std::uint64_t> seed;
    for (int i = 0; i < sets_ * shape_.sequences; ++i) seed.push_back(500 + static_cast<std::uint64_t>(i));
    seed_.upload(seed);
    device::SamplingParams params;
    params.top_p = shape_.top_p;
    params_.upload(std::vector<device::SamplingParams>(static_cast<std::size_t>(shape_.sequences), params));

    // Levels as even as they can be, each node below a drawn one of the level before; a node of each level is
    // on the path.
    std::uint64_t state = 42;
    const auto below = [&](int n) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(n));
    };
    for (int t = 0; t < sets_ * shape_.sequences; ++t) {
      int level_begin = 0, level_end = 1, node = 1;
      NodeAt path{0};
      parents_.push_back(-1);
      depths_.push_back(0);
      for (int d = 1; d <= shape_.depth; ++d) {
        const int end = d == shape_.depth ? shape_.nodes : 1 + d * (shape_.nodes - 1) / shape_.depth;
        const int chosen = node + below(end - node);
        for (int n = node; n < end; ++n) {
          parents_.push_back(n == chosen ? path.back() : level_begin + below(level_end - level_begin));
          depths_.push_back(d);
        }
        path.push_back(chosen);
        level_begin = node, level_end = end, node = end;
      }
      paths_.push_back(path);
    }
  }

  device::SampleArgs<BFloat16> sampling(const DeviceArray<std::int32_t>& sequence,
                                        const DeviceArray<std::int32_t>& position,
                                        const DeviceArray<std::int32_t>& token) const {
    device::SampleArgs<BFloat16> args{};
    args.stride = kVocab;
    args.position = position.data();
    args.params = params_.data();
    args.sequence_of_row = sequence.data();
    args.token = token.data();
    return args;
  }

  /// Chains: draft rows around the target's, and what is drawn from them.
  void draw_draft_tokens(const Device& device, const Stream& stream) {
    // q = softmax(l + sigma n) agrees with p = softmax(l) in 2 Phi(-sigma / 2) of its mass.
    double sigma = 0;
    if (shape_.alpha < 1) {
      double low = 0, high = 20;
      for (int i = 0; i < 60; ++i) {
        sigma = (low + high) / 2;
        (std::erfc(sigma / 2 / std::sqrt(2.0)) > shape_.alpha ? low : high) = sigma;
      }
    }
    const std::int64_t all = static_cast<std::int64_t>(sets_) * draft_tokens_;
    draft_.reserve(static_cast<std::size_t>(all) * kVocab);
    stats_.reserve(static_cast<std::size_t>(all));
    std::vector<std::int32_t> sequence, position, origin;
    for (int b = 0; b < shape_.sequences; ++b)
      for (int i = 0; i < shape_.depth; ++i) {
        sequence.push_back(b);
        origin.push_back(1000 + 17 * b);
        position.push_back(origin.back() + i + 1);
      }
    const DeviceArray<std::int32_t> sequences(sequence), positions(position), origins(origin);
    DeviceArray<std::int32_t> drawn(static_cast<std::size_t>(draft_tokens_));
    device::SamplePlan<BFloat16> plan;
    SPECULA_CHECK(plan_sample(&plan, draft_tokens_, 1, kVocab, device.id));
    std::vector<std::int32_t> token;
    for (int s = 0; s < sets_; ++s) {
      for (int b = 0; b < shape_.sequences; ++b) {
        const std::int64_t from = (static_cast<std::int64_t>(s) * nodes_ + b * shape_.nodes) * kVocab;
        const std::int64_t to = (static_cast<std::int64_t>(s) * draft_tokens_ + b * shape_.depth) * kVocab;
        const auto count = static_cast<std::int64_t>(shape_.depth) * kVocab;
        if (sigma > 0)
          fill_normal(draft_.data() + to, target_.data() + from, count,
                      900 + static_cast<std::uint64_t>(s * shape_.sequences + b), static_cast<float>(sigma));
        else
          SPECULA_CHECK(cudaMemcpy(draft_.data() + to, target_.data() + from,
                                   static_cast<std::size_t>(count) * sizeof(BFloat16),
                                   cudaMemcpyDeviceToDevice));
      }
      SPECULA_CHECK(cudaDeviceSynchronize());
      device::SampleArgs<BFloat16> args = sampling(sequences, positions, drawn);
      const std::int64_t draft_token = static_cast<std::int64_t>(s) * draft_tokens_;
      args.logits = draft_.data() + draft_token * kVocab;
      args.seed = seed_.data() + s * shape_.sequences;
      args.stream = device::RandomStream::draft;
      args.origin = origins.data();
      args.stats = stats_.data() + draft_token;
      SPECULA_CHECK(run_sample(plan, args, stream));
      stream.wait();
      const std::vector<std::int32_t> t = drawn.download();
      for (int b = 0; b < shape_.sequences; ++b) {
        token.push_back(0);
        token.insert(token.end(), t.begin() + b * shape_.depth, t.begin() + (b + 1) * shape_.depth);
      }
    }
    token_.upload(token);
  }

  /// Bushes: what the target will draw goes on the path, other tokens elsewhere.
  void place_samples(const Device& device, const Stream& stream) {
    device::SamplePlan<BFloat16> plan;
    SPECULA_CHECK(plan_sample(&plan, nodes_, 1, kVocab, device.id));
    DeviceArray<std::int32_t> drawn(static_cast<std::size_t>(nodes_));
    std::vector<std::int32_t> token(static_cast<std::size_t>(sets_) * static_cast<std::size_t>(nodes_));
    for (std::size_t i = 0; i < token.size(); ++i)
      token[i] = static_cast<std::int32_t>((i * 2654435761u) % static_cast<std::size_t>(kVocab));
    for (int s = 0; s < sets_; ++s) {
      std::vector<std::int32_t> sequence, position;
      for (int n = 0; n < nodes_; ++n) {
        sequence.push_back(n / shape_.nodes);
        position.push_back(1000 + 17 * sequence.back() + 1 +
                           depths_[static_cast<std::size_t>(s) * static_cast<std::size_t>(nodes_) +
                                   static_cast<std::size_t>(n)]);
      }
      const DeviceArray<std::int32_t> sequences(sequence), positions(position);
      device::SampleArgs<BFloat16> args = sampling(sequences, positions, drawn);
      args.logits = target_.data() + static_cast<std::int64_t>(s) * nodes_ * kVocab;
      args.seed = seed_.data() + s * shape_.sequences;
      SPECULA_CHECK(run_sample(plan, args, stream));
      stream.wait();
      const std::vector<std::int32_t> t = drawn.download();
      for (int b = 0; b < shape_.sequences; ++b) {
        const NodeAt& path = paths_[static_cast<std::size_t>(s * shape_.sequences + b)];
        const std::size_t first = static_cast<std::size_t>(s) * static_cast<std::size_t>(nodes_) +
                                  static_cast<std::size_t>(b * shape_.nodes);
        const auto in_set = static_cast<std::size_t>(b * shape_.nodes);
        for (std::size_t d = 1; d < path.size(); ++d)
          token[first + static_cast<std::size_t>(path[d])] =
              t[in_set + static_cast<std::size_t>(path[d - 1])];
      }
    }
    token_.upload(token);
    parent_.upload(parents_);
  }

  /// The minimum to be read: rows on the path once, and a row of q after a rejection.
  void count(const HostResults& got) {
    const double row = 2.0 * kVocab;
    for (int b = 0; b < shape_.sequences; ++b) {
      const auto at = static_cast<std::size_t>(b);
      if (got.status[at] != 0 || got.count[at] < 1)
        throw std::runtime_error("sequence " + std::to_string(b) + " has status " +
                                 std::to_string(got.status[at]));
      const int taken = got.count[at] - 1, rejected = shape_.depth - taken;
      if (rejected > 0 && (shape_.alpha >= 1 || !chain_))
        throw std::runtime_error("the proposal was to be accepted, and " + std::to_string(taken) + " of " +
                                 std::to_string(shape_.depth) + " draft tokens were");
      accepted_ += taken;
      const bool from_end = shape_.rule == Rule::block || shape_.rule == Rule::traversal;
      if (from_end)  // all rows of p but the last, and that or, after a rejection, a row of q
        bytes_ += row * (shape_.depth + 1);
      else
        bytes_ += row * (taken + 1 + (rejected > 0 && shape_.rule == Rule::rejection ? 1 : 0));
    }
  }

  using NodeAt = std::vector<std::int32_t>;

  WorkShape shape_;
  RuleKernels<BFloat16> kernels_;
  bool chain_;
  int nodes_, draft_tokens_, sets_ = 1;  // nodes and draft tokens of a set
  RulePlan plan_;
  std::unique_ptr<DeviceWorkspace> workspace_;
  DeviceArray<BFloat16> target_, draft_;
  DeviceArray<std::int32_t> begin_, position_, token_, parent_;
  DeviceArray<std::uint64_t> seed_;
  DeviceArray<device::SamplingParams> params_;
  DeviceArray<device::RowStats> stats_;
  std::vector<std::int32_t> parents_, depths_;
  std::vector<NodeAt> paths_;
  std::vector<DeviceResults> out_;
  double bytes_ = 0, accepted_ = 0;
};

struct Named {
  const char* name;
  WorkShape shape;
  double limit;  // us
};
const Named kBars[] = {
    {"B = 1, 4 drafts, rejection, cold", {Rule::rejection, 1, 5, 4, 1, 1}, 12},
    {"B = 1, 64-node tree, depth 6, sample-and-match", {Rule::sample_and_match, 1, 64, 6, 1, 1}, 16},
    {"B = 64, 4 drafts, rejection, all accepted", {Rule::rejection, 64, 5, 4, 1, 1}, 36},
    {"B = 64, 4 drafts, rejection, alpha .7", {Rule::rejection, 64, 5, 4, .7, 1}, 40},
    {"B = 64, 64-node trees, depth 6, sample-and-match", {Rule::sample_and_match, 64, 64, 6, 1, 1}, 70},
    {"B = 64, 4 drafts, block, all accepted", {Rule::block, 64, 5, 4, 1, 1}, 45},
    {"B = 64, 4 drafts, block, alpha .7", {Rule::block, 64, 5, 4, .7, 1}, 70},
    {"top-p .95: B = 1, 4 drafts, rejection", {Rule::rejection, 1, 5, 4, 1, .95f}, 60},
    {"top-p .95: B = 64, 4 drafts, rejection", {Rule::rejection, 64, 5, 4, 1, .95f}, 200},
    // Without limits: what is near to those.
    {"B = 1, 4 drafts, rejection, alpha .7", {Rule::rejection, 1, 5, 4, .7, 1}, 0},
    {"B = 64, 4 drafts, traversal, alpha .7", {Rule::traversal, 64, 5, 4, .7, 1}, 0},
    {"B = 64, 4 drafts, greedy", {Rule::greedy, 64, 5, 4, .7, 1}, 0},
    {"without truncation: B = 1, 4 drafts, rejection, cold", {Rule::rejection, 1, 5, 4, 1, 1, true}, 0},
    {"without truncation: B = 64, 4 drafts, rejection, alpha .7",
     {Rule::rejection, 64, 5, 4, .7, 1, true},
     0},
};

struct SampleShape {
  const char* name;
  int rows;
  float top_p;
  double limit;  // us
};
const SampleShape kSampleBars[] = {
    {"sample, 1 row", 1, 1, 8}, {"sample, 64 rows", 64, 1, 14}, {"sample, 64 rows, top-p .95", 64, .95f, 50}};

template <class Plan>
Bar sample_bar(const SampleShape& shape, const Bars& bars) {
  const double bytes = 2.0 * kVocab * shape.rows;
  const int sets = bars.device.sets_beyond_cache(bytes);
  const auto n = static_cast<std::size_t>(shape.rows);
  DeviceArray<BFloat16> logits(static_cast<std::size_t>(sets) * n * kVocab);
  fill_normal(logits.data(), nullptr, static_cast<std::int64_t>(logits.size()), 21, kSpread);
  device::SamplingParams params;
  params.top_p = shape.top_p;
  const DeviceArray<device::SamplingParams> all(std::vector<device::SamplingParams>(n, params));
  const DeviceArray<std::uint64_t> seed(std::vector<std::uint64_t>(n, 7));
  std::vector<std::int32_t> position;
  for (int r = 0; r < shape.rows; ++r) position.push_back(r);
  const DeviceArray<std::int32_t> positions(position);
  DeviceArray<std::int32_t> token(n);
  DeviceArray<device::RowStats> stats(n);
  Plan plan;
  SPECULA_CHECK(plan_sample(&plan, shape.rows, 1, kVocab, bars.device.id));
  Bar bar = bars.timed(shape.limit, bytes, sets, [&](int set, cudaStream_t stream) {
    device::SampleArgs<BFloat16> args{};
    args.logits = logits.data() + static_cast<std::int64_t>(set) * shape.rows * kVocab;
    args.stride = kVocab;
    args.seed = seed.data();
    args.position = positions.data();
    args.params = all.data();
    args.token = token.data();
    args.stats = stats.data();
    return run_sample(plan, args, stream);
  });
  bar.note = name_of(plan.scan) + ", " + std::to_string(sets) + " sets";
  return bar;
}

std::string variant_name(const RulePlan& plan, bool chain) {
  return (plan.all_nodes && !chain ? "all nodes, " : "") + name_of(plan.geometry(chain)) +
         (plan.odd_rows > 0 ? ", odd sequences first " + std::to_string(plan.odd_rows) : "");
}

Bar measure(const WorkShape& shape, double limit, const Bars& bars) {
  const BarWork work(shape, bars.device, bars.stream);
  Bar bar = bars.timed(limit, work.bytes(), work.sets(),
                       [&](int set, cudaStream_t s) { return work.launch(work.plan(), set, s); });
  bar.note = std::to_string(work.accepted()) + " draft tokens accepted a sequence, " +
             variant_name(work.plan(), work.chain()) + ", " + std::to_string(work.sets()) + " sets";
  return bar;
}

}  // namespace

void run_verification_bars(const Options& options, Report& report) {
  Bars bars(options, report, "verification");
  bars.missing("softmax + FlashInfer's chain kernel on the same work", 3, "x slower than ours");
  for (const Named& bar : kBars) bars.run(bar.name, [&] { return measure(bar.shape, bar.limit, bars); });
  for (const SampleShape& shape : kSampleBars)
    bars.run(shape.name, [&] { return sample_bar<device::SamplePlan<BFloat16>>(shape, bars); });
  const SampleShape lean{"without truncation: sample, 64 rows", 64, 1, 0};
  bars.run(lean.name, [&] { return sample_bar<UntruncatedSamplePlan>(lean, bars); });
}

/// The plan's choice and the fastest geometry for every shape: every cluster size and number of threads with
/// the plan's rows and rings, and every number of rows and rings with the rest of the plan; following the
/// path instead of verifying all nodes; and odd sequences that begin with another number of rows.
void sweep_verification(const Options& options, Report& report) {
  const Device device;
  const Stream stream;
  std::vector<Named> shapes(std::begin(kBars), std::begin(kBars) + 9);
  shapes.push_back({"B = 4, 4 drafts, rejection, alpha .7", {Rule::rejection, 4, 5, 4, .7, 1}, 0});
  shapes.push_back({"B = 16, 4 drafts, rejection, alpha .7", {Rule::rejection, 16, 5, 4, .7, 1}, 0});
  shapes.push_back({"B = 256, 4 drafts, rejection, alpha .7", {Rule::rejection, 256, 5, 4, .7, 1}, 0});
  Sweep::print_head();
  for (const Named& shape : shapes) {
    if (!options.wants(shape.name)) continue;
    report.part(shape.name, [&](Json& json) {
      const BarWork work(shape.shape, device, stream);
      const auto time = [&](const RulePlan& plan) {
        return time_in_graph(
            stream, work.sets(), [&](int set, cudaStream_t s) { return work.launch(plan, set, s); }, 24, 9);
      };
      const bool chain = work.chain();
      Sweep sweep(json, variant_name(work.plan(), chain), time(work.plan()));
      const auto try_all = [&](const RulePlan& planned) {
        const Geometry& at = planned.geometry(chain);
        const auto try_one = [&](const Geometry& wanted) {
          RulePlan plan = planned;
          bool fits = false;
          SPECULA_CHECK(work.kernels().reshape(&plan, chain, wanted, &fits));
          if (fits) sweep.add(variant_name(plan, chain), time(plan));
        };
        for (const int cluster : device.clusters())
          for (const int threads : {128, 256, 384, 512})
            try_one(spread(at, cluster, threads, at.size.rows, at.size.ring_bytes));
        for (int rows = 1; rows <= (chain ? shape.shape.nodes : 1); ++rows)
          for (const int ring : {4096, 8192}) try_one(spread(at, at.cluster, at.threads, rows, ring));
        for (int odd = 1; chain && odd <= at.size.rows; ++odd) {
          RulePlan plan = planned;
          plan.odd_rows = odd;
          sweep.add(variant_name(plan, chain), time(plan));
        }
      };
      try_all(work.plan());
      if (work.plan().all_nodes && !chain) {
        RulePlan by_sequence = work.plan();
        by_sequence.all_nodes = false;
        sweep.add(variant_name(by_sequence, chain), time(by_sequence));
        try_all(by_sequence);
      }
      sweep.finish(shape.name);
    });
  }
}

}  // namespace specula_bench
