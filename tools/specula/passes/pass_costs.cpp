// SPDX-License-Identifier: MIT
#include "pass_costs.hpp"

#include <chrono>
#include <cstddef>
#include <numeric>

#include "median.hpp"

namespace specula_tools {
namespace {

/// Prefills a model with `prompt`, which must not be empty, for passes after it.
void prefill(specula::AnyModel& model, specula::Tokens prompt) {
  const specula::NodeId none = specula::kNoParent, root = 0;
  model.truncate(0);
  model.append(prompt.first(prompt.size() - 1));
  model.extend(prompt.last(1), {&none, 1});
  model.commit({&root, 1});  // a lazy append would add deferred tokens to the first pass
}

/// A pass over one node after the model's tokens.
void pass_over_one(specula::AnyModel& model, specula::Token token) {
  const specula::NodeId none = specula::kNoParent;
  model.truncate(model.size());
  model.extend({&token, 1}, {&none, 1});
}

}  // namespace

std::vector<double> pass_seconds(specula::AnyModel& model, specula::Tokens prompt, std::int32_t nodes,
                                 const std::function<void()>& between) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kFirst = 10, kWarmUp = 1, kPasses = 5;  // CPU caches fill over several passes
  const std::vector<specula::Token> tokens(static_cast<std::size_t>(nodes), prompt.back());
  std::vector<specula::NodeId> parents;
  for (specula::NodeId n = 0; n < nodes; ++n) parents.push_back(n - 1);
  prefill(model, prompt);
  std::vector<double> medians, seconds(kPasses);
  for (std::size_t n = 1; n <= tokens.size(); ++n) {
    const std::size_t warm_up = n == 1 ? kFirst : kWarmUp;
    for (std::size_t pass = 0; pass < warm_up + kPasses; ++pass) {
      model.truncate(model.size());
      between();
      const auto begin = Clock::now();
      model.extend(specula::Tokens(tokens).first(n), specula::Nodes(parents).first(n));
      const std::chrono::duration<double> spent = Clock::now() - begin;
      if (pass >= warm_up) seconds[pass - warm_up] = spent.count();
    }
    medians.push_back(median(seconds));
  }
  model.truncate(0);
  return medians;
}

double turn_seconds(const std::vector<specula::AnyModel*>& models, specula::Tokens prompt) {
  constexpr std::int32_t kNodes = 3;
  const auto sum = [](const std::vector<double>& seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  double longer = 0;
  for (specula::AnyModel* model : models) {
    for (specula::AnyModel* other : models) prefill(*other, prompt);
    const auto turns = [&] {
      for (specula::AnyModel* other : models)
        if (other != model) pass_over_one(*other, prompt.back());
    };
    longer += sum(pass_seconds(*model, prompt, kNodes, turns)) - sum(pass_seconds(*model, prompt, kNodes));
  }
  for (specula::AnyModel* model : models) model->truncate(0);
  return longer / kNodes;
}

}  // namespace specula_tools
