// The pipelines that the programs know, by name. A new one is an entry in registry() and the function it
// names.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "errors.hpp"
#include "pipeline.hpp"
#include "pipeline_spec.hpp"

namespace specula_examples {

/// Where the models of a pipeline come from.
template <specula::LanguageModel M>
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual M& target() = 0;
  virtual M& draft(const std::string& name) = 0;
};

/// A pipeline before its models are loaded: the name is understood, its values are in range.
template <class M>
struct Recipe {
  std::vector<std::string> drafts;  // models that it needs besides the target
  std::int32_t max_nodes = 1;       // of its proposals, root included
  bool lossy = false;
  std::function<std::unique_ptr<Pipeline>(ModelSource<M>&, const specula::SamplingParams&)> build;
};

template <class M>
struct RegistryEntry {
  const char* name;
  const char* usage;
  const char* summary;
  Recipe<M> (*prepare)(PipelineSpec&);
};

inline constexpr const char* kDefaultDraft = "small";
// Chosen by racing a few on the shipped prompts and models: where a length is not asked for, the greedy chain also ends
// after a guess that the draft itself doubts.
inline constexpr std::int32_t kDefaultChainLength = 4;
inline constexpr double kDefaultExit = 0.6;
inline constexpr std::int32_t kDefaultSampledChainLength = 2;

template <class M, class R, class D, class S>
std::unique_ptr<Pipeline> assemble(M& target, R rule, const specula::SamplingParams& params, D drafter,
                                   S shape, std::string draft_model) {
  using V = specula::TreeVerifier<M, R>;
  return std::make_unique<PipelineOf<V, D, S>>(V{target, rule, params}, std::move(drafter), std::move(shape),
                                               std::move(draft_model));
}

/// Takes the option lenient=L: a lossy rule instead of the exact one.
template <class M, class D, class S>
std::unique_ptr<Pipeline> assemble_with_rule(double lenience, M& target,
                                             const specula::SamplingParams& params, D drafter, S shape,
                                             std::string draft_model) {
  if (lenience > 1)
    return assemble(target, specula::accept_lossy(specula::Lenient{lenience}), params, std::move(drafter),
                    std::move(shape), std::move(draft_model));
  return assemble(target, specula::Sampling{}, params, std::move(drafter), std::move(shape),
                  std::move(draft_model));
}

template <class M>
Recipe<M> prepare_autoregressive(PipelineSpec&) {
  return {.drafts = {}, .build = [](ModelSource<M>& models, const specula::SamplingParams& params) {
            M& target = models.target();
            return assemble(target, specula::Sampling{}, params, specula::NoDrafter{target.vocab_size()},
                            specula::Chain<>{.length = 0}, "");
          }};
}

template <class M, specula::Draw mode>
Recipe<M> prepare_chain(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  specula::Chain<mode> shape;
  constexpr bool greedy = mode == specula::Draw::greedy;
  const std::int32_t asked = spec.size("length", 0, 1, 64);
  shape.length = asked ? asked : greedy ? kDefaultChainLength : kDefaultSampledChainLength;
  shape.exit_below = static_cast<float>(spec.option("exit", greedy && !asked ? kDefaultExit : 0, 0, 1));
  const double lenience = spec.option("lenient", 1, 1, 1000);
  return {.drafts = {draft},
          .max_nodes = shape.max_nodes(),
          .lossy = lenience > 1,
          .build = [=](ModelSource<M>& models, const specula::SamplingParams& params) {
            return assemble_with_rule(lenience, models.target(), params,
                                      specula::ModelDrafter{models.draft(draft)}, shape, draft);
          }};
}

template <class M>
std::span<const RegistryEntry<M>> registry() {
  static constexpr std::array kEntries{
      RegistryEntry<M>{"autoregressive", "autoregressive", "plain decoding, the baseline",
                       &prepare_autoregressive<M>},
      RegistryEntry<M>{"chain", "chain[:DRAFT][:LENGTH][:exit=PROB][:lenient=L]",
                       "the draft's likeliest tokens one after the other",
                       &prepare_chain<M, specula::Draw::greedy>},
      RegistryEntry<M>{"sampled-chain", "sampled-chain[:DRAFT][:LENGTH][:exit=PROB][:lenient=L]",
                       "tokens drawn from the draft, judged by rejection sampling",
                       &prepare_chain<M, specula::Draw::sampled>},
  };
  return kEntries;
}

/// The known pipelines, a line each, for help texts.
template <class M>
std::string describe_pipelines() {
  std::string text;
  for (const auto& entry : registry<M>())
    text += std::string("  ") + entry.usage + "\n      " + entry.summary + "\n";
  return text;
}

/// Throws UsageError if `name` is no known pipeline, or its parts are not what that pipeline takes.
template <class M>
Recipe<M> prepare_pipeline(const std::string& name) {
  PipelineSpec spec(name);
  for (const auto& entry : registry<M>())
    if (spec.name() == entry.name) {
      Recipe<M> recipe = entry.prepare(spec);
      spec.done(entry.usage);
      return recipe;
    }
  std::string known;
  for (const auto& entry : registry<M>()) known += std::string(known.empty() ? "" : ", ") + entry.usage;
  throw UsageError("unknown pipeline '" + name + "'; known are " + known);
}

}  // namespace specula_examples
