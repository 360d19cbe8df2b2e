// SPDX-License-Identifier: MIT
// Random rounds of specula.h: all rules, forms of q and types of elements, ragged batches with empty slots,
// padding, rows that are neither contiguous nor in order, and some damage.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <specula.h>
#include <specula/base/half.hpp>
#include <specula/base/rows.hpp>

#include "random.hpp"

namespace specula_test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows of logits of any type, of 4 bytes per element, so that no damaged type reads beyond them.
struct LogitRows {
  std::int32_t type = 0, vocab = 0;
  std::int64_t rows = 0, stride = 0;  // a negative stride: the first row is the last in memory
  std::vector<unsigned char> bytes;

  LogitRows() = default;
  LogitRows(Random& random, std::int32_t kind, std::int64_t count, std::int32_t width)
      : type(kind), vocab(width), rows(count), stride(width + (random.bernoulli(0.3) ? random.below(4) : 0)) {
    bytes.assign(static_cast<std::size_t>(rows * stride) * 4, 0xff);  // NaN between the rows
    if (random.bernoulli(0.1)) stride = -stride;
    const double spread = random.between(0.5, 6);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int32_t x = 0; x < vocab; ++x)
        set(r, x,
            random.bernoulli(0.05) && x > 0 ? -kInfinity
                                            : static_cast<float>(random.between(-spread, spread)));
  }
  std::int64_t first() const { return stride < 0 ? -stride * (rows - 1) : 0; }
  const unsigned char* data() const { return bytes.data() + first() * size(); }
  std::int64_t size() const { return type == SPECULA_FLOAT ? 4 : 2; }
  void set(std::int64_t row, std::int32_t token, float logit) {
    unsigned char* const at = bytes.data() + (first() + row * stride + token) * size();
    std::uint32_t bits = 0;
    std::memcpy(&bits, &logit, 4);
    const std::uint16_t half =
        type == SPECULA_HALF ? specula::detail::round_to_half(logit) : static_cast<std::uint16_t>(bits >> 16);
    if (type == SPECULA_FLOAT)
      std::memcpy(at, &logit, 4);
    else
      std::memcpy(at, &half, 2);
  }
};

/// A specula_round with its arrays; empty ones are null.
struct CRound {
  specula_round fields{};
  std::vector<std::int32_t> begin{0}, token, position, target_row, parent, top_k, draft_row, draft_token;
  std::vector<std::uint64_t> seed;
  std::vector<std::uint32_t> sequence;
  std::vector<float> temperature, top_p, min_p, probs;
  std::vector<double> draft_scale;
  std::vector<specula_stats> draft_stats;
  LogitRows target, draft;
  std::vector<std::int32_t> out_token, out_accepted, out_count, out_status;
  std::vector<float> out_log_prob;
  bool wants_logs = false;

  /// The struct as a caller has it.
  specula_round round() {
    const auto at = [](auto& array) { return array.empty() ? nullptr : array.data(); };
    specula_round r = fields;
    r.struct_size = sizeof(r);
    r.begin = begin.data(), r.token = at(token), r.position = at(position), r.seed = at(seed);
    r.target = target.data();
    r.target_row = at(target_row), r.parent = at(parent), r.sequence = at(sequence);
    r.temperature = at(temperature), r.top_k = at(top_k), r.top_p = at(top_p), r.min_p = at(min_p);
    if (r.draft_form != SPECULA_CHOSEN)
      r.draft = r.draft_form == SPECULA_LOGITS ? static_cast<const void*>(draft.data()) : probs.data();
    r.draft_row = at(draft_row), r.draft_scale = at(draft_scale), r.draft_stats = at(draft_stats);
    r.draft_token = at(draft_token);
    const auto cells = static_cast<std::size_t>(r.sequences) * static_cast<std::size_t>(r.width);
    out_token.assign(cells, 123), out_accepted.assign(cells, 123);
    out_count.assign(static_cast<std::size_t>(r.sequences), 123);
    out_status.assign(static_cast<std::size_t>(r.sequences), 123);
    out_log_prob.assign(wants_logs ? cells : 0, 123);
    r.out_token = out_token.data(), r.out_accepted = out_accepted.data();
    r.out_count = out_count.data(), r.out_status = out_status.data(), r.out_log_prob = at(out_log_prob);
    return r;
  }
};

