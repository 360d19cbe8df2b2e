// A file of the target's states that heads read, so that several heads trained on the same rows run the
// target only once.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "llama.hpp"

namespace specula_train {

/// Rows of tokens and their states in bfloat16: 2 (n + 1) hidden bytes a token for n layers. Grows with new
/// rows. In a file that ends in the middle of a row, that row is overwritten. Threads may share it, processes
/// may not.
class StatesCache {
 public:
  /// Opens `file` or makes it. Throws std::runtime_error naming it if it cannot be written or is no such
  /// file, or if it is of another target, or lacks the states after one of `layers`.
  StatesCache(const std::filesystem::path& file, const Llama& target,
              const std::vector<std::int64_t>& layers);

  /// target->states(tokens, layers, dtype) rounded to bfloat16; runs the target only for new rows. tokens (B,
  /// T) int64.
  TargetStates states(Llama& target, const torch::Tensor& tokens, torch::ScalarType dtype);

 private:
  struct Place {
    std::int64_t at, tokens;  // of the states in the file; tokens of the row
  };
  std::int64_t row_width() const;  // numbers a token in the file
  bool read(const std::vector<std::int32_t>& row, torch::Tensor& states);
  void append(const std::vector<std::int32_t>& row, const torch::Tensor& states);

  std::filesystem::path file_;
  std::vector<std::int64_t> kept_, layers_;  // in the file, and those that are wanted
  std::int64_t hidden_;
  std::fstream stream_;
  std::int64_t end_ = 0;
  std::unordered_multimap<std::uint64_t, Place> places_;  // by a hash of the row
  std::mutex guard_;                                      // of the stream and the places
};

}  // namespace specula_train
