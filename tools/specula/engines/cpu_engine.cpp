// SPDX-License-Identifier: MIT
#include "cpu_engine.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include <specula/cpu/check_head.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/cpu/read_model_config.hpp>

#include "chat_options.hpp"
#include "cuda_models.hpp"
#include "head_check.hpp"
#include "json_file.hpp"
#include "make_text_batch.hpp"
#include "named_draft.hpp"
#include "options.hpp"

namespace specula_tools {
namespace {

using specula::Token;

/// Of a draft that is given without a name: a published head is not the pack's small draft.
std::string name_of(const std::string& path) {
  try {
    const auto file = std::filesystem::path(path) / "config.json";
    if (std::filesystem::exists(file) &&
        specula::cpu::is_eagle3(specula::files::read_json_file(file), file.string()))
      return "eagle3";
  } catch (const std::exception&) {
    return specula::kDefaultDraft;  // whoever reads it next says what is wrong
  }
  return specula::kDefaultDraft;
}

ModelFolders folders_of(const ModelOptions& options) {
  ModelFolders folders{models_root(options.models), options.target, {}, options.bigram};
  for (const NamedDraft& draft : named_drafts(options.drafts, name_of)) {
    folders.drafts.emplace(draft.name, draft.path);
    if (draft.reading.asks()) folders.readings.emplace(draft.name, draft.reading);
  }
  return folders;
}

}  // namespace

CpuEngine::CpuEngine(const ModelOptions& options) : options_(options), folders_(folders_of(options)) {}

std::string CpuEngine::default_pipeline() const {
  if (!options_.drafts.empty()) return pipeline_with(named_drafts(options_.drafts, name_of).front().name);
  std::error_code ignored;
  const auto draft = folders_.root / specula::kDefaultDraft;
  const bool is_there = std::filesystem::exists(draft / "config.json", ignored);
  folders_.check();
  if (folders_.target.empty()) return is_there ? specula::kDefaultPipeline : specula::kDefaultDraftPipeline;
  const bool fits = is_there && specula::cpu::read_model_config(draft).vocab_size ==
                                    specula::cpu::read_model_config(folders_.target).vocab_size;
  return fits ? specula::kDefaultDraftPipeline : specula::kDefaultCopyingPipeline;
}

void CpuEngine::check(std::span<const specula::PipelineFactory> factories) const {
  folders_.check();
  // Where commands are only parsed, a file stands in for a draft: it does not say what the draft is called.
  if (only_parses() && !options_.drafts.empty()) return;
  for (const std::string& name : specula::draft_names(factories)) folders_.draft_folder(name);
}

void CpuEngine::open(std::span<const specula::PipelineFactory> factories) {
  configs_.emplace(folders_, specula::draft_names(factories));
  tokenizer_.emplace(folders_.target_folder());
  for (const std::string& note : tokenizer_->notes()) std::cerr << "note: " << note << "\n";
}

std::vector<Token> CpuEngine::encode(const std::string& text, bool controls) const {
  if (!controls) return tokenizer_->encode(text);
  std::vector<Token> tokens = tokenizer_->encode_chat(text);
  const Token begin = tokenizer_->begin();
  const bool has_begin = !tokens.empty() && tokens.front() == begin;
  if (tokenizer_->adds_begin() && begin != specula::kNoToken && !has_begin)
    tokens.insert(tokens.begin(), begin);
  return tokens;
}

std::optional<ChatTemplateText> CpuEngine::chat_template() const {
  return template_of(folders_.target_folder(), *tokenizer_);
}

void CpuEngine::prepare(const EngineRoom& room) {
  DecodingOptions decoding = options_;
  decoding.max_new_tokens = room.max_new_tokens;
  ModelSizes sizes =
      checked_sizes(*configs_, room.factories, room.before, *tokenizer_, decoding, options_.cut_vocabulary);
  set_arithmetic(sizes, options_);
  sizes.slots = room.texts;
  if (on_gpu()) {
    gpu_ = cuda_models(folders_, sizes, std::cerr);
    return;
  }
  configs_->check_memory(sizes.capacity, sizes.cache);
  pack_ = std::make_unique<ModelPack>(folders_, std::move(sizes));
}

specula::PipelineModels& CpuEngine::loaded() {
  if (gpu_) return *gpu_;
  return *pack_;
}

void CpuEngine::check_heads(std::span<const std::string> drafts, specula::Tokens prompt,
                            std::ostream& notes) {
  if (on_gpu()) return;
  for (const std::string& name : drafts) {
    const auto head = pack_->draft_models(std::span(&name, 1)).front()->weights();
    if (!head->config.eagle3 || checked_.contains(name)) continue;
    const auto rows = specula::cpu::head_rows_at_end(head, pack_->target_model(), prompt, kLookedAt);
    const std::string said = judge(name, *head->config.eagle3, rows);
    if (!said.empty()) notes << "\nwarning: " << said << "\n";
    if (!said.empty() || rows.count() == kLookedAt) checked_.insert(name);
  }
}

std::unique_ptr<TextBatch> CpuEngine::batch(const std::string& pipeline,
                                            const specula::SamplingParams& params, std::int32_t texts) {
  if (on_gpu()) throw UsageError("--batch is for --engine cpu and llama.cpp: a GPU has one text at a time");
  const auto drafts = batched_factory(pipeline).drafts;
  return make_text_batch(
      pipeline, params,
      texts, [this](std::int32_t slot) -> auto& { return processed(pack_->text(slot), slot); },
      pack_->target_model(), pack_->draft_models(drafts));
}

std::vector<NamedModel> CpuEngine::measured(std::span<const std::string> drafts, specula::Tokens prompt) {
  std::vector<NamedModel> all{{.name = "target", .model = &loaded().target()}};
  for (const std::string& name : drafts)  // pipelines may share one
    if (std::none_of(all.begin(), all.end(), [&](const auto& some) { return some.name == name; }))
      all.push_back({.name = name, .model = &loaded().draft(name), .drafts = true});
  if (on_gpu()) return all;
  using Decoder = specula::cpu::Decoder<float>;
  const auto products_of = [](Decoder& model) {
    return [&model](std::int32_t nodes) { return model.product_seconds(nodes, model.exits() - 1); };
  };
  Decoder& target = pack_->target_model();
  all.front().products = products_of(target);
  for (auto& some : std::span(all).subspan(1)) {
    Decoder& draft = *pack_->draft_models(std::span(&some.name, 1)).front();
    some.products = products_of(draft);
    some.before = [&target, &draft, prompt] {
      if (draft.conditioned_on() == specula::Conditioning::nothing) return;
      target.truncate(0);
      target.append(prompt);
      if (draft.conditioned_on() == specula::Conditioning::features)
        draft.set_target_state(target.features());
      else
        draft.set_target_state(target.key_values());
    };
  }
  return all;
}

bool CpuEngine::keeps_bf16() {
  const auto& kept = pack_->target_model().weights()->kept;
  return std::any_of(kept.begin(), kept.end(),
                     [](const auto& some) { return some.as == specula::cpu::WeightType::bf16; });
}

void CpuEngine::add_settings(nlohmann::ordered_json& out) const {
  out["engine"] = options_.engine;
  out["threads"] = thread_count(options_.threads);
  if (!on_gpu()) add_arithmetic_json(out, options_);
  out["target"] = leaf(folders_.target_folder());
  const auto given = folders_.drafts.find(specula::kDefaultDraft);
  out["default_draft"] = given == folders_.drafts.end() ? specula::kDefaultDraft : leaf(given->second);
}

void CpuEngine::add_loaded(nlohmann::ordered_json& out) {
  if (on_gpu()) return;
  out["kept_as"] = word_of(pack_->target_weights());
}

}  // namespace specula_tools