namespace c_rounds {

inline void add_parameters(Random& random, CRound& round, std::int32_t count) {
  const auto maybe = [&](auto& array, double rate, auto value) {
    if (!random.bernoulli(rate)) return;
    for (std::int32_t b = 0; b < count; ++b)
      array.push_back(static_cast<typename std::decay_t<decltype(array)>::value_type>(value()));
  };
  maybe(round.temperature, 0.7, [&] { return random.bernoulli(0.1) ? 0 : random.between(0.3, 2); });
  maybe(round.top_k, 0.3, [&] { return random.below(6); });
  maybe(round.top_p, 0.3, [&] { return random.between(0.3, 1); });
  maybe(round.min_p, 0.3, [&] { return random.between(0, 0.2); });
  maybe(round.sequence, 0.5, [&] { return random.below(1000); });
}

/// A proposal of up to 6 nodes. Returns the nodes on its longest path.
inline std::int32_t add_proposal(Random& random, CRound& round, bool chains) {
  std::vector<std::int32_t> depth;
  std::int32_t deepest = 1;
  for (std::int32_t n = 0, size = 1 + random.below(6); n < size; ++n) {
    const std::int32_t parent = n == 0 ? -1 : chains || random.bernoulli(0.5) ? n - 1 : random.below(n);
    round.token.push_back(n > 0 && random.bernoulli(0.05) ? -1 : random.below(round.fields.vocab));
    depth.push_back(n == 0 ? 1 : depth[static_cast<std::size_t>(parent)] + 1);
    deepest = std::max(deepest, depth.back());
    if (!chains) round.parent.push_back(parent);
  }
  round.begin.push_back(static_cast<std::int32_t>(round.token.size()));
  return deepest;
}

/// q: all forms but SPECULA_CHOSEN.
inline void add_draft(Random& random, CRound& round) {
  specula_round& r = round.fields;
  std::int32_t roots = 0;
  for (std::int32_t b = 0; b < r.sequences; ++b)
    roots += round.begin[static_cast<std::size_t>(b)] < round.begin[static_cast<std::size_t>(b) + 1];
  const std::int32_t tokens = r.nodes - roots;
  r.draft_rows = std::max(1, tokens);
  if (random.bernoulli(0.6)) {
    r.draft_rows = 1 + random.below(std::max(1, tokens));
    for (std::int32_t n = 0; n < r.nodes; ++n)
      round.draft_row.push_back(random.below(static_cast<std::int32_t>(r.draft_rows) + 1) - 1);
  }
  if (random.bernoulli(0.4))
    for (std::int32_t n = 0; n < r.nodes; ++n)
      round.draft_scale.push_back(random.bernoulli(0.5) ? 0 : random.between(1, 2));
  if (r.draft_form == SPECULA_LOGITS) {
    round.draft = LogitRows(random, r.draft_type = random.below(3), r.draft_rows, r.vocab);
    r.draft_stride = round.draft.stride == r.vocab ? 0 : round.draft.stride;
    if (random.bernoulli(0.6)) return;
    round.draft_stats.resize(static_cast<std::size_t>(r.draft_rows));
    const std::vector<std::int32_t> zero(static_cast<std::size_t>(r.draft_rows), 0);
    const std::vector<std::uint64_t> seed(zero.begin(), zero.end());
    std::vector<float> temperature;
    for (std::int64_t i = 0; i < r.draft_rows; ++i)
      temperature.push_back(random.bernoulli(0.2) ? 0 : static_cast<float>(random.between(0.3, 2)));
    std::vector<std::int32_t> out(zero), status(zero);
    specula_draft draft{};
    draft.struct_size = sizeof(draft), draft.rows = static_cast<std::int32_t>(r.draft_rows), draft.draws = 1;
    draft.vocab = r.vocab, draft.type = r.draft_type, draft.logits = round.draft.data();
    draft.position = draft.origin = zero.data(), draft.seed = seed.data(), draft.stride = r.draft_stride;
    draft.temperature = temperature.data(), draft.out_token = out.data(), draft.out_status = status.data();
    draft.out_stats = round.draft_stats.data();
    specula_draw(&draft);
    return;
  }
  const bool few = r.draft_form == SPECULA_FEW;
  r.few = few ? 1 + random.below(std::min(r.vocab, 4)) : 0;
  const std::int32_t width = few ? r.few : r.vocab;
  const std::int32_t gap = few ? 0 : random.below(2);
  for (std::int64_t i = 0; i < r.draft_rows; ++i) {
    std::vector<double> row;
    for (std::int32_t x = 0; x < width; ++x) row.push_back(std::exp(random.between(-3, 3)));
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (const double w : row) round.probs.push_back(static_cast<float>(w / sum));
    round.probs.resize(round.probs.size() + static_cast<std::size_t>(gap), -1.0f);
    for (std::int32_t x = 0, token = random.below(r.vocab); x < r.few; ++x, token = (token + 1) % r.vocab)
      round.draft_token.push_back(token);
  }
  r.draft_stride = gap == 0 ? 0 : width + gap;
}

/// Something that one sequence alone, if any, is not verified for.
inline void damage(Random& random, CRound& round) {
  specula_round& r = round.fields;
  const auto any = [&](auto& array) -> auto& {
    return array[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(array.size())))];
  };
  const auto row = random.below(static_cast<std::int32_t>(r.target_rows));
  switch (random.below(8)) {
    case 0:
      round.target.set(row, random.below(r.vocab), std::numeric_limits<float>::quiet_NaN());
      break;
    case 1:
      for (std::int32_t x = 0; x < r.vocab; ++x) round.target.set(row, x, -kInfinity);
      break;
    case 2:
      any(round.token) = r.vocab;
      break;
    case 3:
      if (!round.temperature.empty()) any(round.temperature) = -1;
      break;
    case 4:
      if (!round.draft_row.empty()) any(round.draft_row) = static_cast<std::int32_t>(r.draft_rows);
      break;
    case 5:
      if (!round.probs.empty()) any(round.probs) += 0.5f;
      break;
    case 6:
      if (!round.parent.empty()) any(round.parent) = 5;
      break;
    default:
      any(round.position) = std::numeric_limits<std::int32_t>::max();
      break;
  }
}

}  // namespace c_rounds

