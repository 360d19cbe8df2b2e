// SPDX-License-Identifier: MIT
// Models whose rows go through penalties, biases and a rule of the text, target and drafts alike.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <specula/model/processed.hpp>
#include <specula/model/processors.hpp>
#include <specula/pipeline.hpp>

namespace specula_tools {

/// A processor of what follows the prompt, such as a grammar.
class TextRule {
 public:
  virtual ~TextRule() = default;
  /// A text begins behind a prompt of so many tokens.
  virtual void begin(std::size_t prompt_tokens) = 0;
  virtual void operator()(specula::Tokens path, std::span<float> row) = 0;
};
/// Makes one for each of several texts at once.
using MakeTextRule = std::function<std::shared_ptr<TextRule>()>;

struct RowRules {
  specula::Penalties penalties;
  specula::Bias bias;
  MakeTextRule text = {};  // or empty
};

class ProcessedModels final : public specula::PipelineModels {
 public:
  /// References `models`.
  ProcessedModels(specula::PipelineModels& models, const RowRules& rules)
      : models_(models), rule_{rules.penalties, rules.bias, rules.text ? rules.text() : nullptr} {}
  ProcessedModels(const ProcessedModels&) = delete;
  ProcessedModels& operator=(const ProcessedModels&) = delete;

  /// Before each text; see TextRule.
  void begin(std::size_t prompt_tokens) {
    if (rule_.text) rule_.text->begin(prompt_tokens);
  }

  specula::AnyModel& target() override { return of("", models_.target()); }
  specula::AnyModel& draft(const std::string& name) override { return of(name, models_.draft(name)); }
  std::string target_name() const override { return models_.target_name(); }
  std::optional<specula::BigramTable> bigram() override { return models_.bigram(); }

 private:
  struct Rule {
    specula::Penalties penalties;
    specula::Bias bias;
    std::shared_ptr<TextRule> text;
    void operator()(specula::Tokens path, std::span<float> row) const {
      penalties(path, row);
      bias(path, row);
      if (text) (*text)(path, row);
    }
  };
  struct One {
    One(specula::AnyModel& model, const Rule& rule) : processed(model, rule), any(processed) {}
    specula::Processed<specula::AnyModel, Rule> processed;
    specula::AnyModel any;
  };
  specula::AnyModel& of(const std::string& name, specula::AnyModel& model) {
    return made_.try_emplace(name, model, rule_).first->second.any;
  }

  specula::PipelineModels& models_;
  Rule rule_;
  std::map<std::string, One> made_;
};

}  // namespace specula_tools
