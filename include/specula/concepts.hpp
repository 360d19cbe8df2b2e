// The concepts of a pipeline: language model, drafter, proposal shape, acceptance rule, verifier.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "specula/accept/target_distributions.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/propose_context.hpp"
#include "specula/random_source.hpp"
#include "specula/rows.hpp"
#include "specula/sampling_params.hpp"
#include "specula/verify_result.hpp"

namespace specula {

// Each requirement keeps its comment on the same line.
// clang-format off

/// A model with a KV cache: committed tokens (the context) and speculative nodes below them.
template <class M>
concept LanguageModel = requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t n) {
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.size() } -> std::same_as<std::int32_t>;              // committed tokens
  { c.capacity() } -> std::same_as<std::int32_t>;          // committed + speculative it can hold
  m.append(tokens);                                        // prefill, catch-up: commit tokens, no rows; may be lazy
  { m.extend(tokens, ids) } -> std::same_as<LogitsView>;   // add nodes under parents `ids`; (n, V), until the next call
  m.commit(ids);                                           // this path (may be empty) joins, other nodes are dropped
  m.truncate(n);                                           // rollback: drop all nodes, and committed tokens from n on
};                                                         // nodes are numbered from 0 after append, commit, truncate

/// A model that counts the calls that change it: append(), the extend functions, commit(), truncate().
/// Speculator and ModelDrafter compare the count with the one they left, and so detect that something else
/// used their model.
template <class M>
concept CountsChanges = LanguageModel<M> && requires(const M& c) {
  { c.generation() } -> std::same_as<std::uint64_t>;
};

/// A model that lets a draft read its cached keys and values, as GLIDE's does. It first computes what
/// append() deferred. A view is valid until the next call that changes the model; requesting another view
/// while nothing is deferred keeps it valid.
template <class M>
concept ExposesKeyValues = LanguageModel<M> && requires(M& m) {
  { m.key_values().size() } -> std::same_as<std::int32_t>;  // tokens: m.size()
};

/// A model that lets a draft read its features: per committed token, the hidden state that enters the LM
/// head, as ExposesKeyValues does for keys and values. See features.hpp.
template <class M>
concept ExposesFeatures = LanguageModel<M> && requires(M& m, std::int32_t i) {
  { m.features().size() } -> std::same_as<std::int32_t>;   // tokens: m.size()
  { m.features().width() } -> std::same_as<std::int32_t>;  // numbers per token
  m.features().row(i);                                     // (width)
};

/// A draft model conditioned on such a view of the target. It reads the view in every pass until the next
/// one is set.
template <class D, class View>
concept TargetConditioned = LanguageModel<D> && requires(D& d, const View& view) {
  d.set_target_state(view);
};

/// A model that states how many layers its forward pass computes, for Usage::layers.
template <class M>
concept CountsLayers = LanguageModel<M> && requires(const M& c) {
  { c.layers() } -> std::same_as<std::int32_t>;
};

/// A model that can run nodes without some of its blocks, in its own KV cache (self-speculative decoding).
/// Such nodes are dropped like others; committed tokens are unchanged, bit for bit. Committing such nodes,
/// or adding nodes that skip other blocks, throws and changes nothing.
template <class M>
concept SkipsLayers = CountsLayers<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, const SkippedBlocks& out) {
  { c.node_count() } -> std::same_as<std::int32_t>;                  // 0 after append(), commit() and truncate()
  { m.extend_skipping(tokens, ids, out) } -> std::same_as<LogitsView>;  // extend() without `out`, the same for all nodes
};

/// A model that measures, while it processes the context, how much each attention block changes its input.
template <class M>
concept MeasuresSimilarity = LanguageModel<M> && requires(M& m) {
  // (layers) cosine of an attention block's input and output (input added), averaged over the context;
  // empty: not measured.
  { m.similarity() } -> std::convertible_to<std::span<const double>>;
};

/// A model that can stop after some of its layers (early exit). The layers that a token skipped are
/// computed when a later token first needs them, also after commit: the rows of an exit are those of the
/// model that ends there.
template <class M>
concept ExitsEarly = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes ids, std::int32_t exit,
                                                  std::span<const std::int32_t> rows) {
  { c.exits() } -> std::same_as<std::int32_t>;                       // the last is the whole model
  { c.layers_to(exit) } -> std::same_as<std::int32_t>;               // layers before an exit
  { m.extend_to_exit(tokens, ids, exit) } -> std::same_as<LogitsView>;   // extend() up to an exit
  // All rows of the last extend_to_exit(); those in `rows`, ascending, continue to a later exit. Requires
  // that neither they nor nodes below them have reached it yet.
  { m.resume_to_exit(rows, exit) } -> std::same_as<LogitsView>;
};

/// A source of draft tokens: a draft model, a head on the target's features, an n-gram lookup. sync() sets
/// the context; extend() drafts from there. Optional members are concepts of optional_members.hpp:
/// ReservesMemory, ReportsUsage, HasMembers, ReportsMemberUsage, NamesItsModel.
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

/// A drafter that returns rows of logits, which shapes that sample or rank require.
template <class D>
concept DenseDrafter = Drafter<D> && requires(D& d, Tokens t, Nodes p) {
  { d.extend(t, p) } -> std::same_as<LogitsView>;
};

/// Arranges draft tokens: a chain, a fixed tree, a tree grown by confidence. A small value type with its
/// parameters as fields. propose() begins with a sync() of the drafters that it uses: an unused drafter costs
/// nothing in that round. It must request rows through ask() of shape/ask.hpp, which checks that all of them
/// are present. Optional members, concepts of optional_members.hpp: ReservesWorkspace, LearnsFromRounds,
/// ResetsPerText, StatesLeastNodes, StatesDraftNodes, and ValidatesFields.
template <class S, class D>
concept ProposalShape = requires(S& s, const S& c, D& d, const ProposeContext& round, ProposalBuilder& tree,
                                 PhiloxRandom& rng) {
  { S::kind } -> std::convertible_to<ProposalKind>;
  { c.max_nodes() } -> std::same_as<std::int32_t>;  // root included
  s.propose(d, round, tree, rng);                   // tree holds the root on entry
};

/// Decides which draft tokens are accepted: a verification algorithm. A small value type.
template <class R>
concept AcceptanceRule = requires(const R& r, const TokenTree& tree, const TargetDistributions& target,
                                  PhiloxRandom& rng, VerifyResult& out) {
  // static: for which proposal kinds the target's distribution is kept
  { R::lossless_for(ProposalKind{}) } -> std::same_as<bool>;
  (r.verify)(tree, target, rng, out);
};

/// Runs the target over a proposal and applies the rule. Optional members, concepts of optional_members.hpp:
/// ReportsSize and ReportsGeneration, by which a Speculator detects that something else used the target;
/// ReservesMemory, ReportsUsage.
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

/// The verifier's rule is lossless for proposals of the shape's kind: it keeps the target's distribution.
/// An unsound pair does not compile unless its rule is wrapped in accept_lossy(rule).
template <class V, class S>
concept Lossless = V::lossless_for(S::kind);

// clang-format on

}  // namespace specula