inline CRound random_round(Random& random) {
  CRound round;
  specula_round& r = round.fields;
  const std::int32_t vocabs[] = {2, 3, 7, 20, 40, 520};
  r.vocab = vocabs[random.bernoulli(0.03) ? 5 : random.below(5)];
  r.sequences = 1 + random.below(4);
  r.rule = random.below(6);
  r.width = 1;
  const bool chains = random.bernoulli(0.4);
  for (std::int32_t b = 0; b < r.sequences; ++b) {
    round.position.push_back(random.below(100));
    round.seed.push_back(random.bits());
    if (random.bernoulli(0.12) && (b + 1 < r.sequences || !round.token.empty()))
      round.begin.push_back(round.begin.back());
    else
      r.width = std::max(r.width, c_rounds::add_proposal(random, round, chains));
  }
  r.nodes = static_cast<std::int32_t>(round.token.size());
  r.width += random.below(2);
  r.target_rows = r.nodes;
  if (random.bernoulli(0.4)) {
    r.target_rows = 1 + random.below(r.nodes + 2);
    for (std::int32_t n = 0; n < r.nodes; ++n)
      round.target_row.push_back(random.below(static_cast<std::int32_t>(r.target_rows)));
  }
  r.target_type = random.below(3);
  round.target = LogitRows(random, r.target_type, r.target_rows, r.vocab);
  r.target_stride = round.target.stride == r.vocab ? 0 : round.target.stride;
  c_rounds::add_parameters(random, round, r.sequences);
  r.draft_form = random.below(4);
  if (r.draft_form != SPECULA_CHOSEN) c_rounds::add_draft(random, round);
  round.wants_logs = random.bernoulli(0.5);
  if (random.bernoulli(0.15)) c_rounds::damage(random, round);
  return round;
}

