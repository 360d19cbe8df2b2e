// SPDX-License-Identifier: MIT
// Folders of EAGLE-3 heads and states of their targets by the formula of heads.py, and the rows that the
// writers' own classes make of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../../files/safetensors_writer.hpp"
#include "../generated_weights.hpp"
#include "specula/base/rows.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/files/json.hpp"
#include "specula/model/features.hpp"

namespace specula_test {

inline specula::files::Json golden_heads() {
  return specula::files::read_json_file(std::filesystem::path(SPECULA_MODELS_DIR) / ".." / ".." / "tests" /
                                        "cpu" / "eagle3" / "heads.json");
}

/// The tensors of a head's model.safetensors, in F32.
inline std::vector<Tensor> head_tensors(const specula::files::Json& golden,
                                        const specula::files::Json& head) {
  const auto offsets = golden["d2t"].get<std::vector<float>>();
  std::vector<Tensor> tensors;
  for (const auto& [name, extents] : head["tensors"].items()) {
    const auto shape = extents.get<std::vector<std::int64_t>>();
    if (name == "d2t") {
      tensors.push_back({name, "I64", shape, offsets});
    } else if (name == "t2d") {
      std::vector<float> marks(static_cast<std::size_t>(shape[0]));
      for (std::size_t i = 0; i < offsets.size(); ++i)
        marks[i + static_cast<std::size_t>(static_cast<std::int64_t>(offsets[i]))] = 1;
      tensors.push_back({name, "BOOL", shape, marks});
    } else {
      tensors.push_back({name, "F32", shape, generated_weights(name, shape)});
    }
  }
  return tensors;
}

inline void write_head(const std::filesystem::path& folder, const specula::files::Json& config,
                       const std::vector<Tensor>& tensors) {
  write_file(folder / "config.json", config.dump());
  write_file(folder / "model.safetensors", safetensors_bytes(tensors));
}

/// A target of 16 layers whose embedding is that of the heads, of which nothing else is looked at.
template <class Real>
std::shared_ptr<const specula::cpu::DecoderWeights<Real>> head_target(std::int32_t width,
                                                                      std::int32_t vocab = 256) {
  specula::cpu::DecoderConfig config;
  config.vocab_size = vocab, config.hidden_size = width, config.intermediate_size = 16, config.layers = 16;
  config.heads = 1, config.kv_heads = 1, config.head_dim = 2, config.tied_head = true;
  auto weights = specula::cpu::random_decoder_weights<Real>(config, 1, specula::cpu::WeightType::full);
  const auto embedding = generated_weights("embed_tokens.weight", {vocab, width});
  for (std::int32_t t = 0; t < vocab; ++t)
    weights.embedding.set_row(t, std::span(embedding).subspan(static_cast<std::size_t>(t * width),
                                                              static_cast<std::size_t>(width)));
  return std::make_shared<const specula::cpu::DecoderWeights<Real>>(std::move(weights));
}

/// States 0 to 16 of tokens 0 to 12 of a target, of which views show some.
template <class Real>
struct TargetStates {
  explicit TargetStates(std::int32_t of_width, std::vector<std::int32_t> shown)
      : width(of_width), layers(std::move(shown)), final_state(13 * static_cast<std::size_t>(width)) {
    const auto size = static_cast<std::size_t>(width);
    states.resize(13 * layers.size() * size);
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const auto own = generated_weights("state " + std::to_string(layers[k]), {13, width});
      for (std::size_t t = 0; t < 13; ++t)
        for (std::size_t i = 0; i < size; ++i)
          states[(t * layers.size() + k) * size + i] =
              static_cast<Real>(static_cast<double>(own[t * size + i]) * (layers[k] + 1));
    }
    const auto last = generated_weights("after the final norm", {13, width});
    std::copy(last.begin(), last.end(), final_state.begin());
  }
  /// Of the first `tokens` tokens.
  specula::FeaturesView<Real> view(std::int32_t tokens) {
    return {final_state.data(),
            tokens,
            width,
            width,
            specula::detail::ViewGuard(changes),
            {layers, states.data(), static_cast<std::ptrdiff_t>(layers.size()) * width}};
  }

  std::int32_t width;
  std::vector<std::int32_t> layers;
  std::vector<Real> final_state, states;
  specula::detail::ChangeCount changes;
};

/// The numbers of rows.bin.
inline std::vector<float> golden_rows() {
  std::ifstream file(
      std::filesystem::path(SPECULA_MODELS_DIR) / ".." / ".." / "tests" / "cpu" / "eagle3" / "rows.bin",
      std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> all(bytes.size() / 4);
  std::memcpy(all.data(), bytes.data(), all.size() * 4);
  return all;
}

}  // namespace specula_test
