// SPDX-License-Identifier: MIT
// Type-erased pipeline, whose policies are chosen at run time.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/stats.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/run/generate.hpp"
#include "specula/run/limits.hpp"
#include "specula/run/run_record.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

class CostModel;

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
  virtual std::int32_t room() const = 0;                         ///< see Speculator::room()
  virtual NodeCounts nodes() const = 0;                          ///< see Speculator::nodes()
  virtual ProposalKind kind() const = 0;                         ///< see Speculator::kind()
  virtual const void* batch() const { return nullptr; }          ///< see Speculator::batch()

  /// See Speculator::begin().
  virtual void begin(PhiloxRandom& rng, Tokens stop = {}, CostModel* cost_model = nullptr,
                     std::int32_t max_nodes = std::numeric_limits<std::int32_t>::max()) = 0;
  bool in_round() const { return record().in_round(); }                         ///< see RunRecord::in_round()
  const PassRequest* want() { return record().want(); }                         ///< see RunRecord::want()
  void give(const LogitsView& rows) { record().give(rows); }                    ///< see RunRecord::give()
  void fail(std::exception_ptr failure) { record().fail(std::move(failure)); }  ///< see RunRecord::fail()
  const DraftCall* bid() { return record().bid(); }                             ///< see RunRecord::bid()
  bool proposed() const { return record().proposed(); }                         ///< see RunRecord::proposed()
  void grant(bool pays) { record().grant(pays); }                               ///< see RunRecord::grant()
  /// See Speculator::keep(); throws std::logic_error if draft tokens are drawn.
  virtual void keep(std::span<const std::uint8_t> kept) = 0;
  virtual Tokens end() = 0;    ///< see Speculator::end()
  virtual void abandon() = 0;  ///< see Speculator::abandon()

  /// specula::generate() of this object: start(), then rounds until one of the limits, with a sink for each
  /// round's tokens.
  template <class Sink>
  Generated generate(Tokens prompt, const Limits& limits, PhiloxRandom rng, Sink sink) {
    return specula::generate(*this, prompt, limits, rng, std::move(sink));
  }

  virtual const SamplingParams& params() const = 0;                 ///< see TreeVerifier::params()
  virtual void set_params(const SamplingParams& params) = 0;        ///< see TreeVerifier::set_params()
  virtual void report_logprobs(const LogprobOptions& options) = 0;  ///< see TreeVerifier::report_logprobs()
  virtual void report_no_logprobs() = 0;                            ///< see TreeVerifier
  virtual Logprobs logprobs() const = 0;                            ///< see Speculator::logprobs()

  Tokens text() const { return record().text(); }                     ///< see RunRecord::text()
  std::int32_t vocab_size() const { return record().vocab_size(); }   ///< see RunRecord::vocab_size()
  const TokenTree& proposal() const { return record().proposal(); }   ///< see RunRecord::proposal()
  const VerifyResult& result() const { return record().result(); }    ///< see RunRecord::result()
  std::int32_t emitted() const { return record().emitted(); }         ///< see RunRecord::emitted()
  void count_emitted(std::int32_t n) { record().count_emitted(n); }   ///< see RunRecord::count_emitted()
  const Stats& stats() const { return record().stats(); }             ///< see RunRecord::stats()
  void reset_stats() { record().reset_stats(); }                      ///< see RunRecord::reset_stats()
  std::string draft_error() const { return record().draft_error(); }  ///< see RunRecord::draft_error()
  std::exception_ptr draft_failure() const { return record().draft_failure(); }  ///< see RunRecord
  RunRecord::InSink enter_sink() { return record().enter_sink(); }  ///< see RunRecord::enter_sink()

  /// One entry per drafter, since the pipeline was created.
  virtual std::vector<DraftUsage> drafts() const = 0;
  /// One entry per drafter of a cascade that reviews, since the pipeline was created.
  virtual std::vector<Reviews> reviews() const { return {}; }

 protected:
  virtual RunRecord& record() = 0;              ///< the Speculator's
  virtual const RunRecord& record() const = 0;  ///< the same
};

}  // namespace specula
