// SPDX-License-Identifier: MIT
// Whether an EAGLE-3 head is read as it was trained: how often its first choice is its target's, on a text
// that both are given token by token (teacher forcing), under the reading of its file and under others.
#pragma once

#include <algorithm>
#include <array>
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
#include "specula/model/features.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cpu {

/// What a head makes of each of some rows of a text.
struct HeadRows {
  std::vector<double> losses;  ///< nats of the target's first choice; infinite where the head cannot draft it
  std::int32_t right = 0;      ///< rows whose first choice is the target's
  std::vector<Token> choices = {};  ///< the first choice in each row
  std::vector<Token> targets = {};  ///< the target's

  /// Adds the rows of another text.
  void add(const HeadRows& more) {
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(losses, more.losses), append(choices, more.choices), append(targets, more.targets);
    right += more.right;
  }
  std::int32_t count() const { return static_cast<std::int32_t>(losses.size()); }  ///< rows
  /// Rows whose first choice is the target's, as a share of all; 0 of none.
  double agreement() const { return losses.empty() ? 0 : right / static_cast<double>(losses.size()); }
  /// Mean of the losses that are finite; 0 of none.
  double loss() const {
    double sum = 0, finite = 0;
    for (const double loss : losses)
      if (std::isfinite(loss)) sum += loss, ++finite;
    return finite > 0 ? sum / finite : 0;
  }
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

/// Which of some readings to take, by their rows of the same text: the first, unless another is better beyond
/// doubt, that is by four standard errors; of several such that of the least loss. Throws
/// std::invalid_argument without a reading.
inline std::size_t best_reading(std::span<const HeadRows> readings) {
  constexpr double kBeyondDoubt = 4;
  if (readings.empty()) throw std::invalid_argument("best_reading: no reading");
  std::size_t best = 0;
  for (std::size_t i = 1; i < readings.size(); ++i)
    if (paired_z(readings[0], readings[i]) < -kBeyondDoubt && readings[i].loss() < readings[best].loss())
      best = i;
  return best;
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

/// Adds a head's row where the target's first choice is `choice`.
inline void add_row(HeadRows& to, std::span<const float> row, Token choice) {
  const auto best = std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - static_cast<double>(*best));
  to.losses.push_back(std::log(sum) + static_cast<double>(*best) -
                      static_cast<double>(row[static_cast<std::size_t>(choice)]));
  to.choices.push_back(static_cast<Token>(best - row.begin()));
  to.targets.push_back(choice);
  to.right += to.choices.back() == choice;
}

/// The head's rows of `text` after its first `from` tokens, which read `states`; `choices`: the target's.
inline HeadRows score_rows(Decoder<float>& head, const FeaturesView<float>& states, Tokens text,
                           std::size_t from, std::span<const Token> choices) {
  head.truncate(0);
  head.set_target_state(states);
  HeadRows out;
  see_rows(head, text, from,
           [&](std::span<const float> row) { add_row(out, row, choices[out.losses.size()]); });
  return out;
}

/// Adds the first choice of each row.
inline auto add_choices(std::vector<Token>& choices) {
  return [&choices](std::span<const float> row) {
    choices.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
  };
}

/// A head without layers, of one state: its logits are its target's at the token before, times a factor that
/// the norm of the norm brings, so the same token is first.
inline std::shared_ptr<const DecoderWeights<float>> lm_head_of(
    std::shared_ptr<const DecoderWeights<float>> target) {
  DecoderWeights<float> out;
  out.config = target->config;
  out.config.layers = 0;
  out.config.exits.clear();
  out.config.tied_head = false;
  out.config.conditioned_on = Conditioning::features;
  Eagle3Config& shape = out.config.eagle3.emplace();
  shape.target_hidden_size = out.config.hidden_size;
  shape.states_from = StatesFrom::final_norm;
  shape.own_head = false;
  out.final_norm = target->final_norm;
  std::fill_n(out.final_norm.begin(), out.config.hidden_size, 1.0f);
  Eagle3Weights<float>& own = out.eagle3.emplace();
  own.embedding_norm = own.feature_norm = out.final_norm;
  out.target = std::move(target);
  return std::make_shared<const DecoderWeights<float>>(std::move(out));
}

/// Those of `count` tokens from `first` on.
inline FeaturesView<float> part_of(const FeaturesView<float>& all, std::size_t first, std::size_t count,
                                   const specula::detail::ChangeCount& changes) {
  if (count > 0)
    static_cast<void>(all.row(static_cast<std::int32_t>(first + count - 1)));  // throws if it lacks
  const auto at = static_cast<std::int32_t>(first);
  const auto apart = [&](const auto& of) { return count > 1 ? of(at + 1) - of(at) : 0; };
  const auto row = [&](std::int32_t i) { return all.row(i).data(); };
  const auto inner = [&](std::int32_t i) { return all.hidden_state(i, 0).data(); };
  HiddenStates<float> states{all.layers()};
  if (!states.layers.empty()) states.data = inner(at), states.stride = apart(inner);
  return {row(at),    static_cast<std::int32_t>(count),    all.width(),
          apart(row), specula::detail::ViewGuard(changes), states};
}

/// The last `most` + 1 tokens of a text that a target has read, its states there, and its first choices after
/// each of them but the first. Views of it are valid while it lives.
class TextEnd {
 public:
  TextEnd(Decoder<float>& target, Tokens text, std::int32_t most)
      : tokens(text.last(std::min(text.size(), static_cast<std::size_t>(std::max(0, most)) + 1))) {
    if (tokens.size() < 2) return;
    const DecoderOptions& own = target.options();
    options = {.capacity = static_cast<std::int32_t>(tokens.size() + 1 + kHeadNodes),
               .max_nodes = static_cast<std::int32_t>(kHeadNodes),
               .team = target.team(),
               .isa = own.isa,
               .inputs = own.inputs,
               .vnni = own.vnni};
    all_ = target.features();
    first_ = text.size() - tokens.size();
    std::vector<Token> longer(tokens.begin(), tokens.end());
    longer.push_back(0);  // whose row is the target's at the last token
    Decoder<float> lm_head(lm_head_of(target.weights()), options);
    lm_head.set_target_state(states(tokens.size()));
    see_rows(lm_head, longer, 2, add_choices(choices));
  }
  TextEnd(const TextEnd&) = delete;
  TextEnd& operator=(const TextEnd&) = delete;

