// SPDX-License-Identifier: MIT
#include "cases.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <specula/accept/exact_rules.hpp>
#include <specula/distribution/row_scan.hpp>

#include "dense_rules.hpp"
#include "device_batch.hpp"

namespace specula_bench {
namespace {

using namespace specula_test;
using specula::SamplingParams;

specula::VerifyResult run_rule(Rule rule, const Case& it, const SamplingParams& params,
                               std::uint64_t uniforms) {
  switch (rule) {
    case Rule::greedy:
      return result_of(specula::Greedy{}, it, params, uniforms);
    case Rule::sample_and_match:
      return result_of(specula::SampleAndMatch{}, it, params, uniforms);
    case Rule::rejection:
      return result_of(specula::Rejection{}, it, params, uniforms);
    case Rule::traversal:
      return result_of(specula::Traversal{}, it, params, uniforms);
    case Rule::block:
      break;
  }
  return result_of(specula::Block{}, it, params, uniforms);
}
/// How near the mass of any of top-p's possible cuts is to top_p.
double truncation_margin(std::vector<float> row, const SamplingParams& params) {
  if (params.greedy() || !(params.top_p < 1)) return 1;
  std::sort(row.rbegin(), row.rend());
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.size()) {
    std::size_t kept = static_cast<std::size_t>(params.top_k);
    while (kept < row.size() && row[kept] == row[kept - 1]) ++kept;
    row.resize(kept);
  }
  const auto weight = [&](float l) {
    return std::exp((static_cast<double>(l) - static_cast<double>(row[0])) /
                    static_cast<double>(params.temperature));
  };
  double all = 0, seen = 0, nearest = 1;
  for (const float l : row) all += weight(l);
  for (std::size_t i = 0; i < row.size(); ++i) {
    seen += weight(row[i]);
    if (i + 1 == row.size() || row[i + 1] < row[i])
      nearest = std::min(nearest, std::abs(seen / all - static_cast<double>(params.top_p)));
  }
  return nearest;
}
double margin_of(Rule rule, const Case& it, std::uint64_t seed) {
  DenseUniforms uniforms(seed);
  switch (rule) {
    case Rule::greedy:
      break;
    case Rule::sample_and_match:
      dense_match(it.dense, it.distributions, uniforms);
      break;
    case Rule::rejection:
      dense_rejection(it.dense, it.distributions, uniforms);
      break;
    case Rule::traversal:
      dense_traversal(it.dense, it.distributions, uniforms);
      break;
    case Rule::block:
      dense_block(it.dense, it.distributions, uniforms);
      break;
  }
  return uniforms.margin;
}

}  // namespace

template <class Element>
CaseBatch<Element> make_cases(Rule rule, const CaseShape& shape, std::uint64_t seed) {
  Random random(seed);
  const auto all = shape.only_temperature
                       ? std::vector<SamplingParams>{{}, {.temperature = 0.7f}, {.temperature = 0}}
                       : device_settings();
  std::ptrdiff_t stride = shape.stride;
  if (stride == 0) stride = random.bernoulli(0.5) ? (shape.vocab + 7) / 8 * 8 : shape.vocab + random.below(3);
  const std::ptrdiff_t offset = shape.stride == 0 && random.bernoulli(0.3) ? 1 : 0;
  DeviceBatch<Element> batch(shape.vocab, stride, offset);
  CaseBatch<Element> out;
  for (int i = 0; i < shape.trees; ++i) {
    const SamplingParams params =
        all[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(all.size())))];
    Mix mix{.nodes = 1 + random.below(shape.nodes), .wide = shape.wide, .round = rounding(Element{})};
    if (rule == Rule::block) mix.chooses = false, mix.wide = 0;
    if (shape.only_chosen) mix.draws = mix.distinct = false;
    if (shape.only_drawn) mix.chooses = mix.distinct = false;
    const Case it = random_case(random, shape.vocab, params, mix, random.bits());
    const std::uint64_t uniforms = random.bits();
    batch.add(it, params, uniforms);
    const specula::VerifyResult result = run_rule(rule, it, params, uniforms);
    const DeviceResult want = as_device(result, it.tree);
    out.want_log_prob.push_back(rule == Rule::greedy ? std::vector<double>(want.tokens.size())
                                                     : log_probs_of(it, params, result));
    out.want_token.push_back(want.tokens);
    out.want_path.push_back(want.accepted);
    out.margin.push_back(margin_of(rule, it, uniforms));
  }
  out.vocab = batch.vocab;
  out.max_nodes = batch.max_nodes;
  out.width = batch.width;
  out.stride = batch.stride;
  out.offset = batch.offset;
  out.chains = rule == Rule::block;
  out.begin = std::move(batch.begin);
  out.position = std::move(batch.position);
  out.token = std::move(batch.token);
  out.parent = std::move(batch.parent);
  out.draft_row = std::move(batch.draft_row);
  out.seed = std::move(batch.seed);
  out.params = std::move(batch.params);
  out.target = std::move(batch.target);
  out.draft = std::move(batch.draft);
  out.stats = std::move(batch.stats);
  out.scale = std::move(batch.scale);
  return out;
}

