// SPDX-License-Identifier: MIT
// Verification of a ragged batch of proposals that an engine keeps in arrays of its own: the acceptance rules
// for engines with a decoding loop of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "specula/accept/batch_arguments.hpp"
#include "specula/accept/exact_rules.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/arrays/verification.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

class BatchMemory;

namespace detail {

/// A proposal out of arrays. Nodes keep their numbers, since uniform draws are named by them.
class ArrayTree : public TokenTree {
 public:
  ArrayTree(std::int32_t vocab, std::int32_t max_nodes) : TokenTree(vocab, max_nodes) {}

  void reset(Token root, std::int32_t position) { begin(root, position, capacity()); }
  /// Padding: a node that is no child.
  void skip() { push(kNoToken, kNoParent, {}); }
  /// A draft token with its q; `scale` above 0: drawn without replacement.
  void add(NodeId parent, Token token, const Distribution& draft, double scale) {
    const bool distinct = scale > 0;
    const Kind kind = draft.is_point() ? Kind::chosen : distinct ? Kind::distinct : Kind::drawn;
    count(kind, 1);
    push(token, parent, {.distribution = draft, .scale = distinct ? scale : 1.0, .kind = kind});
  }
};

inline RowPointer row_pointer(const float* row) { return row; }
inline RowPointer row_pointer(const arrays::Half* row) { return {row, RowFormat::half}; }
inline RowPointer row_pointer(const arrays::BFloat16* row) { return {row, RowFormat::bfloat16}; }

template <class Rule, class Element, class Draft, class RngOf>
std::int32_t verify_each(const Rule& rule, const BatchArguments<Element, Draft>& args, BatchMemory& memory,
                         RngOf rng_of);

}  // namespace detail

/// Memory of verify_batch(), of one thread. It grows with the calls: O(V / 512 + max_nodes) bytes, 4 V more
/// at the first top-k or top-p, and a text for each sequence that failed.
class BatchMemory {
 public:
  BatchMemory() = default;

  /// Why a sequence of the last call was not verified; empty if it was. Names the argument and the sequence.
  std::string_view message(std::int32_t sequence) const {
    const auto at = static_cast<std::size_t>(sequence);
    return at < messages_.size() ? messages_[at] : std::string_view();
  }

 private:
  template <class Rule, class Element, class Draft, class RngOf>
  friend std::int32_t detail::verify_each(const Rule&, const detail::BatchArguments<Element, Draft>&,
                                          BatchMemory&, RngOf);
  /// What depends on the sizes.
  struct Sized {
    detail::ArrayTree tree;
    VerifyWorkspace workspace;
    detail::RowScan scan;           // of draft rows without statistics
    std::vector<std::int64_t> row;  // (max_nodes) of the draft, by node; -1: none
    std::vector<SparseRow> sparse;  // (max_nodes)

    Sized(std::int32_t vocab, std::int32_t max_nodes)
        : tree(vocab, max_nodes),
          workspace(vocab, max_nodes),
          scan(vocab),
          row(static_cast<std::size_t>(max_nodes)),
          sparse(static_cast<std::size_t>(max_nodes)) {}
  };

  void fit(const arrays::VerifyCapacity& capacity) {
    if (!sized_ || sized_->tree.vocab() != capacity.vocab || sized_->tree.capacity() < capacity.max_nodes)
      sized_ = std::make_unique<Sized>(capacity.vocab, capacity.max_nodes);
    result_.accepted.reserve(static_cast<std::size_t>(capacity.max_nodes));
    if (messages_.size() < static_cast<std::size_t>(capacity.sequences))
      messages_.resize(static_cast<std::size_t>(capacity.sequences));
  }

  std::unique_ptr<Sized> sized_;
  VerifyResult result_;
  std::vector<std::string> messages_;  // (sequences)
};

