// SPDX-License-Identifier: MIT
// The tensors of a model in GGUF by their Hugging Face names, rows in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/gguf_config.hpp"
#include "specula/cpu/load_options.hpp"
#include "specula/files/gguf_blocks.hpp"
#include "specula/files/gguf_files.hpp"
#include "specula/files/gguf_names.hpp"
#include "specula/files/safetensors.hpp"

namespace specula::cpu {

/// Reads the tensors of one model.
class GgufTensors {
 public:
  /// `expand` is for types that specula::files::expand() does not expand; empty: these are refused. Throws
  /// std::runtime_error naming file and tensor for one that none of the architectures has.
  explicit GgufTensors(files::GgufFiles files, GgufExpand expand = {})
      : files_(std::move(files)),
        expand_(std::move(expand)),
        adjacent_pairs_(gguf_architecture(files_.keys()).adjacent_pairs) {
    for (const auto& [name, where] : files_.names()) {
      if (name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd.weight")) continue;  // not weights
      const files::GgufTensor& tensor = *files_.find(name);
      files::TensorInfo info;
      info.name = files::hugging_face_name(name);
      info.shape = tensor.shape;
      info.end = tensor.bytes.size();
      if (info.name.empty())
        files_.part_of(name).fail_tensor(
            name, std::string("is no part of a Llama, Mistral, Qwen2 or Qwen3; ") + detail::kAsGguf);
      const files::GgufType* const type = files::find_gguf_type(tensor.type);
      info.dtype_name = type ? type->name : "type " + std::to_string(tensor.type);
      info.dtype = tensor.type == 0    ? files::Dtype::f32
                   : tensor.type == 1  ? files::Dtype::f16
                   : tensor.type == 30 ? files::Dtype::bf16
                                       : files::Dtype::blocks;
      std::string key = info.name;
      infos_.emplace(std::move(key), std::pair(std::move(info), name));
    }
  }

  const files::GgufFiles& files() const { return files_; }  ///< what they are read from

  /// By Hugging Face name: the tensor, whose bytes have no meaning to others, and its name in the files.
  const std::map<std::string, std::pair<files::TensorInfo, std::string_view>, std::less<>>& infos() const {
    return infos_;
  }

  /// Throws std::runtime_error naming the file and the tensor as the file does.
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    const auto at = infos_.find(name);
    if (at == infos_.end()) files_.keys().fail_tensor(files::gguf_name(name), what);
    files_.part_of(at->second.second).fail_tensor(at->second.second, what);
  }

  /// Throws std::runtime_error naming file, tensor and type if its numbers cannot be expanded.
  void expect_readable(std::string_view name) const {
    const auto& [info, own] = infos_.find(name)->second;
    const files::GgufTensor& tensor = *files_.find(own);
    const files::GgufType* const type = files::find_gguf_type(tensor.type);
    if (type && type->expands) return;
    std::vector<float> row(type ? type->block : 1);
    if (type && expand_ && expand_(type->id, tensor.bytes.data(), row)) return;
    files_.part_of(own).fail_tensor(
        own, info.dtype_name +
                 " is not expanded here, only F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and "
                 "Q6_K, and what ggml expands in programs built with llama.cpp (-DLLAMA_DIR); " +
                 detail::kAsGguf + ", or llama-quantize --allow-requantize makes a Q8_0 of it");
  }

  /// The type of a tensor that there is: ggml's number.
  std::uint32_t type_of(std::string_view name) const {
    return files_.find(infos_.find(name)->second.second)->type;
  }

