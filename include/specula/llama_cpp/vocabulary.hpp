// SPDX-License-Identifier: MIT
// Checks that two GGUF models share a vocabulary.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "specula/base/rows.hpp"

namespace specula::llama_cpp {

/// Number of tokens that two vocabularies share, for Options::vocab_size of both models: all of them, or the
/// shorter one's number if the longer one adds only padding (unused tokens, as between sizes of one model
/// family). Throws std::runtime_error naming the first token that differs, or the model whose file has no
/// vocabulary. O(V).
inline std::int32_t shared_vocabulary(const llama_model& target, const llama_model& draft) {
  const llama_vocab* const p = llama_model_get_vocab(&target);
  const llama_vocab* const q = llama_model_get_vocab(&draft);
  const auto differs = [](Token token, const std::string& ours, const std::string& theirs) {
    throw std::runtime_error("the draft does not have the target's vocabulary: token " +
                             std::to_string(token) + " is " + ours + " in the target and " + theirs +
                             " in the draft");
  };
  const auto text = [](const llama_vocab* vocab, Token token) {
    const char* const known = llama_vocab_get_text(vocab, token);
    return std::string_view(known ? known : "");
  };
  const auto quoted = [](std::string_view word) { return std::string("'").append(word).append("'"); };
  for (const llama_vocab* vocab : {p, q})  // libllama aborts on a request for their texts
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
      throw std::runtime_error(std::string("the ") + (vocab == p ? "target" : "draft") +
                               "'s file has no vocabulary to compare");

  const std::int32_t sizes[] = {llama_vocab_n_tokens(p), llama_vocab_n_tokens(q)};
  const std::int32_t shared = std::min(sizes[0], sizes[1]);
  for (Token token = 0; token < shared; ++token)
    if (text(p, token) != text(q, token)) differs(token, quoted(text(p, token)), quoted(text(q, token)));

  const bool longer = sizes[0] > sizes[1];  // the target's
  const llama_vocab* const rest = longer ? p : q;
  for (Token token = shared; token < std::max(sizes[0], sizes[1]); ++token)
    if (!(llama_vocab_get_attr(rest, token) & LLAMA_TOKEN_ATTR_UNUSED)) {
      const std::string word = quoted(text(rest, token)), none = "not there";
      differs(token, longer ? word : none, longer ? none : word);
    }
  return shared;
}

}  // namespace specula::llama_cpp
