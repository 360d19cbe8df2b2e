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
#include "specula/cpu/gguf_blocks.hpp"
#include "specula/cpu/gguf_config.hpp"
#include "specula/cpu/gguf_files.hpp"
#include "specula/cpu/gguf_names.hpp"
#include "specula/cpu/load_options.hpp"
#include "specula/cpu/safetensors.hpp"

namespace specula::cpu {

/// Reads the tensors of one model.
class GgufTensors {
 public:
  /// `expand` is for types that specula::cpu::expand() does not expand; empty: these are refused. Throws
  /// std::runtime_error naming file and tensor for one that none of the architectures has.
  explicit GgufTensors(GgufFiles files, GgufExpand expand = {})
      : files_(std::move(files)),
        expand_(std::move(expand)),
        adjacent_pairs_(gguf_architecture(files_.keys()).adjacent_pairs) {
    for (const auto& [name, where] : files_.names()) {
      if (name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd.weight")) continue;  // not weights
      const GgufTensor& tensor = *files_.find(name);
      TensorInfo info;
      info.name = hugging_face_name(name);
      info.shape = tensor.shape;
      info.end = tensor.bytes.size();
      if (info.name.empty())
        files_.part_of(name).fail_tensor(
            name, std::string("is no part of a Llama, Mistral, Qwen2 or Qwen3; ") + detail::kAsGguf);
      const GgufType* const type = find_gguf_type(tensor.type);
      info.dtype_name = type ? type->name : "type " + std::to_string(tensor.type);
      info.dtype = tensor.type == 0    ? Dtype::f32
                   : tensor.type == 1  ? Dtype::f16
                   : tensor.type == 30 ? Dtype::bf16
                                       : Dtype::blocks;
      std::string key = info.name;
      infos_.emplace(std::move(key), std::pair(std::move(info), name));
    }
  }

  const GgufFiles& files() const { return files_; }  ///< what they are read from

  /// By Hugging Face name: the tensor, whose bytes have no meaning to others, and its name in the files.
  const std::map<std::string, std::pair<TensorInfo, std::string_view>, std::less<>>& infos() const {
    return infos_;
  }

  /// Throws std::runtime_error naming the file and the tensor as the file does.
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    const auto at = infos_.find(name);
    if (at == infos_.end()) files_.keys().fail_tensor(gguf_name(name), what);
    files_.part_of(at->second.second).fail_tensor(at->second.second, what);
  }

  /// Throws std::runtime_error naming file, tensor and type if its numbers cannot be expanded.
  void expect_readable(std::string_view name) const {
    const auto& [info, own] = infos_.find(name)->second;
    const GgufTensor& tensor = *files_.find(own);
    const GgufType* const type = find_gguf_type(tensor.type);
    if (type && type->expands) return;
    std::vector<float> row(type ? type->block : 1);
    if (type && expand_ && expand_(type->id, tensor.bytes.data(), row)) return;
    files_.part_of(own).fail_tensor(
        own, info.dtype_name +
                 " is not expanded here, only F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1, and "
                 "what ggml expands in programs built with llama.cpp (-DLLAMA_DIR); " +
                 detail::kAsGguf + ", or llama-quantize --allow-requantize makes a Q8_0 of it");
  }

  /// Calls take(r, row) per row, in the order of a Hugging Face folder.
  template <class Take>
  void rows(std::string_view name, Take take) const {
    expect_readable(name);
    const auto& [info, own] = infos_.find(name)->second;
    const GgufTensor& tensor = *files_.find(own);
    const GgufType& type = *find_gguf_type(tensor.type);
    const std::int64_t cols = tensor.shape.back(), heads = heads_of(own);
    std::int64_t rows = 1;
    for (const std::int64_t extent : tensor.shape) rows *= extent;
    rows /= cols;
    const std::size_t stride = static_cast<std::size_t>(cols / type.block) * type.bytes;
    // Of a matrix its rows are reordered, of a bias its numbers.
    const bool bias = tensor.shape.size() == 1;
    const std::int64_t reordered = heads ? bias ? cols : rows : 0, size = heads ? reordered / heads : 0;
    if (heads && (reordered % heads != 0 || size % 2 != 0))
      files_.part_of(own).fail_tensor(own, "shape " + detail::shape_text(tensor.shape) + ", expected " +
                                               std::to_string(heads) + " heads of an even size");
    std::vector<float> row(static_cast<std::size_t>(cols)), ordered(heads && bias ? row.size() : 0);
    const auto place = [&](std::int64_t r) {  // in the file
      const std::int64_t i = r % size;
      return r - i + 2 * (i % (size / 2)) + i / (size / 2);
    };
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::byte* const at =
          tensor.bytes.data() + stride * static_cast<std::size_t>(heads && !bias ? place(r) : r);
      if (type.expands)
        expand(static_cast<GgufId>(type.id), at, row);
      else
        expand_(type.id, at, row);
      for (std::size_t i = 0; i < ordered.size(); ++i)
        ordered[i] = row[static_cast<std::size_t>(place(static_cast<std::int64_t>(i)))];
      take(r, std::span<const float>(ordered.empty() ? row : ordered));
    }
  }

 private:
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

  GgufFiles files_;
  GgufExpand expand_;
  bool adjacent_pairs_;
  std::map<std::string, std::pair<TensorInfo, std::string_view>, std::less<>> infos_;
};

}  // namespace specula::cpu