/// Rows of a draft, and what was drawn from them.
struct Draws {
  LogitRows logits;
  std::vector<std::int32_t> position, origin, first, token, status;
  std::vector<std::uint64_t> seed;
  std::vector<std::uint32_t> sequence;
  std::vector<float> temperature, prob;
  std::vector<double> scale;
  std::vector<specula_stats> stats;
  specula_draft fields{};

  Draws(Random& random, std::int32_t type, std::int32_t rows, std::int32_t draws, std::int32_t vocab)
      : logits(random, type, rows, vocab) {
    const auto count = static_cast<std::size_t>(rows), cells = count * static_cast<std::size_t>(draws);
    for (std::int32_t r = 0; r < rows; ++r) {
      origin.push_back(random.below(50));
      position.push_back(origin.back() + random.below(4));
      first.push_back(1 + random.below(9));
      seed.push_back(random.bits());
      sequence.push_back(static_cast<std::uint32_t>(random.below(100)));
      temperature.push_back(random.bernoulli(0.1) ? 0 : static_cast<float>(random.between(0.3, 2)));
    }
    token.assign(cells, 99), prob.assign(cells, 99), scale.assign(cells, 99), status.assign(count, 99);
    stats.resize(count);
    fields.struct_size = sizeof(fields), fields.rows = rows, fields.draws = draws, fields.vocab = vocab;
    fields.type = type, fields.logits = logits.data(), fields.stride = logits.stride;
    fields.position = position.data(), fields.origin = origin.data(), fields.first = first.data();
    fields.seed = seed.data(), fields.sequence = sequence.data(), fields.temperature = temperature.data();
    fields.out_token = token.data(), fields.out_status = status.data(), fields.out_prob = prob.data();
    fields.out_scale = scale.data(), fields.out_stats = stats.data();
  }
  /// Row r as floats.
  std::vector<float> row(std::int32_t r) const {
    std::vector<float> out;
    for (std::int32_t x = 0; x < fields.vocab; ++x)
      out.push_back(specula::RowPointer(
          logits.data(), logits.type == SPECULA_HALF ? specula::RowFormat::half
                         : logits.type == SPECULA_BFLOAT16
                             ? specula::RowFormat::bfloat16
                             : specula::RowFormat::full)[static_cast<specula::Token>(r * logits.stride + x)]);
    return out;
  }
};

/// A round of three sequences (2, 0 and 3 nodes) that is right.
inline CRound small_round() {
  CRound round;
  specula_round& r = round.fields;
  r.vocab = 4, r.sequences = 3, r.nodes = 5, r.width = 3, r.target_rows = 5;
  round.begin = {0, 2, 2, 5}, round.token = {1, 2, 3, 0, 1}, round.position = {4, 0, 9},
  round.seed = {1, 2, 3};
  Random random(4);
  round.target = LogitRows(random, SPECULA_FLOAT, 5, 4);
  r.target_stride = round.target.stride;
  r.draft_form = SPECULA_PROBABILITIES, r.draft_rows = 3;
  round.probs.assign(12, 0.25f);
  return round;
}

/// A copy in memory of its own, so that the address sanitizer knows its end.
template <class Struct>
struct Apart {
  explicit Apart(const Struct& from, std::size_t bytes) : memory(new unsigned char[bytes]) {
    std::memcpy(memory.get(), &from, std::min(bytes, sizeof(from)));
  }
  const Struct* get() const { return reinterpret_cast<const Struct*>(memory.get()); }

  std::unique_ptr<unsigned char[]> memory;
};

/// Whether nothing was written since round().
inline bool untouched(const CRound& round) {
  const auto all = [](const std::vector<std::int32_t>& array) {
    return std::all_of(array.begin(), array.end(), [](std::int32_t x) { return x == 123; });
  };
  return all(round.out_token) && all(round.out_accepted) && all(round.out_count) && all(round.out_status);
}

}  // namespace specula_test
