// SPDX-License-Identifier: MIT
#include "export.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "files.hpp"
#include "safetensors.hpp"
#include "text_table.hpp"
#include "tokens.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

using specula::cpu::RopeType;

/// The type as transformers names it.
const char* name_of(RopeType type) {
  switch (type) {
    case RopeType::linear:
      return "linear";
    case RopeType::llama3:
      return "llama3";
    case RopeType::yarn:
      return "yarn";
    case RopeType::none:
      break;
  }
  return "default";
}

/// null: the angles as they are.
Json rope_scaling_json(const specula::cpu::RopeScaling& scaling) {
  if (scaling.type == RopeType::none) return nullptr;
  Json json{{"rope_type", name_of(scaling.type)}, {"factor", scaling.factor}};
  if (scaling.type != RopeType::linear)
    json["original_max_position_embeddings"] = scaling.original_max_position;
  if (scaling.type == RopeType::llama3) {
    json["low_freq_factor"] = scaling.low_turns;
    json["high_freq_factor"] = scaling.high_turns;
  }
  if (scaling.type == RopeType::yarn) {
    json["beta_slow"] = scaling.low_turns;
    json["beta_fast"] = scaling.high_turns;
    json["truncate"] = scaling.truncate;
    json["attention_factor"] = scaling.attention_factor;
  }
  return json;
}

/// A number, or several.
Json ends_json(const DecoderConfig& config) {
  if (config.ends.size() > 1) return config.ends;
  return config.ends.empty() ? Json(config.end) : Json(config.ends.front());
}

Json llama_json(const DecoderConfig& config, const char* architecture, const char* type) {
  Json json{
      {"architectures", {architecture}},
      {"attention_bias", config.output_bias},
      {"bos_token_id", config.begin},
      {"eos_token_id", ends_json(config)},
      {"head_dim", config.head_dim()},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden},
      {"initializer_range", 0.02},
      {"intermediate_size", config.intermediate},
      {"max_position_embeddings", config.max_positions},
      {"mlp_bias", false},
      {"model_type", type},
      {"num_attention_heads", config.heads},
      {"num_hidden_layers", config.layers},
      {"num_key_value_heads", config.kv_heads},
      {"rms_norm_eps", config.norm_epsilon},
      {"rope_scaling", rope_scaling_json(config.rope_scaling)},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", config.tied_head},
      {"torch_dtype", "bfloat16"},
      {"use_cache", true},
      {"vocab_size", config.vocab_size},
  };
  if (config.draft_vocab_size != 0) json["draft_vocab_size"] = config.draft_vocab_size;
  if (config.target_hidden_size != 0) json["target_hidden_size"] = config.target_hidden_size;
  return json;
}

Json target_json(const GlideConfig& config) {
  const auto& target = config.target;
  return {
      {"num_hidden_layers", target.layers},     {"num_attention_heads", target.heads},
      {"num_key_value_heads", target.kv_heads}, {"head_dim", target.head_dim()},
      {"rope_theta", target.rope_theta},        {"rope_scaling", rope_scaling_json(target.rope_scaling)},
      {"layers_read", config.layers_read()},
  };
}

/// The parts of a model card that depend on the kind of model.
struct Kind {
  const char* library;
  std::string introduction, architecture;
  const char* figures;  // the heading of the held-out ones
};

std::string sizes(const DecoderConfig& config) {
  std::ostringstream out;
  out << "| layers | " << config.layers << " |\n"
      << "| hidden size | " << config.hidden << " |\n"
      << "| heads (query / key-value) | " << config.heads << " / " << config.kv_heads << " |\n"
      << "| head size | " << config.head_dim() << " |\n"
      << "| intermediate size (SwiGLU) | " << config.intermediate << " |\n"
      << "| rotary positions | theta " << config.rope_theta
      << (config.rope_scaling.type == RopeType::none
              ? ""
              : std::string(", ") + name_of(config.rope_scaling.type) + " scaling")
      << " |\n"
      << "| vocabulary | " << config.vocab_size << " |\n";
  if (config.draft_vocab_size != 0)
    out << "| tokens that it predicts (draft vocabulary) | " << config.draft_vocab_size << " |\n";
  return out.str();
}

