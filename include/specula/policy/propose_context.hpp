// What a ProposalShape asks in one round: ProposeContext, the CostModel that decides when to stop drafting,
// and extend_checked(), which requests the drafter's rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// Decides whether further draft tokens pay, by three questions: does a draft call pay, does a drafted token
/// pay, how many of these pay. An interface, which cost/curve_cost_model.hpp implements for
/// shape/cost_aware.hpp. Answers depend on past rounds and on the arguments of this round's questions, never
/// on a uniform draw that comes later: a shape that asks *before* it draws keeps the distribution.
///
/// In all members, `reach` is the probability that the parent of the draft token is accepted, and `nodes` the
/// size of the proposal so far, the root included.
class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Acceptance probability of a draft token of this confidence, given that its parent is accepted.
  virtual double accept_probability(double confidence) const = 0;
  /// Whether a draft pass over `width` nodes pays that adds `adds` nodes to the proposal; `reach` is the sum
  /// over its nodes. A call that pays is assumed to be made.
  virtual bool call_pays(double reach, std::int32_t width, std::int32_t adds, std::int32_t nodes) = 0;
  /// Whether a drafted token of this confidence pays as the next node of a chain. To be asked once for each
  /// drafted token: the confidences that occur are an input of call_pays().
  virtual bool node_pays(double reach, double confidence, std::int32_t nodes) = 0;
  /// The number of draft tokens to add to a proposal of `nodes`, given their acceptance probabilities,
  /// largest first.
  virtual std::int32_t best_count(std::span<const double> probabilities, std::int32_t nodes) const = 0;

 protected:
  /// @cond
  CostModel() = default;
  CostModel(const CostModel&) = default;
  CostModel& operator=(const CostModel&) = default;
  /// @endcond
};

/// The round as a shape sees it. Rows of the draft become distributions by `params`, the target's own.
struct ProposeContext {
  Tokens committed;                 ///< all emitted tokens but the root
  SamplingParams params;            ///< the verifier's
  std::int32_t max_nodes;           ///< nodes that fit, root included
  CostModel* cost_model = nullptr;  ///< null: every draft token pays
  Tokens stop = {};                 ///< tokens that end the text; see Limits::stop

  /// Whether the text ends at a draft token, so that none should follow it. Leaving those out does not bias
  /// the text: the token they would follow is known by then.
  bool ends_text(Token draft_token) const {
    return std::find(stop.begin(), stop.end(), draft_token) != stop.end();
  }
  /// The same for a node of the proposal. The root never ends the text: it goes on.
  bool ends_text(const TokenTree& tree, NodeId node) const {
    return node != 0 && ends_text(tree.token(node));
  }

  /// The questions of CostModel. Without a cost model, the draft's confidence is the acceptance probability,
  /// and everything pays.
  double accept_probability(double confidence) const {
    return cost_model ? cost_model->accept_probability(confidence) : confidence;
  }
  /// Probability that `node` is accepted: the product along its path. 1 without a cost model.
  double reach(const TokenTree& tree, NodeId node) const {
    double product = 1;
    for (NodeId n = node; cost_model && n != 0; n = tree.parent(n))
      product *= accept_probability(static_cast<double>(tree.confidence(n)));
    return product;
  }
  /// See CostModel; must be called before the tokens are drawn.
  bool call_pays(double reach, std::int32_t width, std::int32_t adds, std::int32_t nodes) const {
    return !cost_model || cost_model->call_pays(reach, width, adds, nodes);
  }
  /// For the draft's likeliest token only: leaving out a token that was drawn would bias the text.
  bool node_pays(double reach, double confidence, std::int32_t nodes) const {
    return !cost_model || cost_model->node_pays(reach, confidence, nodes);
  }
};

/// Whether `drafter` has room for the context and a draft token after it. A shape must not call a member of a
/// Stack that has none (for a drafter alone, Speculator has made sure). The answer depends on the context
/// only, so leaving a member out does not bias the text.
template <class D>
bool can_draft(const D& drafter, const ProposeContext& round) {
  return drafter.capacity() > static_cast<std::int32_t>(round.committed.size()) + 1;
}

/// Throws std::invalid_argument unless `rows` has one row over the vocabulary of `tree` per node.
inline void expect_rows(const LogitsView& rows, std::size_t nodes, const TokenTree& tree) {
  detail::expect_rows("the draft", rows, nodes, tree.vocab());
}
/// The same for a drafter without rows: one token per node, and as many confidences or none.
inline void expect_rows(const PointMasses& points, std::size_t nodes, const TokenTree&) {
  if (points.tokens.size() != nodes || (!points.confidences.empty() && points.confidences.size() != nodes))
    throw std::invalid_argument("the draft gave " + detail::number(points.tokens.size()) + " tokens and " +
                                detail::number(points.confidences.size()) + " confidences for " +
                                detail::number(nodes) + " nodes");
}

namespace detail {
/// Calls `draft`, and returns what it threw if a failing draft may throw that: a std::exception, but for
/// std::logic_error, which is misuse and propagates, as does what is no std::exception.
template <class F>
std::exception_ptr failure_of(F draft) {
  try {
    draft();
  } catch (const std::logic_error&) {
    throw;
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}
}  // namespace detail

/// drafter.extend(tokens, parents) with its result checked, since reading a row is unchecked: shapes must
/// call this. Throws std::invalid_argument, with the numbers, unless there is one parent per token and the
/// drafter returns one row (or token) per node. Cost: the drafter's, and a few comparisons.
template <class D>
auto extend_checked(D& drafter, const TokenTree& tree, Tokens tokens, Nodes parents) {
  if (parents.size() != tokens.size())
    throw std::invalid_argument("extend_checked: " + detail::number(parents.size()) + " parents for " +
                                detail::number(tokens.size()) + " tokens");
  const auto rows = drafter.extend(tokens, parents);
  expect_rows(rows, tokens.size(), tree);
  return rows;
}

}  // namespace specula
