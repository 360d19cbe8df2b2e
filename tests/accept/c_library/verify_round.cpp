// SPDX-License-Identifier: MIT
// specula_verify(): the bits of verify_batch() in random rounds.
#include <doctest/doctest.h>
#include <specula/accept/compile_c_library.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/verify_batch.hpp>

#include "c_rounds.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// A rule by its name, compiled once for all: the enumeration of the library's is not asked.
struct Named {
  std::string_view name;

  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    if (name == "sampling") Sampling{}.decide(tree, target, rng, out);
    if (name == "token") Rejection{}.decide(tree, target, rng, out);
    if (name == "block") Block{}.decide(tree, target, rng, out);
    if (name == "traversal") Traversal{}.decide(tree, target, rng, out);
  }
};

struct Results {
  int returned = 0;
  std::vector<std::int32_t> token, accepted, count, status;
  std::vector<float> log_prob;
  std::vector<std::string> message;

  friend bool operator==(const Results& a, const Results& b) {
    return a.returned == b.returned && a.token == b.token && a.accepted == b.accepted && a.count == b.count &&
           a.status == b.status && a.message == b.message && a.log_prob.size() == b.log_prob.size() &&
           (a.log_prob.empty() ||
            std::memcmp(a.log_prob.data(), b.log_prob.data(), a.log_prob.size() * sizeof(float)) == 0);
  }
};
Results results_of(const CRound& round, int returned) {
  Results out{
      returned, round.out_token, round.out_accepted, round.out_count, round.out_status, round.out_log_prob,
      {}};
  out.message.resize(round.out_count.size());
  return out;
}

Results by_c(CRound& round) {
  const specula_round r = round.round();
  Results out = results_of(round, specula_verify(&r));
  out = results_of(round, out.returned);
  for (std::size_t b = 0; b < out.message.size(); ++b)
    out.message[b] = specula_message(static_cast<std::int32_t>(b));
  return out;
}

constexpr std::array kNames{"sampling", "token", "block", "traversal", "match", "greedy"};

template <class Element, class Draft>
int call(const specula_round& r, std::int32_t most, const Draft& draft, BatchMemory& memory) {
  const arrays::Trees trees{r.begin, r.token, r.parent, r.position, r.seed, r.sequence};
  arrays::TargetRows<Element> target{static_cast<const Element*>(r.target),
                                     r.target_stride ? r.target_stride : r.vocab, r.target_row};
  target.params.temperature = r.temperature, target.params.top_k = r.top_k;
  target.params.top_p = r.top_p, target.params.min_p = r.min_p;
  const arrays::VerifyResults out{r.out_token, r.out_accepted, r.out_count,
                                  reinterpret_cast<Status*>(r.out_status), r.out_log_prob};
  const arrays::VerifyCapacity capacity{r.sequences, most, r.width - 1, r.vocab};
  const std::string_view name = kNames[static_cast<std::size_t>(r.rule)];
  if (name == "match")
    return verify_batch(SampleAndMatch{}, capacity, trees, target, arrays::ChosenDraft{}, out, memory);
  if (name == "greedy")
    return verify_batch(Greedy{}, capacity, trees, target, arrays::ChosenDraft{}, out, memory);
  return verify_batch(Named{name}, capacity, trees, target, draft, out, memory);
}
template <class Element>
int call(const specula_round& r, std::int32_t most, BatchMemory& memory) {
  std::vector<arrays::RowStats> stats;
  for (std::int64_t i = 0; r.draft_stats && i < r.draft_rows; ++i) {
    const specula_stats& s = r.draft_stats[i];
    stats.push_back({s.log_z, s.shift, s.temperature, s.min_logit, s.point, static_cast<Status>(s.status)});
  }
  const std::int64_t stride = r.draft_stride ? r.draft_stride : r.vocab;
  const auto logits = [&]<class Other>(const Other*) {
    const arrays::LogitsDraft<Other> draft{static_cast<const Other*>(r.draft),
                                           stride,
                                           stats.empty() ? nullptr : stats.data(),
                                           r.draft_row,
                                           r.draft_scale,
                                           r.draft_rows};
    return call<Element>(r, most, draft, memory);
  };
  const auto* const floats = static_cast<const float*>(r.draft);
  switch (r.draft_form) {
    case SPECULA_CHOSEN:
      return call<Element>(r, most, arrays::ChosenDraft{}, memory);
    case SPECULA_PROBABILITIES:
      return call<Element>(
          r, most, arrays::ProbsDraft{floats, stride, r.draft_row, r.draft_scale, r.draft_rows}, memory);
    case SPECULA_FEW:
      return call<Element>(
          r, most,
          arrays::SparseDraft{r.draft_token, floats, r.few, r.draft_row, r.draft_scale, r.draft_rows},
          memory);
    default:
      break;
  }
  if (r.draft_type == SPECULA_HALF) return logits(static_cast<const arrays::Half*>(nullptr));
  if (r.draft_type == SPECULA_BFLOAT16) return logits(static_cast<const arrays::BFloat16*>(nullptr));
  return logits(static_cast<const float*>(nullptr));
}
Results by_cpp(CRound& round, BatchMemory& memory) {
  const specula_round r = round.round();
  std::int32_t most = 1;
  for (std::int32_t b = 0; b < r.sequences; ++b) most = std::max(most, r.begin[b + 1] - r.begin[b]);
  const int failed = r.target_type == SPECULA_HALF       ? call<arrays::Half>(r, most, memory)
                     : r.target_type == SPECULA_BFLOAT16 ? call<arrays::BFloat16>(r, most, memory)
                                                         : call<float>(r, most, memory);
  Results out = results_of(round, failed);
  for (std::size_t b = 0; b < out.message.size(); ++b) {
    std::string_view text = memory.message(static_cast<std::int32_t>(b));
    if (!text.empty()) text.remove_prefix(std::string_view("verify_batch: ").size());
    out.message[b] = text;
  }
  return out;
}

}  // namespace

TEST_CASE("10,000 random rounds have the bits of verify_batch()") {
  Random random(1);
  BatchMemory memory;
  std::array<int, 10> statuses{};
  std::array<int, 6> rules{};
  std::array<int, 4> forms{};
  int differ = 0, accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    CRound round = random_round(random);
    const Results want = by_cpp(round, memory), got = by_c(round);
    differ += !(got == want);
    for (const std::int32_t status : got.status) ++statuses[static_cast<std::size_t>(status)];
    for (const std::int32_t count : got.count) accepted += std::max(0, count - 1);
    ++rules[static_cast<std::size_t>(round.fields.rule)],
        ++forms[static_cast<std::size_t>(round.fields.draft_form)];
    const std::string first = [&] {
      for (const std::string& text : got.message)
        if (!text.empty()) return text;
      return std::string();
    }();
    CHECK(specula_error() == first);
  }
  CHECK(differ == 0);
  CHECK(accepted > 3000);
  for (const int n : rules) CHECK(n > 1000);
  for (const int n : forms) CHECK(n > 1000);
  for (const int status : {SPECULA_OK, SPECULA_NOT_A_NUMBER, SPECULA_EMPTY_ROW, SPECULA_BAD_PARAMETERS,
                           SPECULA_BAD_TREE, SPECULA_BAD_DRAFT_ROW, SPECULA_BAD_DRAFT_SUM})
    CHECK(statuses[static_cast<std::size_t>(status)] > 10);
}
