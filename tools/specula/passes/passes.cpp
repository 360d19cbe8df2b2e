// SPDX-License-Identifier: MIT
#include "passes.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <specula/study/speedup.hpp>

#include "median.hpp"
#include "pass_costs.hpp"
#include "text_table.hpp"

namespace specula_tools {
namespace {

using specula::NodeId;
using specula::Token;
using specula::Tokens;

constexpr double kRates[] = {0.5, 0.7, 0.8, 0.9};

/// Passes::differences. Leaves the model empty.
std::vector<double> row_differences(specula::AnyModel& model, Tokens prompt, std::int32_t nodes) {
  const std::size_t context = prompt.size() - 1;
  model.truncate(0);
  model.append(prompt.first(context));
  std::vector<Token> tokens{prompt.back()};
  std::vector<std::vector<float>> alone;
  const NodeId none = specula::kNoParent, root = 0;
  std::vector<NodeId> parents;
  for (NodeId n = 0; n < nodes; ++n) {
    parents.push_back(n - 1);
    const auto row = model.extend(Tokens(tokens).last(1), {&none, 1}).row(0);
    alone.emplace_back(row.begin(), row.end());
    tokens.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    model.commit({&root, 1});
  }
  std::vector<double> most;
  for (std::size_t n = 1; n <= parents.size(); ++n) {
    model.truncate(static_cast<std::int32_t>(context));
    const auto rows = model.extend(Tokens(tokens).first(n), specula::Nodes(parents).first(n));
    most.push_back(0);
    for (std::size_t r = 0; r < n; ++r) {
      const auto row = rows.row(static_cast<std::int32_t>(r));
      for (std::size_t i = 0; i < row.size(); ++i)
        most.back() = std::max(most.back(), std::abs(static_cast<double>(row[i] - alone[r][i])));
    }
  }
  model.truncate(0);
  return most;
}

/// Medians of consecutive passes over 1, 2, ..., `nodes` nodes, as pass_seconds() has them.
std::vector<double> product_seconds(const NamedModel& model, std::int32_t nodes) {
  std::vector<double> medians;
  for (std::int32_t n = 1; n <= nodes; ++n) {
    for (int warm_up = 0; warm_up < (n == 1 ? 10 : 1); ++warm_up) model.products(n);
    std::vector<double> seconds;
    for (int pass = 0; pass < 5; ++pass) seconds.push_back(model.products(n));
    medians.push_back(median(seconds));
  }
  return medians;
}

}  // namespace

std::pair<std::int32_t, double> Passes::best(double acceptance_rate) const {
  std::pair<std::int32_t, double> best{1, 1.0};
  for (std::int32_t n = 2; n <= static_cast<std::int32_t>(seconds.size()); ++n) {
    const double gain = specula::expected_tokens(acceptance_rate, n - 1) * seconds.front() /
                        seconds[static_cast<std::size_t>(n) - 1];
    if (gain > best.second) best = {n, gain};
  }
  return best;
}

std::optional<double> Passes::pays_from() const {
  for (int percent = 1; percent <= 100; ++percent)
    if (best(percent / 100.0).second > 1) return percent / 100.0;
  return std::nullopt;
}

std::vector<Passes> passes_in_turn(std::span<const NamedModel> models, specula::Tokens prompt,
                                   std::int32_t nodes, std::int32_t turns) {
  const std::vector<std::vector<double>> none(static_cast<std::size_t>(nodes));
  std::vector<std::vector<std::vector<double>>> by_model(models.size(), none), products = by_model;
  const auto add = [](std::vector<std::vector<double>>& all, const std::vector<double>& turn) {
    for (std::size_t n = 0; n < turn.size(); ++n) all[n].push_back(turn[n]);
  };
  for (std::int32_t turn = 0; turn < turns; ++turn)
    for (std::size_t m = 0; m < models.size(); ++m) {
      models[m].before();
      add(by_model[m], pass_seconds(*models[m].model, prompt, nodes));
      if (models[m].products) add(products[m], product_seconds(models[m], nodes));
    }
  std::vector<Passes> all;
  for (std::size_t m = 0; m < models.size(); ++m) {
    models[m].before();
    Passes& passes = all.emplace_back();
    passes.name = models[m].name, passes.drafts = models[m].drafts;
    passes.differences = row_differences(*models[m].model, prompt, nodes);
    for (auto& seconds : by_model[m]) passes.seconds.push_back(median(seconds));
    for (auto& seconds : products[m])
      if (!seconds.empty()) passes.products.push_back(median(seconds));
  }
  return all;
}

std::string passes_table(std::span<const Passes> all) {
  std::string text;
  for (const Passes& passes : all) {
    const bool knows_products = !passes.products.empty();
    std::vector<std::vector<std::string>> rows{{"nodes", "us"}};
    if (knows_products) rows[0].insert(rows[0].end(), {"products", "beside"});
    rows[0].insert(rows[0].end(), {"T(n)/T(1)", "rows differ by"});
    for (std::size_t n = 1; n <= passes.seconds.size(); ++n) {
      const double seconds = passes.seconds[n - 1], difference = passes.differences[n - 1];
      auto& row = rows.emplace_back();
      row = {std::to_string(n), fixed(1e6 * seconds, 0)};
      if (knows_products)
        for (const double part : {passes.products[n - 1], seconds - passes.products[n - 1]})
          row.push_back(fixed(1e6 * part, 0));
      row.insert(row.end(),
                 {fixed(seconds / passes.seconds[0], 2), difference == 0 ? "0" : fixed(difference, 6)});
    }
    text += (text.empty() ? "" : "\n") + passes.name + ":\n" + text_table(rows);
  }
  for (const Passes& passes : all) {
    if (passes.drafts) continue;
    const auto from = passes.pays_from();
    text += "\n" + passes.name + ": drafts that cost nothing " +
            (from ? "pay from an acceptance rate of " + fixed(*from, 2) + " on" : "never pay") +
            "; best nodes at";
    for (const double rate : kRates) {
      const auto [nodes, gain] = passes.best(rate);
      text += (rate == kRates[0] ? " " : ", ") + fixed(rate, 1) + ": " + std::to_string(nodes) + " (" +
              fixed(gain, 2) + "x)";
    }
  }
  return text + "\n";
}

nlohmann::ordered_json passes_json(std::span<const Passes> all) {
  auto out = nlohmann::ordered_json::array();
  for (const Passes& passes : all) {
    auto microseconds = nlohmann::ordered_json::array(), ratios = microseconds;
    for (const double seconds : passes.seconds) {
      microseconds.push_back(1e6 * seconds);
      ratios.push_back(seconds / passes.seconds[0]);
    }
    nlohmann::ordered_json own{{"name", passes.name},
                               {"microseconds", microseconds},
                               {"ratios", ratios},
                               {"row_differences", passes.differences}};
    for (const double seconds : passes.products) own["product_microseconds"].push_back(1e6 * seconds);
    if (!passes.drafts) {
      own["pays_from"] = passes.pays_from() ? nlohmann::ordered_json(*passes.pays_from()) : nullptr;
      auto& best = own["best"] = nlohmann::ordered_json::array();
      for (const double rate : kRates) {
        const auto [nodes, gain] = passes.best(rate);
        best.push_back({{"acceptance_rate", rate}, {"nodes", nodes}, {"speedup", gain}});
      }
    }
    out.push_back(std::move(own));
  }
  return out;
}

}  // namespace specula_tools
