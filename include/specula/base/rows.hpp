// SPDX-License-Identifier: MIT
// Basic types: tokens, nodes, rows of logits, distributions, the result of a verification, sizes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "specula/base/compiler_options.hpp"
#include "specula/base/half.hpp"
#include "specula/base/tokens.hpp"

namespace specula {

using Tokens = std::span<const Token>;  ///< tokens in the order of the text or of nodes; not owned
using Nodes = std::span<const NodeId>;  ///< node ids; not owned

/// Rows of logits as a model returns them: `rows` rows of `vocab` floats, `stride` floats apart. Not owned;
/// valid until the next call that changes the model. Rows of 16 bits, or of probabilities: verify_batch().
struct LogitsView {
  const float* data = nullptr;  ///< (rows, vocab), row-major
  std::int32_t rows = 0;        ///< number of rows
  std::int32_t vocab = 0;       ///< logits per row
  std::ptrdiff_t stride = 0;    ///< in floats, 64 bits: row offsets never wrap

  /// Row `index`, (vocab); requires 0 <= index < rows.
  std::span<const float> row(std::int32_t index) const {
    return {data + index * stride, static_cast<std::size_t>(vocab)};
  }
  /// The rows [first, first + count); requires that there are as many.
  LogitsView part(std::int32_t first, std::int32_t count) const {
    return {data + first * stride, count, vocab, stride};
  }
};

/// Draft tokens of a drafter without rows (n-grams): one token per node, kNoToken where it has none.
struct PointMasses {
  Tokens tokens;                            ///< one per node
  std::span<const float> confidences = {};  ///< confidence in each token, in [0, 1]; empty: certain

  /// Confidence in the token of `node`.
  float confidence(std::size_t node) const { return confidences.empty() ? 1.0f : confidences[node]; }
};

/// A token of a row with its softmax probability at temperature 1, the draft's confidence in it.
struct Top {
  Token token = kNoToken;  ///< the token
  double prob = 0;         ///< its probability
};

/// How the numbers of a row are stored. All but `full` come from verify_batch() alone.
enum class RowFormat : std::uint8_t {
  full,           ///< logits as floats
  half,           ///< logits as IEEE binary16
  bfloat16,       ///< logits as the upper halves of floats
  probabilities,  ///< no logits: float probabilities
  sparse          ///< no logits: a SparseRow
};

/// A few tokens with their probabilities, a token at most once; all others have probability 0.
struct SparseRow {
  const Token* token = nullptr;  ///< (k), negative: padding
  const float* prob = nullptr;   ///< (k)
  std::int32_t k = 0;            ///< tokens

  /// Cost: k comparisons.
  float operator()(Token asked) const {
    for (std::int32_t i = 0; i < k; ++i)
      if (token[i] == asked) return prob[i];
    return 0;
  }
};

/// Where a row is, and how it is stored. Not owned. A pointer to floats converts: they are logits.
struct RowPointer {
  const void* data = nullptr;          ///< null: no row
  RowFormat format = RowFormat::full;  ///< of the numbers there

  RowPointer() = default;
  /// Of floats that are logits.
  RowPointer(const float* logits) : data(logits) {}
  /// Of numbers stored in this way.
  RowPointer(const void* numbers, RowFormat stored) : data(numbers), format(stored) {}

