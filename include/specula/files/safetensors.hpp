// SPDX-License-Identifier: MIT
// Safetensors reader: 8 bytes of header length, a JSON header, the tensors' bytes. Little-endian. Format:
// https://huggingface.co/docs/safetensors, "Format".
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/base/half.hpp"
#include "specula/files/detail/open_file.hpp"
#include "specula/files/json.hpp"

namespace specula::files {

/// Element type of a tensor. `i32`, `i64`, `boolean`: of token ids and marks, no weights; `blocks`: of GGUF,
/// which gguf_tensors.hpp expands; `other`: cannot be decoded.
enum class Dtype { f32, f16, bf16, i8, i32, i64, boolean, blocks, other };

/// Bytes of one element; 0 for `blocks` and `other`.
inline std::uint64_t size_of(Dtype dtype) {
  constexpr std::uint64_t kBytes[] = {4, 2, 2, 1, 4, 8, 1, 0, 0};
  return kBytes[static_cast<std::size_t>(dtype)];
}

/// Whether decode() takes it, or blocks are expanded: it may be of weights.
inline bool is_of_weights(Dtype dtype) { return dtype <= Dtype::i8 || dtype == Dtype::blocks; }

/// A tensor as the header of its file describes it.
struct TensorInfo {
  std::string name;                 ///< of the tensor
  std::string dtype_name;           ///< as written in the file
  Dtype dtype = Dtype::other;       ///< its type
  std::vector<std::int64_t> shape;  ///< outermost extent first
  std::uint64_t begin = 0,          ///< first byte, counted from the end of the header
      end = 0;                      ///< the byte after the last
};

namespace detail {

inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const auto extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

}  // namespace detail

/// Converts out.size() elements of type `dtype` (f32, f16, bf16 or i8) at `bytes` (any alignment) to float.
/// Exact.
inline void decode(Dtype dtype, const std::byte* bytes, std::span<float> out) {
  if (out.empty()) return;
  if (dtype == Dtype::f32) return void(std::memcpy(out.data(), bytes, out.size() * sizeof(float)));
  if (dtype == Dtype::i8)
    return void(std::transform(bytes, bytes + out.size(), out.begin(),
                               [](std::byte b) { return static_cast<float>(static_cast<std::int8_t>(b)); }));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] =
        dtype == Dtype::f16 ? specula::detail::half_to_float(bits) : specula::detail::bfloat16_to_float(bits);
  }
}

/// One safetensors file. The constructor reads and checks the header; read() reads a tensor.
class Safetensors {
 public:
  static constexpr std::uint64_t kMaxHeader = 100'000'000;  ///< the format's own limit

  /// Throws std::runtime_error, naming the file, the offset or the tensor, and what was expected.
  static Safetensors open(const std::filesystem::path& path) {
    return Safetensors(std::make_unique<std::ifstream>(detail::open_file(path)), path.string());
  }

  /// From any seekable binary stream; `source` names it in messages.
  Safetensors(std::unique_ptr<std::istream> stream, std::string source)
      : stream_(std::move(stream)), source_(std::move(source)) {
    stream_->seekg(0, std::ios::end);
    const auto size = static_cast<std::int64_t>(stream_->tellg());
    if (size < 8)
      throw std::runtime_error(source_ + ": " + std::to_string(size) +
                               " bytes, expected 8 bytes of header length");
    std::uint64_t header = 0;
    read_at(0, std::as_writable_bytes(std::span(&header, 1)));
    const std::uint64_t after = static_cast<std::uint64_t>(size) - 8;
    if (header > std::min(after, kMaxHeader))
      throw std::runtime_error(source_ + ": offset 0: header of " + std::to_string(header) +
                               " bytes, expected at most " + std::to_string(std::min(after, kMaxHeader)));
    std::string text(static_cast<std::size_t>(header), '\0');
    read_at(8, std::as_writable_bytes(std::span(text)));
    data_ = 8 + header;
    data_size_ = after - header;
    read_header(parse_json(text, source_ + " (header)"));
  }

  const std::string& source() const { return source_; }                ///< name of the file, for messages
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  ///< sorted by name

