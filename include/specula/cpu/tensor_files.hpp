// SPDX-License-Identifier: MIT
// Tensors of a model: of a Hugging Face directory (model.safetensors, or the shards listed in
// model.safetensors.index.json), or of GGUF files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/cpu/gguf_tensors.hpp"
#include "specula/cpu/int8_groups.hpp"
#include "specula/cpu/load_options.hpp"
#include "specula/files/gguf_files.hpp"
#include "specula/files/json.hpp"
#include "specula/files/json_fields.hpp"
#include "specula/files/safetensors.hpp"

namespace specula::cpu {

/// The tensors of a model directory: of model.safetensors, or of the shards that model.safetensors.index.json
/// lists. Or those of a model in GGUF, by the names and with the rows that the directory would have.
class TensorFiles {
 public:
  /// Reads the headers. Throws std::runtime_error, naming the file, if one is missing or malformed, for an
  /// adapter (LoRA) beside the weights, which would change the model, and for tensors that none of the
  /// architectures read from GGUF has. `expand`: see LoadOptions.
  explicit TensorFiles(const std::filesystem::path& directory, GgufExpand expand = {})
      : source_(directory.string()) {
    if (files::is_gguf(directory)) {
      use(GgufTensors(files::GgufFiles(directory), std::move(expand)));
      return;
    }
    if (const auto adapter = directory / "adapter_config.json"; std::filesystem::exists(adapter))
      throw std::runtime_error(adapter.string() +
                               ": adapters are not read: merge it into the weights, or move it elsewhere");
    const auto single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
    if (std::filesystem::exists(single)) {
      files_.push_back(files::Safetensors::open(single));
      for (const auto& tensor : files_[0].tensors()) where_.emplace(tensor.name, 0);
    } else if (std::filesystem::exists(index)) {
      read_index(directory, index);
    } else {
      std::string way_out = "; download the weights into it";
      for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (std::filesystem::exists(directory / other))
          way_out = std::string(", and ") + other + " is not read: save the model as safetensors";
      throw std::runtime_error(source_ + ": has neither model.safetensors nor model.safetensors.index.json" +
                               way_out);
    }
  }

  /// The tensors of one file.
  explicit TensorFiles(files::Safetensors file) : source_(file.source()) {
    for (const auto& tensor : file.tensors()) where_.emplace(tensor.name, 0);
    files_.push_back(std::move(file));
  }

  /// The tensors of GGUF files.
  explicit TensorFiles(GgufTensors tensors) : source_(tensors.files().keys().source()) {
    use(std::move(tensors));
  }

  /// Whether there is such a tensor.
  bool contains(std::string_view name) const { return where_.find(name) != where_.end(); }
  /// All names, with the number of the file that has it.
  const std::map<std::string, std::size_t, std::less<>>& names() const { return where_; }

  /// The tensor of this name. Throws std::runtime_error if there is none.
  const files::TensorInfo& find(std::string_view name) const {
    const std::size_t file = file_of(name);
    return gguf_ ? gguf_->infos().find(name)->second.first : *files_[file].find(name);
  }

  /// The weight tensor `name`. Throws std::runtime_error if it is missing, its shape differs from `shape`, or
  /// its type is not F32, F16, BF16, I8 with exponents (int8_groups.hpp), or one in blocks that is expanded.
  const files::TensorInfo& weight(std::string_view name, std::span<const std::int64_t> shape) const {
    const files::TensorInfo& tensor = find(name);
    if (!is_of_weights(tensor.dtype))
      fail(name, "dtype " + tensor.dtype_name +
                     " is not supported, expected F32, F16, BF16 or I8; if the weights are quantized, " +
                     detail::unquantized());
    if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
      fail(name, "shape " + files::detail::shape_text(tensor.shape) + ", expected " +
                     files::detail::shape_text(shape));
    if (gguf_) gguf_->expect_readable(name);
    if (tensor.dtype == files::Dtype::i8) exponents_of(files_[file_of(name)], tensor);
    return tensor;
  }

  /// Calls take(r, row) per row of a tensor from weight(), converted to float exactly; a row is as long as
  /// the last extent. Throws std::runtime_error for 8-bit weights out of range. Reads each byte once.
  template <class Take>
  void rows(const files::TensorInfo& tensor, Take take) {
    if (gguf_) return gguf_->rows(tensor.name, take);
    files::Safetensors& file = files_[where_.find(tensor.name)->second];
    const auto bytes = file.read(tensor);
    const auto cols = static_cast<std::size_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
    const std::size_t stride = cols * static_cast<std::size_t>(size_of(tensor.dtype));
    std::vector<std::byte> scales;
    if (tensor.dtype == files::Dtype::i8) scales = file.read(exponents_of(file, tensor));
    std::vector<float> row(cols);
    std::vector<std::int8_t> exponents(scales.empty() ? 0 : Int8Groups::count(cols));
    for (std::size_t r = 0; r * stride < bytes.size(); ++r) {
      decode(tensor.dtype, bytes.data() + r * stride, row);
      if (tensor.dtype == files::Dtype::i8) {
        std::memcpy(exponents.data(), scales.data() + r * exponents.size(), exponents.size());
        try {
          scale_groups(row, exponents);
        } catch (const std::runtime_error& error) {
          file.fail(tensor.name, "row " + std::to_string(r) + ", " + error.what());
        }
      }
      take(static_cast<std::int64_t>(r), std::span<const float>(row));
    }
  }

  /// ggml's number of a tensor's type in GGUF; -1 of another file.
  std::uint32_t gguf_type(const files::TensorInfo& tensor) const {
    return gguf_ ? gguf_->type_of(tensor.name) : ~std::uint32_t{0};
  }

