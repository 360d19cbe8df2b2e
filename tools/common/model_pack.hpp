// SPDX-License-Identifier: MIT
// Models by name: a folder with a folder for each of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <specula/cpu/decoder_config.hpp>
#include <specula/cpu/inputs.hpp>
#include <specula/simd/isa.hpp>

#include <specula/pipeline.hpp>

#include "decoding_options.hpp"
#include "head_reading.hpp"

namespace specula::cpu {
template <class Real>
class Decoder;
struct StoredTensors;
}  // namespace specula::cpu

namespace specula_tools {

/// Where models lie: a Hugging Face folder each, or a GGUF file. `root`/target is the target and `root`/NAME
/// the draft NAME, unless they are overridden.
struct ModelFolders {
  std::filesystem::path root;
  std::filesystem::path target;                         // empty: root/target
  std::map<std::string, std::filesystem::path> drafts;  // those that are not root/NAME, by name
  std::filesystem::path bigram = {};                  // table; empty: root/bigram/bigram.json, if it is there
  std::map<std::string, AskedReading> readings = {};  // of drafts that are EAGLE-3 heads, by name

  std::filesystem::path target_folder() const;
  /// Throws UsageError, listing the models that there are, if it does not exist.
  std::filesystem::path draft_folder(const std::string& name) const;
  /// What that draft needs to see of the target. Throws as above, and for a config that cannot be read.
  specula::Conditioning conditioned_on(const std::string& name) const;
  /// Throws UsageError if the target is no GGUF file, and its folder has no config.json.
  void check() const;
};

/// `given`, else $SPECULA_MODELS, else the models that come with the sources.
std::filesystem::path models_root(const std::string& given);

struct ModelSizes {
  std::int32_t capacity = 0;   // tokens and nodes that a model must hold
  std::int32_t max_nodes = 1;  // largest proposal
  std::int32_t slots = 1;      // texts at once
  std::int32_t threads = 1;    // of the target and of heads on its features
  specula::Isa isa = specula::best_isa();
  bool vnni = true;
  specula::cpu::Inputs inputs = specula::cpu::Inputs::full;
  std::optional<specula::cpu::WeightType> stored = {};  // of all models; empty: as their files have them
  std::optional<specula::cpu::CacheType> cache = {};    // of all models; empty: as their weights choose it
  bool measure_similarity = false;                      // by the target
  std::int32_t vocab_size = 0;                          // tokens that rows show; 0: all
  std::vector<std::int32_t> feature_layers = {};        // of the target: see DecoderOptions
  std::vector<std::string> pieces = {};                 // the target's tokens; empty: unknown
};

/// "portable", "avx2", "avx-vnni", "avx512", or "auto": the widest. Throws UsageError on another word, or on
/// what the machine does not have.
specula::Isa isa_of(const std::string& word);
/// Whether products of integers may take VNNI: unless the word is "avx2".
inline bool vnni_of(const std::string& word) { return word != "avx2"; }

/// A word of word_of(), or "auto": bf16 where `isa` multiplies it and the machine gains by it, else int16.
/// Throws UsageError on another word, or on bf16 where they cannot.
specula::cpu::Inputs inputs_of(const std::string& word, specula::Isa isa = specula::best_isa());

/// A word of word_of(), or "auto": as the files have them. Throws UsageError on another word.
std::optional<specula::cpu::WeightType> stored_of(const std::string& word);

/// Sets what `options` say.
void set_arithmetic(ModelSizes& sizes, const ArithmeticOptions& options);

const char* word_of(specula::cpu::Inputs inputs);
const char* word_of(specula::cpu::WeightType type);

/// "full", "half", or "auto": as the weights choose it. Throws UsageError on another word.
std::optional<specula::cpu::CacheType> cache_of(const std::string& word);

/// A line for each quantised type that is not kept in blocks; else empty.
std::string expanded_note(const std::filesystem::path& model,
                          std::span<const specula::cpu::StoredTensors> kept);

/// The pack's bigram table, for a target of so many tokens. None for a target from elsewhere whose vocabulary
/// is not the table's; throws std::runtime_error if the pack's own has another one.
std::optional<specula::BigramTable> bigram_of(const ModelFolders& folders, std::int32_t vocab_size,
                                              std::span<const std::string> pieces);

/// Loads a model when it is first asked for; every pipeline gets the same object.
class ModelPack final : public specula::PipelineModels {
 public:
  ModelPack(ModelFolders folders, ModelSizes sizes);
  ~ModelPack() override;
  specula::AnyModel& target() override;
  specula::AnyModel& draft(const std::string& name) override;
  /// The same models for one of several texts (ModelSizes::slots), whose passes can be merged.
  specula::PipelineModels& text(std::int32_t slot);
  /// The models themselves: drafts of these names.
  specula::cpu::Decoder<float>& target_model();
  /// How most of its matrices are kept in memory.
  specula::cpu::WeightType target_weights();
  std::vector<specula::cpu::Decoder<float>*> draft_models(std::span<const std::string> names);
  std::optional<specula::BigramTable> bigram() override;  // see bigram_of()

 private:
  struct Loaded;  // only model_pack.cpp compiles the models
  class TextModels;
  Loaded& load_target();
  Loaded& load_draft(const std::string& name);
  Loaded& load(const std::string& role, const std::filesystem::path& folder,
               const AskedReading& reading = {});

  ModelFolders folders_;
  ModelSizes sizes_;
  // One object cannot be target and draft at once: its cache holds one text.
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<TextModels>> texts_;
};

/// What these pipelines need for prompts of at most `longest_prompt` tokens; `threads` as for thread_count().
ModelSizes sizes_for(std::span<const specula::PipelineFactory> factories, std::size_t longest_prompt,
                     std::int32_t max_new_tokens, std::int32_t threads);

}  // namespace specula_tools
