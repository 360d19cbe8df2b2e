// SPDX-License-Identifier: MIT
// What tests of proposals read of a tree, and a source of uniform draws that remembers its keys.
#pragma once

#include <specula/proposal/token_tree.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dense_rules.hpp"
#include "worst.hpp"

namespace specula_test {

inline std::vector<specula::NodeId> children(const specula::TokenTree& tree, specula::NodeId node) {
  std::vector<specula::NodeId> out;
  tree.children(node, [&](specula::NodeId c) { return out.push_back(c), true; });
  return out;
}

/// Remembers every key it is asked at.
struct Recorder {
  specula::PhiloxRandom rng{5};
  std::vector<specula::RandomKey> keys;
  template <class Weights>
  specula::Token draw(const Weights& weights, const specula::RandomKey& key) {
    return keys.push_back(key), rng.draw(weights, key);
  }
  bool accept(double probability, const specula::RandomKey& key) {
    return keys.push_back(key), rng.accept(probability, key);
  }
};

inline double largest_difference(const specula::TokenTree& tree, specula::NodeId node,
                                 const Dense& distribution) {
  double worst = 0;
  for (std::size_t x = 0; x < distribution.size(); ++x)
    worst = worse(worst, std::abs(tree.draft_prob(node, static_cast<specula::Token>(x)) - distribution[x]));
  return worst;
}

}  // namespace specula_test
