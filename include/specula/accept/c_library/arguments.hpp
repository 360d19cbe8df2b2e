// SPDX-License-Identifier: MIT
// Arguments of specula.h: their checks, and what is kept of a thread's calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula.h"
#include "specula/accept/batch_arguments.hpp"
#include "specula/accept/verify_batch.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula::detail {

/// Memory of a thread's calls, and what they had to say.
struct CThread {
  /// Copies: a text that is set without memory, after an allocation failed.
  void say(std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), error.size() - 1);
    std::copy_n(text.begin(), size, error.begin());
    error[size] = 0;
  }

  BatchMemory memory;                     // of specula_verify()
  std::vector<std::int32_t> nodes_to;     // (nodes of a sequence) on the path to each
  std::unique_ptr<RowScan> scan;          // of specula_draw()
  std::vector<double> masses, left;       // (ceil(V / 512)) likewise
  std::vector<std::string> row_messages;  // (rows) of specula_draw()
  std::int32_t sequences = 0, rows = 0;   // that the last call has messages of
  std::array<char, 600> error{};
};
inline CThread& c_thread() {
  thread_local CThread thread;
  return thread;
}

/// What the structs of C need besides.
struct CChecks : ArgumentChecks {
  /// The elements from row to row.
  std::int64_t row_stride(const char* name, std::int64_t given, std::int64_t rows, std::int32_t vocab) const {
    if (given == 0) return vocab;
    if (given < vocab && given > -vocab) {
      refuse(std::string(name) + " is " + number(given) + ", but a row has vocab elements, which is " +
             number(vocab));
    }
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16 / std::max<std::int64_t>(rows, 1);
    if (given > most || given < -most) {
      refuse(std::string(name) + " is " + number(given) + ": the address of row " + number(rows - 1) +
             " would wrap");
    }
    return given;
  }
  std::size_t type(const char* name, std::int32_t type) const {
    in(name, type, SPECULA_FLOAT, SPECULA_BFLOAT16);
    return type == SPECULA_FLOAT ? alignof(float) : alignof(std::uint16_t);
  }
  /// The caller's struct, which may end earlier: it must have the first `least` bytes. The rest is 0.
  template <class T>
  T known(const T* given, std::size_t least) const {
    array("the struct", given);
    std::size_t size = 0;
    std::memcpy(&size, given, sizeof(size));
    if (size < least || size > sizeof(T) || size % alignof(T) != 0) {
      refuse("struct_size is " + number(size) +
             ", must be the struct's size: this library, of specula_abi() " + number(specula_abi()) +
             ", knows " + number(least) + " to " + number(sizeof(T)) + " bytes" +
             (size > sizeof(T) ? ", so it may be older than your specula.h" : ""));
    }
    T all{};
    std::memcpy(static_cast<void*>(&all), given, size);
    return all;
  }
};

/// The first row of an array.
inline RowPointer c_rows(const void* rows, std::int32_t type) {
  return {rows, type == SPECULA_HALF       ? RowFormat::half
                : type == SPECULA_BFLOAT16 ? RowFormat::bfloat16
                                           : RowFormat::full};
}

/// The arrays of sampling parameters, which both structs have.
template <class Struct>
arrays::ParamArrays c_params(const Struct& given, const CChecks& check) {
  check.optional("temperature", given.temperature);
  check.optional("top_k", given.top_k);
  check.optional("top_p", given.top_p);
  check.optional("min_p", given.min_p);
  arrays::ParamArrays params;
  params.temperature = given.temperature;
  params.top_k = given.top_k;
  params.top_p = given.top_p;
  params.min_p = given.min_p;
  return params;
}

}  // namespace specula::detail
