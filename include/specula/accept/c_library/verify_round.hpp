// SPDX-License-Identifier: MIT
// specula_verify() of specula.h: verify_batch() over its struct.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "specula.h"
#include "specula/accept/c_library/arguments.hpp"
#include "specula/accept/exact_rules.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/accept/verify_batch.hpp"
#include "specula/arrays/rows.hpp"
#include "specula/arrays/verification.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula::detail {

/// The numbers of specula_rule(), which programs may keep: new ones go to the end.
enum class CRule : std::int32_t { sampling, token, block, traversal, match, greedy };
inline constexpr std::array<std::string_view, 6> kCRules{"sampling",  "token", "block",
                                                         "traversal", "match", "greedy"};

/// The rules as one, so that verify_batch() is compiled once for all. The arrays of those that do not read q
/// are called with drafts that were chosen.
struct RuleByNumber {
  CRule number;

  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    switch (number) {
      case CRule::sampling:
        return Sampling{}.decide(tree, target, rng, out);
      case CRule::token:
        return Rejection{}.decide(tree, target, rng, out);
      case CRule::block:
        return Block{}.decide(tree, target, rng, out);
      case CRule::traversal:
        return Traversal{}.decide(tree, target, rng, out);
      case CRule::match:
        return SampleAndMatch{}.decide(tree, target, rng, out);
      case CRule::greedy:
        break;
    }
    Greedy{}.decide(tree, target, rng, out);
  }
};

/// Rows of logits of any type as one, for the same reason: in place of an element, where the rows are.
struct RowsOfType {
  RowPointer first;
};
inline RowPointer row_pointer(const RowsOfType* rows) { return rows->first; }

/// All forms of q as one type.
struct DraftByForm {
  specula_form form;
  RowPointer rows_at;
  std::int64_t stride;
  const specula_stats* stats;
  const Token* few_tokens;
  std::int32_t few;
  const std::int32_t* row_of_node;
  const double* scale;
  std::int64_t rows;
};
inline void expect_draft(const ArgumentChecks&, const DraftByForm&, std::int32_t) {}  // checked_draft() has
/// One row of logits with its statistics.
template <class Element>
Distribution draft_of(const RowPointer& at, const arrays::RowStats* stats, const SamplingParams& params,
                      RowScan& scan, SparseRow& few) {
  return draft_of(arrays::LogitsDraft<Element>{static_cast<const Element*>(at.data), 0, stats}, 0, params,
                  scan, few);
}
inline Distribution draft_of(const DraftByForm& draft, std::int64_t row, const SamplingParams& params,
                             RowScan& scan, SparseRow& few) {
  const RowPointer at = draft.rows_at + row * draft.stride;
  if (draft.form == SPECULA_PROBABILITIES)
    return draft_of(arrays::ProbsDraft{at.floats(), 0}, 0, params, scan, few);
  if (draft.form == SPECULA_FEW) {
    return draft_of(arrays::SparseDraft{draft.few_tokens + row * draft.few, at.floats(), draft.few}, 0,
                    params, scan, few);
  }
  arrays::RowStats stats{};
  if (draft.stats) {
    const specula_stats& given = draft.stats[row];
    stats = {given.log_z,     given.shift, given.temperature,
             given.min_logit, given.point, static_cast<Status>(given.status)};
  }
  const arrays::RowStats* const one = draft.stats ? &stats : nullptr;
  if (at.format == RowFormat::half) return draft_of<arrays::Half>(at, one, params, scan, few);
  if (at.format == RowFormat::bfloat16) return draft_of<arrays::BFloat16>(at, one, params, scan, few);
  return draft_of<float>(at, one, params, scan, few);
}

inline DraftByForm checked_draft(const specula_round& round, const CChecks& check) {
  check.in("draft_form", round.draft_form, SPECULA_CHOSEN, SPECULA_FEW);
  const auto form = static_cast<specula_form>(round.draft_form);
  if (form == SPECULA_CHOSEN) {
    if (round.draft) check.refuse("draft is given, but draft_form is SPECULA_CHOSEN");
    return {};
  }
  if (form != SPECULA_LOGITS && round.draft_type != SPECULA_FLOAT)
    check.refuse("draft_type is " + number(round.draft_type) + ", but probabilities are floats");
  check.array("draft", round.draft, check.type("draft_type", round.draft_type));
  check.in("draft_rows", round.draft_rows, 1, std::numeric_limits<std::int32_t>::max());
  check.optional("draft_row", round.draft_row);
  check.optional("draft_scale", round.draft_scale);
  std::int64_t stride = round.few;
  if (form == SPECULA_FEW) {
    check.array("draft_token", round.draft_token);
    check.in("few", round.few, 1, round.vocab);
    if (round.draft_stride != 0 && round.draft_stride != stride) {
      check.refuse("draft_stride is " + number(round.draft_stride) + ", must be few, which is " +
                   number(stride));
    }
  } else {
    check.optional("draft_stats", round.draft_stats);
    stride = check.row_stride("draft_stride", round.draft_stride, round.draft_rows, round.vocab);
  }
  return {form,
          c_rows(round.draft, round.draft_type),
          stride,
          form == SPECULA_LOGITS ? round.draft_stats : nullptr,
          round.draft_token,
          round.few,
          round.draft_row,
          round.draft_scale,
          round.draft_rows};
}

