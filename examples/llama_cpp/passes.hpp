// What a pass over n nodes costs inside llama.cpp, beside what it costs our own decoder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <specula/any/any_model.hpp>

namespace specula_examples {

/// Of a model: seconds of a pass over 1, 2, ... nodes.
struct Passes {
  std::string name;
  std::vector<double> seconds;
};

struct NamedModel {
  std::string name;
  specula::AnyModel* model = nullptr;
};

/// pass_seconds() of each model behind `prompt`, which is not empty, `turns` times: medians over the turns.
/// The models take turns, so that what the machine does hits all of them alike. Leaves them empty.
std::vector<Passes> passes_in_turn(std::span<const NamedModel> models, specula::Tokens prompt,
                                   std::int32_t nodes, std::int32_t turns);

/// A row for each number of nodes; of each model microseconds, and how many times those of one node they are.
std::string passes_table(std::span<const Passes> all);

/// [{"name": ..., "microseconds": [...], "ratios": [...]}, ...]
nlohmann::ordered_json passes_json(std::span<const Passes> all);

}  // namespace specula_examples
