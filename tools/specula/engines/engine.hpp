// SPDX-License-Identifier: MIT
// Engine: a target and its drafts as the commands use them, wherever they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <specula/pipeline.hpp>

#include "chat.hpp"
#include "chat_template.hpp"
#include "decoding_options.hpp"
#include "errors.hpp"
#include "passes.hpp"
#include "processed_models.hpp"
#include "text_batch.hpp"

namespace specula_tools {

/// What a run asks of the models.
struct EngineRoom {
  std::span<const specula::PipelineFactory> factories;       // that may be built
  std::span<const std::vector<specula::Token>> before = {};  // what may precede each text
  std::int32_t max_new_tokens = 1;
  std::int32_t texts = 1;  // at once
};

/// Room for passes over so many nodes, as a pipeline that is not built.
inline specula::PipelineFactory room_of(std::int32_t nodes) {
  return {.drafts = {}, .exits = {}, .drafters = {}, .max_nodes = nodes, .draft_nodes = nodes, .build = {}};
}

/// A pipeline whose rounds stay on the device has this before its name.
inline constexpr std::string_view kOnDevice = "device:";
inline bool is_on_device(std::string_view pipeline) { return pipeline.starts_with(kOnDevice); }
/// prepare_pipeline() of the name without that.
inline specula::PipelineFactory prepare_named(std::string_view pipeline) {
  if (is_on_device(pipeline)) pipeline.remove_prefix(kOnDevice.size());
  return specula::prepare_pipeline(pipeline);
}

/// In this order: it is made, check(), open(), prepare(), then the models. Errors are UsageError where the
/// command line is wrong.
class Engine {
 public:
  virtual ~Engine() = default;

  // ---- by the files' names
  /// The pipeline where none is named: with the first draft that was given, else as the models allow.
  virtual std::string default_pipeline() const = 0;
  /// Throws for a model that is not there, and for a pipeline that the engine does not run. Reads no weights.
  virtual void check(std::span<const specula::PipelineFactory> factories) const = 0;

  // ---- the target's texts
  /// Reads the tokenizer, and what the models say of themselves.
  virtual void open(std::span<const specula::PipelineFactory> factories) = 0;
  /// The tokens of a prompt. `controls`: names of control tokens in it are these tokens.
  virtual std::vector<specula::Token> encode(const std::string& text, bool controls) const = 0;
  /// That a token adds to a text.
  virtual std::string bytes(specula::Token token) const = 0;
  /// Each ends a text.
  virtual std::vector<specula::Token> ends() const = 0;
  /// What a chat needs of the tokenizer, which it must not outlive.
  virtual ChatVocabulary chat_vocabulary() const = 0;
  /// The target's; nothing if it has none.
  virtual std::optional<ChatTemplateText> chat_template() const = 0;
  /// The tokens as the target's file spells them; empty where there is none of the number.
  virtual std::vector<std::string> pieces() const = 0;
  /// "the target FILE"
  virtual std::string the_target() const = 0;
  /// Tokens of the longest prompt that leaves room for so many more where the target was trained.
  virtual std::size_t longest_prompt(std::int32_t max_new_tokens) const = 0;
  /// Whether "autoregressive@NAME" runs: the draft needs nothing of the target.
  virtual bool decodes_alone(const std::string& draft) const = 0;
  /// Tells the user of drafts that were trained for less; returns whether there is one.
  virtual bool tell_drafts(std::size_t prompt_tokens, std::int32_t max_new_tokens,
                           std::ostream& notes) const = 0;

  // ---- the models
  /// Sets their sizes. Throws where prompts or memory do not allow them. To be called once.
  virtual void prepare(const EngineRoom& room) = 0;
  specula::PipelineModels& models() { return processed(loaded()); }
  /// The pipeline over models(), or of its rounds on the device. Throws UsageError where there are none.
  std::unique_ptr<specula::Pipeline> build(const std::string& pipeline,
                                           const specula::SamplingParams& params) {
    if (!is_on_device(pipeline)) return prepare_named(pipeline).build(models(), params);
    if (rules_)
      throw UsageError("--rounds device: penalties, biases and grammars are for rounds on the host");
    return rounds(pipeline.substr(kOnDevice.size()), params);
  }
  /// From here on the rows of models() and of batch() go through these.
  void set_rules(RowRules rules) { rules_.emplace(std::move(rules)); }
  /// A grammar in llama.cpp's notation, for RowRules; `of_schema`: it was made of --json-schema. Throws
  /// UsageError where the engine has none, or cannot read it. Requires open().
  virtual MakeTextRule grammar(const std::string&, bool of_schema) const {
    throw UsageError(std::string(of_schema ? "--json-schema" : "--grammar") +
                     " is for --engine llama.cpp, by libllama's sampler");
  }
  /// Before each text of so many prompt tokens, in models() or in a slot of batch().
  void begin_text(std::int32_t slot, std::size_t prompt_tokens) {
    for (auto& [models, own] : processed_)
      if (own.slot == slot) own.models.begin(prompt_tokens);
  }
  /// To be called when models() have read a prompt and written a token: looks at the prompt's end, and tells
  /// the user of a head of these names that is hardly ever right. Throws HeadRefused for one that never is.
  virtual void check_heads(std::span<const std::string>, specula::Tokens, std::ostream&) {}
  /// A pipeline that writes so many texts at once; EngineRoom::texts is at least that.
  virtual std::unique_ptr<TextBatch> batch(const std::string& pipeline, const specula::SamplingParams& params,
                                           std::int32_t texts) = 0;
  /// The target and these drafts, to measure their passes after `prompt`, which must outlive them.
  virtual std::vector<NamedModel> measured(std::span<const std::string> drafts, specula::Tokens prompt) = 0;

  // ---- several machines
  /// Milliseconds of one way that are to be compared; empty: none are made.
  virtual std::vector<double> delays() const { return {}; }
  virtual void set_delay(double) {}

  // ---- what it says of itself
  /// Of its options, before the models are loaded.
  virtual void add_settings(nlohmann::ordered_json& out) const = 0;
  /// Of the loaded models.
  virtual void add_loaded(nlohmann::ordered_json&) {}

 protected:
  virtual std::unique_ptr<specula::Pipeline> rounds(const std::string&, const specula::SamplingParams&) {
    throw UsageError("--rounds device is for --engine cuda");
  }
  /// The models with their own rows.
  virtual specula::PipelineModels& loaded() = 0;
  /// These, or with rules such whose rows go through them.
  specula::PipelineModels& processed(specula::PipelineModels& models, std::int32_t slot = 0) {
    if (!rules_) return models;
    return processed_.try_emplace(&models, slot, models, *rules_).first->second.models;
  }

 private:
  struct OfSlot {
    OfSlot(std::int32_t s, specula::PipelineModels& own, const RowRules& rules)
        : slot(s), models(own, rules) {}
    std::int32_t slot;
    ProcessedModels models;
  };
  std::optional<RowRules> rules_;
  std::map<specula::PipelineModels*, OfSlot> processed_;
};

/// The engine that the options of `app` ask for; `options.engine` is its name then. Throws UsageError for one
/// that this program was built without, and for options of another one; `also` is what else has options.
std::unique_ptr<Engine> make_engine(const CLI::App& app, ModelOptions& options, const std::string& also = {});

}  // namespace specula_tools
