// SPDX-License-Identifier: MIT
#include "model_pack.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <utility>
#include <vector>

#include <specula/cpu/check_head.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/cpu/read_model_config.hpp>
#include <specula/model/batched.hpp>

#include "bigram_file.hpp"
#include "decoding_options.hpp"
#include "ggml_expand.hpp"
#include "text_table.hpp"
#include "vocabulary.hpp"

namespace specula_tools {

namespace {

bool is_model(const std::filesystem::path& path) {
  return specula::files::is_gguf(path) || std::filesystem::exists(path / "config.json");
}

std::string list_models(const std::filesystem::path& root) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored))
    if (is_model(entry.path())) names.push_back(entry.path().filename().string());
  if (names.empty()) return root.string() + " holds no models";
  std::sort(names.begin(), names.end());
  std::string text;
  for (const auto& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return root.string() + " holds " + text;
}

}  // namespace

std::filesystem::path models_root(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* variable = std::getenv("SPECULA_MODELS"); variable && *variable) return variable;
  return SPECULA_EXAMPLE_MODELS_DIR;
}

std::filesystem::path ModelFolders::target_folder() const {
  return target.empty() ? root / "target" : target;
}

std::filesystem::path ModelFolders::draft_folder(const std::string& name) const {
  const auto given = drafts.find(name);
  const auto folder = given == drafts.end() ? root / name : given->second;
  if (!is_model(folder))
    throw UsageError("no model '" + name + "': " + folder.string() +
                     " is no GGUF file and has no config.json; " + list_models(root));
  return folder;
}

specula::Conditioning ModelFolders::conditioned_on(const std::string& name) const {
  return specula::cpu::read_model_config(draft_folder(name)).conditioned_on;
}

void ModelFolders::check() const {
  if (!is_model(target_folder()))
    throw UsageError("no target: " + target_folder().string() + " is no GGUF file and has no config.json; " +
                     list_models(root) + "; docs/models.md has the way from a model's name to its files");
}

specula::Isa isa_of(const std::string& word) {
  using specula::Isa;
  if (word == "auto") return specula::best_isa();
  const bool integers = word == "avx-vnni";
  const Isa isa = word == "avx512" ? Isa::avx512 : word == "avx2" || integers ? Isa::avx2 : Isa::portable;
  if (isa == Isa::portable && word != "portable")
    throw UsageError("--isa is '" + word + "', must be portable, avx2, avx-vnni, avx512 or auto");
  if (!specula::supported(isa) || (integers && !specula::cpu::has_avx_vnni()))
    throw UsageError("--isa " + word + ": this processor does not have it");
  return isa;
}

specula::cpu::Inputs inputs_of(const std::string& word, specula::Isa isa) {
  using specula::cpu::Inputs;
  const bool wide = isa == specula::Isa::avx512;
  if (word == "auto") return wide && specula::cpu::bf16_products_pay() ? Inputs::bf16 : Inputs::int16;
  for (const Inputs inputs : {Inputs::full, Inputs::int16, Inputs::int8})
    if (word == word_of(inputs)) return inputs;
  if (word != "bf16") throw UsageError("--inputs is '" + word + "', must be int16, int8, bf16, full or auto");
  if (!wide || !specula::cpu::has_bf16_products())
    throw UsageError("--inputs bf16 needs a processor with AVX512_BF16, and --isa avx512 or auto");
  return Inputs::bf16;
}

const char* word_of(specula::cpu::Inputs inputs) {
  using specula::cpu::Inputs;
  return inputs == Inputs::full    ? "full"
         : inputs == Inputs::bf16  ? "bf16"
         : inputs == Inputs::int16 ? "int16"
                                   : "int8";
}

const char* word_of(specula::cpu::WeightType type) {
  using specula::cpu::WeightType;
  return type == WeightType::full ? "full" : type == WeightType::bf16 ? "bf16" : "blocks";
}

std::optional<specula::cpu::WeightType> stored_of(const std::string& word) {
  using specula::cpu::WeightType;
  if (word == "auto") return std::nullopt;
  for (const WeightType type : {WeightType::full, WeightType::bf16, WeightType::blocks})
    if (word == word_of(type)) return type;
  throw UsageError("--weights is '" + word + "', must be blocks, bf16, full or auto");
}

std::optional<specula::cpu::CacheType> cache_of(const std::string& word) {
  if (word == "auto") return std::nullopt;
  if (word == "full") return specula::cpu::CacheType::full;
  if (word != "half") throw UsageError("--cache is '" + word + "', must be full, half or auto");
  return specula::cpu::CacheType::half;
}

void set_arithmetic(ModelSizes& sizes, const ArithmeticOptions& options) {
  sizes.isa = isa_of(options.isa);
  sizes.vnni = vnni_of(options.isa);
  sizes.inputs = inputs_of(options.inputs, sizes.isa);
  sizes.stored = stored_of(options.weights);
  sizes.cache = cache_of(options.cache);
}

std::string expanded_note(const std::filesystem::path& model,
                          std::span<const specula::cpu::StoredTensors> kept) {
  std::string text;
  for (const auto& some : kept)
    if (some.quantized && some.as != specula::cpu::WeightType::blocks)
      text += model.filename().string() + ": " + some.type + " is expanded to " + word_of(some.as) + ", " +
              fixed(static_cast<double>(some.bytes) * 1e-9, 2) + " GB in memory\n";
  return text;
}

