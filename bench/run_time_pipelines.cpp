// SPDX-License-Identifier: MIT
// What a pipeline by name costs beside the Speculator that it stands for: the same models, the same prompts
// and the same text, in turns. Prints a JSON line per run of a prompt; scripts/pipeline_cost summarises them.
// Fails if two texts differ.
//
//   bench_run_time_pipelines [PROMPTS REPETITIONS NEW_TOKENS]
//   bench_run_time_pipelines typed|named PIPELINE NEW_TOKENS   one prompt of one kind alone, to count its
//   instructions
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/pipeline.hpp>
#include <specula/specula.hpp>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define SPECULA_COUNT(what) CALLGRIND_##what
#else
#define SPECULA_COUNT(what)
#endif

namespace {

using namespace specula;
using Model = cpu::Decoder<float>;

constexpr std::size_t kPromptTokens = 48;

std::unique_ptr<Model> load(const char* name, const cpu::DecoderOptions& options,
                            const Model* lender = nullptr) {
  return std::make_unique<Model>(
      std::make_shared<const cpu::DecoderWeights<float>>(cpu::load_decoder_weights<float>(
          std::filesystem::path(SPECULA_MODELS_DIR) / name, lender ? lender->weights() : nullptr)),
      options);
}

struct Measured {
  std::vector<Token> text;
  double seconds;
};

/// A pipeline, whichever way it was made.
struct Contestant {
  std::string pipeline, kind;
  std::function<Measured(Tokens prompt, std::size_t new_tokens)> run;
};

template <class P>
Measured measure(P& pipeline, Tokens prompt, std::size_t new_tokens) {
  PhiloxRandom rng(7);
  pipeline.start(prompt);
  SPECULA_COUNT(START_INSTRUMENTATION);
  const std::clock_t before = std::clock();  // of the processor: other programs' turns are not counted
  while (pipeline.text().size() < prompt.size() + new_tokens) pipeline.step(rng);
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  SPECULA_COUNT(STOP_INSTRUMENTATION);
  const Tokens text = pipeline.text().first(prompt.size() + new_tokens);
  return {{text.begin(), text.end()}, seconds};
}

template <class MakeTyped>
void add(std::vector<Contestant>& out, const std::string& text, PipelineModels& models, float temperature,
         MakeTyped make_typed) {
  const auto typed = [&](const char* kind) {
    using Run = decltype(make_typed());
    const std::shared_ptr<Run> run(new Run(make_typed()));  // a Speculator does not move
    out.push_back({text, kind, [run](Tokens prompt, std::size_t n) { return measure(*run, prompt, n); }});
  };
  typed("typed");
  const std::shared_ptr<Pipeline> named = make_pipeline(text, models, {.temperature = temperature});
  out.push_back(
      {text, "named", [named](Tokens prompt, std::size_t n) { return measure(*named, prompt, n); }});
  typed("typed again");  // what the machine's noise alone makes of a ratio
}

/// The target's own text from a begin token.
std::vector<std::vector<Token>> write_prompts(Model& target, std::size_t count) {
  std::vector<std::vector<Token>> prompts;
  for (std::size_t p = 0; p < count; ++p) {
    Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0.9f, .top_p = 0.95f}},
                   NoDrafter{target.vocab_size()}, Chain<>{.length = 0}};
    PhiloxRandom rng(11, static_cast<std::uint32_t>(p));
    const std::vector<Token> begin{1};
    run.start(begin);
    while (run.text().size() < kPromptTokens) run.step(rng);
    prompts.emplace_back(run.text().begin(), run.text().end());
  }
  return prompts;
}

int measure_all(const std::vector<Contestant>& contestants, const std::vector<std::vector<Token>>& prompts,
                std::size_t repetitions, std::size_t new_tokens) {
  constexpr std::size_t kKinds = 3;
  for (std::size_t r = 0; r < repetitions; ++r)
    for (std::size_t p = 0; p < prompts.size(); ++p)
      for (std::size_t first = 0; first < contestants.size(); first += kKinds) {
        std::vector<Token> text;
        for (std::size_t k = 0; k < kKinds; ++k) {
          const Contestant& it = contestants[first + (k + r + p) % kKinds];
          const Measured got = it.run(prompts[p], new_tokens);
          if (k > 0 && got.text != text) {
            std::fprintf(stderr, "%s, %s: another text\n", it.pipeline.c_str(), it.kind.c_str());
            return 1;
          }
          text = got.text;
          std::printf(
              "{\"pipeline\": \"%s\", \"kind\": \"%s\", \"prompt\": %zu, \"repetition\": %zu, \"seconds\": "
              "%.9f}\n",
              it.pipeline.c_str(), it.kind.c_str(), p, r, got.seconds);
        }
      }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (!std::filesystem::exists(std::filesystem::path(SPECULA_MODELS_DIR) / "target" / "model.safetensors")) {
    std::puts("SKIP: no model pack");
    return 0;
  }
  const cpu::DecoderOptions options{.capacity = 512, .max_nodes = 64};
  const auto target = load("target", options), small = load("small", options),
             hass = load("hass", options, target.get());
  NamedModels models("target", *target);
  models.add("small", *small).add("hass", *hass);

  std::vector<Contestant> contestants;
  const auto verifier = [&](float temperature) {
    return TreeVerifier{*target, Sampling{}, {.temperature = temperature}};
  };
  add(contestants, "chain:4@small", models, 0.0f, [&] {
    return Speculator{verifier(0.0f), ModelDrafter{*small}, Chain<>{.length = 4}};
  });
  add(contestants, "chain:3:draw=sampled@small", models, 0.8f, [&] {
    return Speculator{verifier(0.8f), ModelDrafter{*small}, Chain<Draw::sampled>{.length = 3}};
  });
  add(contestants, "dynamic-tree:4:4:6@hass", models, 0.0f, [&] {
    return Speculator{verifier(0.0f), FeatureHead{*hass, *target},
                      DynamicTree{.top_k = 4, .expansions = 4, .total = 6}};
  });

  const auto number = [&](std::size_t i, std::size_t otherwise) {
    return arguments.size() > i ? static_cast<std::size_t>(std::strtoul(arguments[i].data(), nullptr, 10))
                                : otherwise;
  };
  if (!arguments.empty() && (arguments[0] == "typed" || arguments[0] == "named")) {
    const auto prompts = write_prompts(*target, 1);
    for (const Contestant& it : contestants)
      if (it.kind == arguments[0] && arguments.size() > 1 && it.pipeline == arguments[1])
        it.run(prompts[0], number(2, 16));
    return 0;
  }
  return measure_all(contestants, write_prompts(*target, number(0, 1)), number(1, 1), number(2, 12));
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_run_time_pipelines: %s\n", error.what());
  return 1;
}
