// The concepts of a pipeline: language model, drafter, proposal shape, acceptance rule, verifier.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

#include "specula/accept/target_distributions.hpp"
#include "specula/model/conditioning.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/propose_context.hpp"
#include "specula/random_source.hpp"
#include "specula/rows.hpp"
#include "specula/sampling_params.hpp"
#include "specula/verify_result.hpp"

namespace specula {

// Words. Context: the committed tokens. Root: the newest token of the text (at first the prompt's last),
// which the target's KV cache does not hold yet; node 0 of every proposal. Node: a token below the context
// that is not committed yet; nodes form a tree. The proposal, the target and each drafter number their own
// nodes. Row: the V raw logits for the token after a node. In comments, (n, V) is a shape.
//
// A name in parentheses, as in (r.verify)(...), is one that some systems define as a macro.
// clang-format off

/// A language model and the KV cache of one sequence: committed tokens, and below them a tree of nodes.
/// append(), commit() and truncate() leave no nodes; the extend() calls after them number theirs 0, 1, ... A
/// parent is an earlier node, of the same call or an earlier one, or kNoParent: the end of the context. A node
/// attends to the context, its ancestors and itself. A function that throws has changed nothing.
template <class M>
concept LanguageModel = requires(M& m, const M& c, Tokens tokens, Nodes parents, Nodes path, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;           // V
  { c.size() } -> std::same_as<std::int32_t>;                 // committed tokens
  { c.capacity() } -> std::same_as<std::int32_t>;             // committed tokens and nodes that it can hold
  m.append(tokens);                                           // prefill: commits tokens; may wait for extend()
  { m.extend(tokens, parents) } -> std::same_as<LogitsView>;  // one pass that adds nodes, a row for each:
                                                              // (tokens.size(), V), valid until the model changes
  m.commit(path);                                             // commits this path, topmost node first, which may
                                                              // be empty; drops all other nodes
  m.truncate(n);                                              // KV cache rollback: keeps the first n committed
                                                              // tokens and no nodes
};

/// A model that counts what changes it: the calls of append(), of each function that adds or continues nodes,
/// of commit() and truncate(), and whatever else changes what it computes for the same tokens: its weights,
/// what is added to them, its settings. Speculator and ModelDrafter compare the count with that after their
/// own last call, and so detect that something else used their model. change_count() of a wrapper may be a
/// std::optional: none if what it wraps does not count.
template <class M>
concept CountsChanges = LanguageModel<M> && requires(const M& c) {
  { std::optional(c.change_count()) } -> std::same_as<std::optional<std::uint64_t>>;
};

/// A model that rewrites the rows of another, and still has those: raw_rows() returns the rows of the last
/// extend() as they were before, valid as long as its result; an empty view if they were not rewritten.
/// Log-probabilities of the raw row are theirs.
template <class M>
concept KeepsRawRows = LanguageModel<M> && requires(const M& c) {
  { c.raw_rows() } -> std::same_as<LogitsView>;
};

/// A model that says what its passes have taken so far, in seconds that only grow: all calls that compute,
/// commit or drop. Usage::seconds has that instead of the wall time of the calls. For a model that waits, for
/// a processor or for other texts that share its pass, and knows its own time or its share: CostAware would
/// take the waiting for a cost of the pass. Must not throw. pass_seconds() of a wrapper may be a std::optional:
/// none if what it wraps does not time itself.
template <class M>
concept TimesItself = LanguageModel<M> && requires(const M& c) {
  { std::optional(c.pass_seconds()) } -> std::same_as<std::optional<double>>;
};

/// A target whose cached keys and values a draft may read: key_values() returns a view of them, in a layout
/// of the model's own. It first computes what append() deferred. The view is valid until the model changes;
/// a further call of key_values() that had nothing to compute leaves it valid.
template <class M>
concept ExposesKeyValues = LanguageModel<M> && requires(M& m) {
  { m.key_values().size() } -> std::same_as<std::int32_t>;  // committed tokens
};

/// A target whose features a draft may read: per committed token the hidden state that enters the LM head,
/// after the final norm. features() returns a view (model/features.hpp has one); it is computed and is
/// valid as that of ExposesKeyValues.
template <class M>
concept ExposesFeatures = LanguageModel<M> && requires(M& m, std::int32_t i) {
  { m.features().size() } -> std::same_as<std::int32_t>;   // committed tokens
  { m.features().width() } -> std::same_as<std::int32_t>;  // numbers per token
  m.features().row(i);                                     // (width): those of committed token i
};

/// A draft model that reads a view of the target, from key_values() or features(), in each of its passes.
/// Its drafter (Glide, FeatureHead) gives it the new view in every round, before the first pass.
template <class D, class View>
concept TargetConditioned = LanguageModel<D> && requires(D& d, const View& view) {
  d.set_target_state(view);
};

/// A draft model that AnyModel can connect to a target: it reports at run time what it reads, and names by
/// member types the views that its set_target_state() takes (AnyModel checks that it is TargetConditioned).
template <class D>
concept StatesConditioning = LanguageModel<D> && requires(const D& c) {
  { c.conditioned_on() } -> std::same_as<Conditioning>;
} && (requires { typename D::TargetKeyValues; } || requires { typename D::TargetFeatures; });

/// A model that reports the number of layers of one full pass, for the costs in Usage (stats.hpp).
template <class M>
concept CountsLayers = LanguageModel<M> && requires(const M& c) {
  { c.layers() } -> std::same_as<std::int32_t>;
};

/// A model that can run nodes without some of its blocks, in its own KV cache (self-speculative decoding). A
/// block is the attention or the MLP of one layer. append(), commit({}) and truncate() drop such nodes; the
/// cached keys and values of committed tokens keep their bits. While there are such nodes, a call that
/// commits one of them, or adds nodes that do not skip the same blocks, throws and changes nothing.
template <class M>
concept SkipsLayers = CountsLayers<M> && requires(M& m, const M& c, Tokens tokens, Nodes parents,
                                                  const SkippedBlocks& skipped) {
  { c.node_count() } -> std::same_as<std::int32_t>;                              // nodes, not committed
  { m.extend_skipping(tokens, parents, skipped) } -> std::same_as<LogitsView>;  // extend() without these blocks
};

/// A model that measures how little each attention block changes its input, by which the drafter LayerSkip
/// chooses the blocks to skip: the cosine of the block's input and its output after the residual addition,
/// averaged over the context. (layers), near 1 where the block changes little; empty if not measured.
template <class M>
concept MeasuresSimilarity = LanguageModel<M> && requires(M& m) {
  { m.attention_similarity() } -> std::convertible_to<std::span<const double>>;
};

/// A model that can stop after some of its layers (early exit). Its logits at an exit are those of a model
/// that ends there. Layers that a token skipped are computed when a later token first attends to them, even
/// if the token has been committed by then.
template <class M>
concept ExitsEarly = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes parents, std::int32_t exit,
                                                  std::span<const std::int32_t> rows) {
  { c.exits() } -> std::same_as<std::int32_t>;                             // numbers 0 to exits() - 1; the last: all layers
  { c.layers_to(exit) } -> std::same_as<std::int32_t>;                     // layers computed up to an exit
  { m.extend_to_exit(tokens, parents, exit) } -> std::same_as<LogitsView>;  // extend() up to an exit
  // Continues nodes of the last extend_to_exit() to a later exit: `rows` are their indices in that call,
  // ascending. Returns as many rows as that call: those of `rows` anew, the others as they were. Requires
  // that neither these nodes nor nodes below them have reached the later exit.
  { m.resume_to_exit(rows, exit) } -> std::same_as<LogitsView>;
};

