// SPDX-License-Identifier: MIT
// A grammar as a logit processor, by libllama's sampler.
#pragma once

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"

namespace specula::llama_cpp {

/// A grammar in llama.cpp's notation (GBNF) as a processor for Processed, of target and draft: after a path
/// it leaves the tokens that go on with a text of the grammar, and those that end a text where one is
/// complete.
///
///   const specula::llama_cpp::Grammar grammar(llama_model_get_vocab(file.get()), "root ::= [0-9]+");
///   specula::Processed target(model, grammar);
///   ...
///   grammar.begin(prompt.size());  // before each text
///
/// It is a function of the path from `from` on, so it is right for every node of a tree and after every
/// rollback. What it has parsed is kept by path, in common to all copies: of the longest path and kStates
/// tokens more, each with a copy of the grammar's rules; beyond that it begins anew. Copies are of one
/// thread.
/// **Cost.** Of a row: the states of the path's new tokens, each a copy of the last, then a look at every
/// token that has a finite logit. **Throws.** Constructor: std::invalid_argument for a grammar that libllama
/// does not read, and for a vocabulary without texts. A call: std::invalid_argument for a row longer than the
/// vocabulary; std::runtime_error for a path that the grammar does not allow, which Processed asks nothing
/// about.
class Grammar {
 public:
  static constexpr std::size_t kStates = 1024;  ///< parsed tokens that are kept beyond one path

  /// The vocabulary must outlive it. `from`: see begin().
  Grammar(const llama_vocab* vocab, const std::string& text, std::size_t from = 0,
          const std::string& root = "root")
      : shared_(std::make_shared<Shared>()) {
    if (!vocab || llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
      throw std::invalid_argument("llama_cpp::Grammar: the model's file has no vocabulary");
    Sampler sampler(llama_sampler_init_grammar(vocab, text.c_str(), root.c_str()));
    if (!sampler || text.empty())
      throw std::invalid_argument(
          "llama_cpp::Grammar: libllama cannot read the grammar, or it has no rule '" + root + "'");
    shared_->vocab = vocab;
    shared_->states.push_back({std::move(sampler), {}});
    shared_->from = from;
  }

  /// The text of the grammar begins with the token of this index: the prompt's length. For all copies.
  void begin(std::size_t from) const { shared_->from = from; }

  /// Gives -infinity to the tokens that must not follow.
  void operator()(Tokens path, std::span<float> row) const {
    Shared& all = *shared_;
    if (row.size() > static_cast<std::size_t>(llama_vocab_n_tokens(all.vocab)))
      throw std::invalid_argument("llama_cpp::Grammar: a row of " + std::to_string(row.size()) +
                                  " tokens, and a vocabulary of " +
                                  std::to_string(llama_vocab_n_tokens(all.vocab)));
    const std::size_t state = state_of(path.subspan(std::min(path.size(), all.from)));
    all.candidates.clear();
    for (std::size_t token = 0; token < row.size(); ++token)
      if (std::isfinite(row[token]))
        all.candidates.push_back({static_cast<llama_token>(token), row[token], 0});
    llama_token_data_array candidates{all.candidates.data(), all.candidates.size(), -1, false};
    llama_sampler_apply(all.states[state].sampler.get(), &candidates);
    for (std::size_t i = 0; i < candidates.size; ++i)
      row[static_cast<std::size_t>(candidates.data[i].id)] = candidates.data[i].logit;
  }

 private:
  struct Free {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
  };
  using Sampler = std::unique_ptr<llama_sampler, Free>;
  /// After a path: the first, after none.
  struct State {
    Sampler sampler;
    std::unordered_map<Token, std::size_t> next;
  };
  struct Shared {
    const llama_vocab* vocab = nullptr;
    std::vector<State> states;
    std::size_t from = 0;
    std::vector<llama_token_data> candidates;
  };

  /// Throws std::runtime_error unless the token may follow: libllama ends the process for some that must not.
  static void expect_allowed(llama_sampler* sampler, Token token) {
    llama_token_data one{token, 0, 0};
    llama_token_data_array candidates{&one, 1, -1, false};
    llama_sampler_apply(sampler, &candidates);
    if (!std::isfinite(one.logit))
      throw std::runtime_error("llama_cpp::Grammar: the text has token " + std::to_string(token) +
                               ", which the grammar does not allow there");
  }
  std::size_t state_of(Tokens text) const {
    std::vector<State>& states = shared_->states;
    if (states.size() > kStates + text.size()) {
      states.resize(1);
      states[0].next.clear();
    }
    std::size_t at = 0;
    for (const Token token : text) {
      const auto found = states[at].next.find(token);
      if (found != states[at].next.end()) {
        at = found->second;
        continue;
      }
      expect_allowed(states[at].sampler.get(), token);
      Sampler sampler(llama_sampler_clone(states[at].sampler.get()));
      llama_sampler_accept(sampler.get(), token);
      states.push_back({std::move(sampler), {}});
      states[at].next.emplace(token, states.size() - 1);
      at = states.size() - 1;
    }
    return at;
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace specula::llama_cpp
