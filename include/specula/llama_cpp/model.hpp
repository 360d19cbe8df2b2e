// llama.cpp adapter: a specula::LanguageModel over libllama, for decoders with a KV cache.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/llama_cpp/detail/tree_sequences.hpp"
#include "specula/llama_cpp/load.hpp"
#include "specula/model/features.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::llama_cpp {

/// Sizes of a Model, and its libllama parameters.
struct Options {
  std::int32_t capacity = 0;     ///< tokens and nodes in the KV cache; 0: the model's trained context, which
                                 ///< may exceed the memory
  std::int32_t max_nodes = 64;   ///< maximum number of nodes at a time
  std::int32_t max_leaves = 64;  ///< of a tree; at most 256
  std::int32_t threads = 0;      ///< 0: libllama's default
  std::int32_t vocab_size = 0;   ///< rows have the first n tokens; 0: all. See shared_vocabulary()
  bool features = false;         ///< keep hidden states; every token then goes through the LM head
  /// On CPUs: a row has the same bits whatever else the pass runs, so that speculation and plain decoding
  /// with this option write one text. Sets flash attention, which computes each row alone, and Q8_0 for the
  /// cache: where keys and values are F16, libllama splits one row by threads, and 64 or more by tiles; F32
  /// is cast to F16. For heads of no multiple of 32 numbers, `adjust` may set BF16 for both. Accepted nodes
  /// are moved together. Requires load() without extra buffer types. The constructor compares a row of two
  /// passes, and throws std::invalid_argument if the build of ggml, the weights or a device do not allow it.
  bool same_bits = false;
  /// Sets other libllama parameters: called before the context is created. The adapter then overrides those
  /// that it relies on: sizes, one cache for all sequences, whole windows, causal attention, no pooling, no
  /// samplers.
  std::function<void(llama_context_params&)> adjust = {};
};

/// One libllama context with one text; several may share the weights of a model. Rows refer to libllama's
/// memory. libllama's order of summation depends on the number of tokens, so a row differs by rounding from
/// that of a pass over its token alone, with quantised weights by up to one unit of a logit, unless
/// Options::same_bits is set.
///
/// The adapter allocates in the constructor only. Not for concurrent calls.
class Model {
 public:
  /// At most this many appended tokens wait for the next pass, which then reads the weights once for both.
  static constexpr std::int32_t kLazyTokens = 16;

  /// Throws std::invalid_argument for an option out of range, for a model that is no text decoder or whose
  /// cache cannot drop tokens (recurrent and hybrid models), and if same_bits cannot be had;
  /// std::runtime_error if libllama cannot create a context.
  explicit Model(std::shared_ptr<llama_model> weights, const Options& options = {})
      : weights_(checked(std::move(weights), options)),
        capacity_(capacity(*weights_, options)),
        max_nodes_(options.max_nodes),
        chunk_(std::min(capacity_, std::max(options.features ? 0 : kPrefillChunk, kLazyTokens + max_nodes_))),
        row_size_(llama_vocab_n_tokens(llama_model_get_vocab(weights_.get()))),
        vocab_(options.vocab_size ? options.vocab_size : row_size_),
        width_(options.features ? llama_model_n_embd_out(weights_.get()) : 0),
        same_bits_(options.same_bits),
        context_(make_context(options)),
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
  /// with Options::same_bits copies the cells behind a rejected node. Throws std::invalid_argument, and
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
  static constexpr std::int32_t kPrefillChunk = 512;

  [[noreturn]] static void fail(const std::string& what) {
    throw std::invalid_argument("llama_cpp::Model: " + what);
  }
  template <class Sized>
  static std::int32_t count(const Sized& sized) {
    return static_cast<std::int32_t>(sized.size());
  }

