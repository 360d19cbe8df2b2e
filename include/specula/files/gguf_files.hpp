// SPDX-License-Identifier: MIT
// A model in GGUF: one file, or several parts named NAME-00001-of-0000N.gguf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/files/gguf.hpp"

namespace specula::files {

/// Whether a path names a GGUF model, not a Hugging Face folder: any file does.
inline bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

/// All parts of a model in GGUF. The first has the keys.
class GgufFiles {
 public:
  /// Opens `path` and, if it is the first of several parts, the others beside it. Throws std::runtime_error
  /// naming the file, for a malformed one, one that is another part than the first, a missing part, or a
  /// tensor in two parts.
  explicit GgufFiles(const std::filesystem::path& path) : GgufFiles(Gguf::open(path)) {
    const std::int64_t count = keys().integer("split.count").value_or(1);
    if (count <= 1) return;
    if (const std::int64_t part = keys().integer("split.no").value_or(0); part != 0)
      keys().fail_key("split.no", "is part " + std::to_string(part + 1) + " of " + std::to_string(count) +
                                      " of a model, expected the first, whose name has 00001");
    if (count > 65535)
      keys().fail_key("split.count", std::to_string(count) + " parts, expected at most 65535");
    const std::string name = path.filename().string(), end = part_name(1, count);
    if (!name.ends_with(end))
      keys().fail_key("split.count", "is the first of " + std::to_string(count) +
                                         " parts, whose name must end with '" + end +
                                         "': rename it, and the others likewise");
    const std::string stem = name.substr(0, name.size() - end.size());
    for (std::int64_t part = 2; part <= count; ++part) {
      parts_.push_back(Gguf::open(path.parent_path() / (stem + part_name(part, count))));
      const Gguf& added = parts_.back();
      if (added.integer("split.count") != count || added.integer("split.no") != part - 1)
        added.fail_key("split.no", "is no part " + std::to_string(part) + " of " + std::to_string(count) +
                                       ", as its name says: rename it");
      place(parts_.size() - 1);
    }
    const auto total = keys().integer("split.tensors.count");
    if (total && *total != static_cast<std::int64_t>(where_.size()))
      keys().fail_key("split.tensors.count", std::to_string(*total) + ", the parts have " +
                                                 std::to_string(where_.size()) + " tensors");
  }

  /// A file that is the whole model.
  explicit GgufFiles(Gguf file) {
    parts_.push_back(std::move(file));
    place(0);
  }

  /// The first part, whose keys count.
  const Gguf& keys() const { return parts_.front(); }

  /// Names of all tensors, ascending, each with the number of its part and its number there.
  const std::map<std::string_view, std::pair<std::size_t, std::size_t>>& names() const { return where_; }

  /// The tensor of this name; null if there is none.
  const GgufTensor* find(std::string_view name) const {
    const auto at = where_.find(name);
    return at == where_.end() ? nullptr : &parts_[at->second.first].tensors()[at->second.second];
  }
  /// The part that has this tensor, which there must be.
  const Gguf& part_of(std::string_view name) const { return parts_[where_.at(name).first]; }

 private:
  static std::string part_name(std::int64_t part, std::int64_t count) {
    const auto five = [](std::int64_t number) {
      const std::string digits = std::to_string(number);
      return std::string(5 - digits.size(), '0') + digits;
    };
    return "-" + five(part) + "-of-" + five(count) + ".gguf";
  }
  void place(std::size_t part) {
    const std::vector<GgufTensor>& tensors = parts_[part].tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (!where_.emplace(tensors[i].name, std::pair(part, i)).second)
        parts_[part].fail_tensor(tensors[i].name, "is in " + part_of(tensors[i].name).source() + ", too");
  }

  std::vector<Gguf> parts_;
  std::map<std::string_view, std::pair<std::size_t, std::size_t>> where_;
};

}  // namespace specula::files
