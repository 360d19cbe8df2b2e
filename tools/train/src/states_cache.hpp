// SPDX-License-Identifier: MIT
// The target's states that heads read, kept in memory or in a file, so that the target runs once for each
// row, however many epochs and heads are trained on it.
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

/// Bytes a token of the states after `layers` layers and of the feature.
std::int64_t state_bytes(const DecoderConfig& target, std::size_t layers);

/// Bytes of memory that may be filled with states unless a user says otherwise: half of what the system has
/// available; 0 where that is unknown.
std::int64_t free_memory();

/// Rows of tokens and their states in bfloat16, state_bytes() a token. Grows with new rows, up to a limit in
/// memory. Threads may share it, processes may not.
class StatesCache {
 public:
  /// Keeps at most `bytes` in memory, on the target's device; further rows are computed each time.
  StatesCache(std::int64_t bytes, const Llama& target, const std::vector<std::int64_t>& layers);

  /// Opens `file` or makes it; other processes may read it later. A row that its end cuts is overwritten.
  /// Throws std::runtime_error naming it if it cannot be written or is no such file, or if it is of another
  /// target, or lacks the states after one of `layers`.
  StatesCache(const std::filesystem::path& file, const Llama& target,
              const std::vector<std::int64_t>& layers);

  /// target->states(tokens, layers, dtype) rounded to bfloat16; runs the target only for new rows. tokens (B,
  /// T) int64.
  TargetStates states(Llama& target, const torch::Tensor& tokens, torch::ScalarType dtype);

 private:
  using Row = std::vector<std::int32_t>;
  struct Place {
    std::int64_t at = 0, tokens = 0;  // of the states in the file; tokens of the row
    Row row = {};                     // in memory, with its states
    torch::Tensor states = {};
  };
  std::int64_t row_width() const;  // numbers a token
  void open(const Llama& target);
  /// (T, row_width()), on the CPU where they are read from a file; undefined if the row is new.
  torch::Tensor read(const Row& row);
  void append(const Row& row, const torch::Tensor& states);

  std::filesystem::path file_;               // empty: in memory
  std::int64_t left_ = 0;                    // bytes of memory
  std::vector<std::int64_t> kept_, layers_;  // those that are kept, and those that are wanted
  std::int64_t hidden_;
  std::fstream stream_;
  std::int64_t end_ = 0;
  std::unordered_multimap<std::uint64_t, Place> places_;  // by a hash of the row
  std::mutex guard_;                                      // of all above
};

}  // namespace specula_train