  /// Calls take(r, row) per row of a matrix, in the order of a Hugging Face folder. `row` points to its bytes
  /// as the file has them: whole blocks of type_of(). A vector is one row, in the file's order. What was read
  /// of a mapped file leaves memory, and comes back if it is read again. Throws as
  /// expect_readable(), and for rows of queries and keys that are no heads of an even size.
  template <class Take>
  void raw_rows(std::string_view name, Take take) const {
    expect_readable(name);
    const std::string_view own = infos_.find(name)->second.second;
    const files::GgufTensor& tensor = *files_.find(own);
    const files::GgufType& type = *files::find_gguf_type(tensor.type);
    const std::int64_t cols = tensor.shape.back();
    std::int64_t rows = 1;
    for (const std::int64_t extent : tensor.shape) rows *= extent;
    rows /= cols;
    const std::size_t stride = static_cast<std::size_t>(cols / type.block) * type.bytes;
    const std::int64_t size = tensor.shape.size() == 1 ? 0 : head_size(own, rows);
    std::size_t dropped = 0;  // bytes
    for (std::int64_t r = 0; r < rows; ++r) {
      take(r, tensor.bytes.data() + stride * static_cast<std::size_t>(place(r, size)));
      // What was read leaves memory, so that no more of the file is there than a few MiB; whole heads only.
      const std::int64_t past = size ? (r + 1) / size * size : r + 1;
      const std::size_t read = stride * static_cast<std::size_t>(past);
      if (read - dropped < kDropAfter && past < rows) continue;
      // All of it: a page that is read brings others back, before it as well.
      files_.part_of(own).drop(tensor.bytes.first(dropped = read));
    }
  }

  /// Calls take(r, row) per row, in the order of a Hugging Face folder, expanded to floats. Throws as
  /// raw_rows().
  template <class Take>
  void rows(std::string_view name, Take take) const {
    expect_readable(name);  // first: an unknown type may have rows of any length
    const std::string_view own = infos_.find(name)->second.second;
    const files::GgufTensor& tensor = *files_.find(own);
    std::vector<float> row(static_cast<std::size_t>(tensor.shape.back())), ordered;
    // Of a matrix its rows are reordered, of a bias its numbers.
    const std::int64_t size = tensor.shape.size() == 1 ? head_size(own, tensor.shape.back()) : 0;
    if (size) ordered.resize(row.size());
    raw_rows(name, [&](std::int64_t r, const std::byte* at) {
      if (files::find_gguf_type(tensor.type)->expands)
        expand(static_cast<files::GgufId>(tensor.type), at, row);
      else
        expand_(tensor.type, at, row);
      for (std::size_t i = 0; i < ordered.size(); ++i)
        ordered[i] = row[static_cast<std::size_t>(place(static_cast<std::int64_t>(i), size))];
      take(r, std::span<const float>(ordered.empty() ? row : ordered));
    });
  }

 private:
  static constexpr std::size_t kDropAfter = 4 << 20;  // bytes read

  /// Heads whose rows the file has in another order; 0: none.
  std::int64_t heads_of(std::string_view own) const {
    if (!adjacent_pairs_) return 0;
    const detail::GgufKeys keys(files_.keys());
    const std::int64_t heads = keys.size("attention.head_count");
    if (own.find(".attn_q.") != own.npos) return heads;
    if (own.find(".attn_k.") != own.npos)
      return keys.optional_size("attention.head_count_kv").value_or(heads);
    return 0;
  }

  /// Rows, or numbers of a bias, of a head whose rows the file has in another order; 0: in the same.
  std::int64_t head_size(std::string_view own, std::int64_t reordered) const {
    const std::int64_t heads = heads_of(own), size = heads ? reordered / heads : 0;
    if (heads && (reordered % heads != 0 || size % 2 != 0))
      files_.part_of(own).fail_tensor(own, "shape " + files::detail::shape_text(files_.find(own)->shape) +
                                               ", expected " + std::to_string(heads) +
                                               " heads of an even size");
    return size;
  }
  /// Where the file has row r of heads of `size` rows.
  static std::int64_t place(std::int64_t r, std::int64_t size) {
    if (size == 0) return r;
    const std::int64_t i = r % size;
    return r - i + 2 * (i % (size / 2)) + i / (size / 2);
  }

  files::GgufFiles files_;
  GgufExpand expand_;
  bool adjacent_pairs_;
  std::map<std::string, std::pair<files::TensorInfo, std::string_view>, std::less<>> infos_;
};

}  // namespace specula::cpu
