// Type-erased pipeline, whose policies are chosen at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// Usage of one drafter of a pipeline.
struct DraftUsage {
  std::string model;  ///< name of its model
  Usage usage;        ///< since the pipeline was created
};

/// Speculator without its type parameters: one virtual call per round. Use Speculator itself if the policies
/// are known at compile time.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual void start(Tokens prompt) = 0;                         ///< see Speculator::start()
  virtual Tokens step(PhiloxRandom& rng, Tokens stop = {}) = 0;  ///< see Speculator::step()
  virtual void forget() = 0;                                     ///< see Speculator::forget()
  virtual Tokens text() const = 0;                               ///< see Speculator::text()
  virtual std::int32_t room() const = 0;                         ///< see Speculator::room()
  virtual const Stats& stats() const = 0;                        ///< see Speculator::stats()
  virtual std::string draft_error() const { return {}; }         ///< see Speculator::draft_error()
  virtual const TokenTree& proposal() const = 0;                 ///< see Speculator::proposal()
  virtual const VerifyResult& result() const = 0;                ///< see Speculator::result()
  /// One entry per drafter, since the pipeline was created.
  virtual std::vector<DraftUsage> drafts() const = 0;
  /// One entry per drafter of a cascade that reviews, since the pipeline was created.
  virtual std::vector<Reviews> reviews() const { return {}; }
};

}  // namespace specula
