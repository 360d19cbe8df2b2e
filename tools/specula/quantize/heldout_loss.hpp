// SPDX-License-Identifier: MIT
// Held-out loss of a model.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace specula_tools {

/// Nats per token, by style, of the model in `model` on the first `rows` held-out rows of `length` tokens of
/// each style in `tokens`, written by specula-train-text. Every row starts with an empty context, and its
/// first token predicts the second. The model must need no target. Throws std::runtime_error naming the file
/// that cannot be read, or the vocabularies if they differ.
std::map<std::string, double> heldout_loss(const std::filesystem::path& model,
                                           const std::filesystem::path& tokens, std::size_t rows,
                                           std::size_t length);

}  // namespace specula_tools
