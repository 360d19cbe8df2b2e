// A pipeline whose policies were chosen at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specula/proposal/token_tree.hpp"
#include "specula/random_source.hpp"
#include "specula/rows.hpp"
#include "specula/stats.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// What a drafter of a pipeline cost in its rounds.
struct DraftUsage {
  std::string model;
  Usage usage;
};

/// Speculator without its type parameters: one virtual call a round. Use the Speculator itself where
/// the policies are known when the program is compiled.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual void start(Tokens prompt) = 0;
  virtual Tokens step(PhiloxRandom& rng) = 0;
  /// To be called when another pipeline has used the same models since.
  virtual void forget() = 0;
  virtual Tokens text() const = 0;
  virtual std::int32_t room() const = 0;
  virtual const Stats& stats() const = 0;
  virtual const TokenTree& proposal() const = 0;
  virtual const VerifyResult& result() const = 0;
  /// One entry a drafter, since the pipeline was made.
  virtual std::vector<DraftUsage> drafts() const = 0;
  /// One entry a drafter of a cascade that reviews, since the pipeline was made.
  virtual std::vector<Reviews> reviews() const { return {}; }
};

}  // namespace specula