  /// The tensor `name`, or null. O(log n).
  const TensorInfo* find(std::string_view name) const {
    const auto at = std::lower_bound(
        tensors_.begin(), tensors_.end(), name,
        [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }

  /// The tensor's bytes. Throws std::runtime_error if the file has shrunk since it was opened.
  std::vector<std::byte> read(const TensorInfo& tensor) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
    read_at(data_ + tensor.begin, bytes);
    return bytes;
  }

  /// Throws std::runtime_error naming the file and the tensor.
  [[noreturn]] void fail(std::string_view tensor, const std::string& what) const {
    throw std::runtime_error(source_ + ": tensor '" + std::string(tensor) + "': " + what);
  }

 private:
  static_assert(std::endian::native == std::endian::little, "safetensors are read without byte swapping");

  void read_at(std::uint64_t offset, std::span<std::byte> out) {
    stream_->clear();
    stream_->seekg(static_cast<std::streamoff>(offset));
    stream_->read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    if (static_cast<std::size_t>(stream_->gcount()) != out.size())
      throw std::runtime_error(source_ + ": offset " + std::to_string(offset) + ": expected " +
                               std::to_string(out.size()) + " bytes, got " +
                               std::to_string(stream_->gcount()));
  }

  void read_header(const Json& header) {
    if (!header.is_object())
      throw std::runtime_error(source_ + ": offset 8: the header is not a JSON object");
    for (const auto& [name, entry] : header.items())
      if (name != "__metadata__") tensors_.push_back(read_entry(name, entry));
    check_overlap();
  }

  TensorInfo read_entry(const std::string& name, const Json& entry) const {
    TensorInfo tensor;
    tensor.name = name;
    const Json *dtype = detail::find(entry, "dtype"), *shape = detail::find(entry, "shape"),
               *offsets = detail::find(entry, "data_offsets");
    if (!dtype || !dtype->is_string()) fail(name, "expected a string 'dtype'");
    if (!shape || !shape->is_array()) fail(name, "expected an array 'shape'");
    if (!offsets || !offsets->is_array() || offsets->size() != 2)
      fail(name, "expected 'data_offsets' [begin, end]");
    tensor.dtype_name = dtype->get<std::string>();
    tensor.dtype = tensor.dtype_name == "F32"    ? Dtype::f32
                   : tensor.dtype_name == "F16"  ? Dtype::f16
                   : tensor.dtype_name == "BF16" ? Dtype::bf16
                   : tensor.dtype_name == "I8"   ? Dtype::i8
                   : tensor.dtype_name == "I32"  ? Dtype::i32
                   : tensor.dtype_name == "I64"  ? Dtype::i64
                   : tensor.dtype_name == "BOOL" ? Dtype::boolean
                                                 : Dtype::other;
    const auto natural = [&](const Json& value, const char* what) {
      const auto number = detail::integer(value);
      if (!number || *number < 0) fail(name, std::string("expected natural numbers in '") + what + "'");
      return *number;
    };
    std::uint64_t bytes = size_of(tensor.dtype);
    bool wraps = false;
    for (const Json& extent : *shape) {
      tensor.shape.push_back(natural(extent, "shape"));
      const auto factor = static_cast<std::uint64_t>(tensor.shape.back());
      wraps = wraps || (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor);
      bytes *= factor;
    }
    tensor.begin = static_cast<std::uint64_t>(natural((*offsets)[0], "data_offsets"));
    tensor.end = static_cast<std::uint64_t>(natural((*offsets)[1], "data_offsets"));
    if (tensor.begin > tensor.end || tensor.end > data_size_)
      fail(name, "data_offsets [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) +
                     "], expected a range within the " + std::to_string(data_size_) +
                     " bytes after the header");
    if (tensor.dtype != Dtype::other && (wraps || bytes != tensor.end - tensor.begin))
      fail(name, tensor.dtype_name + " of shape " + detail::shape_text(tensor.shape) + " needs " +
                     (wraps ? "over 2^64" : std::to_string(bytes)) + " bytes, data_offsets have " +
                     std::to_string(tensor.end - tensor.begin));
    return tensor;
  }

  void check_overlap() const {
    std::vector<const TensorInfo*> order;
    for (const auto& tensor : tensors_)
      if (tensor.begin != tensor.end) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->begin < b->begin; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i]->begin < order[i - 1]->end)
        fail(order[i]->name, "its bytes at data offset " + std::to_string(order[i]->begin) +
                                 " overlap tensor '" + order[i - 1]->name + "'");
    const std::uint64_t used = order.empty() ? 0 : order.back()->end;
    if (used < data_size_)
      throw std::runtime_error(source_ + ": " + std::to_string(data_size_) +
                               " bytes after the header, its tensors end after " + std::to_string(used));
  }

  std::unique_ptr<std::istream> stream_;
  std::string source_;
  std::vector<TensorInfo> tensors_;
  std::uint64_t data_ = 0, data_size_ = 0;
};

}  // namespace specula::files
