// What a model, a drafter, a shape, a rule and a verifier are.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "specula/accept/target_distributions.hpp"
#include "specula/cost/cost_model.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/random_source.hpp"
#include "specula/rows.hpp"
#include "specula/sampling_params.hpp"
#include "specula/verify_result.hpp"

namespace specula {

// The comments beside the requirements are the point of this page.
// clang-format off

/// A source of uniform draws; see random_source.hpp. Weights are drawn from tile by tile.
template <class C>
concept RandomSource = requires(C& c, const RandomKey& key, const detail::TokenWeights& weights) {
  { c.accept(0.5, key) } -> std::same_as<bool>;
  { c.draw(weights, key) } -> std::same_as<Token>;
};

/// Uniform draws that also draw by noise: one number a token, so that two distributions drawn from at one key
/// mostly agree.
template <class C>
concept NoiseSource = RandomSource<C> && requires(C& c, const RandomKey& key, const detail::TokenWeights& weights) {
  { c.draw_by_noise(weights, key) } -> std::same_as<Token>;
};

/// A model with a cache: a committed context, and speculative nodes hanging below it.
template <class M>
concept LanguageModel = requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.size() } -> std::same_as<std::int32_t>;              // committed tokens
  { c.capacity() } -> std::same_as<std::int32_t>;          // committed + speculative it can hold
  m.append(tokens);                                        // commit tokens, no rows (prefill, catch-up); may be lazy
  { m.extend(tokens, ids) } -> std::same_as<LogitsView>;   // add nodes under parents `ids`; (n, V), until the next call
  m.commit(ids);                                           // this path (may be empty) joins, other nodes are forgotten
  m.truncate(n);                                           // forget all nodes, and committed tokens from n on
};                                                         // nodes are numbered from 0 after append, commit, truncate

/// A model that counts the calls that change it: append(), extend() and its kin, commit(), truncate(). A
/// Speculator and a ModelDrafter compare that with what they left, and so notice where their model was used
/// by something else.
template <class M>
concept CountsChanges = LanguageModel<M> && requires(const M& c) {
  { c.generation() } -> std::same_as<std::uint64_t>;
};

/// A model whose cached keys and values others may read, as GLIDE's draft does. It calculates first what
/// append() left waiting. A view is valid until the model is next called to change; asking for another one,
/// where nothing waits, leaves it valid.
template <class M>
concept ExposesKeyValues = LanguageModel<M> && requires(M& m) {
  { m.key_values().size() } -> std::same_as<std::int32_t>;  // tokens: m.size()
};

/// The same for its features: at each committed token the hidden state that enters the LM head. See
/// features.hpp.
template <class M>
concept ExposesFeatures = LanguageModel<M> && requires(M& m, std::int32_t i) {
  { m.features().size() } -> std::same_as<std::int32_t>;   // tokens: m.size()
  { m.features().width() } -> std::same_as<std::int32_t>;  // numbers a token
  m.features().row(i);                                     // (width)
};

/// A model that reads such a view of another one wherever it calculates, until it is given the next.
template <class D, class View>
concept TargetConditioned = LanguageModel<D> && requires(D& d, const View& view) {
  d.set_target_state(view);
};

/// A model that can run nodes without some of its blocks, in its own cache: a draft of itself. Such nodes are
/// forgotten like others; committed tokens stay as they are, to the bit. To commit them, or to add nodes that
/// skip something else, throws and changes nothing.
template <class M>
concept SkipsLayers = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, const SkippedBlocks& out) {
  { c.layers() } -> std::same_as<std::int32_t>;
  { c.node_count() } -> std::same_as<std::int32_t>;                  // 0 after append(), commit() and truncate()
  { m.extend_skipping(tokens, ids, out) } -> std::same_as<LogitsView>;  // extend() without `out`, the same for all nodes
};

/// A model that measures, while it reads, how much each attention block changes.
template <class M>
concept MeasuresSimilarity = LanguageModel<M> && requires(M& m) {
  // (layers) the cosine of what goes into an attention block and what comes out (its input added), in the
  // mean over the context; empty: nothing was measured.
  { m.similarity() } -> std::convertible_to<std::span<const double>>;
};

/// A model that can stop after some of its layers. A token that stopped goes through the others when a token
/// that sees it needs that, also after it was committed: the rows of an exit are those of the model that ends
/// there.
template <class M>
concept ExitsEarly = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t exit,
                                                  std::span<const std::int32_t> rows) {
  { c.exits() } -> std::same_as<std::int32_t>;                       // the last is the whole model
  { c.layers_to(exit) } -> std::same_as<std::int32_t>;               // layers before an exit
  { m.extend_to_exit(tokens, ids, exit) } -> std::same_as<LogitsView>;   // extend() up to an exit
  // All rows of the last extend_to_exit(), of which these, ascending, go on to a later exit. They did not get
  // there yet, nor did nodes below them.
  { m.resume_to_exit(rows, exit) } -> std::same_as<LogitsView>;
};