std::optional<specula::BigramTable> bigram_of(const ModelFolders& folders, std::int32_t vocab_size,
                                              std::span<const std::string> pieces) {
  const bool given = !folders.bigram.empty();
  const auto file = given ? folders.bigram : folders.root / "bigram" / "bigram.json";
  if (!given && !std::filesystem::exists(file)) return std::nullopt;
  auto [table, vocabulary] = load_bigram(file);
  const bool same_size = table.vocab_size() == vocab_size;
  if (same_size && may_be_of(vocabulary, pieces)) return std::move(table);
  if (!given && !folders.target.empty()) return std::nullopt;  // the table is of the folder's own target
  throw std::runtime_error(file.string() + ": a table of " +
                           (same_size ? "other tokens than the target's"
                                      : std::to_string(table.vocab_size()) + " tokens, the target has " +
                                            std::to_string(vocab_size)) +
                           "; bigram=text and bigram=none read no table");
}

struct ModelPack::Loaded : specula::HeldModel<specula::cpu::Decoder<float>> {
  using HeldModel::HeldModel;

  /// One of its texts.
  specula::AnyModel& text(std::int32_t slot) {
    for (auto next = static_cast<std::int32_t>(slots.size()); next <= slot; ++next)
      texts.emplace_back(slots.emplace_back(model, next));
    return texts[static_cast<std::size_t>(slot)];
  }
  std::deque<specula::SlotOf<specula::cpu::Decoder<float>>> slots;
  std::deque<specula::AnyModel> texts;
};

/// One text's models.
class ModelPack::TextModels final : public specula::PipelineModels {
 public:
  TextModels(ModelPack& pack, std::int32_t slot) : pack_(pack), slot_(slot) {}
  specula::AnyModel& target() override { return pack_.load_target().text(slot_); }
  specula::AnyModel& draft(const std::string& name) override { return pack_.load_draft(name).text(slot_); }
  std::optional<specula::BigramTable> bigram() override { return pack_.bigram(); }

 private:
  ModelPack& pack_;
  std::int32_t slot_;
};

ModelPack::ModelPack(ModelFolders folders, ModelSizes sizes)
    : folders_(std::move(folders)), sizes_(std::move(sizes)) {}

ModelPack::~ModelPack() = default;

specula::AnyModel& ModelPack::target() { return load_target().any; }

specula::AnyModel& ModelPack::draft(const std::string& name) { return load_draft(name).any; }

specula::PipelineModels& ModelPack::text(std::int32_t slot) {
  for (auto next = static_cast<std::int32_t>(texts_.size()); next <= slot; ++next)
    texts_.push_back(std::make_unique<TextModels>(*this, next));
  return *texts_[static_cast<std::size_t>(slot)];
}

specula::cpu::Decoder<float>& ModelPack::target_model() { return load_target().model; }

std::vector<specula::cpu::Decoder<float>*> ModelPack::draft_models(std::span<const std::string> names) {
  std::vector<specula::cpu::Decoder<float>*> models;
  for (const std::string& name : names) models.push_back(&load_draft(name).model);
  return models;
}

std::optional<specula::BigramTable> ModelPack::bigram() {
  return bigram_of(folders_, target().vocab_size(), sizes_.pieces);
}

specula::cpu::WeightType ModelPack::target_weights() {
  const auto weights = load_target().model.weights();
  const auto most = std::max_element(weights->kept.begin(), weights->kept.end(),
                                     [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return most == weights->kept.end() ? specula::cpu::WeightType::full : most->as;
}

ModelPack::Loaded& ModelPack::load_target() { return load("target", folders_.target_folder()); }

ModelPack::Loaded& ModelPack::load_draft(const std::string& name) {
  const auto asked = folders_.readings.find(name);
  return load("draft", folders_.draft_folder(name),
              asked == folders_.readings.end() ? AskedReading() : asked->second);
}

ModelPack::Loaded& ModelPack::load(const std::string& role, const std::filesystem::path& folder,
                                   const AskedReading& reading) {
  auto& model = loaded_[{role + reading.given, folder}];
  if (!model) {
    // Heads on the target's features borrow its embedding and LM head, other drafts perhaps its embedding.
    const auto lender = role == "target" ? nullptr : load_target().model.weights();
    auto weights =
        std::make_shared<const specula::cpu::DecoderWeights<float>>(specula::cpu::load_decoder_weights<float>(
            folder, lender,
            {sizes_.stored, ggml_expand(), [&](auto& config) { set_reading(config, reading); }}));
    if (!sizes_.stored) std::cerr << expanded_note(folder, weights->kept);
    specula::cpu::DecoderOptions options{.capacity = sizes_.capacity,
                                         .max_nodes = sizes_.max_nodes,
                                         .slots = sizes_.slots,
                                         .vocab_size = sizes_.vocab_size,
                                         .isa = sizes_.isa,
                                         .inputs = sizes_.inputs,
                                         .vnni = sizes_.vnni,
                                         .cache = sizes_.cache};
    if (role == "target") {
      options.threads = sizes_.threads;
      options.measure_similarity = sizes_.measure_similarity;
      options.feature_layers = sizes_.feature_layers;
    } else if (weights->config.conditioned_on == specula::Conditioning::features) {
      options.team = load_target().model.team();  // it is as wide as the target; the others gain nothing
    }
    model = std::make_unique<Loaded>(std::move(weights), options);
  }
  return *model;
}

ModelSizes sizes_for(std::span<const specula::PipelineFactory> factories, std::size_t longest_prompt,
                     std::int32_t max_new_tokens, std::int32_t threads) {
  const specula::PipelineRoom room = specula::room_for(factories, longest_prompt, max_new_tokens);
  return {.capacity = room.capacity,
          .max_nodes = room.max_nodes,
          .threads = thread_count(threads),
          .measure_similarity =
              std::any_of(factories.begin(), factories.end(), [](const auto& r) { return r.measures; })};
}

}  // namespace specula_tools
