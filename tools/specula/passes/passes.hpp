// SPDX-License-Identifier: MIT
// --passes: what a pass over n nodes costs, inside llama.cpp or in cpu::Decoder, and its matrix products of
// it, and whether its rows are those of single passes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <specula/runtime/any_model.hpp>

namespace specula_tools {

/// A model's passes over 1, 2, ... nodes of a chain.
struct Passes {
  std::string name;
  std::vector<double> seconds;
  std::vector<double> differences;  // the largest of a logit from that of the token's pass alone; 0: none
  std::vector<double> products;     // seconds of the matrix products alone; empty: not known
  bool drafts = false;              // then its own passes are what drafts cost

  /// The number of nodes of the largest speedup, and the speedup, by drafts that cost nothing and are
  /// accepted at this rate.
  std::pair<std::int32_t, double> best(double acceptance_rate) const;
  /// The least acceptance rate at which such drafts pay, to 0.01; nothing if they never do.
  std::optional<double> pays_from() const;
};

struct NamedModel {
  std::string name;
  specula::AnyModel* model = nullptr;
  /// Seconds of the matrix products alone of a pass over so many nodes; if it can be measured.
  std::function<double(std::int32_t)> products = {};
  bool drafts = false;
  /// Is called before its passes: gives a head the state of its target.
  std::function<void()> before = [] {};
};

/// Medians of `turns` runs of pass_seconds() of each model after `prompt`, which must not be empty. The
/// models alternate, so that drift of the machine affects all alike. The rows compared are of the likeliest
/// tokens. Of products, as many turns of medians. Leaves the models empty.
std::vector<Passes> passes_in_turn(std::span<const NamedModel> models, specula::Tokens prompt,
                                   std::int32_t nodes, std::int32_t turns);

/// A table of each model, a row for each number of nodes: microseconds, those of its products and what is
/// beside them, the ratio to one node and what its rows differ by; then lines of what drafts can gain.
std::string passes_table(std::span<const Passes> all);

/// [{"name": ..., "microseconds": [...], "ratios": [...], "row_differences": [...], "product_microseconds":
/// [...], "pays_from": ..., "best": [{"acceptance_rate": ..., "nodes": ..., "speedup": ...}, ...]}, ...]; the
/// last two of targets only.
nlohmann::ordered_json passes_json(std::span<const Passes> all);

}  // namespace specula_tools
