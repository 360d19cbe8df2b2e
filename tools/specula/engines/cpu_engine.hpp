// SPDX-License-Identifier: MIT
// specula's own decoder, on the CPU or on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chat.hpp"
#include "cuda_models.hpp"
#include "engine.hpp"
#include "model_configs.hpp"
#include "model_pack.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

class CpuEngine final : public Engine {
 public:
  /// `options.engine` is "cpu" or "cuda". Throws UsageError for a draft that is no [NAME=]PATH.
  explicit CpuEngine(const ModelOptions& options);

  std::string default_pipeline() const override;
  void check(std::span<const specula::PipelineFactory> factories) const override;
  void open(std::span<const specula::PipelineFactory> factories) override;
  std::vector<specula::Token> encode(const std::string& text, bool controls) const override;
  std::string bytes(specula::Token token) const override { return tokenizer_->bytes(token); }
  std::vector<specula::Token> ends() const override { return tokenizer_->ends(); }
  ChatVocabulary chat_vocabulary() const override { return specula_tools::chat_vocabulary(*tokenizer_); }
  std::optional<ChatTemplateText> chat_template() const override;
  std::vector<std::string> pieces() const override { return tokenizer_->pieces(); }
  std::string the_target() const override { return "the target " + folders_.target_folder().string(); }
  std::size_t longest_prompt(std::int32_t max_new_tokens) const override {
    return configs_->longest_prompt(max_new_tokens);
  }
  bool decodes_alone(const std::string& draft) const override {
    return folders_.conditioned_on(draft) == specula::Conditioning::nothing;
  }
  bool tell_drafts(std::size_t prompt_tokens, std::int32_t max_new_tokens,
                   std::ostream& notes) const override {
    return configs_->tell_drafts(prompt_tokens, max_new_tokens, notes);
  }
  void prepare(const EngineRoom& room) override;
  void check_heads(std::span<const std::string> drafts, specula::Tokens prompt, std::ostream& notes) override;
  std::unique_ptr<TextBatch> batch(const std::string& pipeline, const specula::SamplingParams& params,
                                   std::int32_t texts) override;
  std::vector<NamedModel> measured(std::span<const std::string> drafts, specula::Tokens prompt) override;
  void add_settings(nlohmann::ordered_json& out) const override;
  void add_loaded(nlohmann::ordered_json& out) override;

  /// Whether a matrix of the loaded target is kept as bfloat16.
  bool keeps_bf16();

 private:
  specula::PipelineModels& loaded() override;
  std::unique_ptr<specula::Pipeline> rounds(const std::string& pipeline,
                                            const specula::SamplingParams& params) override {
    return on_gpu() ? gpu_->rounds(pipeline, params) : Engine::rounds(pipeline, params);
  }
  bool on_gpu() const { return options_.engine == "cuda"; }

  ModelOptions options_;
  ModelFolders folders_;
  std::optional<ModelConfigs> configs_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<ModelPack> pack_;    // on the CPU
  std::set<std::string> checked_;      // heads that need no further look
  std::unique_ptr<DeviceModels> gpu_;  // on a GPU
};

}  // namespace specula_tools
