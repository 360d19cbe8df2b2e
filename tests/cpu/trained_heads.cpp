// SPDX-License-Identifier: MIT
// labels: slow long optimised
// The trained EAGLE-3 heads of the pack: how often they are right, whether wrong readings of their files are
// found, and by how many tokens, and that the text is the target's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/cpu/check_head.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "every_shape.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

namespace {

namespace fs = std::filesystem;
const fs::path kPack = SPECULA_MODELS_DIR;
constexpr std::int32_t kLength = 256;
constexpr Token kBegin = 1;
using Weights = std::shared_ptr<const DecoderWeights<float>>;
using States = std::vector<std::int32_t>;

Weights load(const char* name, const Weights& target = nullptr) {
  return std::make_shared<const DecoderWeights<float>>(load_decoder_weights<float>(kPack / name, target));
}

struct Pack {
  Weights target = load("target");
  std::vector<Weights> heads{load("eagle3", target), load("eagle31", target)};
};
const Pack& pack() {
  static const Pack all;
  return all;
}

/// A target that shows the states of all layers.
Decoder<float> target_model() {
  States all(17);
  for (std::int32_t i = 0; i < 17; ++i) all[static_cast<std::size_t>(i)] = i;
  return Decoder<float>(pack().target,
                        {.capacity = kLength + 20, .inputs = Inputs::int16, .feature_layers = all});
}

/// Texts that the target draws, of `length` tokens.
std::vector<std::vector<Token>> drawn(std::int32_t count, std::int32_t length, std::uint64_t seed) {
  constexpr std::int32_t kAtOnce = 32;
  Decoder<float> target(pack().target, {.capacity = kLength + 20, .slots = kAtOnce, .inputs = Inputs::int16});
  std::vector<SlotOf<Decoder<float>>> slots;
  for (std::int32_t s = 0; s < kAtOnce; ++s) slots.emplace_back(target, s);
  BatchSpeculator batch(
      kAtOnce,
      [&](std::int32_t slot) {
        return Speculator{TreeVerifier{slots[static_cast<std::size_t>(slot)], Sampling{}},
                          NoDrafter{target.vocab_size()}, Chain<>{}};
      },
      target);
  for (std::int32_t i = 0; i < count; ++i) {
    TextRequest request;
    request.prompt = {kBegin}, request.max_new_tokens = length - 1;
    request.seed = seed, request.sequence = static_cast<std::uint32_t>(i);
    batch.join(request);
  }
  std::vector<std::vector<Token>> texts;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      REQUIRE(!text.failure);
      REQUIRE(text.tokens.size() == static_cast<std::size_t>(length - 1));
      texts.push_back({kBegin});
      texts.back().insert(texts.back().end(), text.tokens.begin(), text.tokens.end());
    }
  return texts;
}

/// 20 texts of 256 tokens.
const std::vector<std::vector<Token>>& texts() {
  static const std::vector<std::vector<Token>> all = drawn(20, kLength, 11);
  return all;
}

/// The readings of a file whose list of states were `own`.
std::vector<HeadReading> readings_of(const Weights& head, const States& own) {
  Eagle3Config file = *head->config.eagle3;
  file.states = own;
  return head_readings(file, pack().target->config.layers);
}

/// The rows of a text, which `target` holds, under a reading: computed once, as wrong lists share readings.
const HeadRows& rows_of(const Weights& head, const HeadReading& reading, Decoder<float>& target,
                        Tokens text) {
  static std::map<std::tuple<Weights, States, const Token*, std::size_t>, HeadRows> known;
  const auto [at, fresh] = known.try_emplace({head, reading.eagle3.states, text.data(), text.size()});
  if (fresh) at->second = head_rows_at_end(with_reading(*head, reading.eagle3), target, text, kLength);
  return at->second;
}

/// Rows of texts under each reading.
class Study {
 public:
  Study(const Weights& head, const States& own)
      : readings(readings_of(head, own)), rows(readings.size()), head_(head) {}
  /// `target` holds the text.
  void add(Decoder<float>& target, Tokens text) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].add(rows_of(head_, readings[i], target, text));
  }
  /// By the loss of the first `count` rows alone.
  const States& least(std::size_t count) const {
    std::vector<double> losses;
    for (const HeadRows& some : rows) {
      REQUIRE(some.losses.size() >= count);
      losses.push_back(
          HeadRows{{some.losses.begin(), some.losses.begin() + static_cast<std::ptrdiff_t>(count)}}.loss());
    }
    const auto least = std::min_element(losses.begin(), losses.end());
    return readings[static_cast<std::size_t>(least - losses.begin())].eagle3.states;
  }
  const States& best() const { return readings[best_reading(rows)].eagle3.states; }

  std::vector<HeadReading> readings;
  std::vector<HeadRows> rows;

 private:
  Weights head_;
};