  /// The target's at the first `count` tokens.
  FeaturesView<float> states(std::size_t count) const { return part_of(all_, first_, count, unchanged_); }

  Tokens tokens;
  DecoderOptions options;      // of a head for them
  std::vector<Token> choices;  // (tokens - 1)

 private:
  FeaturesView<float> all_;
  std::size_t first_ = 0;
  specula::detail::ChangeCount unchanged_;
};

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
  detail::see_rows(target, text, from, detail::add_choices(choices));
  return detail::score_rows(head, target.features(), text, from, choices);
}

/// The last `most` rows of a text that the target has read, alone or with tokens after it: of the states that
/// it keeps. Its text stays as it is. The head is given the text's last `most` + 1 tokens alone, so its first
/// rows see little of what came before. Throws std::invalid_argument if
/// the models do not fit, or if the target has read less than `text`. Cost: passes of the head and of the
/// target's LM head over `most` tokens; allocates.
inline HeadRows head_rows_at_end(const std::shared_ptr<const DecoderWeights<float>>& head,
                                 Decoder<float>& target, Tokens text, std::int32_t most) {
  const detail::TextEnd end(target, text, most);
  if (end.choices.empty()) return {};
  Decoder<float> model(head, end.options);
  return detail::score_rows(model, end.states(end.tokens.size()), end.tokens, 1, end.choices);
}

/// The same of second and third draft tokens, where the head goes on from what it hands on itself: of chains
/// of three along the text, from every second token. What norm_output changes shows in these rows alone.
inline HeadRows chain_rows_at_end(const std::shared_ptr<const DecoderWeights<float>>& head,
                                  Decoder<float>& target, Tokens text, std::int32_t most) {
  const detail::TextEnd end(target, text, most);
  HeadRows out;
  if (end.choices.empty()) return out;
  Decoder<float> model(head, end.options);
  constexpr std::array<NodeId, 3> kChain{kNoParent, 0, 1};
  for (std::size_t root = 1; root + kChain.size() <= end.tokens.size(); root += 2) {
    const auto held = static_cast<std::size_t>(model.size());
    model.set_target_state(end.states(root));
    model.append(end.tokens.subspan(held, root - held));
    const LogitsView rows = model.extend(end.tokens.subspan(root, kChain.size()), kChain);
    for (std::int32_t d : {1, 2})
      detail::add_row(out, rows.row(d), end.choices[root - 1 + static_cast<std::size_t>(d)]);
    model.truncate(static_cast<std::int32_t>(root));
  }
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
