// SPDX-License-Identifier: MIT
// What can be refused for what the models' configs say, before any weights are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <specula/cpu/decoder_config.hpp>
#include <specula/cpu/inputs.hpp>

#include "decoding_options.hpp"
#include "model_pack.hpp"
#include "tokenizer.hpp"

namespace specula_tools {

class ModelConfigs {
 public:
  /// Of the target and the drafts of these names, of which one may stand several times. Throws UsageError for
  /// a model that does not exist, std::runtime_error naming the file for a config that cannot be read, or a
  /// draft that takes the embedding of another target.
  ModelConfigs(const ModelFolders& folders, std::span<const std::string> drafts);

  /// How many tokens the models have: all the same, or, with `cut`, those that each of them has. Throws
  /// UsageError if they differ without `cut`, if that would leave out tokens that the target's tokenizer
  /// knows, or naming the first token that the tokenizers of the target and of a draft spell differently.
  /// Tells the user of a draft that has no tokenizer to compare, unless it is made for one target.
  std::int32_t vocabulary(bool cut, const Tokenizer& tokenizer) const;

  /// Throws UsageError where prompt and new tokens are more positions than the target was trained for, unless
  /// `beyond`.
  void check_context(std::span<const std::vector<specula::Token>> prompts, std::int32_t max_new_tokens,
                     bool beyond) const;

  /// Tells the user of drafts that were trained for fewer positions than a prompt of so many tokens and the
  /// new ones have: their draft tokens get worse, not the text. Returns whether there is one.
  bool tell_drafts(std::size_t prompt_tokens, std::int32_t max_new_tokens, std::ostream& notes) const;

  /// Tokens of the longest prompt that check_context() takes.
  std::size_t longest_prompt(std::int32_t max_new_tokens) const;

  /// Numbers of the target's layers behind which some draft reads hidden states, ascending.
  std::vector<std::int32_t> feature_layers() const;

  /// Throws std::runtime_error with the figures if caches of `capacity` tokens do not fit into memory. Where
  /// the weights, which are not read yet, choose the type, they are taken to be of floats.
  void check_memory(std::int32_t capacity, std::optional<specula::cpu::CacheType> cache) const;

 private:
  specula::cpu::DecoderConfig target_;
  std::string target_name_;
  struct Draft {
    std::string name;
    std::filesystem::path folder;
    specula::cpu::DecoderConfig config;
  };
  std::vector<Draft> drafts_;
};

/// sizes_for() of prompts that the models can take; without arithmetic. Throws as the checks of `configs`.
ModelSizes checked_sizes(const ModelConfigs& configs, std::span<const specula::PipelineFactory> factories,
                         std::span<const std::vector<specula::Token>> prompts, const Tokenizer& tokenizer,
                         const DecodingOptions& options, bool cut_vocabulary);

/// Of the keys and values of a Llama that calculates in float.
std::uint64_t kv_cache_bytes(const specula::cpu::DecoderConfig& config, std::int32_t capacity,
                             specula::cpu::CacheType cache);

}  // namespace specula_tools