/// Predicts the token after a node: a draft model, a head on the target's features, an n-gram lookup. The
/// shape chooses tokens from the predictions, and adds them by the next extend(). A round is one sync() and
/// any number of extend() calls, of which the first adds the root, below kNoParent. (In a cascade, where
/// drafters continue each other's proposals, that node is the proposal's last token, and a drafter may be
/// synced several times per round.) What was accepted shows in the context of the next sync(). A round may
/// leave a drafter out; the next context is then longer by several rounds. Optional members are concepts of
/// optional_members.hpp: ReservesMemory, ReportsUsage, HasMembers, ReportsMemberUsage, NamesItsCache.
template <class D>
concept Drafter = requires(D& d, const D& c, Tokens context, Tokens draft_tokens, Tokens tokens, Nodes parents,
                           std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;  // the target's V
  { c.capacity() } -> std::same_as<std::int32_t>;    // tokens and nodes that it can hold
  d.truncate(n);                                     // begins a text that shares n tokens with the last one
  // The text before the root: the whole context, which extends the last one (after truncate(n), its first n
  // tokens), then `draft_tokens`: empty, or in a cascade the proposal so far without its last token. The next call
  // may pass another `draft_tokens`. Drops all nodes; the next is node 0.
  d.sync(context, draft_tokens);
  // Adds nodes; a prediction per node, valid until the next call: LogitsView (rows of logits) or PointMasses
  // (one token per node, kNoToken where there is none).
  d.extend(tokens, parents);
} && (requires(D& d, Tokens tokens, Nodes parents) {
  { d.extend(tokens, parents) } -> std::same_as<LogitsView>;
} || requires(D& d, Tokens tokens, Nodes parents) {
  { d.extend(tokens, parents) } -> std::same_as<PointMasses>;
});

