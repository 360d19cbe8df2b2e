// SPDX-License-Identifier: MIT
// llama.cpp adapter: a specula::LanguageModel over libllama, for decoders with a KV cache.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/llama_cpp/detail/context.hpp"
#include "specula/llama_cpp/detail/tree_sequences.hpp"
#include "specula/llama_cpp/options.hpp"
#include "specula/model/features.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::llama_cpp {

/// One libllama context with one text; several may share the weights of a model. Rows refer to libllama's
/// memory. libllama's order of summation depends on the number of tokens, so a row differs by rounding from
/// that of a pass over its token alone, with quantised weights by up to one unit of a logit, unless
/// Options::same_bits is set.
///
/// The adapter allocates in the constructor only, but with same_bits also where a commit() of a path with
/// gaps moves cells by a larger copy than any before. Not for concurrent calls.
class Model {
 public:
  /// At most this many appended tokens wait for the next pass, which then reads the weights once for both.
  static constexpr std::int32_t kLazyTokens = 16;

  /// Throws std::invalid_argument for an option out of range, for a model that is no text decoder or whose
  /// cache cannot drop tokens (recurrent and hybrid models), and if same_bits cannot be had;
  /// std::runtime_error if libllama cannot create a context.
  explicit Model(std::shared_ptr<llama_model> weights, const Options& options = {})
      : weights_(detail::checked(std::move(weights), options)),
        capacity_(detail::capacity(*weights_, options)),
        max_nodes_(options.max_nodes),
        chunk_(std::min(capacity_,
                        std::max(options.features ? 0 : detail::kPrefillChunk, kLazyTokens + max_nodes_))),
        row_size_(llama_vocab_n_tokens(llama_model_get_vocab(weights_.get()))),
        vocab_(options.vocab_size ? options.vocab_size : row_size_),
        width_(options.features ? llama_model_n_embd_out(weights_.get()) : 0),
        same_bits_(options.same_bits),
        context_(detail::make_context(weights_, options,
                                      {.tokens = capacity_,
                                       .pass = chunk_,
                                       .outputs = options.features ? chunk_ : max_nodes_,
                                       .sequences = leaves(options)})),
        sequences_(llama_get_memory(context_.get()), max_nodes_, leaves(options), chunk_) {
    const auto entries = static_cast<std::size_t>(chunk_);
    positions_.resize(entries);
    id_counts_.resize(entries);
    ids_.resize(entries);
    outputs_.resize(entries);
    tokens_.reserve(entries);
    waiting_.reserve(static_cast<std::size_t>(capacity_));
    features_.resize(static_cast<std::size_t>(width_) * static_cast<std::size_t>(capacity_));
    if (same_bits_) expect_same_bits();
  }

  Model(const Model&) = delete;  // its views and sequences hold its address
  Model& operator=(const Model&) = delete;

  std::int32_t vocab_size() const { return vocab_; }                           ///< size V of the rows
  std::int32_t size() const { return sequences_.cached() + count(waiting_); }  ///< committed tokens
  std::int32_t capacity() const { return capacity_; }                  ///< tokens and nodes that it can hold
  std::int32_t node_count() const { return sequences_.node_count(); }  ///< nodes, not committed
  /// Calls that changed this model; see CountsChanges. A view is valid for one count.
  std::uint64_t change_count() const { return change_count_.now(); }
  /// To be called after libllama was told to compute something else for the same tokens: LoRA adapters or a
  /// control vector of context(), changed tensors of weights(). Counts as a change: start() then keeps no
  /// prefix, and step() within a text throws.
  void context_changed() { change_count_.next(); }

  /// Prefill: commits `tokens` and drops all nodes. At most kLazyTokens wait for the next extend(), more run
  /// at once. Throws std::invalid_argument for a token out of range or a full context, and changes nothing;
  /// std::runtime_error if libllama fails: the context is then unchanged, without nodes.
  void append(Tokens tokens) {
    check_tokens(tokens);
    check_room("append", size(), tokens.size());
    change_count_.next();
    sequences_.commit({});
    const std::size_t before = waiting_.size();
    waiting_.insert(waiting_.end(), tokens.begin(), tokens.end());
    if (count(waiting_) <= kLazyTokens) return;
    try {
      run_waiting();
    } catch (...) {
      waiting_.resize(before);
      throw;
    }
  }