namespace detail {

// q of a draft row that is no earlier sibling's. Throws StatusError for a row without a distribution.

template <class Element>
Distribution draft_of(const arrays::LogitsDraft<Element>& draft, std::int64_t row,
                      const SamplingParams& params, RowScan& scan, SparseRow&) {
  const RowPointer at = row_pointer(draft.logits + row * draft.stride);
  if (!draft.stats) return scan.distribution(Row(at, scan.vocab()), params);
  const arrays::RowStats& stats = draft.stats[row];
  if (stats.status != Status::ok) throw StatusError(stats.status, "draft.stats has a status that is not ok");
  if (stats.point < kNoToken || stats.point >= scan.vocab())
    throw StatusError(Status::bad_draft_row, "draft.stats has the point " + number(stats.point) +
                                                 ", outside the vocabulary of " + number(scan.vocab()));
  if (stats.point != kNoToken) return Distribution::at(stats.point);
  return {.logits = at,
          .inv_t = 1.0 / static_cast<double>(stats.temperature),
          .log_z = stats.log_z,
          .shift = stats.shift,
          .min_logit = stats.min_logit};
}
/// Throws unless the probabilities of a row add up to 1.
inline void expect_sum(double sum) {
  if (!(std::abs(sum - 1) < 1e-3))
    throw StatusError(
        std::isnan(sum) ? Status::not_a_number : Status::bad_draft_sum,
        "the probabilities add up to " + number(sum) +
            ", must be 1 within 0.001: give them as they were drawn from, renormalised as floats");
}
inline Distribution draft_of(const arrays::ProbsDraft& draft, std::int64_t row, const SamplingParams&,
                             RowScan& scan, SparseRow&) {
  const float* const probs = draft.probs + row * draft.stride;
  const std::int32_t whole = scan.vocab() / kTile;
  double sum = 0;
  for (std::int32_t t = 0; t < whole; ++t) sum += kernels().sum(probs + t * kTile);
  for (Token x = whole * kTile; x < scan.vocab(); ++x) sum += static_cast<double>(probs[x]);
  expect_sum(sum);
  return {.logits = {probs, RowFormat::probabilities}};
}
inline Distribution draft_of(const arrays::SparseDraft& draft, std::int64_t row, const SamplingParams&,
                             RowScan& scan, SparseRow& few) {
  few = {draft.token + row * draft.k, draft.prob + row * draft.k, draft.k};
  double sum = 0;
  for (std::int32_t i = 0; i < few.k; ++i)
    if (few.token[i] >= 0 && few.token[i] < scan.vocab()) sum += static_cast<double>(few.prob[i]);
  expect_sum(sum);
  return {.logits = {&few, RowFormat::sparse}};
}

[[noreturn]] inline void throw_bad_node(NodeId node, const std::string& what) {
  throw StatusError(Status::bad_tree, "node " + number(node) + ' ' + what);
}

/// Throws unless sequence b is a proper tree. A row is read of a proper one alone.
inline void expect_tree(const arrays::Trees& trees, std::int32_t b, const arrays::VerifyCapacity& capacity) {
  const std::int32_t first = trees.begin[b], size = trees.begin[b + 1] - first;
  if (trees.position[b] > std::numeric_limits<std::int32_t>::max() - capacity.max_nodes - 1)
    throw StatusError(Status::bad_tree,
                      "trees.position is " + number(trees.position[b]) + ", too large for its draft tokens");
  for (NodeId n = 0; n < size; ++n) {
    if (const Token token = trees.token[first + n]; token >= capacity.vocab)
      throw_bad_node(n,
                     "is token " + number(token) + ", outside the vocabulary of " + number(capacity.vocab));
    const NodeId parent = trees.parent ? trees.parent[first + n] : n - 1;
    if (n == 0 ? parent != kNoParent : parent < 0 || parent >= n)
      throw_bad_node(
          n, "has parent " + number(parent) + (n == 0 ? ", must be -1" : ", must be an earlier node"));
  }
}

/// Fills `sized`'s tree from the arrays of sequence b, whose `roots` are those of the batch before it.
template <bool reads_draft, class Element, class Draft, class Sized>
void read_proposal(const BatchArguments<Element, Draft>& args, std::int32_t b, std::int64_t roots,
                   const SamplingParams& params, Sized& sized) {
  const arrays::Trees& trees = args.trees;
  const std::int32_t first = trees.begin[b], size = trees.begin[b + 1] - first;
  expect_tree(trees, b, args.capacity);
  const auto expect_row = [&](NodeId n) {
    if (args.target.row_of_node && args.target.row_of_node[first + n] < 0)
      throw_bad_node(n, "has row " + number(args.target.row_of_node[first + n]) + " in target.row_of_node");
  };
  expect_row(0);
  sized.tree.reset(trees.token[first], trees.position[b]);
  for (NodeId n = 1; n < size; ++n) {
    const Token token = trees.token[first + n];
    const NodeId parent = trees.parent ? trees.parent[first + n] : n - 1;
    if (token < 0 || (parent > 0 && sized.tree.parent(parent) == kNoParent)) {
      sized.row[static_cast<std::size_t>(n)] = -1;
      sized.tree.skip();
      continue;
    }
    expect_row(n);
    Distribution q = Distribution::at(token);
    double scale = 0;
    if constexpr (reads_draft && !std::is_same_v<Draft, arrays::ChosenDraft>) {
      const std::int64_t row = args.draft.row_of_node ? args.draft.row_of_node[first + n] : first + n - roots;
      sized.row[static_cast<std::size_t>(n)] = row;
      if (args.draft.rows > 0 && row >= args.draft.rows)
        throw StatusError(Status::bad_draft_row, "node " + number(n) + " has row " + number(row) +
                                                     " of the draft, which has " + number(args.draft.rows));
      if (row >= 0) {
        NodeId same = kNoParent;  // an earlier child of the parent, drawn from the same row
        sized.tree.children(parent, [&](NodeId c) {
          if (sized.row[static_cast<std::size_t>(c)] == row) same = c;
          return same == kNoParent;
        });
        try {
          q = same != kNoParent
                  ? sized.tree.draft_distribution(same)
                  : draft_of(args.draft, row, params, sized.scan, sized.sparse[static_cast<std::size_t>(n)]);
        } catch (const StatusError& e) {
          throw StatusError(e.status(),
                            "row " + number(row) + " of the draft, of node " + number(n) + ": " + e.what());
        }
        if (args.draft.scale) scale = args.draft.scale[first + n];
      }
    }
    sized.tree.add(parent, token, q, scale);
  }
}

/// Verifies sequence b, and writes its results. Throws for one that is damaged.
template <class Rule, class Element, class Draft, class Sized, class Rng>
void verify_sequence(const Rule& rule, const BatchArguments<Element, Draft>& args, std::int32_t b,
                     std::int64_t roots, Rng rng, Sized& sized, VerifyResult& result) {
  // A rule that may judge draft tokens of the target's own noise does not read q.
  constexpr bool kReadsDraft = !Rule::lossless_for(ProposalKind::shared);
  const SamplingParams params = valid_params(args.target.params, b);
  const std::int32_t first = args.trees.begin[b], size = args.trees.begin[b + 1] - first;
  if (first < 0 || size < 0 || size > args.capacity.max_nodes)
    throw StatusError(Status::bad_tree, "trees.begin is " + number(first) + ", then " + number(first + size) +
                                            ": must be 0 to " + number(args.capacity.max_nodes) + " nodes");
  read_proposal<kReadsDraft>(args, b, roots, params, sized);
  const RowPointer logits = row_pointer(args.target.logits);
  const std::int32_t* const map = args.target.row_of_node;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(args.target.stride);
  const TargetDistributions target(NodeRows(map ? logits : logits + first * stride, size, args.capacity.vocab,
                                            stride, map ? map + first : nullptr),
                                   params, sized.workspace);
  rule.decide(sized.tree, target, rng, result);

  const std::vector<NodeId>& path = result.accepted;
  const auto count = static_cast<std::int32_t>(path.size());
  if (count > args.width())
    throw StatusError(Status::bad_tree, "a path of " + number(count) + " nodes, capacity.max_depth is " +
                                            number(args.capacity.max_depth));
  const std::ptrdiff_t cell = std::ptrdiff_t{b} * args.width();
  for (std::int32_t i = 0; i < count; ++i) {
    const NodeId node = path[static_cast<std::size_t>(i)];
    const Token token =
        i + 1 < count ? sized.tree.token(path[static_cast<std::size_t>(i) + 1]) : result.next_token;
    args.out.accepted[cell + i] = node;
    args.out.token[cell + i] = token;
    const NodeState& state = target.node_states()[node];
    if (args.out.log_prob && state.has_distribution)
      args.out.log_prob[cell + i] = static_cast<float>(log_prob(state.distribution, token));
  }
  args.out.count[b] = count;
}

/// The results of sequence b before it is verified.
inline void clear_results(const arrays::VerifyResults& out, std::int32_t b, std::int32_t width) {
  const std::ptrdiff_t cell = std::ptrdiff_t{b} * width;
  for (std::int32_t i = 0; i < width; ++i) {
    out.token[cell + i] = kNoToken;
    out.accepted[cell + i] = kNoParent;
    if (out.log_prob) out.log_prob[cell + i] = 0;
  }
  out.count[b] = 0;
  out.status[b] = Status::ok;
}

template <class Rule, class Element, class Draft, class RngOf>
std::int32_t verify_each(const Rule& rule, const BatchArguments<Element, Draft>& args, BatchMemory& memory,
                         RngOf rng_of) {
  expect_arguments(args);
  memory.fit(args.capacity);
  std::int64_t roots = 0;
  std::int32_t failed = 0;
  for (std::int32_t b = 0; b < args.sequences(); ++b) {
    clear_results(args.out, b, args.width());
    std::string& message = memory.messages_[static_cast<std::size_t>(b)];
    message.clear();
    if (args.trees.begin[b] == args.trees.begin[b + 1]) continue;
    ++roots;
    const auto fail = [&](Status status, const std::exception& e) {
      args.out.status[b] = status;
      message = "verify_batch: sequence " + std::to_string(b) + ": " + e.what();
      ++failed;
    };
    try {
      verify_sequence(rule, args, b, roots, rng_of(b), *memory.sized_, memory.result_);
    } catch (const StatusError& e) {
      fail(e.status(), e);
    } catch (const std::invalid_argument& e) {  // a proposal that the rule does not take
      fail(Status::bad_tree, e);
    } catch (const std::runtime_error& e) {  // no token can be drawn
      fail(Status::empty_row, e);
    }
  }
  return failed;
}

}  // namespace detail

