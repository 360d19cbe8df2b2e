// --passes: the time of a pass over n nodes inside llama.cpp and in cpu::Decoder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <specula/any/any_model.hpp>

namespace specula_examples {

/// Seconds of a model's pass over 1, 2, ... nodes.
struct Passes {
  std::string name;
  std::vector<double> seconds;
};

struct NamedModel {
  std::string name;
  specula::AnyModel* model = nullptr;
};

/// Medians of `turns` runs of pass_seconds() of each model after `prompt`, which must not be empty. The
/// models alternate, so that drift of the machine affects all alike. Leaves them empty.
std::vector<Passes> passes_in_turn(std::span<const NamedModel> models, specula::Tokens prompt,
                                   std::int32_t nodes, std::int32_t turns);

/// A row for each number of nodes, with each model's microseconds and their ratio to one node.
std::string passes_table(std::span<const Passes> all);

/// [{"name": ..., "microseconds": [...], "ratios": [...]}, ...]
nlohmann::ordered_json passes_json(std::span<const Passes> all);

}  // namespace specula_examples
