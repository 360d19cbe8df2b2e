// Weights on disk: one safetensors file of BF16 tensors.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>

namespace specula_train {

/// Named tensors, rounded to nearest even to BF16, in one safetensors file.
void write_safetensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                       const std::filesystem::path& file);

/// Tensors of a file that a model does not have.
enum class Surplus { refused, ignored };

/// Copies such a file into the model's parameters. Throws std::runtime_error naming the file, and the tensor
/// if it is missing, not the model's (unless those are ignored), of another shape, or no BF16, F16 or F32.
void load_safetensors(const std::filesystem::path& file, torch::nn::Module& model,
                      Surplus surplus = Surplus::refused);

}  // namespace specula_train