/// Checks what the nodes of sequence b name, as far as its tree is one: the others have a status of their
/// own.
inline void check_nodes(const specula_round& round, std::int32_t b, std::vector<std::int32_t>& nodes_to,
                        const CChecks& check) {
  const std::int32_t first = round.begin[b], size = round.begin[b + 1] - first;
  nodes_to.resize(std::max(nodes_to.size(), static_cast<std::size_t>(size)));
  for (NodeId n = 0; n < size; ++n) {
    const NodeId parent = round.parent ? round.parent[first + n] : n - 1;
    if (n == 0 ? parent != kNoParent : parent < 0 || parent >= n) return;
    std::int32_t& here = nodes_to[static_cast<std::size_t>(n)];
    here = n == 0 ? 1 : nodes_to[static_cast<std::size_t>(parent)] + 1;
    if (n > 0 && (round.token[first + n] < 0 || here == 1)) {  // padding, and what is below it
      here = 0;
      continue;
    }
    if (here > round.width) {
      check.refuse("width is " + number(round.width) + ", but sequence " + number(b) + " has a path of " +
                   number(here) + " nodes");
    }
    if (!round.target_row) continue;
    if (const std::int32_t row = round.target_row[first + n]; row < 0 || row >= round.target_rows) {
      check.refuse("target_row[" + number(first + n) + "] is " + number(row) + ", of node " + number(n) +
                   " of sequence " + number(b) + ", must be in [0, target_rows - 1], which is " +
                   number(round.target_rows - 1));
    }
  }
}

/// Checks the arrays of nodes. Returns how many the largest sequence has, at least 1.
inline std::int32_t check_trees(const specula_round& round, std::vector<std::int32_t>& nodes_to,
                                const CChecks& check) {
  check.array("begin", round.begin);
  check.array("token", round.token);
  check.array("position", round.position);
  check.array("seed", round.seed);
  check.optional("target_row", round.target_row);
  check.optional("parent", round.parent);
  check.optional("sequence", round.sequence);
  if (round.begin[0] != 0) check.refuse("begin[0] is " + number(round.begin[0]) + ", must be 0");
  std::int32_t most = 1;
  for (std::int32_t b = 0; b < round.sequences; ++b) {
    const std::int64_t end = round.begin[b + 1], size = end - round.begin[b];
    if (size < 0 || size > kMaxNodes || end > round.nodes) {
      check.refuse("begin[" + number(b + 1) + "] is " + number(end) + ", so that sequence " + number(b) +
                   " has " + number(size) + " of " + number(round.nodes) + " nodes");
    }
    most = std::max(most, static_cast<std::int32_t>(size));
  }
  if (round.begin[round.sequences] != round.nodes) {
    check.refuse("nodes is " + number(round.nodes) + ", but the last sequence ends at begin[" +
                 number(round.sequences) + "], which is " + number(round.begin[round.sequences]));
  }
  if (!round.target_row && round.target_rows < round.nodes) {
    check.refuse("target_rows is " + number(round.target_rows) + ", but there are " + number(round.nodes) +
                 " nodes, and target_row is null");
  }
  for (std::int32_t b = 0; b < round.sequences; ++b) check_nodes(round, b, nodes_to, check);
  return most;
}

/// Returns how many sequences failed.
inline std::int32_t verify_round(const specula_round* given, CThread& thread) {
  const CChecks check{{"specula_verify"}};
  const specula_round round = check.known(given, offsetof(specula_round, rule));
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  check.in("sequences", round.sequences, 1, most - 1);
  check.in("nodes", round.nodes, 0, most);
  check.in("vocab", round.vocab, 1, most);
  check.in("width", round.width, 1, kMaxNodes);
  check.in("target_rows", round.target_rows, 0, most);
  check.in("rule", round.rule, 0, static_cast<std::int64_t>(kCRules.size()) - 1);
  check.in("reserved", round.reserved, 0, 0);
  check.array("target", round.target, check.type("target_type", round.target_type));
  const std::int64_t stride =
      check.row_stride("target_stride", round.target_stride, round.target_rows, round.vocab);
  const arrays::ParamArrays params = c_params(round, check);
  check.array("out_token", round.out_token);
  check.array("out_accepted", round.out_accepted);
  check.array("out_count", round.out_count);
  check.array("out_status", round.out_status);
  check.optional("out_log_prob", round.out_log_prob);
  const DraftByForm draft = checked_draft(round, check);
  const std::int32_t max_nodes = check_trees(round, thread.nodes_to, check);

  const RuleByNumber rule{static_cast<CRule>(round.rule)};
  const arrays::VerifyCapacity capacity{round.sequences, max_nodes, round.width - 1, round.vocab};
  const arrays::Trees trees{round.begin,    round.token, round.parent,
                            round.position, round.seed,  round.sequence};
  const arrays::VerifyResults results{round.out_token, round.out_accepted, round.out_count,
                                      reinterpret_cast<Status*>(round.out_status), round.out_log_prob};
  thread.sequences = round.sequences;
  const RowsOfType rows{c_rows(round.target, round.target_type)};
  const arrays::TargetRows<RowsOfType> target{&rows, stride, round.target_row, params};
  const bool reads_draft = rule.number != CRule::match && rule.number != CRule::greedy;
  if (!reads_draft || draft.form == SPECULA_CHOSEN)
    return verify_batch(rule, capacity, trees, target, arrays::ChosenDraft{}, results, thread.memory);
  return verify_batch(rule, capacity, trees, target, draft, results, thread.memory);
}

}  // namespace specula::detail