  static std::shared_ptr<llama_model> checked(std::shared_ptr<llama_model> weights, const Options& options) {
    const auto refuse = [](const char* why) { fail(std::string("a model that ") + why); };
    const auto in_range = [](const char* what, std::int32_t value, std::int32_t low, std::int32_t high) {
      if (value < low || value > high)
        fail(std::string(what) + " is " + std::to_string(value) + ", must be " + std::to_string(low) +
             " to " + std::to_string(high));
    };
    const llama_model* const model = weights.get();
    if (!model) refuse("is not there");
    if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model))
      refuse("is recurrent: its state cannot go back to an earlier token");
    if (llama_model_has_encoder(model) || !llama_model_has_decoder(model) || llama_model_is_diffusion(model))
      refuse("is no decoder that writes token by token");
    in_range("capacity", options.capacity, 0, 1 << 30);
    // libllama reuses a cell outside the attention window if it finds one before an empty cell. With fewer
    // rejected nodes than the window's width no cell is outside it.
    const std::int32_t window = llama_model_n_swa(model);
    in_range("max_nodes", options.max_nodes, 1, window > 0 ? window : 1 << 16);
    in_range("max_leaves", options.max_leaves, 1, detail::kMaxSequences);
    in_range("threads", options.threads, 0, 1 << 12);
    in_range("vocab_size", options.vocab_size, 0, llama_vocab_n_tokens(llama_model_get_vocab(model)));
    return weights;
  }

  static std::int32_t capacity(const llama_model& model, const Options& options) {
    const std::int32_t all = options.capacity ? options.capacity : llama_model_n_ctx_train(&model);
    if (all < 1) fail("capacity is 0, and the file does not say what the model was trained for");
    return all;
  }
  static std::int32_t leaves(const Options& options) {
    return std::min(options.max_leaves, options.max_nodes);
  }

  struct FreeContext {
    void operator()(llama_context* context) const { llama_free(context); }
  };
  using Context = std::unique_ptr<llama_context, FreeContext>;

  Context make_context(const Options& options) const {
    llama_context_params params = llama_context_default_params();
    params.n_ubatch = static_cast<std::uint32_t>(std::min(chunk_, kPrefillChunk));
    if (options.threads > 0) params.n_threads = params.n_threads_batch = options.threads;
    if (options.same_bits) {
      params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
      params.type_k = params.type_v = GGML_TYPE_Q8_0;
    }
    if (options.adjust) options.adjust(params);
    // On a CPU, flash attention runs row by row, and takes longer the longer the context.
    const auto* const loaded = std::get_deleter<detail::FreeModel>(weights_);
    const bool on_gpu = loaded ? loaded->on_gpu : detail::uses_gpu(llama_model_default_params());
    if (params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_AUTO && !on_gpu &&
        !ggml_is_quantized(params.type_v))  // quantised values require it
      params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.n_ctx = static_cast<std::uint32_t>(capacity_);
    params.n_batch = static_cast<std::uint32_t>(chunk_);
    params.n_seq_max = static_cast<std::uint32_t>(leaves(options));
    params.kv_unified = true;  // all sequences share one cache
    params.swa_full = true;    // otherwise a window's cache drops cells that a rollback needs
    params.attention_type = LLAMA_ATTENTION_TYPE_CAUSAL;
    params.pooling_type = LLAMA_POOLING_TYPE_NONE;
    params.samplers = nullptr;  // with samplers libllama returns no logits
    params.n_samplers = 0;
    params.embeddings = options.features;
    // Less memory for the largest pass than with one row per token.
    params.n_outputs_max =
        std::max(static_cast<std::uint32_t>(options.features ? chunk_ : max_nodes_), params.n_seq_max);
    Context context(llama_init_from_model(weights_.get(), params));
    if (!context)
      throw std::runtime_error("llama_init_from_model: libllama cannot make a context (its log says why)");
    if (!llama_get_memory(context.get())) fail("a model without a cache");
    if (static_cast<std::int32_t>(llama_n_ctx(context.get())) < capacity_ ||
        static_cast<std::int32_t>(llama_n_batch(context.get())) < chunk_)
      throw std::runtime_error("llama_init_from_model: a smaller context than asked for");
    return context;
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

  void check_tokens(Tokens tokens) const {
    for (const Token token : tokens)
      if (token < 0 || token >= vocab_)
        fail("extend or append: token " + std::to_string(token) + ", must be 0 to " +
             std::to_string(vocab_ - 1));
  }
  void check_room(const char* call, std::int32_t used, std::size_t wanted) const {
    if (wanted > static_cast<std::size_t>(capacity_ - used))
      fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
           std::to_string(capacity_) + " tokens in use, " + std::to_string(wanted) + " more asked for");
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
                               std::to_string(slot) + ": " + meaning(code));
    }
    sequences_.mark_decoded();
    if (features) std::copy_n(features, static_cast<std::ptrdiff_t>(count(tokens_)) * width_, feature(slot));
  }

  static std::string meaning(int code) {
    const std::string returned = " (it returned " + std::to_string(code) + ")";
    switch (code) {
      case 0:
        return "no features came back";
      case 1:
        return "no room in the cache" + returned;
      case 2:
        return "aborted" + returned;
      case -1:
        return "it does not accept the batch" + returned;
      default:
        return "it failed" + returned;
    }
  }

  std::shared_ptr<llama_model> weights_;
  std::int32_t capacity_, max_nodes_;
  std::int32_t chunk_;                     // maximum number of tokens in a pass
  std::int32_t row_size_, vocab_, width_;  // width_ 0: no features
  bool same_bits_;
  Context context_;
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
