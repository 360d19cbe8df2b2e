// SPDX-License-Identifier: MIT
// Weights on disk: written as one safetensors file of BF16 tensors, read from one file or from shards.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <set>
#include <string>

namespace specula_train {

/// The tensor, and buffer of a module, with the tokens of a draft vocabulary: (draft_vocab_size) int32.
inline constexpr const char* kDraftTokens = "draft_tokens";

/// Named tensors in one safetensors file: rounded to nearest even to BF16, those of int32 as they are.
void write_safetensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                       const std::filesystem::path& file);

/// Tensors of a file that a model does not have.
enum class Surplus { refused, ignored };

/// Copies the weights of a Hugging Face directory, model.safetensors or the shards that
/// model.safetensors.index.json lists, into the model's parameters. Redundant tensors of models with tied
/// embeddings or old rotary buffers (`lm_head.weight`, `*.inv_freq`) are ignored. Throws std::runtime_error
/// naming the file or the directory, and the tensor if it is missing (unless it begins with one of
/// `may_lack`: then it is left as it is), not the model's (unless those are ignored), of another shape, or no
/// BF16, F16 or F32, or if both have a draft vocabulary, of other tokens.
void load_weights(const std::filesystem::path& directory, torch::nn::Module& model,
                  Surplus surplus = Surplus::refused, const std::set<std::string>& may_lack = {});

}  // namespace specula_train
