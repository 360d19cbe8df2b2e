// SPDX-License-Identifier: MIT
// A libllama context for the adapters, and what is checked before there is one.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "specula/base/read_number.hpp"
#include "specula/base/rows.hpp"
#include "specula/llama_cpp/detail/tree_sequences.hpp"
#include "specula/llama_cpp/load.hpp"
#include "specula/llama_cpp/options.hpp"

namespace specula::llama_cpp::detail {

/// Tokens of a prompt in one pass, at most, and in a micro-batch of libllama.
constexpr std::int32_t kPrefillChunk = 512;

[[noreturn]] inline void fail(const std::string& what) {
  throw std::invalid_argument("llama_cpp::Model: " + what);
}
template <class Sized>
std::int32_t count(const Sized& sized) {
  return static_cast<std::int32_t>(sized.size());
}
inline void expect_in(const char* what, std::int32_t value, std::int32_t low, std::int32_t high) {
  if (value < low || value > high)
    fail(std::string(what) + " is " + std::to_string(value) + ", must be " + std::to_string(low) + " to " +
         std::to_string(high));
}

/// `weights`, having thrown for a model that the adapters cannot run, or for an option out of range.
inline std::shared_ptr<llama_model> checked(std::shared_ptr<llama_model> weights, const Options& options) {
  const auto refuse = [](const char* why) { fail(std::string("a model that ") + why); };
  const llama_model* const model = weights.get();
  if (!model) refuse("is not there");
  if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model))
    refuse("is recurrent: its state cannot go back to an earlier token");
  if (llama_model_has_encoder(model) || !llama_model_has_decoder(model) || llama_model_is_diffusion(model))
    refuse("is no decoder that writes token by token");
  expect_in("capacity", options.capacity, 0, 1 << 30);
  // libllama reuses a cell outside the attention window if it finds one before an empty cell. With fewer
  // rejected nodes than the window's width no cell is outside it.
  const std::int32_t window = llama_model_n_swa(model);
  expect_in("max_nodes", options.max_nodes, 1, window > 0 ? window : 1 << 16);
  expect_in("max_leaves", options.max_leaves, 1, kMaxSequences);
  expect_in("threads", options.threads, 0, 1 << 12);
  expect_in("vocab_size", options.vocab_size, 0, llama_vocab_n_tokens(llama_model_get_vocab(model)));
  return weights;
}

/// Of a text: the option, or what the model was trained for.
inline std::int32_t capacity(const llama_model& model, const Options& options) {
  const std::int32_t all = options.capacity ? options.capacity : llama_model_n_ctx_train(&model);
  if (all < 1) fail("capacity is 0, and the file does not say what the model was trained for");
  return all;
}

inline void check_tokens(Tokens tokens, std::int32_t vocab) {
  for (const Token token : tokens)
    if (token < 0 || token >= vocab)
      fail("extend or append: token " + std::to_string(token) + ", must be 0 to " +
           std::to_string(vocab - 1));
}
inline void check_room(const char* call, std::int32_t used, std::size_t wanted, std::int32_t capacity) {
  if (wanted > static_cast<std::size_t>(capacity - used))
    fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
         std::to_string(capacity) + " tokens in use, " + std::to_string(wanted) + " more asked for");
}

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Context = std::unique_ptr<llama_context, FreeContext>;

struct ContextSizes {
  std::int32_t tokens;   // in the cache, of a text
  std::int32_t pass;     // tokens and nodes
  std::int32_t outputs;  // rows
  std::int32_t sequences;
  bool streams = false;  // each sequence has a cache of its own, with `tokens` cells
};

/// Numbers of a head's keys or values, `part`: what the file says, or the width over the heads.
inline std::int32_t head_size(const llama_model& model, const std::string& part) {
  char text[64];
  std::int32_t size = 0;
  std::string key = "general.architecture";
  if (llama_model_meta_val_str(&model, key.c_str(), text, sizeof text) > 0) {
    key = std::string(text) + ".attention." + part + "_length";
    if (llama_model_meta_val_str(&model, key.c_str(), text, sizeof text) > 0 &&
        specula::detail::read_number(text, size))
      return size;
  }
  return llama_model_n_embd(&model) / std::max(llama_model_n_head(&model), std::int32_t{1});
}

/// Options::same_bits has caches of Q8_0, which are blocks of 32 numbers.
inline void expect_whole_blocks(const llama_model& model) {
  for (const char* part : {"key", "value"})
    if (const std::int32_t size = head_size(model, part); size % 32 != 0)
      fail("same_bits: a head has " + std::to_string(size) + " numbers per " + part +
           ", must be a multiple of 32: leave it out; in cpu::Decoder (specula run --engine cpu) rows have "
           "the "
           "same bits in every pass without it");
}

/// Throws std::runtime_error if libllama cannot create it; std::invalid_argument for heads that
/// Options::same_bits cannot have.
inline Context make_context(const std::shared_ptr<llama_model>& weights, const Options& options,
                            const ContextSizes& sizes) {
  llama_context_params params = llama_context_default_params();
  params.n_ubatch = static_cast<std::uint32_t>(std::min(sizes.pass, kPrefillChunk));
  if (options.threads > 0) params.n_threads = params.n_threads_batch = options.threads;
  if (options.same_bits) {
    expect_whole_blocks(*weights);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_Q8_0;
  }
  if (options.adjust) options.adjust(params);
  // On a CPU, flash attention runs row by row, and takes longer the longer the context.
  const auto* const loaded = std::get_deleter<FreeModel>(weights);
  const bool on_gpu = loaded ? loaded->on_gpu : uses_gpu(llama_model_default_params());
  if (params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_AUTO && !on_gpu &&
      !ggml_is_quantized(params.type_v))  // quantised values require it
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::int32_t caches = sizes.streams ? sizes.sequences : 1;
  constexpr std::int32_t kCells = 256;  // of which libllama gives each stream a multiple
  const std::int32_t each = caches > 1 ? (sizes.tokens + kCells - 1) / kCells * kCells : sizes.tokens;
  params.n_ctx = static_cast<std::uint32_t>(each) * static_cast<std::uint32_t>(caches);
  params.n_batch = static_cast<std::uint32_t>(sizes.pass);
  params.n_seq_max = static_cast<std::uint32_t>(sizes.sequences);
  params.kv_unified = !sizes.streams;
  params.swa_full = true;  // otherwise a window's cache drops cells that a rollback needs
  params.attention_type = LLAMA_ATTENTION_TYPE_CAUSAL;
  params.pooling_type = LLAMA_POOLING_TYPE_NONE;
  params.samplers = nullptr;  // with samplers libllama returns no logits
  params.n_samplers = 0;
  params.embeddings = options.features;
  // Less memory for the largest pass than with one row per token.
  params.n_outputs_max = std::max(static_cast<std::uint32_t>(sizes.outputs), params.n_seq_max);
  Context context(llama_init_from_model(weights.get(), params));
  if (!context)
    throw std::runtime_error("llama_init_from_model: libllama cannot make a context (its log says why)");
  if (!llama_get_memory(context.get())) fail("a model without a cache");
  if (static_cast<std::int32_t>(llama_n_ctx_seq(context.get())) < sizes.tokens ||
      static_cast<std::int32_t>(llama_n_batch(context.get())) < sizes.pass)
    throw std::runtime_error("llama_init_from_model: a smaller context than asked for");
  return context;
}

/// What a code that llama_decode() returned means.
inline std::string meaning(int code) {
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

}  // namespace specula::llama_cpp::detail