template <class Element>
SampleCases<Element> make_sample_cases(int rows, int vocab, std::uint64_t seed) {
  Random random(seed);
  SampleCases<Element> out;
  out.vocab = vocab;
  out.stride = random.bernoulli(0.5) ? (vocab + 7) / 8 * 8 : vocab + random.below(9);
  out.offset = random.below(3);
  out.logits.resize(static_cast<std::size_t>(out.offset));
  const auto all = device_settings();
  specula::detail::RowScan scan(vocab);
  for (int r = 0; r < rows; ++r) {
    const SamplingParams params =
        all[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(all.size())))];
    std::vector<float> row = random.row(vocab, random.between(0.5, 9), 0.3, 0.2);
    if (random.bernoulli(0.5)) random.move_tiles(row);
    if (const auto round = rounding(Element{}))
      for (float& l : row) l = round(l);
    const std::size_t at = out.logits.size();
    out.logits.resize(at + static_cast<std::size_t>(out.stride));
    for (std::size_t x = 0; x < static_cast<std::size_t>(out.stride); ++x)
      store(x < row.size() ? row[x] : std::numeric_limits<float>::quiet_NaN(), out.logits[at + x]);
    out.params.push_back({params.temperature, params.top_k, params.top_p, params.min_p});
    out.seed.push_back(random.bits());
    out.position.push_back(random.below(100000));
    const specula::Distribution distribution = scan.distribution(row, params);
    const specula::RandomKey key{.position = out.position.back()};
    specula::PhiloxRandom rng(out.seed.back());
    out.want.push_back(distribution.is_point() ? distribution.point
                                               : rng.draw(scan.weights(distribution), key));
    out.want_log_z.push_back(distribution.log_z);
    out.want_min_logit.push_back(distribution.min_logit);
    DenseUniforms uniforms(out.seed.back());
    if (!distribution.is_point()) uniforms.draw(plain_distribution(row, params), key);
    out.truncation_margin.push_back(truncation_margin(row, params));
    out.margin.push_back(std::min(uniforms.margin, out.truncation_margin.back()));
  }
  return out;
}

template CaseBatch<float> make_cases(Rule, const CaseShape&, std::uint64_t);
template CaseBatch<device::Half> make_cases(Rule, const CaseShape&, std::uint64_t);
template CaseBatch<device::BFloat16> make_cases(Rule, const CaseShape&, std::uint64_t);
template SampleCases<float> make_sample_cases(int, int, std::uint64_t);
template SampleCases<device::Half> make_sample_cases(int, int, std::uint64_t);
template SampleCases<device::BFloat16> make_sample_cases(int, int, std::uint64_t);

}  // namespace specula_bench
