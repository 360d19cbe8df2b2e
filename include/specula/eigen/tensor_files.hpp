// The tensors of a Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json
// lists.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/eigen/json.hpp"
#include "specula/eigen/llama_config.hpp"
#include "specula/eigen/safetensors.hpp"

namespace specula::eigen {

class TensorFiles {
 public:
  /// Reads the headers. Throws std::runtime_error, naming the file, if one is missing or malformed.
  explicit TensorFiles(const std::filesystem::path& directory) : source_(directory.string()) {
    const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
    if (std::filesystem::exists(single)) {
      files_.push_back(Safetensors::open(single));
      for (const auto& tensor : files_[0].tensors()) where_.emplace(tensor.name, 0);
    } else if (std::filesystem::exists(index)) {
      read_index(directory, index);
    } else {
      throw std::runtime_error(source_ + ": neither model.safetensors nor model.safetensors.index.json");
    }
  }

  bool contains(std::string_view name) const { return where_.find(name) != where_.end(); }
  const std::map<std::string, std::size_t, std::less<>>& names() const { return where_; }

  /// The tensor and its file. Throws std::runtime_error if there is none of this name, its shape is another,
  /// or its type is not F32, F16 or BF16.
  const TensorInfo&(require)(std::string_view name, std::span<const std::int64_t> shape) const {
    const auto at = where_.find(name);
    if (at == where_.end())
      throw std::runtime_error(source_ + ": tensor '" + std::string(name) + "' is missing");
    const Safetensors& file = files_[at->second];
    const TensorInfo& tensor = *file.find(name);
    if (tensor.dtype == Dtype::other)
      file.fail(name, "dtype " + tensor.dtype_name + " is not supported, expected F32, F16 or BF16");
    if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
      file.fail(name,
                "shape " + detail::shape_text(tensor.shape) + ", expected " + detail::shape_text(shape));
    return tensor;
  }

  /// The bytes of a tensor that require() gave.
  std::vector<std::byte> read(const TensorInfo& tensor) {
    return files_[where_.find(tensor.name)->second].read(tensor);
  }

 private:
  void read_index(const std::filesystem::path& directory, const std::filesystem::path& path) {
    const Json index = read_json_file(path);
    const Json* map = index.find("weight_map");
    if (!map || !map->object())
      throw std::runtime_error(path.string() + ": key 'weight_map': expected an object");
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, file] : *map->object()) {
      if (!file.string() || file.string()->empty() ||
          file.string()->find_first_of("/\\") != std::string::npos)
        throw std::runtime_error(path.string() + ": tensor '" + name +
                                 "': expected the name of a file in the same directory");
      const auto [at, fresh] = opened.emplace(*file.string(), files_.size());
      if (fresh) files_.push_back(Safetensors::open(directory / *file.string()));
      if (!files_[at->second].find(name))
        files_[at->second].fail(name, "missing, though " + path.filename().string() + " places it here");
      where_.emplace(name, at->second);
    }
  }

  std::string source_;
  std::vector<Safetensors> files_;
  std::map<std::string, std::size_t, std::less<>> where_;
};

}  // namespace specula::eigen
