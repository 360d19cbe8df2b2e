// SPDX-License-Identifier: MIT
// Chi-square tests that tokens have the target's distribution.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device_cases.cuh"
#include "random.cuh"

namespace specula_bench {
namespace {

void write_chi_square(Json& json, Report& report, const std::string& name, const std::vector<double>& seen,
                      const std::vector<double>& distribution) {
  double n = 0, chi = 0, rest_seen = 0, rest_want = 0;
  int cells = 0;
  for (const double s : seen) n += s;
  bool impossible = false;
  for (std::size_t x = 0; x < distribution.size(); ++x) {
    const double want = n * distribution[x];
    impossible = impossible || (distribution[x] == 0 && seen[x] > 0);
    if (want < 5) {  // rare tokens together
      rest_seen += seen[x], rest_want += want;
      continue;
    }
    chi += (seen[x] - want) * (seen[x] - want) / want;
    ++cells;
  }
  if (rest_want >= 5) chi += (rest_seen - rest_want) * (rest_seen - rest_want) / rest_want, ++cells;
  const double z = chi_square_deviate(chi, std::max(1, cells - 1));
  const bool good = n > 0 && !impossible && z < 4.3;  // a probability of 1e-5
  if (!good) report.fail();
  json.key(name).begin_object().field("draws", n).field("cells", cells).field("chi_square", chi);
  json.field("deviate", z).field("pass", good).end();
  std::printf("| chi-square: %s | %.0f draws | chi2 %.1f over %d | z %.2f | %s |\n", name.c_str(), n, chi,
              cells - 1, z, good ? "pass" : "FAIL");
}

using device::BFloat16;

constexpr int kVocab = 600, kDepth = 3, kSequences = 4096, kRounds = 24;

/// Target rows of a chain, and draft rows; the same for all sequences.
struct Rows {
  DeviceArray<BFloat16> target{(kDepth + 1) * kVocab}, draft{kDepth * kVocab};
  std::vector<double> distribution;  // of the first target row

  explicit Rows(std::uint64_t seed) {
    fill_normal(target.data(), nullptr, (kDepth + 1) * kVocab, seed + 1, 1.5f);
    fill_normal(draft.data(), target.data(), kDepth * kVocab, seed + 2, 0.8f);
    double z = 0;
    const std::vector<BFloat16> all = target.download();
    for (std::size_t x = 0; x < kVocab; ++x)
      distribution.push_back(std::exp(as_double(all[x]))), z += distribution.back();
    for (double& p : distribution) p /= z;
  }
};

/// Counts of what was drawn.
class Seen {
 public:
  void add(std::int32_t token) {
    if (token < 0 || token >= kVocab) throw std::runtime_error("no token: " + std::to_string(token));
    count_[static_cast<std::size_t>(token)] += 1;
  }
  const std::vector<double>& count() const { return count_; }