/// "| what | 1 2 4 |", if there are any.
std::string layer_row(const char* what, const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return {};
  std::ostringstream out;
  out << "| " << what << " |";
  for (const auto number : layers) out << ' ' << number;
  out << " |\n";
  return out.str();
}

std::string embedding_row(const DecoderConfig& config) {
  std::string row = "| embedding and head | ";
  if (config.target_hidden_size != 0)
    row += "the target's, " + std::to_string(config.target_hidden_size) + " wide, times a matrix; its own";
  else
    row += config.tied_head ? "tied" : "two matrices";
  return row + " |\n";
}

/// "a decoder of 8 layers x 256"
std::string in_words(const DecoderConfig& config) {
  return "a decoder of " + std::to_string(config.layers) + " layers x " + std::to_string(config.hidden);
}

Kind decoder_kind(const DecoderConfig& config) {
  const bool own = config.target_hidden_size == 0;
  return {
      .library = own ? "transformers" : "specula",
      .introduction = own ? "A Llama-family decoder, trained by `tools/train` of specula, a library of "
                            "speculative decoding. It writes\n"
                            "text like its training text, and its statements are unreliable."
                          : "A plain draft for one target, trained by `tools/train` of specula, a library of "
                            "speculative decoding: a small\n"
                            "Llama over that target's embedding, without which it is no model.",
      .architecture = sizes(config) + embedding_row(config) + layer_row("exits after layers", config.exits),
      .figures = own ? "held-out loss (nats a token)"
                     : "held-out loss (nats a token), share of tokens on which draft and target agree"};
}

Kind glide_kind(const GlideConfig& config) {
  std::ostringstream architecture;
  architecture << sizes(config.draft) << embedding_row(config.draft) << "| cross attention | "
               << config.target.heads << " query heads of " << config.target.head_dim()
               << " in each layer, over " << config.target.kv_heads << " key-value heads |\n"
               << "| layers of the target that it reads, from 0 |";
  for (const auto layer : config.layers_read()) architecture << ' ' << layer;
  architecture << " (of " << config.target.layers << ") |\n"
               << "| trained for draft steps | 1 to " << config.block << " |\n";
  return {.library = "specula",
          .introduction =
              "A GLIDE draft (Du et al. 2024) for one target, " + in_words(config.target) +
              ", trained by `tools/train` of specula.\n"
              "Between self attention and feed-forward, each layer attends to the keys and values that "
              "the target has\n"
              "cached, so it drafts for that target only. It is no model by itself.",
          .architecture = architecture.str(),
          .figures = "loss (nats a token), share of tokens on which draft and target agree"};
}

Kind head_kind(const DecoderConfig& config) {
  return {
      .library = "specula",
      .introduction =
          "A head (EAGLE, Li et al. 2024; HASS, Zhang et al. 2024) that drafts for one target, a decoder of "
          "hidden size " +
          std::to_string(config.hidden) +
          ",\n"
          "trained by `tools/train` of specula. From the target's last hidden states and the tokens it "
          "predicts the next\n"
          "hidden state; embedding and LM head are the target's. It is no model by itself.",
      .architecture = sizes(config) + "| embedding and head | the target's |\n" +
                      layer_row("reads hidden states after layers of the target", config.feature_layers),
      .figures = "nats a token, share of tokens on which head and target agree"};
}

using specula_tools::fixed;

std::string data_section(const ModelCard& card) {
  std::string except;
  for (const auto& name : card.learned_prompts)
    except += (except.empty() ? ", but for those of " : ", ") + name;
  std::ostringstream out;
  out << "## Data\n\n"
      << (card.answers ? "The target's own text after prompts from these styles; the prompts are not part of "
                         "the loss" +
                             except + ".\n\n"
                       : "")
      << "| style | share of the rows | documents | tokens in them | held out | text | licence |\n"
      << "|---|---|---|---|---|---|---|\n";
  const auto stated = [](const std::string& text) { return text.empty() ? "not stated" : text; };
  for (const auto& style : card.styles) {
    out << "| " << style.name << " | " << fixed(100 * style.share, 1) << "% | " << style.documents << " | "
        << style.tokens << " | " << style.heldout << " tokens";
    if (style.info.heldout_every > 0) out << ", one document in " << style.info.heldout_every;
    out << " | " << stated(style.info.description) << " | " << stated(style.info.licence) << " |\n";
  }
  return out.str();
}

