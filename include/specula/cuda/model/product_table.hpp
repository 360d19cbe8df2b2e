// SPDX-License-Identifier: MIT
// Which algorithm of a library multiplies a matrix, chosen once for each shape and kept.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <locale>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"

namespace specula::cuda {

/// A product of `height` rows of `cols` numbers with a matrix (rows, cols).
struct ProductShape {
  int rows = 0,       ///< of the matrix
      cols = 0,       ///< of the matrix
      height = 0;     ///< rows that it is multiplied with
  bool add = false,   ///< the product is added to what is there
      exact = false;  ///< a row's bits do not depend on its place or on the other rows

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;  ///< by members
};

/// An algorithm as its library describes it: 64 bytes that it reads again.
using ProductAlgorithm = std::array<std::uint64_t, 8>;

/// The algorithms chosen in this process, by machine and shape. The bits of a product are those of its
/// algorithm, so that all models of a process have the same; and those of several processes, if one writes
/// what it chose and the others read it before they make a model. For calls from several threads.
class ProductTable {
 public:
  ProductTable() = default;
  ProductTable(const ProductTable&) = delete;
  ProductTable& operator=(const ProductTable&) = delete;

  /// That of the process.
  static ProductTable& shared() {
    static ProductTable table;
    return table;
  }

  /// What was chosen, or chosen now by `choose()`. `machine` names a device and a library's version, without
  /// a tab or an end of line.
  template <class F>
  ProductAlgorithm get(const std::string& machine, const ProductShape& shape, F choose) {
    const std::lock_guard lock(mutex_);
    const auto found = chosen_.find({machine, shape});
    if (found != chosen_.end()) return found->second;
    const ProductAlgorithm algorithm = choose();
    chosen_.emplace(std::pair(machine, shape), algorithm);
    return algorithm;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return chosen_.size();
  }  ///< shapes

  /// Writes all as text, a line for each. Throws std::runtime_error if the file cannot be written.
  void write(const std::filesystem::path& file) const {
    const std::lock_guard lock(mutex_);
    std::ofstream out(file);
    out.imbue(std::locale::classic());
    for (const auto& [key, algorithm] : chosen_) {
      const ProductShape& s = key.second;
      out << key.first << '\t' << s.rows << ' ' << s.cols << ' ' << s.height << ' ' << s.add << ' '
          << s.exact;
      for (const std::uint64_t word : algorithm) out << ' ' << word;
      out << '\n';
    }
    if (!out.flush()) throw std::runtime_error(file.string() + ": cannot be written");
  }
  /// Adds what a file has; what was chosen before stays. Those of other machines do no harm. Throws
  /// std::runtime_error, naming the line, if the file is no such table or cannot be read; nothing is added
  /// then.
  void read(const std::filesystem::path& file) {
    std::ifstream in(file);
    in.imbue(std::locale::classic());
    if (!in) throw std::runtime_error(file.string() + ": cannot be opened");
    std::map<Key, ProductAlgorithm> added;
    std::string machine;
    for (int line = 1; std::getline(in, machine, '\t'); ++line) {
      ProductShape s;
      ProductAlgorithm algorithm{};
      in >> s.rows >> s.cols >> s.height >> s.add >> s.exact;
      for (std::uint64_t& word : algorithm) in >> word;
      if (!in || in.get() != '\n' || machine.find('\n') != std::string::npos)
        throw std::runtime_error(file.string() + ": line " + std::to_string(line) +
                                 ": expected a machine, a tab, five numbers and eight words");
      added.emplace(std::pair(machine, s), algorithm);
    }
    if (machine.find_first_not_of('\n') != std::string::npos)
      throw std::runtime_error(file.string() + ": its last line has no tab");
    const std::lock_guard lock(mutex_);
    chosen_.merge(added);
  }

 private:
  using Key = std::pair<std::string, ProductShape>;
  mutable std::mutex mutex_;
  std::map<Key, ProductAlgorithm> chosen_;
};

/// Number of the fastest of `count` candidates that is right: `seconds(i)`, none if the candidate does not
/// run, is asked of all, `right(i)` of the fastest first. None if there is no such candidate.
template <class Seconds, class Right>
std::optional<int> choose_product(int count, Seconds seconds, Right right) {
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < count; ++i)
    if (const std::optional<double> time = seconds(i)) order.emplace_back(*time, i);
  std::sort(order.begin(), order.end());
  for (const auto& [time, i] : order)
    if (right(i)) return i;
  return {};
}

}  // namespace specula::cuda