 private:
  std::vector<double> count_ = std::vector<double>(kVocab, 0.0);
};

/// Plain sampling, many draws of one row.
Seen sample_often(const Rows& rows, std::uint64_t seed, const Device& device, const Stream& stream) {
  constexpr int kDraws = 64;
  device::SamplePlan<BFloat16> plan;
  SPECULA_CHECK(plan_sample(&plan, kSequences, kDraws, kVocab, device.id));
  std::vector<std::uint64_t> seed_of;
  std::vector<std::int32_t> position;
  for (int b = 0; b < kSequences; ++b)
    seed_of.push_back(seed * 77 + static_cast<std::uint64_t>(b)), position.push_back(b);
  const DeviceArray<std::uint64_t> seeds(seed_of);
  const DeviceArray<std::int32_t> positions(position);
  DeviceArray<std::int32_t> token(static_cast<std::size_t>(kSequences) * kDraws);
  token.fill_bytes(kPoison);
  device::SampleArgs<BFloat16> args{};
  args.logits = rows.target.data();
  args.stride = 0;  // one row for all
  args.seed = seeds.data();
  args.position = positions.data();
  args.token = token.data();
  SPECULA_CHECK(run_sample(plan, args, stream));
  stream.wait();
  Seen seen;
  for (const std::int32_t t : token.download()) seen.add(t);
  return seen;
}

/// A whole round: draft tokens drawn on the device, then verified; the first token must follow p.
void play_round(const RuleKernels<BFloat16>& kernels, const Rows& rows, std::uint64_t seed,
                const Device& device, const Stream& stream, Seen& seen) {
  device::SamplePlan<BFloat16> sample_plan;
  SPECULA_CHECK(plan_sample(&sample_plan, kSequences, 1, kVocab, device.id));
  RulePlan plan;
  SPECULA_CHECK(kernels.plan(&plan, {kSequences, kDepth + 1, kDepth, kVocab}, device.id));
  std::vector<std::uint64_t> seed_of;
  std::vector<std::int32_t> origin, begin, row_of_node, draft_row_of_node;
  for (int b = 0; b < kSequences; ++b) {
    seed_of.push_back(seed + static_cast<std::uint64_t>(b));
    origin.push_back(100 + b);
    begin.push_back(b * (kDepth + 1));
    for (int i = 0; i <= kDepth; ++i) row_of_node.push_back(i), draft_row_of_node.push_back(i - 1);
  }
  begin.push_back(kSequences * (kDepth + 1));
  const DeviceArray<std::uint64_t> seeds(seed_of);
  const DeviceArray<std::int32_t> origins(origin), begins(begin), rows_of(row_of_node),
      draft_rows_of(draft_row_of_node);
  // Draws go into the trees, after roots of 0. All sequences have the same distributions, those of the first.
  const DeviceArray<std::int32_t> tokens(
      std::vector<std::int32_t>(static_cast<std::size_t>(kSequences) * (kDepth + 1), 0));
  DeviceArray<device::RowStats> stats(static_cast<std::size_t>(kSequences) * kDepth);
  stats.fill_bytes(kPoison);
  for (int i = 0; i < kDepth; ++i) {
    std::vector<std::int32_t> position;
    for (const std::int32_t o : origin) position.push_back(o + i + 1);
    const DeviceArray<std::int32_t> positions(position);
    device::SampleArgs<BFloat16> args{};
    args.logits = rows.draft.data() + i * kVocab;
    args.stride = 0;
    args.seed = seeds.data();
    args.position = positions.data();
    args.origin = origins.data();
    args.stream = device::RandomStream::draft;
    args.token = tokens.data() + i + 1;
    args.token_stride = kDepth + 1;
    args.stats = stats.data() + i;
    args.stats_stride = kDepth;
    SPECULA_CHECK(run_sample(sample_plan, args, stream));
    stream.wait();
  }
  const DeviceWorkspace workspace(plan, stream);
  DeviceResults results(kSequences, plan.width);
  const device::Trees trees{begins.data(), tokens.data(), nullptr, origins.data(), seeds.data(), nullptr};
  SPECULA_CHECK(kernels.run(plan, trees, {rows.target.data(), kVocab, rows_of.data(), nullptr},
                            {rows.draft.data(), kVocab, stats.data(), draft_rows_of.data(), nullptr, kDepth},
                            results.args(), workspace.args(), stream));
  stream.wait();
  const HostResults got = results.download();
  for (std::size_t b = 0; b < kSequences; ++b) {
    if (got.status[b] != 0) throw std::runtime_error("status " + std::to_string(got.status[b]));
    seen.add(got.token[b * static_cast<std::size_t>(plan.width)]);
  }
}

}  // namespace

void check_distributions(const Options& options, const Device& device, const Stream& stream, Json& json,
                         Report& report) {
  const Rows rows(options.seed);
  write_chi_square(json, report, "sample", sample_often(rows, options.seed, device, stream).count(),
                   rows.distribution);
  for (const Rule rule : {Rule::rejection, Rule::traversal, Rule::block}) {
    Seen seen;
    for (int round = 0; round < kRounds; ++round)
      play_round(kernels_of<BFloat16>(rule), rows,
                 options.seed * 99991 + static_cast<std::uint64_t>(round) * 65537, device, stream, seen);
    write_chi_square(json, report, name_of(rule), seen.count(), rows.distribution);
  }
}

}  // namespace specula_bench
