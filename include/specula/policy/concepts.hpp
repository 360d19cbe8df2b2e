// SPDX-License-Identifier: MIT
// The four policies of a pipeline: drafter, proposal shape, acceptance rule, verifier.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

#include "specula/accept/target_distributions.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/stats.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/model/language_model.hpp"
#include "specula/policy/ask.hpp"
#include "specula/proposal/proposal_builder.hpp"

namespace specula {

class Logprobs;  // verify/logprobs.hpp

// The words are those of model/language_model.hpp. What a policy may have besides has a concept of its own.
// clang-format off

/// Predicts the token after a node: a draft model, a head on the target's features, an n-gram lookup. The
/// shape chooses tokens from the predictions, and adds them by the next extend(). A round is one sync() and
/// any number of extend() calls, of which the first adds the root, below kNoParent. (In a cascade, where
/// drafters continue each other's proposals, that node is the proposal's last token, and a drafter may be
/// synced several times per round.) What was accepted shows in the context of the next sync(). A round may
/// leave a drafter out; the next context is then longer by several rounds. Optional members are concepts of
/// optional_members.hpp: Reserves, ReportsUsage, HasMembers, NamesItsCache, MergesPasses.
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
/// and adds at most round.max_nodes - 1 nodes to `tree`. It returns Steps, a coroutine that awaits ask(), so that a
/// batch can merge its passes with those of other texts; or void, with ask(...).now(). Optional members are concepts of
/// optional_members.hpp: Reserves, LearnsFromRounds, CountsReviews, ValidatesFields.
template <class S, class D>
concept ProposalShape = requires(S& s, const S& c, D& d, const ProposeContext& round, ProposalBuilder& tree,
                                 PhiloxRandom& rng) {
  { S::kind } -> std::convertible_to<ProposalKind>;  // how draft tokens are drawn; proposal_kind.hpp
  { c.nodes() } -> std::same_as<NodeCounts>;         // how large its proposals get
  s.propose(d, round, tree, rng);                    // tree holds the root on entry
} && (requires(S& s, D& d, const ProposeContext& round, ProposalBuilder& tree, PhiloxRandom& rng) {
  { s.propose(d, round, tree, rng) } -> std::same_as<Steps>;
} || requires(S& s, D& d, const ProposeContext& round, ProposalBuilder& tree, PhiloxRandom& rng) {
  { s.propose(d, round, tree, rng) } -> std::same_as<void>;
});

/// The verification algorithm: accepts draft tokens and draws the token after them (the bonus token, or the
/// one that replaces a rejected token). target[n] is p, the target's distribution after node n under the
/// text's SamplingParams; `tree` has q, the distribution that each node was sampled from, or a point mass if
/// it was not sampled. A small value type; docs/rule.md has its duties. Call decide_checked() in place of
/// decide(), as the verifiers do: a rule may rely on its checks.
template <class R>
concept AcceptanceRule = requires(const R& r, const TokenTree& tree, const TargetDistributions& target,
                                  PhiloxRandom& rng, VerifyResult& out) {
  // static: whether the text keeps the target's distribution if proposals are of this kind
  { R::lossless_for(ProposalKind{}) } -> std::same_as<bool>;
  r.decide(tree, target, rng, out);  // overwrites out
};

/// Runs the target over a proposal, applies its AcceptanceRule, and commits the accepted path, root included.
/// The next token is not committed: it is the root of the next round. It must call decide_checked() in place of
/// the rule's decide(). An optional member is a concept of optional_members.hpp: MergesRounds.
template <class V>
concept Verifier = requires(V& v, const V& c, const TokenTree& tree, PhiloxRandom& rng, Tokens tokens,
                            std::int32_t n, const Sizes& sizes) {
  { V::lossless_for(ProposalKind{}) } -> std::same_as<bool>;         // its rule's
  { c.vocab_size() } -> std::same_as<std::int32_t>;
  { c.size() } -> std::same_as<std::int32_t>;                        // committed tokens of the target
  { c.room() } -> std::same_as<std::int32_t>;                        // nodes that still fit, root included
  // the target's (CountsChanges), by which Speculator notices another user; empty if it does not count
  { c.change_count() } -> std::convertible_to<std::optional<std::uint64_t>>;
  { c.cache_id() } -> std::same_as<const void*>;                     // the target's, see NamesItsCache; null for none
  { c.usage() } noexcept -> std::convertible_to<const Usage&>;       // of the target so far; empty if it does not count
  { c.params() } -> std::convertible_to<const SamplingParams&>;      // temperature, top-k, top-p, min-p of the text
  { c.logprobs() } -> std::same_as<Logprobs>;                        // of the last round, if requested; logprobs.hpp
  v.reserve(sizes);                                                  // allocates, once, by Speculator's constructor
  v.append(tokens);                                                  // the target's: the prompt but its last token
  v.truncate(n);                                                     // the target's
  { v.run_round(tree, rng) } -> std::convertible_to<const VerifyResult&>;  // valid until the next call
};

/// The verifier's rule keeps the target's distribution for proposals of the shape's kind. A Speculator of
/// another pair does not compile, unless the rule is wrapped in accept_lossy(rule), whose lossless_for() is
/// true for every kind, without the guarantee.
template <class V, class S>
concept Lossless = V::lossless_for(S::kind);

// clang-format on

}  // namespace specula
