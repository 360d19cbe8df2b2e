// SPDX-License-Identifier: MIT
// Text and tokens by the vocabulary of a GGUF model.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/base/rows.hpp"

namespace specula::llama_cpp {

namespace detail {

/// What `write(data, size)` writes, which returns its size, or minus that where there is no room for it.
template <class Container, class Write>
Container written(std::size_t guess, Write write) {
  Container out(guess, {});
  std::int32_t size = write(out.data(), static_cast<std::int32_t>(out.size()));
  if (size < 0) {
    out.resize(static_cast<std::size_t>(-size));
    size = write(out.data(), static_cast<std::int32_t>(out.size()));
  }
  out.resize(static_cast<std::size_t>(size > 0 ? size : 0));
  return out;
}

}  // namespace detail

/// The tokens of a text, after those with which the model's texts begin. With `special`, names of control
/// tokens, such as <|im_start|>, become these tokens; a text that begins with the model's beginning token, as
/// chat templates write it, gets no second one. Throws std::runtime_error if there are no tokens.
inline std::vector<Token> tokenize(const llama_vocab* vocab, std::string_view text, bool special = false) {
  const llama_token begin = llama_vocab_bos(vocab);
  if (special && llama_vocab_get_add_bos(vocab) && begin != LLAMA_TOKEN_NULL)
    if (const std::string_view name = llama_vocab_get_text(vocab, begin); text.starts_with(name))
      text.remove_prefix(name.size());
  auto tokens =
      detail::written<std::vector<Token>>(text.size() + 8, [&](llama_token* out, std::int32_t room) {
        return llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), out, room, true,
                              special);
      });
  if (tokens.empty()) throw std::runtime_error("the prompt has no tokens");
  return tokens;
}

/// The bytes that a token adds to a text; none for a control token. They may be parts of characters.
inline std::string token_bytes(const llama_vocab* vocab, Token token) {
  return detail::written<std::string>(64, [&](char* out, std::int32_t room) {
    return llama_token_to_piece(vocab, token, out, room, 0, false);
  });
}

/// Every token that ends a text, or an answer, ascending, for Limits::stop: there may be more than
/// llama_vocab_eos(). O(V).
inline std::vector<Token> end_tokens(const llama_vocab* vocab) {
  std::vector<Token> ends;
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token)
    if (llama_vocab_is_eog(vocab, token)) ends.push_back(token);
  return ends;
}

}  // namespace specula::llama_cpp