/// A drafter that predicts rows of logits, as shapes that sample or rank require; an n-gram lookup is none.
template <class D>
concept LogitsDrafter = Drafter<D> && requires(D& d, Tokens tokens, Nodes parents) {
  { d.extend(tokens, parents) } -> std::same_as<LogitsView>;
};

/// The drafting loop: runs the drafter and chooses draft tokens, which form a chain, a fixed tree, or a tree
/// grown by confidence. A small value type with its parameters as fields. D may be a Stack of drafters.
/// propose() must sync() a drafter before it uses it, and should leave alone those that it does not use. It
/// must call ask(drafter, ...) of propose_context.hpp in place of drafter.extend(), to check the predictions,
/// and adds at most round.max_nodes - 1 nodes to `tree`. Optional members are concepts of
/// optional_members.hpp: ReservesWorkspace, LearnsFromRounds, ResetsPerText, StatesLeastNodes,
/// StatesDraftNodes, ValidatesFields.
template <class S, class D>
concept ProposalShape = requires(S& s, const S& c, D& d, const ProposeContext& round, ProposalBuilder& tree,
                                 PhiloxRandom& rng) {
  { S::kind } -> std::convertible_to<ProposalKind>;  // how draft tokens are drawn; proposal_kind.hpp
  { c.max_nodes() } -> std::same_as<std::int32_t>;   // its largest proposal, root included
  s.propose(d, round, tree, rng);                    // tree holds the root on entry
};

/// The verification algorithm: accepts draft tokens and draws the token after them (the bonus token, or the
/// one that replaces a rejected token). target[n] is p, the target's distribution after node n under the
/// text's SamplingParams; `tree` has q, the distribution that each node was sampled from, or a point mass if
/// it was not sampled. A small value type. It must call target.check(tree) first, or check_for() if it reads
/// q; docs/rule.md has its other duties.
template <class R>
concept AcceptanceRule = requires(const R& r, const TokenTree& tree, const TargetDistributions& target,
                                  PhiloxRandom& rng, VerifyResult& out) {
  // static: whether the text keeps the target's distribution if proposals are of this kind
  { R::lossless_for(ProposalKind{}) } -> std::same_as<bool>;
  (r.verify)(tree, target, rng, out);  // overwrites out
};

/// Runs the target over a proposal, applies its AcceptanceRule, and commits the accepted path, root included.
/// The next token is not committed: it is the root of the next round. Optional members are concepts of
/// optional_members.hpp: ReportsSize and ReportsChangeCount, by which a Speculator detects that something else
/// used the target; NamesItsCache, ReservesMemory, ReportsUsage.
template <class V>
concept Verifier = requires(V& v, const V& c, const TokenTree& tree, PhiloxRandom& rng, Tokens tokens,
                            std::int32_t n) {
  { V::lossless_for(ProposalKind{}) } -> std::same_as<bool>;         // its rule's
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.room() } -> std::same_as<std::int32_t>;                        // nodes that still fit, root included
  { c.params() } -> std::convertible_to<const SamplingParams&>;      // temperature, top-k, top-p, min-p of the text
  v.append(tokens);                                                  // the target's: the prompt but its last token
  v.truncate(n);                                                     // the target's
  { (v.verify)(tree, rng) } -> std::convertible_to<const VerifyResult&>;  // valid until the next call
};

/// The verifier's rule keeps the target's distribution for proposals of the shape's kind. A Speculator of
/// another pair does not compile, unless the rule is wrapped in accept_lossy(rule), whose lossless_for() is
/// true for every kind, without the guarantee.
template <class V, class S>
concept Lossless = V::lossless_for(S::kind);

// clang-format on

}  // namespace specula
