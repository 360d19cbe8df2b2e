// SPDX-License-Identifier: MIT
// Whether an EAGLE-3 head is read as it was trained: how often its first choice is its target's, on a text
// that both are given token by token (teacher forcing), under the reading of its file and under others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/eagle3_config.hpp"

namespace specula::cpu {

/// What a head makes of each of some rows of a text.
struct HeadRows {
  std::vector<double> losses;  ///< nats of the target's first choice; infinite where the head cannot draft it
  std::int32_t right = 0;      ///< rows whose first choice is the target's

  std::int32_t count() const { return static_cast<std::int32_t>(losses.size()); }  ///< rows
  /// Rows whose first choice is the target's, as a share of all; 0 of none.
  double agreement() const { return losses.empty() ? 0 : right / static_cast<double>(losses.size()); }
};

/// The mean of the losses of `other` less those of `rule` in the same rows, over its standard error: how
/// surely the other reading is worse. Rows whose choice the head cannot draft do not count. 0 of fewer than
/// two rows.
inline double paired_z(const HeadRows& rule, const HeadRows& other) {
  double sum = 0, squares = 0, n = 0;
  for (std::size_t i = 0; i < std::min(rule.losses.size(), other.losses.size()); ++i) {
    const double d = other.losses[i] - rule.losses[i];
    if (!std::isfinite(d)) continue;
    sum += d, squares += d * d, ++n;
  }
  if (n < 2) return 0;
  const double mean = sum / n, variance = std::max(0.0, squares / n - mean * mean) * n / (n - 1);
  if (variance == 0) return mean == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), mean);
  return mean / std::sqrt(variance / n);
}

namespace detail {

/// Nodes of a pass of head_rows().
inline constexpr std::size_t kHeadNodes = 16;

/// Commits `text` to a model after its first `from` tokens, piece by piece, and calls see(row) per token.
template <class Real, class See>
void see_rows(Decoder<Real>& model, Tokens text, std::size_t from, See see) {
  std::vector<NodeId> chain(kHeadNodes), path(kHeadNodes);
  for (std::size_t i = 0; i < kHeadNodes; ++i)
    chain[i] = static_cast<NodeId>(i) - 1, path[i] = static_cast<NodeId>(i);
  model.truncate(0);
  model.append(text.first(from));
  for (std::size_t at = from; at < text.size(); at += kHeadNodes) {
    const std::size_t count = std::min(kHeadNodes, text.size() - at);
    const LogitsView rows = model.extend(text.subspan(at, count), Nodes(chain).first(count));
    for (std::int32_t r = 0; r < rows.rows; ++r) see(rows.row(r));
    model.commit(Nodes(path).first(count));
  }
}

}  // namespace detail

/// The last `most` rows of a text, of at least two tokens, which a head and its target are given anew:
/// neither keeps what it held. Each of the head's rows reads the target's states at all tokens before. Throws
/// std::invalid_argument if the models do not fit, hold fewer tokens than the text, or fewer than 16 nodes.
/// Cost: a pass of both over the text.
inline HeadRows head_rows(Decoder<float>& head, Decoder<float>& target, Tokens text, std::int32_t most) {
  const std::size_t from = std::max<std::size_t>(
      1, text.size() - std::min(text.size(), static_cast<std::size_t>(std::max(0, most))));
  if (text.size() < 2) return {};
  std::vector<Token> choices;
  detail::see_rows(target, text, from, [&](std::span<const float> row) {
    choices.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
  });
  head.truncate(0);
  head.set_target_state(target.features());
  HeadRows out;
  detail::see_rows(head, text, from, [&](std::span<const float> row) {
    const auto best = std::max_element(row.begin(), row.end());
    const Token choice = choices[out.losses.size()];
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - static_cast<double>(*best));
    out.losses.push_back(std::log(sum) + static_cast<double>(*best) -
                         static_cast<double>(row[static_cast<std::size_t>(choice)]));
    out.right += best - row.begin() == choice;
  });
  return out;
}

/// A way to read a head's file.
struct HeadReading {
  std::string what;       ///< in words
  Eagle3Config eagle3{};  ///< as it is then
};

/// The readings that a file leaves open, as for_target() has completed it: its own first, then those of the
/// same number of states between 0 and the target's number of `layers`: each id one more and one less (states
/// taken for outputs, or the other way round), and the states of a file that names none.
inline std::vector<HeadReading> head_readings(const Eagle3Config& own, std::int32_t layers) {
  std::vector<HeadReading> all{{"as the file says", own}};
  const auto add = [&](const char* what, std::vector<std::int32_t> states) {
    const bool fits = std::all_of(states.begin(), states.end(),
                                  [&](std::int32_t state) { return state >= 0 && state <= layers; });
    const auto same = [&](const HeadReading& some) { return some.eagle3.states == states; };
    if (!fits || states.size() != own.states.size() || std::any_of(all.begin(), all.end(), same)) return;
    all.push_back({what, own});
    all.back().eagle3.states = std::move(states);
    all.back().eagle3.states_from = StatesFrom::caller;
  };
  if (!own.mixes_states()) return all;
  for (const int step : {1, -1}) {
    auto states = own.states;
    for (std::int32_t& state : states) state += step;
    add(step > 0 ? "all states one layer later" : "all states one layer earlier", std::move(states));
  }
  add("the usual states 2, L / 2, L - 3", {2, layers / 2, layers - 3});
  auto states = own.states;
  std::sort(states.begin(), states.end());
  add("states in ascending order", std::move(states));
  return all;
}

/// The weights of a head under another reading; matrices are shared. Throws std::invalid_argument unless
/// `head` is an EAGLE-3 head of as many states. Cost: copies its norms.
inline std::shared_ptr<const DecoderWeights<float>> with_reading(const DecoderWeights<float>& head,
                                                                 const Eagle3Config& reading) {
  if (!head.config.eagle3 || head.config.eagle3->states.size() != reading.states.size())
    throw std::invalid_argument("with_reading: expected an EAGLE-3 head of " +
                                std::to_string(reading.states.size()) + " states");
  auto copy = head;
  copy.config.eagle3 = reading;
  copy.config.feature_layers = reading.ascending_states();
  return std::make_shared<const DecoderWeights<float>>(std::move(copy));
}

}  // namespace specula::cpu
