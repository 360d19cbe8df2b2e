// Named pipelines of Max-Gram, and cascades of several drafters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/draft/bigram.hpp"
#include "specula/draft/max_gram.hpp"
#include "specula/draft/stack.hpp"
#include "specula/pipeline/assemble.hpp"
#include "specula/shape/cascade.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/cost_aware.hpp"
#include "specula/shape/horizontal.hpp"
#include "specula/shape/vertical.hpp"

namespace specula::detail::pipelines {

/// Parsed options of Max-Gram. The paper's are min=1:bigram=table:past-end=no.
struct GramChoice {
  MaxGramOptions options{.min_match = 2, .past_end = true};
  std::string bigram = "both";  // without a match: table, text, both or none
};

inline MaxGram max_gram(PipelineModels& models, std::int32_t vocab, const GramChoice& choice) {
  if (choice.bigram == "none") return MaxGram(vocab, choice.options);
  if (choice.bigram == "text") return MaxGram(Bigram::online(vocab), choice.options);
  const auto table = models.bigram();
  if (choice.bigram == "both")
    return MaxGram(table ? Bigram::online(*table) : Bigram::online(vocab), choice.options);
  if (!table)
    throw PipelineError(
        "bigram=table: there is no table of bigrams for this target; write one with specula-bigram, or take "
        "bigram=text or bigram=none, which need none");
  return MaxGram(Bigram(*table), choice.options);
}

inline GramChoice parse_gram(PipelineSpec& spec) {
  GramChoice choice;
  choice.options.min_match = spec.count("min", choice.options.min_match, 1, 64);
  choice.options.past_end = spec.choice("past-end", "yes", {"yes", "no"}) == "yes";
  choice.bigram = spec.choice("bigram", choice.bigram, {"table", "text", "both", "none"});
  return choice;
}

/// A pipeline with Max-Gram as its only drafter.
template <class S>
PipelineFactory gram_factory(S shape, const GramChoice& choice, ParsedRule rule) {
  PipelineFactory factory;
  factory.drafters = {kMaxGram};
  factory.max_nodes = shape.nodes().most;
  factory.lossy = rule.lossy;
  factory.build = [=](PipelineModels& models, const SamplingParams& params) {
    AnyModel& target = models.target();
    return assemble(target, rule, params, max_gram(models, target.vocab_size(), choice), shape,
                    {kMaxGram});
  };
  return factory;
}

inline Chain<> parse_gram_chain(PipelineSpec& spec) {
  Chain<> shape;
  shape.length = spec.size("length", 10, 1, 256);
  shape.exit_below = static_cast<float>(spec.option("exit", 0, 0, 1));
  return shape;
}

/// Drafters of a cascade, best first: models, and Max-Gram as the last if there is one.
struct Drafters {
  std::vector<std::string> names;
  GramChoice gram;

