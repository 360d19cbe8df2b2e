// That what comes out has the target's law.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device_cases.cuh"

namespace specula_bench {
namespace {

void write_chi_square(Json& json, Report& report, const std::string& name, const std::vector<double>& seen,
                      const std::vector<double>& law) {
  double n = 0, chi = 0, rest_seen = 0, rest_want = 0;
  int cells = 0;
  for (const double s : seen) n += s;
  bool impossible = false;
  for (std::size_t x = 0; x < law.size(); ++x) {
    const double want = n * law[x];
    impossible = impossible || (law[x] == 0 && seen[x] > 0);
    if (want < 5) {  // rare tokens together
      rest_seen += seen[x], rest_want += want;
      continue;
    }
    chi += (seen[x] - want) * (seen[x] - want) / want;
    ++cells;
  }
  if (rest_want >= 5) chi += (rest_seen - rest_want) * (rest_seen - rest_want) / rest_want, ++cells;
  const double z = chi_square_deviate(chi, std::max(1, cells - 1));
  const bool good = n > 0 && !impossible && z < 4.3;  // a chance of 1e-5
  if (!good) report.fail();
  json.key(name).begin_object().field("draws", n).field("cells", cells).field("chi_square", chi);
  json.field("deviate", z).field("pass", good).end();
  std::printf("| chi-square: %s | %.0f draws | chi2 %.1f over %d | z %.2f | %s |\n", name.c_str(), n, chi,
              cells - 1, z, good ? "pass" : "FAIL");
}

}  // namespace

void check_laws(const Options& options, const Device& device, const Stream& stream, Json& json,
                Report& report) {
  using device::BFloat16;
  constexpr int kVocab = 600, kSequences = 4096, kDepth = 3;
  const int rounds = options.tiny ? 1 : 24;
  const int sequences = options.tiny ? 8 : kSequences;
  // Target rows of a chain, and draft rows; the same for all sequences.
  DeviceArray<BFloat16> target((kDepth + 1) * kVocab), draft(kDepth * kVocab);
  fill_normal(target.data(), nullptr, (kDepth + 1) * kVocab, options.seed + 1, 1.5f);
  fill_normal(draft.data(), target.data(), kDepth * kVocab, options.seed + 2, 0.8f);
  const auto as_float = [](BFloat16 b) {
    const std::uint32_t bits = static_cast<std::uint32_t>(b.bits) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return static_cast<double>(out);
  };
  std::vector<double> law;
  double z = 0;
  const std::vector<BFloat16> rows = target.download();
  for (int x = 0; x < kVocab; ++x)
    law.push_back(std::exp(as_float(rows[static_cast<std::size_t>(x)]))), z += law.back();
  for (double& p : law) p /= z;

  {  // plain sampling, many draws of one row
    constexpr int kDraws = 64;
    device::SamplePlan plan;
    SPECULA_CHECK(plan_sample<BFloat16>(&plan, sequences, kDraws, kVocab, device.id));
    std::vector<std::uint64_t> seed;
    std::vector<std::int32_t> position;
    for (int b = 0; b < sequences; ++b)
      seed.push_back(options.seed * 77 + static_cast<std::uint64_t>(b)), position.push_back(b);
    const DeviceArray<std::uint64_t> seeds(seed);
    const DeviceArray<std::int32_t> positions(position);
    DeviceArray<std::int32_t> token(static_cast<std::size_t>(sequences) * kDraws);
    token.fill_bytes(kPoison);
    SPECULA_CHECK(cudaDeviceSynchronize());
    device::SampleArgs<BFloat16> args{};
    args.logits = target.data();
    args.stride = 0;  // one row for all
    args.seed = seeds.data();
    args.position = positions.data();
    args.token = token.data();
    SPECULA_CHECK(run_sample(plan, args, stream));
    stream.wait();
    std::vector<double> seen(kVocab, 0.0);
    for (const std::int32_t t : token.download()) {
      if (t < 0 || t >= kVocab) throw std::runtime_error("a token out of range: " + std::to_string(t));
      seen[static_cast<std::size_t>(t)] += 1;
    }
    write_chi_square(json, report, "sample", seen, law);
  }
  // Whole rounds: guesses drawn on the device, then verified; the first token must follow p.
  for (const Rule rule : {Rule::rejection, Rule::traversal, Rule::block}) {
    const RuleKernels<BFloat16> kernels = kernels_of<BFloat16>(rule);
    std::vector<double> seen(kVocab, 0.0);
    device::SamplePlan sample_plan;
    SPECULA_CHECK(plan_sample<BFloat16>(&sample_plan, sequences * kDepth, 1, kVocab, device.id));
    device::VerifyPlan plan;
    SPECULA_CHECK(kernels.plan(&plan, {sequences, kDepth + 1, kDepth, kVocab}, device.id));
    const std::size_t guesses = static_cast<std::size_t>(sequences) * kDepth;
    // Draft row i of a sequence is row i for all: rows are found by sampling kDepth times with stride 0.
    DeviceArray<std::int32_t> token(guesses);
    DeviceArray<device::RowStats> stats(guesses);
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::uint64_t> seed;
      std::vector<std::int32_t> origin, begin, row_of_node, draft_row_of_node, tokens,
          of_sequence(static_cast<std::size_t>(sequences));
      for (int b = 0; b < sequences; ++b) {
        of_sequence[static_cast<std::size_t>(b)] = b;
        seed.push_back(options.seed * 99991 + static_cast<std::uint64_t>(round) * 65537 +
                       static_cast<std::uint64_t>(b));
        origin.push_back(100 + b);
        begin.push_back(b * (kDepth + 1));
        for (int i = 0; i <= kDepth; ++i) {
          row_of_node.push_back(i);
          draft_row_of_node.push_back(i - 1);
        }
      }
      begin.push_back(sequences * (kDepth + 1));
      const DeviceArray<std::uint64_t> seeds(seed);
      const DeviceArray<std::int32_t> origins(origin), begins(begin), rows_of(row_of_node),
          draft_rows_of(draft_row_of_node), sequences_of(of_sequence);
      std::vector<std::int32_t> guess(guesses);
      std::vector<device::RowStats> draft_stats;
      for (int i = 0; i < kDepth; ++i) {
        std::vector<std::int32_t> position;
        for (const std::int32_t o : origin) position.push_back(o + i + 1);
        const DeviceArray<std::int32_t> positions(position);
        token.fill_bytes(kPoison);
        SPECULA_CHECK(cudaDeviceSynchronize());
        device::SamplePlan one = sample_plan;
        one.rows = sequences;
        device::SampleArgs<BFloat16> args{};
        args.logits = draft.data() + i * kVocab;
        args.stride = 0;
        args.seed = seeds.data();
        args.position = positions.data();
        args.origin = origins.data();
        args.stream = device::Stream::draft;
        args.sequence_of_row = sequences_of.data();
        args.token = token.data();
        args.stats = stats.data();
        SPECULA_CHECK(run_sample(one, args, stream));
        stream.wait();
        const auto t = token.download();
        draft_stats.push_back(stats.download()[0]);
        for (std::size_t b = 0; b < static_cast<std::size_t>(sequences); ++b)
          guess[b * kDepth + static_cast<std::size_t>(i)] = t[b];
      }
      for (std::size_t b = 0; b < static_cast<std::size_t>(sequences); ++b) {
        tokens.push_back(0);
        for (std::size_t i = 0; i < kDepth; ++i) tokens.push_back(guess[b * kDepth + i]);
      }
      const DeviceArray<std::int32_t> all_tokens(tokens);
      const DeviceArray<device::RowStats> all_stats(draft_stats);
      DeviceVerdicts verdicts(sequences, plan.width);
      const device::Trees trees{begins.data(),  all_tokens.data(), nullptr,
                                origins.data(), seeds.data(),      nullptr};
      SPECULA_CHECK(kernels.run(plan, trees, {target.data(), kVocab, rows_of.data(), nullptr},
                                {draft.data(), kVocab, all_stats.data(), draft_rows_of.data(), nullptr},
                                verdicts.args(), stream));
      stream.wait();
      const HostVerdicts got = verdicts.download();
      for (std::size_t b = 0; b < static_cast<std::size_t>(sequences); ++b) {
        const std::int32_t first = got.token[b * static_cast<std::size_t>(plan.width)];
        if (got.status[b] != 0 || first < 0 || first >= kVocab)
          throw std::runtime_error("a verdict without a token");
        seen[static_cast<std::size_t>(first)] += 1;
      }
    }
    write_chi_square(json, report, name_of(rule), seen, law);
  }
}

}  // namespace specula_bench
