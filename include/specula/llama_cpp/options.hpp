// SPDX-License-Identifier: MIT
// The options of the llama.cpp adapters.
#pragma once

#include <llama.h>

#include <cstdint>
#include <functional>

#include "specula/base/compiler_options.hpp"

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

}  // namespace specula::llama_cpp