/// Verifies the proposals of up to capacity.sequences texts by `rule` (Greedy, SampleAndMatch, Rejection,
/// Traversal, Block, Sampling), on the calling thread: for an engine with a loop, rows and a sampler of its
/// own. Arrays in host memory; each sequence draws as PhiloxRandom{seed[b], sequence[b]} does, at the keys of
/// TokenTree, so that tokens, paths and statuses are those of the CUDA kernels over the same arrays.
///
/// p is the softmax of the target's row under target.params[b]; q of a row of logits with its `stats`, or
/// under the same parameters where there are none. A caller that truncates rows or applies penalties does so
/// once, in p and q alike: as parameters or in the rows, never both. q must be what the token was drawn from:
/// to the last bit of its own format, not a rounded copy. (position, seed, sequence) must never repeat in a
/// text.
///
/// Returns how many sequences were not verified; each has its Status, and a message in `memory`. Nothing is
/// emitted for them; the others are not affected. `results` are written for the live sequences alone.
/// @code
/// specula::BatchMemory memory;  // one per thread, kept
/// specula::verify_batch(specula::Traversal{}, {sequences, max_nodes, max_depth, vocab}, trees,
///                       specula::arrays::TargetRows<specula::arrays::BFloat16>{logits, vocab},
///                       specula::arrays::ProbsDraft{probs, vocab}, results, memory);
/// @endcode
/// **Rows.** float, arrays::Half or arrays::BFloat16; (R, V), any stride, never copied.
/// **Cost.** Of the rule, for each sequence. Rows of logits without `stats` are read once more; rows of
/// probabilities are added up, once each. Allocates only for another vocabulary or a size larger than in
/// earlier calls, and for messages.
/// **Throws.** std::invalid_argument for a null or misaligned array, a capacity or a stride out of range,
/// having written nothing.
/// **Source.** Those of the rules.
template <class Rule, class Element, class Draft>
std::int32_t verify_batch(const Rule& rule, const arrays::VerifyCapacity& capacity,
                          const arrays::Trees& trees, const arrays::TargetRows<Element>& target,
                          const Draft& draft, const arrays::VerifyResults& results, BatchMemory& memory) {
  static_assert(Rule::lossless_for(ProposalKind::deterministic) || Rule::lossless_for(ProposalKind::sampled),
                "verify_batch: this rule keeps the target's distribution for no kind of proposal");
  return detail::verify_each(
      rule, detail::BatchArguments<Element, Draft>{capacity, trees, target, draft, results}, memory,
      [&](std::int32_t b) { return PhiloxRandom(trees.seed[b], trees.sequence ? trees.sequence[b] : 0u); });
}

}  // namespace specula
