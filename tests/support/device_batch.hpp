// SPDX-License-Identifier: MIT
// Random proposals as the device arrays of the verification kernels, and runs of a rule on an emulated GPU.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <specula/cuda/args/trees.cuh>
#include <specula/cuda/detail/verify/sequence_verifier.cuh>
#include <specula/verify/logprobs.hpp>

#include "dense_rules.hpp"
#include "emulated_gpu.hpp"

namespace specula_test {

namespace device = specula::cuda;

inline std::uint16_t bf16_bits(float x) {  // to the nearest, ties to even
  std::uint32_t b;
  std::memcpy(&b, &x, 4);
  return static_cast<std::uint16_t>((b + 0x7FFFu + (b >> 16 & 1)) >> 16);
}
inline float bf16_rounded(float x) { return device::detail::to_float(device::BFloat16{bf16_bits(x)}); }
inline std::uint16_t half_bits(float x) {
  if (std::isinf(x)) return x > 0 ? 0x7C00 : 0xFC00;
  // By bisection: positive halves are ordered as their bits.
  const auto value = [](int bits) {
    return device::detail::to_float(device::Half{static_cast<std::uint16_t>(bits)});
  };
  int low = 0, high = 0x7BFF;
  while (low < high) {
    const int middle = (low + high) / 2;
    (value(middle) < std::abs(x) ? low : high) = value(middle) < std::abs(x) ? middle + 1 : middle;
  }
  if (low > 0 && std::abs(x) - value(low - 1) < value(low) - std::abs(x)) --low;
  return static_cast<std::uint16_t>(low | (std::signbit(x) ? 0x8000 : 0));
}
inline float half_rounded(float x) { return device::detail::to_float(device::Half{half_bits(x)}); }

inline void store(float x, float& out) { out = x; }
inline void store(float x, device::BFloat16& out) { out.bits = bf16_bits(x); }
inline void store(float x, device::Half& out) { out.bits = half_bits(x); }
inline auto rounding(float) -> float (*)(float) { return nullptr; }
inline auto rounding(device::BFloat16) -> float (*)(float) { return bf16_rounded; }
inline auto rounding(device::Half) -> float (*)(float) { return half_rounded; }

/// Parameters with every kind of truncation, alone and combined.
inline std::vector<specula::SamplingParams> device_settings() {
  return {{},
          {.temperature = 0.7f},
          {.temperature = 0.6f, .top_k = 5},
          {.temperature = 1.4f, .top_p = 0.8f},
          {.temperature = 0.9f, .min_p = 0.1f},
          {.temperature = 1.1f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
          {.temperature = 0}};
}

/// The device's result for one sequence.
struct DeviceResult {
  std::vector<specula::Token> tokens;
  std::vector<specula::NodeId> accepted;
  device::Status status = device::Status::ok;

  friend bool operator==(const DeviceResult&, const DeviceResult&) = default;
};
/// A VerifyResult of the CPU in that form.
inline DeviceResult as_device(const specula::VerifyResult& result, const specula::TokenTree& tree) {
  DeviceResult out;
  out.accepted = result.accepted;
  for (std::size_t i = 1; i < result.accepted.size(); ++i)
    out.tokens.push_back(tree.token(result.accepted[i]));
  out.tokens.push_back(result.next_token);
  return out;
}

/// ln p of the tokens of a result, by the CPU.
inline std::vector<double> log_probs_of(const Case& it, const specula::SamplingParams& params,
                                        const specula::VerifyResult& result) {
  specula::VerifyWorkspace workspace(it.tree.vocab(), it.tree.size());
  const specula::TargetDistributions p(it.view(), params, workspace);
  const DeviceResult emitted = as_device(result, it.tree);
  std::vector<double> out;
  for (std::size_t i = 0; i < emitted.tokens.size(); ++i)
    out.push_back(specula::detail::log_prob(p.distribution(emitted.accepted[i], params), emitted.tokens[i]));
  return out;
}

/// A batch of cases over one vocabulary as flat arrays. Rows are `stride` elements apart and begin `offset`
/// elements after an aligned address.
template <class Element>
struct DeviceBatch {
  int vocab = 0, max_nodes = 1, width = 1;
  std::ptrdiff_t stride = 0, offset = 0;
  std::vector<std::int32_t> begin{0}, position;
  std::vector<specula::Token> token;
  std::vector<specula::NodeId> parent;
  std::vector<std::uint64_t> seed;
  std::vector<device::SamplingParams> params;
  std::vector<Element> target, draft;
  std::vector<device::RowStats> stats;              // (draft rows)
  std::vector<std::int32_t> draft_row;              // (N)
  std::vector<double> scale;                        // (N)
  std::vector<float> float_rows, probs, list_prob;  // for the other forms of a draft
  std::vector<specula::Token> list_token;
  std::vector<specula::Token> out_token;
  std::vector<specula::NodeId> out_path;
  std::vector<std::int32_t> out_count;
  std::vector<device::Status> out_status;
  std::vector<float> out_log_prob;
  bool logs = true;  // whether log-probabilities are asked for

  explicit DeviceBatch(int vocabulary, std::ptrdiff_t row_stride = 0, std::ptrdiff_t row_offset = 0)
      : vocab(vocabulary), stride(row_stride ? row_stride : vocabulary), offset(row_offset) {
    target.resize(static_cast<std::size_t>(offset));
    draft.resize(static_cast<std::size_t>(offset));
  }

  void add_row(std::vector<Element>& rows, const float* logits) {
    const std::size_t at = rows.size();
    rows.resize(at + static_cast<std::size_t>(stride));
    for (std::size_t x = 0; x < static_cast<std::size_t>(stride);
         ++x)  // padding between rows must not be read
      store(x < static_cast<std::size_t>(vocab) ? logits[x] : std::numeric_limits<float>::quiet_NaN(),
            rows[at + x]);
  }

  void add(const Case& it, const specula::SamplingParams& target_params, std::uint64_t uniforms) {
    const specula::TokenTree& tree = it.tree;
    std::vector<const float*> known;  // draft rows of this tree
    const std::size_t first = stats.size();
    for (specula::NodeId n = 0; n < tree.size(); ++n) {
      token.push_back(tree.token(n));
      parent.push_back(tree.parent(n));
      add_row(target, it.row[static_cast<std::size_t>(n)].data());
      width = std::max(width, tree.depth(n) + 1);
      const specula::Distribution& distribution = tree.draft_distribution(n);
      scale.push_back(n > 0 && tree.excludes_siblings(n) ? tree.draft_scale(n) : 0.0);
      if (n == 0 || distribution.is_point()) {
        draft_row.push_back(-1);
        continue;
      }
      std::size_t row = 0;
      while (row < known.size() && known[row] != distribution.logits.floats()) ++row;
      if (row == known.size()) {
        known.push_back(distribution.logits.floats());
        add_row(draft, known.back());
        const float t = target_params.greedy() ? 1.0f : target_params.temperature;
        stats.push_back({distribution.log_z, distribution.shift, t, distribution.min_logit, device::kNoToken,
                         device::Status::ok});
      }
      draft_row.push_back(static_cast<std::int32_t>(first + row));
    }
    begin.push_back(static_cast<std::int32_t>(token.size()));
    max_nodes = std::max(max_nodes, tree.size());
    position.push_back(tree.origin());
    seed.push_back(uniforms);
    params.push_back(
        {target_params.temperature, target_params.top_k, target_params.top_p, target_params.min_p});
  }

  /// A slot without nodes.
  void add_empty() {
    begin.push_back(begin.back());
    position.push_back(-77), seed.push_back(77), params.push_back({-1, -1, -1, -1});
  }

  int sequences() const { return static_cast<int>(position.size()); }
  device::LogitsDraft<Element> logits_draft() const {
    return {draft.data() + offset, stride, stats.data(), draft_row.data(), scale.data()};
  }

  /// The same rows as floats.
  device::LogitsDraft<float> float_draft() {
    float_rows.clear();
    for (const Element& x : draft) float_rows.push_back(device::detail::to_float(x));
    return {float_rows.data() + offset, stride, stats.data(), draft_row.data(), scale.data()};
  }
  /// The same distributions as rows of probabilities, and as lists of `k` tokens (requires that all
  /// others have probability 0).
  device::ProbsDraft probs_draft() {
    probs.clear();
    for (std::size_t r = 0; r < stats.size(); ++r)
      for (int x = 0; x < vocab; ++x) probs.push_back(static_cast<float>(draft_prob(r, x)));
    return {probs.data(), vocab, draft_row.data(), scale.data()};
  }
  device::SparseDraft sparse_draft(int k) {
    list_token.clear();
    list_prob.clear();
    for (std::size_t r = 0; r < stats.size(); ++r) {
      int listed = 0;
      for (int x = vocab - 1; x >= 0; --x) {  // in any order
        if (draft_prob(r, x) == 0) continue;
        if (++listed > k) throw std::runtime_error("more tokens with mass than the list holds");
        list_token.push_back(x);
        list_prob.push_back(static_cast<float>(draft_prob(r, x)));
      }
      list_token.resize((r + 1) * static_cast<std::size_t>(k), device::kNoToken);
      list_prob.resize(list_token.size(), 0.5f);
    }
    return {list_token.data(), list_prob.data(), k, draft_row.data(), scale.data()};
  }
  double draft_prob(std::size_t row, int token_asked) const {
    return device::detail::prob(
        device::detail::to_float(
            draft[static_cast<std::size_t>(offset) + row * static_cast<std::size_t>(stride) +
                  static_cast<std::size_t>(token_asked)]),
        stats[row]);
  }

  template <class Draft>
  device::detail::VerifyArgs<Element, Draft> args(const Draft& q) {
    const auto b = position.size();
    out_token.assign(b * static_cast<std::size_t>(width), -77);
    out_path.assign(out_token.size(), -77);
    out_count.assign(b, -77);
    out_status.assign(b, static_cast<device::Status>(-77));
    out_log_prob.assign(out_token.size(), 77);
    return {{begin.data(), token.data(), parent.data(), position.data(), seed.data(), nullptr},
            {target.data() + offset, stride, nullptr, params.data()},
            q,
            {out_token.data(), out_path.data(), out_count.data(), out_status.data(),
             logs ? out_log_prob.data() : nullptr},
            max_nodes,
            width,
            {vocab, 1, 8192}};
  }

  /// Of a sequence, as many as tokens.
  std::vector<float> log_probs(std::size_t b) const {
    const auto from = out_log_prob.begin() + static_cast<std::ptrdiff_t>(b) * width;
    return {from, from + out_count[b]};
  }
  /// The outputs, every element checked: -1 after the count.
  std::vector<DeviceResult> results() const {
    std::vector<DeviceResult> out;
    for (std::size_t b = 0; b < position.size(); ++b) {
      DeviceResult v;
      v.status = out_status[b];
      if (out_count[b] < 0 || out_count[b] > width) throw std::runtime_error("a count out of range");
      for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
        const std::size_t at = b * static_cast<std::size_t>(width) + i;
        if (static_cast<std::int32_t>(i) < out_count[b]) {
          v.tokens.push_back(out_token[at]);
          v.accepted.push_back(out_path[at]);
          if (logs && !(out_log_prob[at] <= 0)) throw std::runtime_error("no log-probability");
        } else if (out_token[at] != -1 || out_path[at] != -1 || (logs && out_log_prob[at] != 0)) {
          throw std::runtime_error("an accepted path is not padded with -1");
        }
      }
      out.push_back(v);
    }
    return out;
  }
};

/// Runs a rule over a batch on an emulated GPU. Chains are read `rows` rows at a time, through rings of
/// either size; 0: the seed chooses.
template <class Rule, class Element, class Draft>
std::vector<DeviceResult> emulate_verify(DeviceBatch<Element>& batch,
                                         device::detail::VerifyArgs<Element, Draft> args, int blocks = 1,
                                         int threads = 64, std::uint64_t seed = 1,
                                         Engine engine = Engine::fibers, int rows = 0) {
  using SequenceVerifier = device::detail::SequenceVerifier<Rule, EmulatedCluster, Element, Draft>;
  args.scan.rows = rows > 0 ? rows : 1 + static_cast<int>(seed % 5);
  args.scan.ring_bytes = seed % 3 == 0 ? 4096 : 8192;
  emulate({.clusters = batch.sequences(),
           .blocks = blocks,
           .threads = threads,
           .shared_bytes = SequenceVerifier::shared_bytes(args.scan, args.max_nodes, threads / 32),
           .seed = seed,
           .engine = engine},
          [&](EmulatedCluster cluster, int sequence, unsigned char* shared) {
            SequenceVerifier::verify_sequence(cluster, args, sequence, shared);
          });
  return batch.results();
}

}  // namespace specula_test
