// SPDX-License-Identifier: MIT
// What a language model is, and what it may have besides: a concept for each capability.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula {

/// Target state that a model is conditioned on.
enum class Conditioning {
  nothing,
  key_values,  // a GLIDE draft: cross attention to the target's KV cache
  features,    // a head (EAGLE, HASS): the target's hidden states
};

/// The name in error messages.
constexpr const char* name_of(Conditioning state) {
  return state == Conditioning::key_values ? "keys and values"
         : state == Conditioning::features ? "features"
                                           : "nothing";
}

// Words. Context: the committed tokens. Root: the newest token of the text (at first the prompt's last),
// which the target's KV cache does not hold yet; node 0 of every proposal. Node: a token below the context
// that is not committed yet; nodes form a tree. The proposal, the target and each drafter number their own
// nodes. Row: the V raw logits for the token after a node. In comments, (n, V) is a shape.

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

/// A model that is told which of its committed tokens are the text: set_context(n) says that the first n are,
/// that the next is the root of the round, and that further ones are draft tokens. A drafter calls it after
/// each sync(). append(), commit() and truncate() make all tokens the text again.
template <class M>
concept TakesContext = LanguageModel<M> && requires(M& m, std::int32_t n) {
  { m.set_context(n) } -> std::same_as<void>;
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

namespace detail {
template <class D, class View>
concept TakesView = requires(D& d, const View& view) { d.set_target_state(view); };
template <class D>
concept TakesKeyValues = TakesView<D, typename D::TargetKeyValues>;
template <class D>
concept TakesFeatures = TakesView<D, typename D::TargetFeatures>;
}  // namespace detail

/// A draft model that reads a view of the target in each of its passes: what key_values() returns, or
/// features(). Its drafter (Glide, FeatureHead) gives it the new view in every round, before the first pass. It
/// names the view's type, TargetKeyValues or TargetFeatures; a type that may read either names both.
template <class D>
concept TargetConditioned = LanguageModel<D> && requires(const D& c) {
  { c.conditioned_on() } -> std::same_as<Conditioning>;  // what it reads
  { c.keeps_speculation() } -> std::same_as<bool>;       // whether nodes that ran under one view are those that
                                                         // would run under the next
} && (detail::TakesKeyValues<D> || detail::TakesFeatures<D>);

/// A model that can run nodes without some of its blocks, in its own KV cache (self-speculative decoding). A
/// block is the attention or the MLP of one layer. append(), commit({}) and truncate() drop such nodes; the
/// cached keys and values of committed tokens keep their bits. While there are such nodes, a call that
/// commits one of them, or adds nodes that do not skip the same blocks, throws and changes nothing.
///
/// attention_similarity() tells how little each attention block changes its input, by which the drafter
/// LayerSkip chooses the blocks to skip: the cosine of the block's input and its output after the residual
/// addition, averaged over the context. (layers), near 1 where the block changes little; empty if not measured.
template <class M>
concept SkipsLayers = LanguageModel<M> && requires(M& m, const M& c, Tokens tokens, Nodes parents,
                                                   const SkippedBlocks& skipped) {
  { c.layers() } -> std::same_as<std::int32_t>;                                  // of one full pass
  { c.node_count() } -> std::same_as<std::int32_t>;                              // nodes, not committed
  { m.extend_skipping(tokens, parents, skipped) } -> std::same_as<LogitsView>;  // extend() without these blocks
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

/// A policy that names the KV cache that its text is in, by the address of the model: `const void* cache_id()
/// const`; null for none. Every verifier has it; a drafter of several names its members' (HasMembers).
/// Speculator and Stack reject two policies that use one cache. A model that wraps another one has it, too: its
/// name is that of the wrapped model.
template <class P>
concept NamesItsCache = requires(const P& p) {
  { p.cache_id() } -> std::same_as<const void*>;
};

// clang-format on

}  // namespace specula

namespace specula::detail {

// The types of the views that a wrapper of a draft takes, if what it wraps takes them: a base class.
template <class M, bool takes>
struct KeyValuesOf {};
template <class M>
struct KeyValuesOf<M, true> {
  using TargetKeyValues = typename M::TargetKeyValues;
};
template <class M, bool takes>
struct FeaturesOf {};
template <class M>
struct FeaturesOf<M, true> {
  using TargetFeatures = typename M::TargetFeatures;
};

/// The name of a model's KV cache: its address, or what a wrapper answers.
template <class M>
const void* cache_of(const M& model) {
  if constexpr (NamesItsCache<M>)
    return model.cache_id();
  else
    return &model;
}

/// The layers of one full pass, if the model can run less than one and so counts them; else 0.
template <class M>
std::int32_t layers_of(const M& model) {
  if constexpr (SkipsLayers<M>)
    return model.layers();
  else if constexpr (ExitsEarly<M>)
    return model.layers_to(model.exits() - 1);
  else
    return 0;
}

/// The clock of a model's passes: its own where it has one (TimesItself), else the monotonic one.
template <class M>
double pass_clock(const M& model) {
  if constexpr (TimesItself<M>)
    if (const std::optional<double> seconds = model.pass_seconds()) return *seconds;
  return monotonic_seconds();
}

/// Adds the time of the passes of `model` in a scope to `usage`, by pass_clock().
template <class M>
class PassWatch {
 public:
  PassWatch(const M& model, Usage& usage)
      : model_(&model),
        usage_(&usage),
        wall_(TimesItself<M> ? monotonic_seconds() : 0),
        begin_(pass_clock(model)) {}
  /// Since the pass_clock() `begin`, of a pass that others ran.
  PassWatch(const M& model, Usage& usage, double begin)
      : model_(&model), usage_(&usage), wall_(0), begin_(begin) {}
  ~PassWatch() {
    const double spent = pass_clock(*model_) - begin_;
    usage_->seconds += spent;
    if (wall_ > 0) usage_->waited_seconds += std::max(0.0, monotonic_seconds() - wall_ - spent);
  }
  PassWatch(const PassWatch&) = delete;
  PassWatch& operator=(const PassWatch&) = delete;

 private:
  const M* model_;
  Usage* usage_;
  double wall_, begin_;  // wall_ 0: what it waits is not counted
};

}  // namespace specula::detail
