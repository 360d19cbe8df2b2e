// SPDX-License-Identifier: MIT
// Files that Git LFS left out.
#pragma once

#include <string_view>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// What a file is called in messages that a clone without Git LFS has in place of a large one.
inline constexpr const char* kLfsPointer =
    "is a Git LFS pointer, not the file: `git lfs pull` in its repository fetches that";

/// Whether a file that begins with `text`, its first 40 bytes or more, is such a pointer.
constexpr bool is_lfs_pointer(std::string_view text) {
  constexpr std::string_view kVersion = "version https://git-lfs.github.com/spec/";
  return text.substr(0, kVersion.size()) == kVersion;
}

}  // namespace specula
