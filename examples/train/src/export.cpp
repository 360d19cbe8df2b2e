#include "export.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "safetensors.hpp"
#include "whole_file.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

Json llama_json(const LlamaConfig& config, const char* architecture, const char* type) {
  return {
      {"architectures", {architecture}},
      {"attention_bias", false},
      {"bos_token_id", kBegin},
      {"eos_token_id", kEnd},
      {"head_dim", config.head_dim()},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden},
      {"initializer_range", 0.02},
      {"intermediate_size", config.intermediate},
      {"max_position_embeddings", kMaxPositions},
      {"mlp_bias", false},
      {"model_type", type},
      {"num_attention_heads", config.heads},
      {"num_hidden_layers", config.layers},
      {"num_key_value_heads", config.kv_heads},
      {"rms_norm_eps", config.norm_epsilon},
      {"rope_scaling", nullptr},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", true},
      {"torch_dtype", "bfloat16"},
      {"use_cache", true},
      {"vocab_size", config.vocab_size},
  };
}

Json target_json(const LlamaConfig& target) {
  return {
      {"num_hidden_layers", target.layers},     {"num_attention_heads", target.heads},
      {"num_key_value_heads", target.kv_heads}, {"head_dim", target.head_dim()},
      {"rope_theta", target.rope_theta},        {"rope_scaling", nullptr},
  };
}

/// What a card says that differs from kind to kind.
struct Kind {
  const char* library;
  std::string introduction, architecture;
  const char* figures;  // the heading of the held-out ones
};

std::string sizes(const LlamaConfig& config) {
  std::ostringstream out;
  out << "| layers | " << config.layers << " |\n"
      << "| hidden size | " << config.hidden << " |\n"
      << "| heads (query / key-value) | " << config.heads << " / " << config.kv_heads << " |\n"
      << "| head size | " << config.head_dim() << " |\n"
      << "| intermediate size (SwiGLU) | " << config.intermediate << " |\n"
      << "| vocabulary | " << config.vocab_size << " (SentencePiece, byte fallback) |\n";
  return out.str();
}

/// Where it may stop, if anywhere but at the end.
std::string exits(const LlamaConfig& config) {
  if (config.exits.empty()) return {};
  std::ostringstream out;
  out << "| exits after layers |";
  for (const auto layers : config.exits) out << ' ' << layers;
  out << " |\n";
  return out.str();
}

Kind decoder_kind(const LlamaConfig& config) {
  return {
      .library = "transformers",
      .introduction =
          "A small Llama-family decoder, trained from scratch by `examples/train` of specula. It exists to "
          "try\n"
          "speculative decoding on a real, if tiny, family of models (target, base, small: one tokenizer). "
          "It\n"
          "writes text in the style of grade-school mathematics problems and of Python sources. Its "
          "arithmetic is\n"
          "not to be trusted.",
      .architecture = sizes(config) + "| embedding and head | tied |\n" + exits(config),
      .figures = "held-out loss (nats a token)"};
}

Kind glide_kind(const GlideConfig& config) {
  std::ostringstream architecture;
  architecture << sizes(config.draft) << "| embedding and head | its own, tied |\n"
               << "| cross attention | " << config.target.heads << " query heads of "
               << config.target.head_dim() << " in each layer, over the target's last " << config.draft.layers
               << (config.draft.layers == 1 ? " layer" : " layers") << " (" << config.target.kv_heads
               << " key-value heads) |\n"
               << "| trained for draft steps | 1 to " << config.block << " |\n";
  return {
      .library = "specula",
      .introduction =
          "A GLIDE draft (Du et al. 2024) of specula's embedded target, trained from scratch by "
          "`examples/train`.\n"
          "Between self attention and feed-forward, each layer attends to the keys and values that the "
          "target has\n"
          "cached, so it drafts for that target only. It is no model by itself.",
      .architecture = architecture.str(),
      .figures =
          "people's text, held out: loss (nats a token), share of tokens on which draft and target agree"};
}