  /// Tree forward: adds one node per token, under `parents`: earlier nodes, also of this call, or kNoParent
  /// for the end of the context. Returns the logits (n, V) of the new nodes, valid until the next call. One
  /// llama_decode(). Throws std::invalid_argument for a bad token or parent, too many nodes or leaves, or a
  /// full context; std::runtime_error (or what libllama throws) if libllama fails. Either way, changes
  /// nothing.
  LogitsView extend(Tokens tokens, Nodes parents) {
    check_tokens(tokens);
    check_parents(tokens.size(), parents);
    check_room("extend", size() + node_count(), tokens.size());
    change_count_.next();
    if (tokens.empty()) return {nullptr, 0, vocab_, row_size_};
    const std::int32_t first = width_ > 0 ? count(waiting_) : 0;  // index of the first returned row
    run(waiting_, tokens, parents);
    waiting_.clear();
    return {llama_get_logits(context_.get()) + static_cast<std::ptrdiff_t>(first) * row_size_, count(tokens),
            vocab_, row_size_};
  }

  /// Commits the accepted path: its nodes, the first a child of the context and each a child of the one
  /// before, join the context; all other nodes are dropped. An empty path drops all. Computes nothing, but
  /// with Options::same_bits copies the cells after a rejected node. Throws std::invalid_argument, and
  /// changes nothing, if `path` is not such a path; std::runtime_error if libllama cannot copy.
  void commit(Nodes path) {
    for (std::size_t i = 0; i < path.size(); ++i)
      if (path[i] < 0 || path[i] >= node_count() ||
          sequences_.parent(path[i]) != (i ? path[i - 1] : kNoParent))
        fail("commit: node " + std::to_string(path[i]) + " at place " + std::to_string(i) +
             ", must be a path of nodes from the context down");
    change_count_.next();
    float* to = feature(size());
    for (const NodeId node : path) {
      if (const float* const from = feature(size() + node); from != to) std::copy_n(from, width_, to);
      to += width_;
    }
    sequences_.commit(path);
    std::size_t in_place = 0;  // nodes that lie where those of a chain would
    while (in_place < path.size() && path[in_place] == static_cast<NodeId>(in_place)) ++in_place;
    if (same_bits_ && in_place < path.size())
      sequences_.gather(context_.get(), size() - count(path.subspan(in_place)));
  }

