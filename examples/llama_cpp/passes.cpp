#include "passes.hpp"

#include <cstddef>

#include "median.hpp"
#include "pass_costs.hpp"
#include "text_table.hpp"

namespace specula_examples {

std::vector<Passes> passes_in_turn(std::span<const NamedModel> models, specula::Tokens prompt,
                                   std::int32_t nodes, std::int32_t turns) {
  std::vector<std::vector<std::vector<double>>> by_model(
      models.size(), std::vector<std::vector<double>>(static_cast<std::size_t>(nodes)));
  for (std::int32_t turn = 0; turn < turns; ++turn)
    for (std::size_t m = 0; m < models.size(); ++m) {
      const auto seconds = pass_seconds(*models[m].model, prompt, nodes);
      for (std::size_t n = 0; n < seconds.size(); ++n) by_model[m][n].push_back(seconds[n]);
    }
  std::vector<Passes> all;
  for (std::size_t m = 0; m < models.size(); ++m) {
    all.push_back({models[m].name, {}});
    for (auto& seconds : by_model[m]) all.back().seconds.push_back(median(seconds));
  }
  return all;
}

std::string passes_table(std::span<const Passes> all) {
  std::vector<std::vector<std::string>> rows(1 + all.front().seconds.size());
  rows[0] = {"nodes"};
  for (std::size_t n = 1; n < rows.size(); ++n) rows[n] = {std::to_string(n)};
  for (const Passes& passes : all) {
    rows[0].insert(rows[0].end(), {passes.name + ", us", "T(n)/T(1)"});
    for (std::size_t n = 1; n < rows.size(); ++n) {
      const double seconds = passes.seconds[n - 1];
      rows[n].insert(rows[n].end(), {fixed(1e6 * seconds, 0), fixed(seconds / passes.seconds[0], 2)});
    }
  }
  return text_table(rows);
}

nlohmann::ordered_json passes_json(std::span<const Passes> all) {
  auto out = nlohmann::ordered_json::array();
  for (const Passes& passes : all) {
    auto microseconds = nlohmann::ordered_json::array(), ratios = microseconds;
    for (const double seconds : passes.seconds) {
      microseconds.push_back(1e6 * seconds);
      ratios.push_back(seconds / passes.seconds[0]);
    }
    out.push_back({{"name", passes.name}, {"microseconds", microseconds}, {"ratios", ratios}});
  }
  return out;
}

}  // namespace specula_examples