  bool ends_in_gram() const { return names.back() == kMaxGram; }
  std::vector<std::string> models() const { return {names.begin(), names.end() - (ends_in_gram() ? 1 : 0)}; }
};

inline Drafters parse_drafters(PipelineSpec& spec, const char* fallback = kDefaultDraft) {
  Drafters drafters;
  for (std::string name = spec.word(""); !name.empty(); name = spec.word("")) drafters.names.push_back(name);
  if (drafters.names.empty()) drafters.names = {fallback, kMaxGram};
  if (drafters.names.size() < 2 || drafters.names.size() > 3)
    spec.fail("a cascade has two drafters, or three of which the last is max-gram");
  for (std::size_t i = 0; i < drafters.names.size(); ++i) {
    if (drafters.names[i] == kMaxGram && i + 1 < drafters.names.size())
      spec.fail("max-gram can only be the last drafter: it cannot review");
    for (std::size_t j = 0; j < i; ++j)  // one model holds one text
      if (drafters.names[j] == drafters.names[i]) spec.fail("two drafters are '" + drafters.names[i] + "'");
  }
  if (drafters.names.size() == 3 && !drafters.ends_in_gram())
    spec.fail("the last of three drafters must be max-gram");
  if (drafters.ends_in_gram()) drafters.gram = parse_gram(spec);
  return drafters;
}

/// Throws PipelineError if the members do not go together.
template <class... D>
Stack<D...> stack(D... members) {
  return of_pipeline([&] { return Stack<D...>{std::move(members)...}; });
}

/// `shape_of` gives the shape for a number of drafters, as an integral constant.
template <class ShapeOf>
PipelineFactory cascade_factory(PipelineSpec& spec, const Drafters& drafters, ShapeOf shape_of) {
  const auto factory_of = [&](auto shape, auto stack_of) {
    const auto rule = parse_rule(spec, shape.kind);
    PipelineFactory factory;
    factory.drafts = drafters.models();
    factory.drafters = drafters.names;
    factory.max_nodes = factory.draft_nodes = shape.nodes().most;
    if (factory.max_nodes > 1025) spec.fail("a proposal of more than 1024 draft tokens");
    factory.lossy = rule.lossy;
    factory.build = [=](PipelineModels& models, const SamplingParams& params) {
      return assemble(models.target(), rule, params, stack_of(models), shape, drafters.names);
    };
    return factory;
  };
  const auto model = [names = drafters.names](PipelineModels& models, std::size_t i) {
    return models.drafter(names[i]);
  };
  const auto gram = [choice = drafters.gram](PipelineModels& models) {
    return max_gram(models, models.target().vocab_size(), choice);
  };
  if (drafters.names.size() == 3)
    return factory_of(shape_of(std::integral_constant<std::size_t, 3>{}),
                      [=](PipelineModels& m) { return stack(model(m, 0), model(m, 1), gram(m)); });
  const auto shape = shape_of(std::integral_constant<std::size_t, 2>{});
  if (drafters.ends_in_gram())
    return factory_of(shape, [=](PipelineModels& m) { return stack(model(m, 0), gram(m)); });
  return factory_of(shape, [=](PipelineModels& m) { return stack(model(m, 0), model(m, 1)); });
}

template <Draw mode>
PipelineFactory horizontal(PipelineSpec& spec, const char* fallback) {
  return cascade_factory(spec, parse_drafters(spec, fallback), [&](auto drafters) {
    Horizontal<drafters, mode> shape;
    for (std::size_t i = 0; i < drafters; ++i) shape.counts[i] = spec.size("count", i == 0 ? 2 : 4, 0, 256);
    return shape;
  });
}

template <Draw mode>
PipelineFactory vertical(PipelineSpec& spec) {
  return cascade_factory(spec, parse_drafters(spec), [&](auto drafters) {
    Vertical<drafters, mode> shape;
    shape.reviews = spec.size("reviews", 2, 1, 64);
    shape.length = spec.size("length", drafters == 2 ? 4 : 3, 1, 64);
    shape.lenience = spec.option("lenience", 1, 1, 1000);
    return shape;
  });
}

template <std::size_t drafters, Draw mode>
Cascade<drafters, mode> parse_cascade(PipelineSpec& spec) {
  const std::vector<std::int32_t> fallback =
      drafters == 2 ? std::vector<std::int32_t>{4, 0, 10} : std::vector<std::int32_t>{4, 2, 0, 2, 0, 10};
  Cascade<drafters, mode> shape;
  const auto entries = spec.sizes("limits", fallback, fallback.size(), 0, 256);
  if (entries.size() != fallback.size())
    spec.fail("limits of " + std::to_string(drafters) + " drafters are " + std::to_string(fallback.size()) +
              " numbers, row after row of an upper triangle");
  std::size_t at = 0;
  for (std::size_t row = 0; row < drafters; ++row)
    for (std::size_t i = row; i < drafters; ++i) shape.limits[row][i] = entries[at++];
  shape.lenience = spec.option("lenience", 1, 1, 1000);
  return shape;
}

template <Draw mode>
PipelineFactory cascade(PipelineSpec& spec) {
  return cascade_factory(spec, parse_drafters(spec),
                         [&](auto drafters) { return parse_cascade<drafters, mode>(spec); });
}

inline PipelineFactory prepare_max_gram(PipelineSpec& spec) {
  const Chain<> shape = parse_gram_chain(spec);
  const GramChoice choice = parse_gram(spec);
  return gram_factory(shape, choice, parse_rule(spec, shape.kind));
}
inline PipelineFactory prepare_cost_aware_max_gram(PipelineSpec& spec) {
  const Chain<> shape = parse_gram_chain(spec);
  const GramChoice choice = parse_gram(spec);
  return gram_factory(CostAware(shape), choice, parse_rule(spec, shape.kind));
}
inline PipelineFactory prepare_prompt_lookup(PipelineSpec& spec) {
  const Chain<> shape = parse_gram_chain(spec);
  GramChoice choice{.options = {}, .bigram = "none"};
  choice.options.min_match = 1;
  choice.options.past_end = false;
  choice.options.max_match = spec.count("ngram", 3, 1, 64);
  return gram_factory(shape, choice, parse_rule(spec, shape.kind));
}

inline PipelineFactory prepare_horizontal(PipelineSpec& spec, Draw mode, const char* fallback = kDefaultDraft) {
  return mode == Draw::sampled ? horizontal<Draw::sampled>(spec, fallback)
                               : horizontal<Draw::greedy>(spec, fallback);
}
inline PipelineFactory prepare_vertical(PipelineSpec& spec, Draw mode) {
  return mode == Draw::sampled ? vertical<Draw::sampled>(spec) : vertical<Draw::greedy>(spec);
}
inline PipelineFactory prepare_cascade(PipelineSpec& spec, Draw mode) {
  return mode == Draw::sampled ? cascade<Draw::sampled>(spec) : cascade<Draw::greedy>(spec);
}
inline PipelineFactory prepare_cost_aware_cascade(PipelineSpec& spec) {
  return cascade_factory(spec, parse_drafters(spec), [&](auto drafters) {
    return CostAware(parse_cascade<drafters, Draw::greedy>(spec));
  });
}

}  // namespace specula::detail::pipelines