void read(Decoder<float>& target, Tokens text) {
  target.truncate(0);
  target.append(text);
}

const States kRight{2, 8, 13};

}  // namespace

TEST_CASE("both heads are read as they were trained, by their files' own rules") {
  const auto& heads = pack().heads;
  CHECK(heads[0]->config.eagle3->states_from == StatesFrom::standard);
  CHECK(heads[1]->config.eagle3->states_from == StatesFrom::nested_outputs);
  CHECK(heads[1]->config.eagle3->fc_norm);
  CHECK(heads[1]->config.eagle3->norm_output);
  for (const Weights& head : heads) {
    CHECK(head->config.eagle3->states == kRight);
    CHECK(&head->head() == &pack().target->head());
  }
  const auto bytes = [](const char* name) { return fs::file_size(kPack / name / "model.safetensors"); };
  CHECK(bytes("eagle3") + bytes("eagle31") < 4'000'000);
}

TEST_CASE("a permuted list and wrong states: the right reading has the least loss of 64 tokens") {
  auto target = target_model();
  const std::vector<States> lists{{13, 8, 2}, {2, 13, 8}, {8, 13, 2}, {8, 2, 13}, {1, 4, 10}, {0, 5, 16}};
  for (const Weights& head : pack().heads) {
    const bool better = head == pack().heads[0];  // the other hardly reads states 2 and 8
    const auto wrong = std::span(lists).first(better ? 6 : 3);
    std::vector<std::int32_t> least(wrong.size()), sure(wrong.size());
    for (const auto& text : texts()) {
      const Tokens shown = better ? Tokens(text) : Tokens(text).first(65);
      read(target, shown);
      for (std::size_t i = 0; i < wrong.size(); ++i) {
        Study study(head, wrong[i]);
        study.add(target, shown);
        if (better) sure[i] += study.best() == kRight;  // beyond doubt
        least[i] += study.least(64) == kRight;
      }
    }
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      CAPTURE(wrong[i][0]);
      CAPTURE(wrong[i][1]);
      CHECK(least[i] == 20);
      if (better) CHECK(sure[i] == 20);
    }
  }
}

TEST_CASE("ids that are off by one are found, and the rule is kept where it is right") {
  auto target = target_model();
  for (const Weights& head : pack().heads) {
    Study right(head, kRight), later(head, {3, 9, 14}), earlier(head, {1, 7, 12});
    for (const auto& text : texts()) {
      read(target, text);
      for (Study* study : {&right, &later, &earlier}) study->add(target, text);
      CHECK(right.best() == kRight);  // at any length
    }
    CHECK(right.rows[0].count() > 3000);
    CHECK(right.rows[0].count() < 12'000);
    CHECK(right.rows[0].agreement() > 0.3);
    CHECK(earlier.best() == kRight);
    if (head == pack().heads[0]) CHECK(later.best() == kRight);
  }
}

TEST_CASE("greedy text is the target's under every shape, and drafts are accepted") {
  constexpr std::size_t kNew = 24;
  Decoder<float> target(
      pack().target, {.capacity = 128, .max_nodes = 32, .inputs = Inputs::int16, .feature_layers = kRight});
  const SamplingParams greedy{.temperature = 0};
  std::int32_t same = 0, texts = 0;
  for (const auto& drawn_text : drawn(3, 20, 13)) {
    const Tokens prompt(drawn_text);
    const auto write = [&](auto& run) {
      run.start(prompt);
      PhiloxRandom rng(1);
      std::size_t rounds = 0;
      for (; run.text().size() < prompt.size() + kNew; ++rounds) run.step(rng);
      CHECK(run.draft_error().empty());
      return std::pair(
          std::vector<Token>(run.text().begin(),
                             run.text().begin() + static_cast<std::ptrdiff_t>(prompt.size() + kNew)),
          rounds);
    };
    Speculator alone{TreeVerifier{target, Greedy{}, greedy}, NoDrafter{target.vocab_size()}, Chain<>{}};
    const auto plain = write(alone);
    CHECK(plain.second == kNew);
    for (const Weights& weights : pack().heads) {
      Decoder<float> head(weights, {.capacity = 128, .max_nodes = 32, .inputs = Inputs::int16});
      for_every_shape([&](auto shape, Enumerable) {
        Speculator run{TreeVerifier{target, Sampling{}, greedy}, FeatureHead{head, target}, shape};
        const auto own = write(run);
        same += own.first == plain.first, ++texts;
        CHECK(own.second < kNew);  // fewer passes than tokens
      });
    }
  }
  CHECK(texts >= 60);
  CHECK(same == texts);
}
