// SPDX-License-Identifier: MIT
#include "command_options.hpp"

#include <cstdio>

namespace specula_train {

void TrainingOptions::add_to(CLI::App& command) {
  command.add_option("--data", data, "Folder of tokens written by `specula-train-text tokenizer`")
      ->required();
  command.add_option("--share", shares,
                     "NAME=0.4: the share of the rows that a style has; may be repeated; the other styles "
                     "share the rest equally");
  command.add_option("--learn-prompts", learned_prompts,
                     "NAME, may be repeated: a style of which the prompts are part of the loss");
  command.add_option("--tokenizer", tokenizer,
                     "tokenizer.model or tokenizer.json, or their folder, if not the one of the tokens");
  command.add_option("--output", output, "Folder for checkpoint.pt and export/")->required();
  command.add_option("--lr", loop.peak_learning_rate, "Peak learning rate")->capture_default_str();
  command.add_option("--batch", loop.batch, "Rows a step")->capture_default_str();
  command.add_option("--context", loop.context, "Tokens a row")->capture_default_str();
  command.add_option("--optimizer", optimizer.kind, "muon or adamw")->capture_default_str();
  command.add_option("--clip", optimizer.clip_norm, "Largest norm of the gradient; 0: any")
      ->capture_default_str();
  command
      .add_option("--precision", precision,
                  "auto, f32 or bf16; auto: bf16 on CUDA devices of compute capability 8.0 or above, "
                  "elsewhere the faster")
      ->capture_default_str();
  command.add_option("--seed", seed, "Of the weights and of the order of the data")->capture_default_str();
}

void TrainingOptions::add_budget_to(CLI::App& command) {
  command.add_option("--steps", loop.budget.steps, "Budget in steps");
  command.add_option("--minutes", loop.budget.minutes, "Budget in minutes of training, over all resumes");
  command.add_option("--long-from", loop.long_rows_from, "Part of the budget after which rows are longer")
      ->capture_default_str();
  command.add_option("--checkpoint-minutes", loop.checkpoint_minutes, "Time between checkpoints")
      ->capture_default_str();
  command.add_option(
      "--init", init,
      "Start from the weights of this Hugging Face directory, sharded or not; a checkpoint wins "
      "over it. A decoder with more --layers, a GLIDE draft's cross attention where this is a plain decoder: "
      "they begin as what changes nothing");
  command.add_flag("--resume", loop.resume, "Go on from the checkpoint in the output folder, if any");
}

void TrainingOptions::add_draft_vocabulary_to(CLI::App& command) {
  command
      .add_option("--draft-vocabulary", draft_vocabulary,
                  "Predict only the N most frequent tokens of the text, fewer where fewer cover 98% of the "
                  "held-out text; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

std::string TrainingOptions::recipe(const std::string& loss) const {
  char text[480];
  std::snprintf(
      text, sizeof text,
      ";\n%s, weight decay %g, gradient norm clipped at %g,\n"
      "peak learning rate %g after a warm-up over 2%% of the budget, or 30 steps, cosine to a tenth of it;\n"
      "%lld rows of %lld tokens a step, and half as many rows of twice the length from %g%% of the "
      "budget on;\n"
      "seed %llu.%s",
      optimizer.kind == "muon" ? "Muon (matrices) and AdamW (the rest)" : "AdamW", optimizer.weight_decay,
      optimizer.clip_norm, loop.peak_learning_rate, static_cast<long long>(loop.batch),
      static_cast<long long>(loop.context), 100 * loop.long_rows_from, static_cast<unsigned long long>(seed),
      init.empty() ? "" : " Started from trained weights.");
  return loss + text;
}

void SizeOptions::add_to(CLI::App& command, const std::string& otherwise) {
  command.add_option("--layers", explicit_sizes.layers, otherwise);
  command.add_option("--hidden", explicit_sizes.hidden, otherwise);
  add_inner_to(command, otherwise);
  command.add_flag("--untied", untied, "An LM head of its own instead of the embedding");
}

void SizeOptions::add_inner_to(CLI::App& command, const std::string& otherwise) {
  command.add_option("--heads", explicit_sizes.heads, otherwise);
  command.add_option("--kv-heads", explicit_sizes.kv_heads, otherwise);
  command.add_option("--head-dim", explicit_sizes.head_size,
                     "Size of a head, if it is not the hidden size divided by the heads");
  command.add_option("--intermediate", explicit_sizes.intermediate, otherwise);
}

bool SizeOptions::any() const {
  const auto& own = explicit_sizes;
  return own.layers != 0 || own.hidden != 0 || own.heads != 0 || own.kv_heads != 0 || own.intermediate != 0 ||
         own.head_size != 0;
}

DecoderConfig SizeOptions::apply_to(DecoderConfig config) const {
  for (const auto member :
       {&DecoderConfig::layers, &DecoderConfig::hidden, &DecoderConfig::heads, &DecoderConfig::kv_heads,
        &DecoderConfig::intermediate, &DecoderConfig::head_size}) {
    if (explicit_sizes.*member != 0) config.*member = explicit_sizes.*member;
  }
  if (untied) config.tied_head = false;
  config.validate();
  return config;
}

}  // namespace specula_train
