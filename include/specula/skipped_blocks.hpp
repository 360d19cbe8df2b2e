// Which blocks of a decoder a pass leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "detail/compiler_options.hpp"

namespace specula {

/// For each layer, whether its attention and whether its MLP is left out; a block that is left out is the
/// identity. Made for a number of layers; all blocks are kept at first.
struct SkippedBlocks {
  std::vector<std::uint8_t> attention, mlp;  // (layers), 1: left out

  explicit SkippedBlocks(std::int32_t layers = 0)
      : attention(static_cast<std::size_t>(layers)), mlp(static_cast<std::size_t>(layers)) {}

  std::int32_t layers() const { return static_cast<std::int32_t>(attention.size()); }
  void keep_all() {
    attention.assign(attention.size(), 0);
    mlp.assign(mlp.size(), 0);
  }
  /// Of the blocks of both kinds, how many are left out.
  std::int32_t count() const {
    std::int32_t all = 0;
    for (std::size_t l = 0; l < attention.size(); ++l) all += attention[l] + mlp[l];
    return all;
  }
  friend bool operator==(const SkippedBlocks&, const SkippedBlocks&) = default;
};

}  // namespace specula
