// SPDX-License-Identifier: MIT
// NamedModels: a program's models by name, for make_pipeline().
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "specula/draft/bigram.hpp"
#include "specula/runtime/any_model.hpp"
#include "specula/runtime/models.hpp"
#include "specula/runtime/spec.hpp"

namespace specula {

/// PipelineModels of models that are loaded already, of any types:
///
///   specula::NamedModels models{"llama-70b", target};
///   models.add("small", small).add("glide", glide);
///   auto pipeline = specula::make_pipeline("cape@glide", models);
///
/// The models are referenced; they and this must outlive the pipelines. It cannot be moved, as pipelines
/// refer to it.
class NamedModels final : public PipelineModels {
 public:
  /// References `target`; `target_name` is for error messages.
  template <LanguageModel T>
  NamedModels(std::string target_name, T& target) : target_name_(std::move(target_name)), target_(target) {}
  NamedModels(const NamedModels&) = delete;
  NamedModels& operator=(const NamedModels&) = delete;

  /// Throws std::invalid_argument if there is already a draft of this name.
  template <LanguageModel D>
  NamedModels& add(const std::string& name, D& draft) {
    if (!drafts_.try_emplace(name, draft).second)
      throw std::invalid_argument("NamedModels::add: there is a draft '" + name + "' already");
    return *this;
  }
  /// Sets the table that bigram() returns.
  NamedModels& set_bigram(BigramTable table) {
    bigram_ = std::move(table);
    return *this;
  }

  std::string target_name() const override { return target_name_; }
  AnyModel& target() override { return target_; }  ///< the model that verifies
  /// Throws PipelineError that lists the drafts if there is none of this name.
  AnyModel& draft(const std::string& name) override {
    if (const auto found = drafts_.find(name); found != drafts_.end()) return found->second;
    std::string known;
    for (const auto& [draft, model] : drafts_)
      known.append(known.empty() ? "; drafts are " : ", ").append(draft);
    throw PipelineError("there is no draft '" + name + "'" + known);
  }
  std::optional<BigramTable> bigram() override { return bigram_; }

 private:
  std::string target_name_;
  AnyModel target_;
  std::map<std::string, AnyModel> drafts_;
  std::optional<BigramTable> bigram_;
};

}  // namespace specula
