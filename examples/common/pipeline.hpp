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
  virtual Tokens step(specula::PhiloxChance& chance) = 0;
  /// To be called when another pipeline has used the same models since.
  virtual void forget() = 0;
  virtual Tokens text() const = 0;
  virtual std::int32_t room() const = 0;
  virtual const specula::Stats& stats() const = 0;
  virtual const specula::TokenTree& proposal() const = 0;
  virtual const specula::Verdict& verdict() const = 0;
  /// One entry a draft model, since the pipeline was made.
  virtual std::vector<DraftUsage> drafts() const = 0;
};

/// `draft_model` names the drafter's model; empty if it has none.
template <class V, class D, class S>
class PipelineOf final : public Pipeline {
 public:
  PipelineOf(V verifier, D drafter, S shape, std::string draft_model)
      : run_(std::move(verifier), std::move(drafter), std::move(shape)),
        draft_model_(std::move(draft_model)) {}

  void start(Tokens prompt) override { run_.start(prompt); }
  Tokens step(specula::PhiloxChance& chance) override { return run_.step(chance); }
  void forget() override { run_.forget(); }
  Tokens text() const override { return run_.text(); }
  std::int32_t room() const override { return run_.room(); }
  const specula::Stats& stats() const override { return run_.stats(); }
  const specula::TokenTree& proposal() const override { return run_.proposal(); }
  const specula::Verdict& verdict() const override { return run_.verdict(); }
  std::vector<DraftUsage> drafts() const override {
    if (draft_model_.empty()) return {};
    return {{draft_model_, run_.stats().draft}};
  }

 private:
  specula::Speculator<V, D, S> run_;
  std::string draft_model_;
};

}  // namespace specula_examples