  /// KV cache rollback: drops all nodes, and the committed tokens from `n` on. Throws std::invalid_argument,
  /// and changes nothing, unless 0 <= n <= size().
  void truncate(std::int32_t n) {
    if (n < 0 || n > size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " + std::to_string(size()));
    change_count_.next();
    waiting_.resize(static_cast<std::size_t>(std::max(0, n - sequences_.cached())));
    sequences_.truncate(n);
  }

  /// Hidden states that enter the LM head, per committed token, if Options::features is set. Runs tokens that
  /// append() left waiting first. Valid until the next call of another member. Throws std::logic_error if no
  /// features are kept, std::runtime_error if libllama fails.
  FeaturesView<float> features() {
    if (width_ == 0) throw std::logic_error("llama_cpp::Model: features: Options::features is off");
    if (!waiting_.empty()) run_waiting();
    return {features_.data(), size(), width_, width_, specula::detail::ViewGuard(change_count_)};
  }

  /// The libllama context, for example to attach thread pools or read counters. Callers must not change its
  /// cache or what the constructor sets (Options::adjust), and call context_changed() after they have
  /// changed its adapters.
  llama_context* context() const { return context_.get(); }
  /// The libllama model, which may be shared.
  const std::shared_ptr<llama_model>& weights() const { return weights_; }

 private:
  template <class Sized>
  static std::int32_t count(const Sized& sized) {
    return detail::count(sized);
  }
  [[noreturn]] static void fail(const std::string& what) { detail::fail(what); }
  static std::int32_t leaves(const Options& options) {
    return std::min(options.max_leaves, options.max_nodes);
  }

  /// Throws std::invalid_argument unless a pass over several tokens gives the first the row of a pass over it
  /// alone. So it sees products that run several rows together; leaves the context empty.
  void expect_same_bits() {
    const std::vector<Token> tokens(static_cast<std::size_t>(std::min({8, max_nodes_, capacity_})),
                                    vocab_ / 2);
    std::vector<NodeId> parents(tokens.size());
    std::iota(parents.begin(), parents.end(), kNoParent);
    const auto together = extend(tokens, parents).row(0);
    const std::vector<float> row(together.begin(), together.end());
    truncate(0);
    const auto alone = extend(Tokens(tokens).first(1), Nodes(parents).first(1)).row(0);
    if (!std::equal(row.begin(), row.end(), alone.begin()))
      fail("same_bits: this libllama computes a row of " + std::to_string(tokens.size()) +
           " tokens otherwise than that of one: load() the weights with use_extra_bufts off; F32, F16, "
           "BF16 and IQ4_NL need a ggml without llamafile's products (scripts/llama_cpp --same-bits), "
           "K-quants the "
           "environment variable GGML_CPU_TILED_MM=0; devices other than CPUs may not allow it");
    truncate(0);
  }

  void check_tokens(Tokens tokens) const { detail::check_tokens(tokens, vocab_); }
  void check_room(const char* call, std::int32_t used, std::size_t wanted) const {
    detail::check_room(call, used, wanted, capacity_);
  }
  void check_parents(std::size_t tokens, Nodes parents) const {
    if (parents.size() != tokens)
      fail("extend: " + std::to_string(tokens) + " tokens and " + std::to_string(parents.size()) +
           " parents");
    if (tokens > static_cast<std::size_t>(max_nodes_ - node_count()))
      fail("extend: " + std::to_string(node_count()) + " nodes and " + std::to_string(tokens) +
           " more, but max_nodes is " + std::to_string(max_nodes_));
    for (std::int32_t i = 0; i < count(parents); ++i)
      if (const NodeId parent = parents[static_cast<std::size_t>(i)], node = node_count() + i;
          parent != kNoParent && (parent < 0 || parent >= node))
        fail("extend: parent " + std::to_string(parent) + " of node " + std::to_string(node) +
             ", must be an earlier node or kNoParent");
  }

  /// Storage of the feature of the token at `position`; a node's index is size() plus its number.
  float* feature(std::int32_t position) {
    return features_.data() + static_cast<std::ptrdiff_t>(position) * width_;
  }

  /// Runs the waiting tokens, in passes of at most `chunk_`. If one fails, all tokens wait again.
  void run_waiting() {
    const std::int32_t before = sequences_.cached();
    try {
      for (Tokens rest = waiting_; !rest.empty();) {
        const Tokens now = rest.first(std::min(rest.size(), static_cast<std::size_t>(chunk_)));
        run(now, {}, {});
        rest = rest.subspan(now.size());
      }
    } catch (...) {
      sequences_.truncate(before);
      throw;
    }
    waiting_.clear();
    llama_synchronize(context_.get());  // on a GPU: else the next pass's time includes this one's
  }

  /// One pass over tokens of the context and nodes after them.
  void run(Tokens waiting, Tokens nodes, Nodes parents) {
    sequences_.expect_own();
    const std::int32_t slot = sequences_.cached() + sequences_.node_count();
    sequences_.plan(count(waiting), parents);
    tokens_.assign(waiting.begin(), waiting.end());
    tokens_.insert(tokens_.end(), nodes.begin(), nodes.end());
    for (std::int32_t entry = 0; entry < sequences_.entries(); ++entry) {
      const auto i = static_cast<std::size_t>(entry);
      const auto ids = sequences_.ids(entry);
      positions_[i] = sequences_.position(entry);
      id_counts_[i] = count(ids);
      ids_[i] = ids.data();
      outputs_[i] = width_ > 0 || entry >= count(waiting);
    }
    int code = 0;
    const float* features = nullptr;
    try {
      code = llama_decode(context_.get(), {.n_tokens = sequences_.entries(),
                                           .token = tokens_.data(),
                                           .embd = nullptr,
                                           .pos = positions_.data(),
                                           .n_seq_id = id_counts_.data(),
                                           .seq_id = ids_.data(),
                                           .logits = outputs_.data()});
      if (code == 0 && width_ > 0) features = llama_get_embeddings(context_.get());
    } catch (...) {  // libllama is C++ inside, and may throw std::bad_alloc
      sequences_.take_back();
      throw;
    }
    if (code != 0 || (width_ > 0 && !features)) {
      sequences_.take_back();
      throw std::runtime_error("llama_decode of " + std::to_string(count(tokens_)) + " tokens after " +
                               std::to_string(slot) + ": " + detail::meaning(code));
    }
    sequences_.mark_decoded();
    if (features) std::copy_n(features, static_cast<std::ptrdiff_t>(count(tokens_)) * width_, feature(slot));
  }

  std::shared_ptr<llama_model> weights_;
  std::int32_t capacity_, max_nodes_;
  std::int32_t chunk_;                     // maximum number of tokens in a pass
  std::int32_t row_size_, vocab_, width_;  // width_ 0: no features
  bool same_bits_;
  detail::Context context_;
  detail::TreeSequences sequences_;
  specula::detail::ChangeCount change_count_;
  std::vector<Token> waiting_;   // the last tokens of the context, not in the cache yet
  std::vector<float> features_;  // (capacity, width)

  // The batch, (chunk) each.
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<std::int32_t> id_counts_;
  std::vector<llama_seq_id*> ids_;
  std::vector<std::int8_t> outputs_;
};

}  // namespace specula::llama_cpp