Kind head_kind(const LlamaConfig& config) {
  return {
      .library = "specula",
      .introduction =
          "A head (EAGLE, Li et al. 2024; HASS, Zhang et al. 2024) that drafts for specula's embedded "
          "target, "
          "trained\n"
          "from scratch by `examples/train`. From the target's last hidden states and the tokens it predicts "
          "the next\n"
          "hidden state; embedding and LM head are the target's. It is no model by itself.",
      .architecture = sizes(config) + "| embedding and head | the target's |\n",
      .figures = "people's text, held out: nats a token, share of tokens on which head and target agree"};
}

std::string model_card(const Kind& kind, std::int64_t parameters, const ModelCard& card) {
  const auto& progress = card.progress;
  std::ostringstream out;
  out << "---\nlibrary_name: " << kind.library << "\nlanguage: en\nlicense: other\n---\n\n"
      << "# specula " << card.name << "\n\n"
      << kind.introduction << "\n\n";
  if (!progress.finished) out << "**An intermediate checkpoint: training was not finished.**\n\n";
  out << "## Architecture\n\n"
      << "| | |\n|---|---|\n"
      << kind.architecture << "| parameters | " << parameters << " |\n"
      << "| stored as | BF16 |\n\n"
      << "## Training\n\n"
      << card.recipe << "\n\n"
      << progress.steps << " steps, " << progress.tokens << " tokens, ";
  char number[64];
  std::snprintf(number, sizeof number, "%.1f minutes.\n\n", progress.seconds / 60);
  out << number << "| style | " << kind.figures << " |\n|---|---|\n";
  for (const auto& [style, loss] : progress.heldout) {
    std::snprintf(number, sizeof number, "%.4f", loss);
    out << "| " << style << " | " << number << " |\n";
  }
  out << "\n## Data\n\n"
      << (card.answers ? "The target's own text after prompts from these; the prompts are read, not learned. "
                         "About half of\nthe rows each:\n\n"
                       : "About half of the tokens each:\n\n")
      << "- GSM8K, the training split, without its calculator annotations\n"
      << "  (Copyright (c) 2021 OpenAI, MIT License);\n"
      << "- the sources of Python's standard library\n"
      << "  (Copyright (c) Python Software Foundation, PSF License Version 2).\n\n"
      << "Every 50th document is held out. GSM8K's test split and HumanEval were not used.\n\n"
      << "Prompts begin with `<s>` (id 1) and look like `Question: ...\\nAnswer:` or like Python.\n";
  return out.str();
}

void write_directory(const torch::nn::Module& module, const Json& config, const Kind& kind,
                     const fs::path& tokenizer_file, const ModelCard& card, const fs::path& directory) {
  fs::create_directories(directory);
  const auto tensors = module.named_parameters();
  std::int64_t parameters = 0;
  for (const auto& item : tensors) parameters += item.value().numel();
  write_safetensors(tensors, directory / "model.safetensors");
  write_whole(directory / "config.json", config.dump(2) + "\n");
  write_whole(directory / "MODEL_CARD.md", model_card(kind, parameters, card));
  fs::copy_file(tokenizer_file, directory / "tokenizer.model", fs::copy_options::overwrite_existing);
}

}  // namespace

void export_model(const Llama& model, const fs::path& tokenizer_file, const ModelCard& card,
                  const fs::path& directory) {
  const auto& config = model->config();
  auto json = llama_json(config, "LlamaForCausalLM", "llama");
  if (!config.exits.empty()) json["exits"] = config.exits;
  write_directory(*model, json, decoder_kind(config), tokenizer_file, card, directory);
}

void export_glide(const Glide& draft, const fs::path& tokenizer_file, const ModelCard& card,
                  const fs::path& directory) {
  const auto& config = draft->config();
  auto json = llama_json(config.draft, "SpeculaGlide", "specula_glide");
  json["target"] = target_json(config.target);
  write_directory(*draft, json, glide_kind(config), tokenizer_file, card, directory);
}

void export_feature_head(const FeatureHead& head, const fs::path& tokenizer_file, const ModelCard& card,
                         const fs::path& directory) {
  const auto& config = head->config();
  write_directory(*head, llama_json(config, "SpeculaFeatureHead", "specula_feature_head"), head_kind(config),
                  tokenizer_file, card, directory);
}

}  // namespace specula_train
