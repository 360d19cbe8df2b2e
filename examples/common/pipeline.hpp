// A pipeline whose policies were chosen at run time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <specula/specula.hpp>

namespace specula_examples {

using specula::Token;
using specula::Tokens;

/// What a drafter of a pipeline cost in its rounds.
struct DraftUsage {
  std::string model;
  specula::Usage usage;
};

/// specula::Speculator without its type parameters: one virtual call a round. Use the Speculator itself where
/// the policies are known when the program is compiled.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual void start(Tokens prompt) = 0;
  virtual Tokens step(specula::PhiloxRandom& rng) = 0;
  /// To be called when another pipeline has used the same models since.
  virtual void forget() = 0;
  virtual Tokens text() const = 0;
  virtual std::int32_t room() const = 0;
  virtual const specula::Stats& stats() const = 0;
  virtual const specula::TokenTree& proposal() const = 0;
  virtual const specula::VerifyResult& result() const = 0;
  /// One entry a drafter, since the pipeline was made.
  virtual std::vector<DraftUsage> drafts() const = 0;
  /// One entry a drafter of a cascade that reviews, since the pipeline was made.
  virtual std::vector<specula::Reviews> reviews() const { return {}; }
};

/// `drafters` names the drafter, or the members of its stack; empty for plain decoding.
template <class V, class D, class S>
class PipelineOf final : public Pipeline {
 public:
  PipelineOf(V verifier, D drafter, S shape, std::vector<std::string> drafters)
      : run_(std::move(verifier), std::move(drafter), std::move(shape)), drafters_(std::move(drafters)) {}

  void start(Tokens prompt) override { run_.start(prompt); }
  Tokens step(specula::PhiloxRandom& rng) override { return run_.step(rng); }
  void forget() override { run_.forget(); }
  Tokens text() const override { return run_.text(); }
  std::int32_t room() const override { return run_.room(); }
  const specula::Stats& stats() const override { return run_.stats(); }
  const specula::TokenTree& proposal() const override { return run_.proposal(); }
  const specula::VerifyResult& result() const override { return run_.result(); }
  std::vector<DraftUsage> drafts() const override {
    std::vector<DraftUsage> out;
    for (std::size_t i = 0; i < drafters_.size(); ++i)
      out.push_back({drafters_[i], run_.stats().drafters[i]});
    return out;
  }
  std::vector<specula::Reviews> reviews() const override {
    if constexpr (requires { run_.shape().reviewed(); }) {
      const auto reviewed = run_.shape().reviewed();
      return {reviewed.begin(), reviewed.end()};
    }
    return {};
  }

 private:
  specula::Speculator<V, D, S> run_;
  std::vector<std::string> drafters_;
};

}  // namespace specula_examples
