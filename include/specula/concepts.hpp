// What a model, a drafter, a shape, a rule and a verifier are.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "chance.hpp"
#include "rows.hpp"
#include "sampling_params.hpp"
#include "skipped_blocks.hpp"
#include "target_laws.hpp"
#include "token_tree.hpp"
#include "verdict.hpp"
#include "worth.hpp"

namespace specula {

// The comments beside the requirements are the point of this page.
// clang-format off

/// Anything that answers coins; see chance.hpp. Weights are drawn from tile by tile.
template <class C>
concept ChanceSource = requires(C& c, const Site& site, const detail::LawWeights& weights) {
  { c.accept(0.5, site) } -> std::same_as<bool>;
  { c.draw(weights, site) } -> std::same_as<Token>;
};

/// Coins that also draw by noise: one number a token, so that two laws drawn from at one site mostly agree.
template <class C>
concept NoiseSource = ChanceSource<C> && requires(C& c, const Site& site, const detail::LawWeights& weights) {
  { c.draw_by_noise(weights, site) } -> std::same_as<Token>;
};

/// A model with a cache: a committed context, and speculative nodes hanging below it.
template <class M>
concept LanguageModel = requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.size() } -> std::same_as<std::int32_t>;              // committed tokens
  { c.capacity() } -> std::same_as<std::int32_t>;          // committed + speculative it can hold
  m.append(tokens);                                        // commit tokens, no rows (prefill, catch-up); may be lazy
  { m.extend(tokens, ids) } -> std::same_as<RowsView>;     // add nodes under parents `ids`; (n, V), until the next call
  m.commit(ids);                                           // this path (may be empty) joins, other nodes are forgotten
  m.truncate(n);                                           // forget all nodes, and committed tokens from n on
};                                                         // nodes are numbered from 0 after append, commit, truncate

/// A model that counts the calls that change it: append(), extend() and its kin, commit(), truncate(). A Speculator and a
/// ModelDrafter compare that with what they left, and so notice where their model was used by something else.
template <class M>
concept CountsChanges = LanguageModel<M> && requires(const M& c) {
  { c.generation() } -> std::same_as<std::uint64_t>;
};

/// A model whose cached keys and values others may read, as GLIDE's draft does. It calculates first what append() left
/// waiting. A view is valid until the model is next called to change; asking for another one, where nothing waits,
/// leaves it valid.
template <class M>
concept ExposesKeyValues = LanguageModel<M> && requires(M& m) {
  { m.key_values().size() } -> std::same_as<std::int32_t>;  // tokens: m.size()
};

/// The same for its features: at each committed token the hidden state that enters the LM head. See features.hpp.
template <class M>
concept ExposesFeatures = LanguageModel<M> && requires(M& m, std::int32_t i) {
  { m.features().size() } -> std::same_as<std::int32_t>;   // tokens: m.size()
  { m.features().width() } -> std::same_as<std::int32_t>;  // numbers a token
  m.features().row(i);                                     // (width)
};

/// A model that reads such a view of another one wherever it calculates, until it is given the next.
template <class D, class View>
concept LooksInto = LanguageModel<D> && requires(D& d, const View& view) {
  d.look_into(view);
};

/// A model that can run nodes without some of its blocks, in its own cache: a draft of itself. Such nodes are forgotten
/// like others; committed tokens stay as they are, to the bit. To commit them, or to add nodes that skip something else,
/// throws and changes nothing.
template <class M>
concept SkipsLayers = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, const SkippedBlocks& out) {
  { c.layers() } -> std::same_as<std::int32_t>;
  { c.node_count() } -> std::same_as<std::int32_t>;                  // 0 after append(), commit() and truncate()
  { m.extend_skipping(tokens, ids, out) } -> std::same_as<RowsView>;  // extend() without `out`, the same for all nodes
};

/// A model that measures, while it reads, how much each attention block changes.
template <class M>
concept MeasuresSimilarity = LanguageModel<M> && requires(M& m) {
  // (layers) the cosine of what goes into an attention block and what comes out (its input added), in the mean over
  // the context; empty: nothing was measured.
  { m.similarity() } -> std::convertible_to<std::span<const double>>;
};

/// A model that can stop after some of its layers. A token that stopped goes through the others when a token that sees it
/// needs that, also after it was committed: the rows of an exit are those of the model that ends there.
template <class M>
concept ExitsEarly = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t exit,
                                                  std::span<const std::int32_t> rows) {
  { c.exits() } -> std::same_as<std::int32_t>;                       // the last is the whole model
  { c.layers_to(exit) } -> std::same_as<std::int32_t>;               // layers before an exit
  { m.extend_to(tokens, ids, exit) } -> std::same_as<RowsView>;      // extend() up to an exit
  // All rows of the last extend_to(), of which these, ascending, go on to a later exit. They did not get there yet, nor
  // did nodes below them.
  { m.go_on(rows, exit) } -> std::same_as<RowsView>;
};