  /// Calls take(r, row) per row of a matrix from weight(): its blocks as GGUF has them, of 8-bit weights
  /// those of Q8_0. Throws as rows().
  template <class Take>
  void blocks(const files::TensorInfo& tensor, Take take) {
    if (gguf_) return gguf_->raw_rows(tensor.name, take);
    files::Safetensors& file = files_[where_.find(tensor.name)->second];
    const auto numbers = file.read(tensor), scales = file.read(exponents_of(file, tensor));
    const auto cols = static_cast<std::size_t>(tensor.shape[1]), groups = Int8Groups::count(cols);
    const auto as_int8 = [](const std::vector<std::byte>& bytes, std::size_t first, std::size_t count) {
      return std::span(reinterpret_cast<const std::int8_t*>(bytes.data()) + first, count);
    };
    std::vector<std::byte> row(groups *
                               files::find_gguf_type(static_cast<std::uint32_t>(files::GgufId::q8_0))->bytes);
    for (std::size_t r = 0; r < static_cast<std::size_t>(tensor.shape[0]); ++r) {
      try {
        groups_to_blocks(as_int8(numbers, r * cols, cols), as_int8(scales, r * groups, groups), row);
      } catch (const std::runtime_error& error) {
        file.fail(tensor.name, "row " + std::to_string(r) + ", " + error.what());
      }
      take(static_cast<std::int64_t>(r), row.data());
    }
  }

  const std::string& source() const { return source_; }  ///< of the model, for messages

  /// The `count` integers of tensor `name`. Throws std::runtime_error if it is missing, or not I32 of shape
  /// [count].
  std::vector<std::int32_t> integers(std::string_view name, std::int64_t count) {
    return numbers<std::int32_t>(name, count, files::Dtype::i32, "I32");
  }
  /// The same of I64.
  std::vector<std::int64_t> long_integers(std::string_view name, std::int64_t count) {
    return numbers<std::int64_t>(name, count, files::Dtype::i64, "I64");
  }
  /// The same of BOOL: 0 is false.
  std::vector<std::uint8_t> booleans(std::string_view name, std::int64_t count) {
    return numbers<std::uint8_t>(name, count, files::Dtype::boolean, "BOOL");
  }

  /// Throws std::runtime_error naming the file of this tensor, and the tensor as the file does.
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    if (gguf_) gguf_->fail(name, what);
    files_[file_of(name)].fail(name, what);
  }

 private:
  template <class T>
  std::vector<T> numbers(std::string_view name, std::int64_t count, files::Dtype dtype, const char* type) {
    const files::TensorInfo& tensor = find(name);
    if (gguf_ || tensor.dtype != dtype || tensor.shape != std::vector{count})
      fail(name, tensor.dtype_name + " of shape " + files::detail::shape_text(tensor.shape) + ", expected " +
                     type + " of [" + std::to_string(count) + "]");
    const auto bytes = files_[file_of(name)].read(tensor);
    std::vector<T> all(static_cast<std::size_t>(count));
    if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  std::size_t file_of(std::string_view name) const {
    const auto at = where_.find(name);
    if (at != where_.end()) return at->second;
    if (gguf_) gguf_->fail(name, "is missing");
    throw std::runtime_error(
        source_ + ": tensor '" + std::string(name) + "' is missing" +
        (name == "lm_head.weight"
             ? ": if the embedding is the LM head, set tie_word_embeddings in config.json"
         : name == "draft_tokens" ? ": the ids of the draft_vocab_size tokens that the model predicts; "
                                    "without the key it predicts all"
                                  : ""));
  }
  void use(GgufTensors tensors) {
    for (const auto& [name, info] : tensors.infos()) where_.emplace(name, 0);
    gguf_ = std::move(tensors);
  }

  static const files::TensorInfo& exponents_of(const files::Safetensors& file,
                                               const files::TensorInfo& tensor) {
    if (tensor.shape.size() != 2)
      file.fail(tensor.name,
                "I8 of shape " + files::detail::shape_text(tensor.shape) + ", expected (rows, cols)");
    const std::string name = tensor.name + Int8Groups::kSuffix;
    const files::TensorInfo* const found = file.find(name);
    if (!found)
      file.fail(tensor.name, "I8 without '" + name +
                                 "' in its file, so quantized by other programs: " + detail::unquantized());
    const std::int64_t groups =
        static_cast<std::int64_t>(Int8Groups::count(static_cast<std::size_t>(tensor.shape[1])));
    const std::vector<std::int64_t> shape{tensor.shape[0], groups};
    if (found->dtype != files::Dtype::i8 || found->shape != shape)
      file.fail(name, found->dtype_name + " of shape " + files::detail::shape_text(found->shape) +
                          ", expected I8 of " + files::detail::shape_text(shape));
    return *found;
  }

  void read_index(const std::filesystem::path& directory, const std::filesystem::path& path) {
    const files::Json index = files::read_json_file(path);
    const files::JsonFields map = files::JsonFields(index, path.string()).object("weight_map");
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, value] : map.json().items()) {
      const std::string file = value.is_string() ? value.get<std::string>() : "";
      if (file.empty() || file.find_first_of("/\\") != std::string::npos)
        throw std::runtime_error(path.string() + ": tensor '" + name +
                                 "': expected the name of a file in the same directory");
      const auto [at, fresh] = opened.emplace(file, files_.size());
      if (fresh) files_.push_back(files::Safetensors::open(directory / file));
      if (!files_[at->second].find(name))
        files_[at->second].fail(name, "missing, though " + path.filename().string() + " places it here");
      where_.emplace(name, at->second);
    }
  }

  std::string source_;
  std::vector<files::Safetensors> files_;
  std::optional<GgufTensors> gguf_;  // instead of these
  std::map<std::string, std::size_t, std::less<>> where_;
};

}  // namespace specula::cpu