/// Anything that drafts. sync() says where we are; extend() grows speculation from there. Optional:
/// reserve(tokens), called once, for a text with its proposal. A drafter or verifier that has usage() (a
/// Usage) has its models' time told apart from the library's own in Stats; a stack also has kMembers and
/// usage(i).
template <class D>
concept Drafter = requires(D& d, const D& c, Tokens context, Tokens draft_tokens, Nodes ids, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.capacity() } -> std::same_as<std::int32_t>;
  d.truncate(n);           // a new prompt shares its first n tokens with the old one
  d.sync(context, draft_tokens);  // context extends the last one; draft_tokens lie between context and root
  // LogitsView or PointMasses; numbering restarts at sync(): the root is node 0, its parent kNoParent
  d.extend(draft_tokens, ids);
} && (requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<LogitsView>;
} || requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<PointMasses>;
});

/// A drafter that fills rows: what shapes that sample or rank need.
template <class D>
concept DenseDrafter = Drafter<D> && requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<LogitsView>;
};

/// What a shape may know of the round. Draft rows become distributions by `params`, the target's own.
struct ProposeContext {
  Tokens committed;            // committed tokens: all emitted ones but the root
  SamplingParams params;       // the verifier's
  std::int32_t max_nodes;      // most nodes that fit, root included
  CostModel* cost_model = nullptr;  // if there: what a draft token must promise; see shape/cost_aware.hpp

  /// Probability that a draft token of this confidence stays, given that its parent does.
  double accept_probability(double confidence) const {
    return cost_model ? cost_model->estimator().accept_probability(confidence) : confidence;
  }
  /// Probabilities below this need not be looked at.
  double min_probability() const { return cost_model ? cost_model->min_probability(max_nodes) : 0.0; }
  /// Whether to ask the draft for a token behind a node that stays with probability `reach`. To be asked
  /// before it is drawn.
  bool should_draft(double reach, const TokenTree& tree) const {
    return !cost_model || cost_model->should_draft(reach, tree.size(), tree.size() + tree.room());
  }
  /// The same where the draft token is chosen, and should_keep() will be asked of it.
  bool should_draft_to_choose(double reach, const TokenTree& tree) const {
    return !cost_model || cost_model->should_draft_to_choose(reach, tree.size(), tree.size() + tree.room());
  }
  /// The same for one pass of the draft behind `width` nodes, of which in the mean `reach` stay, that makes a
  /// proposal of `nodes` larger by `more`.
  bool should_draft_level(double reach, std::int32_t width, std::int32_t nodes, std::int32_t more) const {
    if (!cost_model) return true;
    const CostModel& costs = *cost_model;
    return reach * costs.estimator().any_probability() >=
           costs.draft_cost(width) + costs.verify_cost(nodes + more) - costs.verify_cost(nodes);
  }
  /// Whether to propose the draft's likeliest token behind such a node. Not to be asked of a token that was
  /// drawn: leaving it out would bias the text.
  bool should_keep(double reach, double confidence, const TokenTree& tree) const {
    if (!cost_model) return true;
    cost_model->estimator().saw_drafted(confidence);
    return cost_model->should_keep(reach * accept_probability(confidence), tree.size(), tree.size() + tree.room());
  }
};

/// Arranges draft tokens. A small value type with its parameters as fields. propose() begins with a sync() of
/// the drafters that it asks: what it does not ask in a round costs nothing in it. Optional: reserve(),
/// called once, for what it works in; learn(tree, result) or learn(tree, result, timing) after each round;
/// reset() before each text; least_nodes(), if a proposal of four nodes cannot be made; validate() const,
/// which throws if a field is out of range, called once before anything else. Rows are to be asked for by
/// ask() of shape/ask.hpp, which looks whether they are all there.
template <class S, class D>
concept ProposalShape = requires(S& s, const S& c, D& d, const ProposeContext& round, TokenTree& tree,
                                 PhiloxRandom& rng) {
  { S::kind } -> std::convertible_to<ProposalKind>;
  { c.max_nodes() } -> std::same_as<std::int32_t>;  // root included
  s.propose(d, round, tree, rng);                   // tree holds the root on entry
};

/// Decides. A small value type.
template <class R>
concept AcceptanceRule = requires(const R& r, const TokenTree& tree, const TargetDistributions& target,
                                  PhiloxRandom& rng, VerifyResult& out) {
  // static: for which proposal kinds the target's distribution is kept
  { R::lossless_for(ProposalKind{}) } -> std::same_as<bool>;
  (r.verify)(tree, target, rng, out);
};

/// The target and its rule. Optional: size(), the committed tokens, and generation(), as of CountsChanges: by
/// these a Speculator notices that the target was used by something else. reserve(nodes), called once;
/// usage(), a Usage.
template <class V>
concept Verifier = requires(V& v, const V& c, const TokenTree& tree, PhiloxRandom& rng, Tokens tokens,
                            std::int32_t n) {
  { V::lossless_for(ProposalKind{}) } -> std::same_as<bool>;
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.room() } -> std::same_as<std::int32_t>;  // nodes that still fit, root included
  { c.params() } -> std::convertible_to<const SamplingParams&>;
  v.append(tokens);
  v.truncate(n);
  { (v.verify)(tree, rng) } -> std::convertible_to<const VerifyResult&>;
};

/// The shape draws its proposals in a way for which the verifier's rule keeps the target's distribution. An
/// unsound pair does not compile; accept_lossy(rule) is the way to have one all the same.
template <class V, class S>
concept Lossless = V::lossless_for(S::kind);

// clang-format on

}  // namespace specula
