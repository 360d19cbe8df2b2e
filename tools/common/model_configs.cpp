// SPDX-License-Identifier: MIT
#include "model_configs.hpp"

#include <algorithm>
#include <iostream>
#include <limits>
#include <set>
#include <utility>

#include <specula/cpu/read_model_config.hpp>

#include "context.hpp"
#include "memory.hpp"
#include "vocabulary.hpp"

namespace specula_tools {
namespace {

std::string tokens(std::int32_t count) { return std::to_string(count) + " tokens"; }

}  // namespace

ModelConfigs::ModelConfigs(const ModelFolders& folders, std::span<const std::string> drafts)
    : target_(specula::cpu::read_model_config(folders.target_folder())),
      target_name_(folders.target_folder().string()) {
  for (const std::string& name : drafts) {
    if (std::any_of(drafts_.begin(), drafts_.end(), [&](const Draft& d) { return d.name == name; })) continue;
    const auto folder = folders.draft_folder(name);
    const std::string file = specula::cpu::config_path(folder).string();
    auto config = specula::cpu::read_model_config(folder);
    if (const auto asked = folders.readings.find(name); asked != folders.readings.end())
      set_reading(config, asked->second);
    drafts_.push_back({name, folder, specula::cpu::for_target(std::move(config), target_, file)});
    specula::cpu::validate_target(drafts_.back().config, target_, file);
  }
}

std::int32_t ModelConfigs::vocabulary(bool cut, const Tokenizer& tokenizer) const {
  const std::int32_t tokenizer_tokens = tokenizer.vocab_size();
  std::int32_t shared = target_.vocab_size;
  for (const auto& [name, folder, config] : drafts_) {
    if (config.vocab_size == target_.vocab_size) continue;
    if (!cut)
      throw UsageError("the vocabulary of the target " + target_name_ + " has " + tokens(target_.vocab_size) +
                       ", that of the draft '" + name + "' " + std::to_string(config.vocab_size) +
                       ": --cut-vocabulary takes those that all have, where the rest is padding; --draft "
                       "takes another draft");
    shared = std::min(shared, config.vocab_size);
  }
  if (const std::int32_t needed = std::min(tokenizer_tokens, target_.vocab_size); shared < needed)
    throw UsageError("--cut-vocabulary would leave " + tokens(shared) + ", the tokenizer of " + target_name_ +
                     " has " + std::to_string(tokenizer_tokens) + ": what is left out is no padding");
  for (const auto& [name, folder, config] : drafts_) {
    if (!has_tokenizer(folder)) {
      if (!config.is_draft())
        std::cerr << "note: the draft '" << name
                  << "' has no tokenizer: its tokens are taken for the target's\n";
      continue;
    }
    const auto difference = vocabulary_difference(tokenizer.pieces(), "the target " + target_name_,
                                                  Tokenizer(folder).pieces(), "the draft " + folder.string());
    if (difference)
      throw UsageError("the draft '" + name + "' does not have the target's vocabulary: " + *difference +
                       "; --draft takes another draft");
  }
  return shared;
}

void ModelConfigs::check_context(std::span<const std::vector<specula::Token>> prompts,
                                 std::int32_t max_new_tokens, bool beyond) const {
  specula_tools::check_context(prompts, max_new_tokens, target_.max_position, "the target " + target_name_,
                               beyond);
}

bool ModelConfigs::tell_drafts(std::size_t prompt_tokens, std::int32_t max_new_tokens,
                               std::ostream& notes) const {
  bool told = false;
  const auto positions = static_cast<std::int64_t>(prompt_tokens) + max_new_tokens;
  for (const auto& [name, folder, config] : drafts_)
    if (config.max_position > 0 && positions > config.max_position) {
      notes << "note: the draft '" << name << "' was trained for " << config.max_position
            << " positions, its draft tokens beyond them are worse\n";
      told = true;
    }
  return told;
}

std::size_t ModelConfigs::longest_prompt(std::int32_t max_new_tokens) const {
  if (target_.max_position <= 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(std::max(0, target_.max_position - max_new_tokens));
}

std::vector<std::int32_t> ModelConfigs::feature_layers() const {
  std::set<std::int32_t> layers;
  for (const auto& [name, folder, config] : drafts_)
    layers.insert(config.feature_layers.begin(), config.feature_layers.end());
  return {layers.begin(), layers.end()};
}

void ModelConfigs::check_memory(std::int32_t capacity, std::optional<specula::cpu::CacheType> cache) const {
  const auto type = cache.value_or(specula::cpu::CacheType::half);  // the least that weights may choose
  std::uint64_t bytes = kv_cache_bytes(target_, capacity, type);
  for (const auto& [name, folder, config] : drafts_) bytes += kv_cache_bytes(config, capacity, type);
  bytes += std::uint64_t{feature_layers().size()} * static_cast<std::uint64_t>(target_.hidden_size) *
           static_cast<std::uint64_t>(capacity) * sizeof(float);  // states that heads read
  specula_tools::check_memory("a KV cache of " + tokens(capacity) + " (prompt, new ones and draft tokens)",
                              bytes);
}

ModelSizes checked_sizes(const ModelConfigs& configs, std::span<const specula::PipelineFactory> factories,
                         std::span<const std::vector<specula::Token>> prompts, const Tokenizer& tokenizer,
                         const DecodingOptions& options, bool cut_vocabulary) {
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  configs.check_context(prompts, options.max_new_tokens, options.beyond_context);
  ModelSizes sizes = sizes_for(factories, longest, options.max_new_tokens, options.threads);
  sizes.vocab_size = configs.vocabulary(cut_vocabulary, tokenizer);
  sizes.pieces = tokenizer.pieces();
  sizes.feature_layers = configs.feature_layers();
  return sizes;
}

std::uint64_t kv_cache_bytes(const specula::cpu::DecoderConfig& config, std::int32_t capacity,
                             specula::cpu::CacheType cache) {
  const auto values = std::uint64_t{2} * static_cast<std::uint64_t>(config.layers) *
                      static_cast<std::uint64_t>(config.kv_heads) *
                      static_cast<std::uint64_t>(config.head_dim);
  return values * static_cast<std::uint64_t>(capacity) *
         (cache == specula::cpu::CacheType::half ? sizeof(std::uint16_t) : sizeof(float));
}

}  // namespace specula_tools