std::string model_card(const Kind& kind, std::int64_t parameters, const ModelCard& card) {
  const auto& progress = card.progress;
  std::ostringstream out;
  out << "---\nlibrary_name: " << kind.library << "\nlicense: other\n---\n\n"
      << "# specula " << card.name << "\n\n"
      << kind.introduction << "\n\n";
  if (!progress.finished) out << "**An intermediate checkpoint: training was not finished.**\n\n";
  out << "## Architecture\n\n"
      << "| | |\n|---|---|\n"
      << kind.architecture << "| parameters | " << parameters << " |\n"
      << "| stored as | BF16 |\n\n"
      << "## Training\n\n"
      << card.recipe << "\n\n"
      << progress.steps << " steps, " << progress.tokens << " tokens, " << fixed(progress.seconds / 60, 1)
      << " minutes" << (card.device.empty() ? "" : " on: " + card.device) << ".\n\n"
      << "| held out | " << kind.figures << " |\n|---|---|\n";
  for (const auto& [style, loss] : progress.heldout)
    out << "| " << style << " | " << fixed(loss, 4) << " |\n";
  out << '\n' << data_section(card);
  return out.str();
}

void write_directory(const torch::nn::Module& module, const Json& config, const Kind& kind,
                     const fs::path& tokenizer, const ModelCard& card, const fs::path& directory) {
  fs::create_directories(directory);
  auto tensors = module.named_parameters();
  std::int64_t parameters = 0;
  for (const auto& item : tensors) parameters += item.value().numel();
  const auto buffers = module.named_buffers();
  if (const auto* tokens = buffers.find(kDraftTokens)) tensors.insert(kDraftTokens, *tokens);
  write_safetensors(tensors, directory / "model.safetensors");
  specula_tools::write_file(directory / "config.json", config.dump(2) + "\n");
  specula_tools::write_file(directory / "MODEL_CARD.md", model_card(kind, parameters, card));
  copy_tokenizer(tokenizer, directory);
}

}  // namespace

void export_model(const Llama& model, const fs::path& tokenizer, const ModelCard& card,
                  const fs::path& directory) {
  const auto& config = model->config();
  const bool qwen2 = config.qkv_bias && !config.output_bias;
  auto json = config.target_hidden_size != 0 ? llama_json(config, "SpeculaDraft", "specula_draft")
              : config.query_key_norms       ? llama_json(config, "Qwen3ForCausalLM", "qwen3")
              : qwen2                        ? llama_json(config, "Qwen2ForCausalLM", "qwen2")
                                             : llama_json(config, "LlamaForCausalLM", "llama");
  if (!config.exits.empty()) json["exits"] = config.exits;
  write_directory(*model, json, decoder_kind(config), tokenizer, card, directory);
}

void export_glide(const Glide& draft, const fs::path& tokenizer, const ModelCard& card,
                  const fs::path& directory) {
  const auto& config = draft->config();
  auto json = llama_json(config.draft, "SpeculaGlide", "specula_glide");
  json["target"] = target_json(config);
  if (!config.target.ends.empty()) json["eos_token_id"] = ends_json(config.target);
  write_directory(*draft, json, glide_kind(config), tokenizer, card, directory);
}

void export_feature_head(const FeatureHead& head, const fs::path& tokenizer, const ModelCard& card,
                         const fs::path& directory) {
  const auto& config = head->config();
  auto json = llama_json(config, "SpeculaFeatureHead", "specula_feature_head");
  if (!config.feature_layers.empty()) json["feature_layers"] = config.feature_layers;
  write_directory(*head, json, head_kind(config), tokenizer, card, directory);
}

}  // namespace specula_train
