// What drafters that look into the target share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "../concepts.hpp"
#include "../stats.hpp"

namespace specula::detail {

/// Keeps a draft model that reads memory of the target in step with the text. `Sight` has a `name` for
/// messages, and `of(target)`, the view. Only tokens that were fed as context stay in the draft's cache:
/// whatever was speculation was calculated while the target had not seen all before it. Allocates in the
/// constructor only.
template <LanguageModel D, LanguageModel T, class Sight>
class LookingDrafter {
 public:
  LookingDrafter(D& model, T& target) : model_(&model), target_(&target) {
    if (model.vocab_size() != target.vocab_size())
      throw std::invalid_argument(std::string(Sight::name) + ": the draft's vocabulary has " +
                                  std::to_string(model.vocab_size()) + " tokens, the target's " +
                                  std::to_string(target.vocab_size()));
    model.look_into(Sight::of(target));  // complains now, if it cannot
    guess_.reserve(static_cast<std::size_t>(model.capacity()));
  }

  std::int32_t vocab_size() const { return model_->vocab_size(); }
  std::int32_t capacity() const { return model_->capacity(); }
  const Usage& usage() const { return usage_; }

  /// Forgets speculation, and committed tokens from `n` on.
  void truncate(std::int32_t n) {
    known_ = std::min(n, known_);
    guess_.clear();
    model_->truncate(known_);
  }

  /// Brings the draft to `context` followed by `guess`. `context` must extend the last one, and be what the
  /// target holds now. The last guess is kept as far as it is this one, if the context is the last one too.
  /// Throws, having changed nothing, std::invalid_argument on a shorter context and std::logic_error where
  /// the target holds more or fewer tokens. Cost: the draft's pass over the new tokens and the guess, unless
  /// it is lazy.
  void sync(Tokens context, Tokens guess) {
    if (context.size() < static_cast<std::size_t>(known_))
      throw std::invalid_argument(std::string(Sight::name) + "::sync: a context of " +
                                  std::to_string(context.size()) + " tokens after one of " +
                                  std::to_string(known_) + "; truncate first");
    if (static_cast<std::size_t>(target_->size()) != context.size())
      throw std::logic_error(std::string(Sight::name) + "::sync: a context of " +
                             std::to_string(context.size()) + " tokens, but the target holds " +
                             std::to_string(target_->size()) + "; bring the target there first");
    const Stopwatch watch(usage_.seconds);
    const Tokens fresh = context.subspan(static_cast<std::size_t>(known_));
    std::size_t kept = 0;
    if (fresh.empty())
      while (kept < std::min(guess_.size(), guess.size()) && guess_[kept] == guess[kept]) ++kept;
    // Should a call below throw, the model holds at least this.
    guess_.resize(kept);
    model_->truncate(known_ + static_cast<std::int32_t>(kept));  // forgets the nodes too
    model_->look_into(Sight::of(*target_));
    if (!fresh.empty()) model_->append(fresh);
    if (kept < guess.size()) model_->append(guess.subspan(kept));
    known_ = static_cast<std::int32_t>(context.size());
    guess_.assign(guess.begin(), guess.end());
  }

  /// Rows after new nodes; see Drafter. Cost: one pass of the draft.
  RowsView extend(Tokens tokens, Nodes parents) {
    const Stopwatch watch(usage_.seconds);
    const RowsView rows = model_->extend(tokens, parents);
    ++usage_.calls;
    usage_.nodes += static_cast<std::int64_t>(tokens.size());
    return rows;
  }

 private:
  D* model_;
  T* target_;
  std::int32_t known_ = 0;    // tokens that the model was fed as context
  std::vector<Token> guess_;  // and those behind them
  Usage usage_;
};

}  // namespace specula::detail
