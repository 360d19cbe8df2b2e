// SPDX-License-Identifier: MIT
// Models in GGUF files, inside llama.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "delaying_proxy.hpp"
#include "engine.hpp"
#include "llama_models.hpp"

namespace specula_tools {

class LlamaEngine final : public Engine {
 public:
  /// Throws UsageError without a target, and for a draft that is no [NAME=]PATH.
  explicit LlamaEngine(const ModelOptions& options);

  std::string default_pipeline() const override;
  void check(std::span<const specula::PipelineFactory> factories) const override;
  void open(std::span<const specula::PipelineFactory> factories) override;
  std::vector<specula::Token> encode(const std::string& text, bool controls) const override {
    return tokenizer_->encode(text, controls);
  }
  std::string bytes(specula::Token token) const override { return tokenizer_->bytes(token); }
  std::vector<specula::Token> ends() const override { return tokenizer_->ends(); }
  ChatVocabulary chat_vocabulary() const override { return tokenizer_->chat_vocabulary(); }
  std::optional<ChatTemplateText> chat_template() const override { return tokenizer_->chat_template(); }
  std::string the_target() const override { return "the target " + options_.target; }
  std::size_t longest_prompt(std::int32_t max_new_tokens) const override;
  bool decodes_alone(const std::string&) const override { return true; }
  bool tell_drafts(std::size_t, std::int32_t, std::ostream&) const override { return false; }
  MakeTextRule grammar(const std::string& text, bool of_schema) const override;
  void prepare(const EngineRoom& room) override;
  std::unique_ptr<TextBatch> batch(const std::string& pipeline, const specula::SamplingParams& params,
                                   std::int32_t texts) override;
  std::vector<NamedModel> measured(std::span<const std::string> drafts, specula::Tokens prompt) override;
  std::vector<double> delays() const override { return options_.rpc_delays; }
  void set_delay(double milliseconds) override;
  void add_settings(nlohmann::ordered_json& out) const override;
  std::vector<std::string> pieces() const override { return tokenizer_->pieces(); }

 private:
  specula::PipelineModels& loaded() override { return *models_; }
  GgufThreads threads() const;
  std::int32_t trained_for() const;

  ModelOptions options_;
  GgufFiles files_;
  std::deque<DelayingProxy> proxies_;
  std::optional<GgufModels> models_;
  std::optional<GgufTokenizer> tokenizer_;
};

}  // namespace specula_tools
