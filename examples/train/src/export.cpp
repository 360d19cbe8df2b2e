#include "export.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "safetensors.hpp"
#include "whole_file.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

std::string config_json(const LlamaConfig& config) {
  const nlohmann::ordered_json json{
      {"architectures", {"LlamaForCausalLM"}},
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
      {"model_type", "llama"},
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
  return json.dump(2) + "\n";
}

std::string model_card(const LlamaConfig& config, std::int64_t parameters, const ModelCard& card) {
  const auto& progress = card.progress;
  std::ostringstream out;
  out << "---\nlibrary_name: transformers\nlanguage: en\nlicense: other\n---\n\n"
      << "# specula " << card.name << "\n\n"
      << "A small Llama-family decoder, trained from scratch by `examples/train` of specula. It exists to "
         "try\n"
      << "speculative decoding on a real, if tiny, family of models (target, base, small: one tokenizer). "
         "It\n"
      << "writes text in the style of grade-school mathematics problems and of Python sources. Its "
         "arithmetic is\n"
      << "not to be trusted.\n\n";
  if (!progress.finished) out << "**An intermediate checkpoint: training was not finished.**\n\n";
  out << "## Architecture\n\n"
      << "| | |\n|---|---|\n"
      << "| layers | " << config.layers << " |\n"
      << "| hidden size | " << config.hidden << " |\n"
      << "| heads (query / key-value) | " << config.heads << " / " << config.kv_heads << " |\n"
      << "| head size | " << config.head_dim() << " |\n"
      << "| intermediate size (SwiGLU) | " << config.intermediate << " |\n"
      << "| vocabulary | " << config.vocab_size << " (SentencePiece, byte fallback) |\n"
      << "| embedding and head | tied |\n"
      << "| parameters | " << parameters << " |\n"
      << "| stored as | BF16 |\n\n"
      << "## Training\n\n"
      << card.recipe << "\n\n"
      << progress.steps << " steps, " << progress.tokens << " tokens, ";
  char number[64];
  std::snprintf(number, sizeof number, "%.1f minutes.\n\n", progress.seconds / 60);
  out << number << "| style | held-out loss (nats a token) |\n|---|---|\n";
  for (const auto& [style, loss] : progress.heldout) {
    std::snprintf(number, sizeof number, "%.4f", loss);
    out << "| " << style << " | " << number << " |\n";
  }
  out << "\n## Data\n\n"
      << "About half of the tokens each:\n\n"
      << "- GSM8K, the training split, without its calculator annotations\n"
      << "  (Copyright (c) 2021 OpenAI, MIT License);\n"
      << "- the sources of Python's standard library\n"
      << "  (Copyright (c) Python Software Foundation, PSF License Version 2).\n\n"
      << "Every 50th document is held out. GSM8K's test split and HumanEval were not used.\n\n"
      << "Prompts begin with `<s>` (id 1) and look like `Question: ...\\nAnswer:` or like Python.\n";
  return out.str();
}

}  // namespace

void export_model(const Llama& model, const fs::path& tokenizer_file, const ModelCard& card,
                  const fs::path& directory) {
  fs::create_directories(directory);
  const auto tensors = model->named_parameters();
  std::int64_t parameters = 0;
  for (const auto& item : tensors) parameters += item.value().numel();
  write_safetensors(tensors, directory / "model.safetensors");
  write_whole(directory / "config.json", config_json(model->config()));
  write_whole(directory / "MODEL_CARD.md", model_card(model->config(), parameters, card));
  fs::copy_file(tokenizer_file, directory / "tokenizer.model", fs::copy_options::overwrite_existing);
}

}  // namespace specula_train