/// Anything that guesses. sync() says where we are; extend() grows speculation from there. Optional: reserve(tokens),
/// called once, for a text with its proposal. A drafter or verifier that has usage() (a Usage) has its models' time told
/// apart from the library's own in Stats; a stack also has kMembers and usage(i).
template <class D>
concept Drafter = requires(D& d, const D& c, Tokens context, Tokens guess, Nodes ids, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.capacity() } -> std::same_as<std::int32_t>;
  d.truncate(n);           // a new prompt shares its first n tokens with the old one
  d.sync(context, guess);  // context extends the last one; guess = speculative tokens between context and root
  d.extend(guess, ids);    // RowsView or PointMasses; numbering restarts at sync: root = node 0, parent kNoParent
} && (requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<RowsView>;
} || requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<PointMasses>;
});

/// A drafter that fills rows: what shapes that sample or rank need.
template <class D>
concept DenseDrafter = Drafter<D> && requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<RowsView>;
};

/// What a shape may know of the round. Draft rows become laws by `params`, the target's own.
struct Round {
  Tokens context;                // committed tokens: all emitted ones but the root
  SamplingParams params;         // the verifier's
  std::int32_t max_nodes;        // most nodes that fit, root included
  Worth* worth = nullptr;        // if there: what a guess must promise; see shape/cost_aware.hpp

  /// Chance that a guess of this confidence stays, given that its parent does.
  double chance(double confidence) const { return worth ? worth->guesses().chance(confidence) : confidence; }
  /// Chances below this need not be looked at.
  double least_chance() const { return worth ? worth->least_chance(max_nodes) : 0.0; }
  /// Whether to ask the draft for a guess behind a node that stays with probability `reach`. To be asked before it
  /// is drawn.
  bool drafts_on(double reach, const TokenTree& tree) const {
    return !worth || worth->drafts_on(reach, tree.size(), tree.size() + tree.room());
  }
  /// The same where the guess is chosen, and keeps() will be asked of it.
  bool drafts_to_choose(double reach, const TokenTree& tree) const {
    return !worth || worth->drafts_to_choose(reach, tree.size(), tree.size() + tree.room());
  }
  /// The same for one pass of the draft behind `width` nodes, of which in the mean `reach` stay, that makes a
  /// proposal of `nodes` larger by `more`.
  bool drafts_level(double reach, std::int32_t width, std::int32_t nodes, std::int32_t more) const {
    return !worth || reach * worth->guesses().any_chance() >=
                         worth->draft_cost(width) + worth->verify_cost(nodes + more) - worth->verify_cost(nodes);
  }
  /// Whether to propose the draft's likeliest guess behind such a node. Not to be asked of a token that was drawn:
  /// leaving it out would bias the text.
  bool keeps(double reach, double confidence, const TokenTree& tree) const {
    if (!worth) return true;
    worth->guesses().saw_drafted(confidence);
    return worth->keeps(reach * chance(confidence), tree.size(), tree.size() + tree.room());
  }
};

/// Arranges guesses. A small value type with its parameters as fields. propose() begins with a sync() of the drafters
/// that it asks: what it does not ask in a round costs nothing in it. Optional: reserve(), called once, for what it
/// works in; learn(tree, verdict) or learn(tree, verdict, timing) after each round; reset() before each text;
/// least_nodes(), if a proposal of four nodes cannot be made.
template <class S, class D>
concept ProposalShape = requires(S& s, const S& c, D& d, const Round& round, TokenTree& tree,
                                 PhiloxChance& chance) {
  { S::law } -> std::convertible_to<DraftLaw>;
  { c.max_nodes() } -> std::same_as<std::int32_t>;  // root included
  s.propose(d, round, tree, chance);                // tree holds the root on entry
};

/// Decides. A small value type.
template <class R>
concept AcceptanceRule = requires(const R& r, const TokenTree& tree, const TargetLaws& target,
                                  PhiloxChance& chance, Verdict& out) {
  { R::exact_for(DraftLaw{}) } -> std::same_as<bool>;  // static: for which draft laws the target's law is kept
  r.verify(tree, target, chance, out);
};

/// The target and its rule. Optional: size(), the committed tokens, and generation(), as of CountsChanges: by these a
/// Speculator notices that the target was used by something else. reserve(nodes), called once; usage(), a Usage.
template <class V>
concept Verifier = requires(V& v, const V& c, const TokenTree& tree, PhiloxChance& chance, Tokens tokens,
                            std::int32_t n) {
  { V::exact_for(DraftLaw{}) } -> std::same_as<bool>;
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.room() } -> std::same_as<std::int32_t>;  // nodes that still fit, root included
  { c.params() } -> std::convertible_to<const SamplingParams&>;
  v.append(tokens);
  v.truncate(n);
  { v.verify(tree, chance) } -> std::convertible_to<const Verdict&>;
};

/// The shape draws its proposals in a way for which the verifier's rule keeps the target's law. An unsound pair does not
/// compile; accept_lossy(rule) is the way to have one all the same.
template <class V, class S>
concept Lossless = V::exact_for(S::law);

// clang-format on

}  // namespace specula
