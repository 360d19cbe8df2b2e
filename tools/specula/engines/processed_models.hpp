// SPDX-License-Identifier: MIT
// Models whose rows go through penalties and biases, target and drafts alike.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include <specula/model/processed.hpp>
#include <specula/model/processors.hpp>
#include <specula/pipeline.hpp>

namespace specula_examples {

using RowRules = specula::InTurn<specula::Penalties, specula::Bias>;

class ProcessedModels final : public specula::PipelineModels {
 public:
  /// References `models`.
  ProcessedModels(specula::PipelineModels& models, RowRules rules)
      : models_(models), rules_(std::move(rules)) {}
  ProcessedModels(const ProcessedModels&) = delete;
  ProcessedModels& operator=(const ProcessedModels&) = delete;

  specula::AnyModel& target() override { return of("", models_.target()); }
  specula::AnyModel& draft(const std::string& name) override { return of(name, models_.draft(name)); }
  std::string target_name() const override { return models_.target_name(); }
  std::optional<specula::BigramTable> bigram() override { return models_.bigram(); }

 private:
  struct One {
    One(specula::AnyModel& model, const RowRules& rules) : processed(model, rules), any(processed) {}
    specula::Processed<specula::AnyModel, RowRules> processed;
    specula::AnyModel any;
  };
  specula::AnyModel& of(const std::string& name, specula::AnyModel& model) {
    return made_.try_emplace(name, model, rules_).first->second.any;
  }

  specula::PipelineModels& models_;
  RowRules rules_;
  std::map<std::string, One> made_;
};

}  // namespace specula_examples
