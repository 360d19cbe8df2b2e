// SPDX-License-Identifier: MIT
// specula_draw() of specula.h: draft tokens from rows of logits that an engine holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "specula.h"
#include "specula/accept/c_library/arguments.hpp"
#include "specula/arrays/rows.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/random_key.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/distinct_weights.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/distribution/row_math.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula::detail {

/// The tokens of a row as the children of a node, for DistinctWeights.
struct DrawnTokens {
  const std::int32_t* tokens;
  std::int32_t count;

  Token token(NodeId child) const { return tokens[child]; }
  template <class Visit>
  void children(NodeId, Visit visit) const {
    for (NodeId c = 0; c < count; ++c)
      if (!visit(c)) return;
  }
  bool has_child(NodeId, Token token) const {
    return std::find(tokens, tokens + count, token) != tokens + count;
  }
};

/// The results of a row, of n draws.
struct DrawnRow {
  std::int32_t* token;
  float* prob;
  double* scale;
  specula_stats* stats;

  void clear(std::int32_t n, Status status) const {
    std::fill_n(token, n, kNoToken);
    if (prob) std::fill_n(prob, n, 0.0f);
    if (scale) std::fill_n(scale, n, 0.0);
    if (stats) *stats = {0, 0, 1, 0, kNoToken, static_cast<std::int32_t>(status), 0};
  }
  void put(std::int32_t i, const Distribution& distribution, Token drawn, double token_scale) const {
    token[i] = drawn;
    if (prob) prob[i] = static_cast<float>(distribution(drawn));
    if (scale) scale[i] = token_scale;
  }
};

/// The draws of one row, at the keys that a ProposalBuilder has for nodes of these numbers, if all are drawn.
inline void draw_row(const specula_draft& draft, std::int32_t r, const SamplingParams& params,
                     const RowPointer& at, CThread& thread, const DrawnRow& out) {
  const std::int32_t position = draft.position[r], origin = draft.origin[r];
  const auto fail = [](const char* name, std::int64_t value, const std::string& range) {
    throw StatusError(Status::bad_tree, std::string(name) + " is " + number(value) + ", must be " + range);
  };
  if (position == std::numeric_limits<std::int32_t>::max()) fail("position", position, "smaller");
  if (origin < 0 || origin > position)
    fail("origin", origin, "from 0 to position, which is " + number(position));
  const std::int32_t first = draft.first ? draft.first[r] : position - origin + 1;
  if (first < 1 || first > kMaxNodes - draft.draws)
    fail("first", first, "from 1 to " + number(kMaxNodes - draft.draws));

  const TokenWeights weights = thread.scan->weights(Row(at, draft.vocab), params, thread.masses);
  const Distribution& q = weights.distribution;
  if (out.stats) *out.stats = {q.log_z, q.shift, params.temperature, q.min_logit, q.point, SPECULA_OK, 0};
  if (q.is_point()) {
    for (std::int32_t i = 0; i < (draft.distinct ? 1 : draft.draws); ++i) out.put(i, q, q.point, 0);
    return;
  }
  PhiloxRandom random(draft.seed[r], draft.sequence ? draft.sequence[r] : 0u);
  for (std::int32_t i = 0; i < draft.draws; ++i) {
    const RandomKey key{position + 1, origin, RandomStream::draft, static_cast<std::uint32_t>(first + i - 1)};
    if (!draft.distinct) {
      out.put(i, q, random.draw(weights, key), 0);
      continue;
    }
    const DrawnTokens drawn{out.token, i};
    const DistinctWeights others(drawn, 0, weights, thread.left);
    if (!(others.total() > 0)) return;
    out.put(i, q, random.draw(others, key), 1 / others.total());
  }
}

/// Returns how many rows failed.
inline std::int32_t draw_rows(const specula_draft* given, CThread& thread) {
  const CChecks check{{"specula_draw"}};
  const specula_draft draft = check.known(given, offsetof(specula_draft, stride));
  check.in("rows", draft.rows, 1, std::numeric_limits<std::int32_t>::max());
  check.in("draws", draft.draws, 1, kMaxNodes - 1);
  check.in("vocab", draft.vocab, 1, std::numeric_limits<std::int32_t>::max());
  check.in("distinct", draft.distinct, 0, 1);
  check.in("reserved", draft.reserved, 0, 0);
  check.array("logits", draft.logits, check.type("type", draft.type));
  const std::int64_t stride = check.row_stride("stride", draft.stride, draft.rows, draft.vocab);
  check.array("position", draft.position);
  check.array("origin", draft.origin);
  check.array("seed", draft.seed);
  check.array("out_token", draft.out_token);
  check.array("out_status", draft.out_status);
  check.optional("first", draft.first);
  check.optional("sequence", draft.sequence);
  const arrays::ParamArrays params = c_params(draft, check);
  check.optional("out_prob", draft.out_prob);
  check.optional("out_scale", draft.out_scale);
  check.optional("out_stats", draft.out_stats);

  const auto tiles = static_cast<std::size_t>(tile_count(draft.vocab));
  if (!thread.scan || thread.scan->vocab() != draft.vocab)
    thread.scan = std::make_unique<RowScan>(draft.vocab);
  thread.masses.resize(tiles);
  thread.left.resize(tiles);
  if (thread.row_messages.size() < static_cast<std::size_t>(draft.rows))
    thread.row_messages.resize(static_cast<std::size_t>(draft.rows));
  thread.rows = draft.rows;

  std::int32_t failed = 0;
  for (std::int32_t r = 0; r < draft.rows; ++r) {
    const std::ptrdiff_t cell = std::ptrdiff_t{r} * draft.draws;
    const DrawnRow out{draft.out_token + cell, draft.out_prob ? draft.out_prob + cell : nullptr,
                       draft.out_scale ? draft.out_scale + cell : nullptr,
                       draft.out_stats ? draft.out_stats + r : nullptr};
    out.clear(draft.draws, Status::bad_draft_row);
    draft.out_status[r] = SPECULA_OK;
    std::string& message = thread.row_messages[static_cast<std::size_t>(r)];
    message.clear();
    if (draft.position[r] < 0) continue;
    const auto fail = [&](Status status, const std::exception& e) {
      message = "row " + number(r) + ": " + e.what();
      out.clear(draft.draws, status);
      draft.out_status[r] = static_cast<std::int32_t>(status);
      ++failed;
    };
    try {
      draw_row(draft, r, valid_params(params, r), c_rows(draft.logits, draft.type) + r * stride, thread, out);
    } catch (const StatusError& e) {
      fail(e.status(), e);
    } catch (const std::runtime_error& e) {  // no token can be drawn
      fail(Status::empty_row, e);
    }
  }
  return failed;
}

}  // namespace specula::detail
