// The loss of a model on text that it was not trained on.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace specula_examples {

/// Nats a token, by style, of the model in `model` on the first `rows` rows of `length` tokens of each style
/// that specula-train-text held out in `tokens`. Every row is read from nothing and its first token predicts
/// the second. Throws std::runtime_error naming the file that cannot be read, or the vocabularies if they
/// differ.
std::map<std::string, double> heldout_loss(const std::filesystem::path& model,
                                           const std::filesystem::path& tokens, std::size_t rows,
                                           std::size_t length);

}  // namespace specula_examples
