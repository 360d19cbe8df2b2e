// SPDX-License-Identifier: MIT
// Layer skipping: the blocks of a decoder that a pass leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Per layer, whether its attention and whether its MLP are skipped; a skipped block is the identity. Made
/// for a number of layers; no block is skipped at first.
struct SkippedBlocks {
  std::vector<std::uint8_t> attention,  ///< (layers), 1: skipped
      mlp;                              ///< (layers), 1: skipped

  /// Skips nothing.
  explicit SkippedBlocks(std::int32_t layers = 0)
      : attention(static_cast<std::size_t>(layers)), mlp(static_cast<std::size_t>(layers)) {}

  /// Skips these blocks of a model with `layers` layers, counted from 1, in any order. Draft & Verify
  /// (Zhang et al. 2024) searches for such a set offline. Throws std::invalid_argument for a layer that the
  /// model does not have, or that a list names twice.
  static SkippedBlocks given(std::int32_t layers, std::span<const std::int32_t> attention_of,
                             std::span<const std::int32_t> mlp_of) {
    SkippedBlocks out(layers);
    const auto leave_out = [&](const char* what, std::span<const std::int32_t> of,
                               std::vector<std::uint8_t>& blocks) {
      for (const std::int32_t l : of) {
        if (l < 1 || l > layers)
          throw std::invalid_argument("SkippedBlocks: " + std::string(what) + " of layer " +
                                      std::to_string(l) + ", the layers are 1 to " + std::to_string(layers));
        if (std::exchange(blocks[static_cast<std::size_t>(l - 1)], 1) != 0)
          throw std::invalid_argument("SkippedBlocks: " + std::string(what) + " of layer " +
                                      std::to_string(l) + " is named twice");
      }
    };
    leave_out("attention", attention_of, out.attention);
    leave_out("MLP", mlp_of, out.mlp);
    return out;
  }

  /// Layers of the model.
  std::int32_t layers() const { return static_cast<std::int32_t>(attention.size()); }
  /// Skips nothing from now on.
  void keep_all() {
    attention.assign(attention.size(), 0);
    mlp.assign(mlp.size(), 0);
  }
  /// Number of skipped blocks of both kinds.
  std::int32_t count() const {
    std::int32_t all = 0;
    for (std::size_t l = 0; l < attention.size(); ++l) all += attention[l] + mlp[l];
    return all;
  }
  /// Whether the same blocks are skipped.
  friend bool operator==(const SkippedBlocks&, const SkippedBlocks&) = default;
};

}  // namespace specula