  /// The same place and format.
  friend bool operator==(const RowPointer&, const RowPointer&) = default;
  explicit operator bool() const { return data != nullptr; }  ///< whether there is a row
  /// Whether the row holds logits, not probabilities.
  bool has_logits() const { return format <= RowFormat::bfloat16; }
  /// The row's floats. Requires a format of floats.
  const float* floats() const { return static_cast<const float*>(data); }
  /// The place `numbers` numbers further on. Requires a row that is not sparse.
  RowPointer operator+(std::ptrdiff_t numbers) const {
    const std::ptrdiff_t bytes = format == RowFormat::half || format == RowFormat::bfloat16 ? 2 : 4;
    return {static_cast<const char*>(data) + bytes * numbers, format};
  }
  /// The logit of `token`, or where the row has none its probability. Cost: one read; of a sparse row k.
  float operator[](Token token) const {
    switch (format) {
      case RowFormat::full:
      case RowFormat::probabilities:
        return floats()[token];
      case RowFormat::half:
        return detail::half_to_float(static_cast<const std::uint16_t*>(data)[token]);
      case RowFormat::bfloat16:
        return detail::bfloat16_to_float(static_cast<const std::uint16_t*>(data)[token]);
      case RowFormat::sparse:
        break;
    }
    return (*static_cast<const SparseRow*>(data))(token);
  }
};

/// A probability distribution over the next token: scalars over a row of raw logits, or a point mass.
///
///   distribution(x) = 0 where logits[x] < min_logit, else exp(inv_t * (logits[x] - shift) - log_z)
///
/// It covers temperature, top-k, top-p and min-p. A row of log-probabilities has inv_t 1, shift 0, log_z 0; a
/// row of probabilities is the distribution itself; a point mass has its token in `point`. Otherwise `shift`
/// is the row's largest logit, so that log_z is in [0, log V]: a log_z of the raw logits would lose the
/// digits that distinguish tokens (1e18 + log 2 is 1e18). log_z is a double: the 1e-6 error of a float would
/// be amplified by a residual.
struct Distribution {
  RowPointer logits;  ///< (V); null for a point mass
  double inv_t = 1;   ///< 1 / temperature
  double log_z = 0;   ///< log of the normaliser, relative to `shift`
  float shift = 0;    ///< subtracted from every logit
  /// Truncation: tokens below it have probability 0.
  float min_logit = -std::numeric_limits<float>::infinity();
  Token point = kNoToken;  ///< of a point mass; else kNoToken

  /// All mass on `token`.
  static Distribution at(Token token) {
    Distribution distribution;
    distribution.point = token;
    return distribution;
  }
  /// The same scalars over the same row.
  friend bool operator==(const Distribution&, const Distribution&) = default;
  bool is_point() const { return point != kNoToken; }  ///< whether it is a point mass

  /// Probability of `token`. O(1); reads one logit.
  double operator()(Token token) const {
    if (is_point()) return token == point ? 1.0 : 0.0;
    const float logit = logits[token];
    if (!logits.has_logits()) return static_cast<double>(logit);
    return logit < min_logit ? 0.0 : std::exp(log_prob(logit));
  }
  /// Natural logarithm of the probability of a token with this logit, before truncation. Requires a
  /// distribution over a row of logits.
  double log_prob(float logit) const {
    return inv_t * (static_cast<double>(logit) - static_cast<double>(shift)) - log_z;
  }
};

/// The accepted path, root first, and the token that follows it. A round emits the tokens of
/// `accepted[1..]` and `next_token`.
struct VerifyResult {
  std::vector<NodeId> accepted;  ///< (accepted_count() + 1) node ids, accepted[0] == 0
  Token next_token = kNoToken;   ///< follows the path

  /// Number of accepted draft tokens.
  std::int32_t accepted_count() const { return static_cast<std::int32_t>(accepted.size()) - 1; }
  /// The root alone, and no next token.
  void clear() {
    accepted.assign(1, 0);
    next_token = kNoToken;
  }
};

/// How large the proposals of a shape get. Nodes are counted with the root.
struct NodeCounts {
  std::int32_t most = 1;        ///< of the largest proposal
  std::int32_t least = 2;       ///< of the smallest proposal that has a draft token
  std::int32_t drafted = most;  ///< that the drafter runs, at most

  /// Nodes that a draft's KV cache must hold beside the context.
  std::int32_t held() const { return most > drafted ? most : drafted; }
};

/// What the policies of a Speculator must have room for, at most.
struct Sizes {
  std::int32_t tokens = 0;  ///< of a text with its proposal, the last token excepted
  std::int32_t nodes = 1;   ///< of a proposal, root included
};

}  // namespace specula
