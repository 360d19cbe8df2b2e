// SPDX-License-Identifier: MIT
// An engine whose own loop decodes many texts: it owns models, slots and schedule, and runs the passes that
// rounds wait for, merged. What to draft is one decision for all of them (BatchBudget). BatchSpeculator is
// the same loop with a queue, prefixes in common and pauses.
//
//   batch-loop [TEXTS] [FOLDER]    FOLDER holds the models `target` and `small`
//
// Each text is then written once more by itself, and must be the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <specula/batch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

namespace {

using specula::Token;
using Model = specula::cpu::Decoder<float>;
using Slot = specula::SlotOf<Model>;
using Run = specula::Speculator<specula::TreeVerifier<Slot, specula::Sampling>, specula::ModelDrafter<Slot>,
                                specula::Chain<>>;
using BatchText = specula::BatchText<Run>;
constexpr std::int32_t kTokens = 48, kPrompt = 24;
/// What the engine keeps of a text.
struct Text {
  Text(Model& target, Model& draft, std::int32_t at)
      : target_slot(target, at),
        draft_slot(draft, at),
        run(specula::TreeVerifier{target_slot, specula::Sampling{}, {.temperature = 0}},
            specula::ModelDrafter{draft_slot}, specula::Chain<>{.length = 6}) {}
  Slot target_slot, draft_slot;
  Run run;
};

class Engine {
 public:
  Engine(const std::string& folder, std::int32_t texts)
      : target_(folder + "/target", options(texts)),
        draft_(folder + "/small", options(texts)),
        rounds_({.texts = texts, .nodes = {.most = 7}}, specula::BatchBudget()) {
    for (std::int32_t i = 0; i < texts; ++i) texts_.push_back(std::make_unique<Text>(target_, draft_, i));
  }

  /// Writes kTokens tokens after each prompt; a text that has them leaves the batch.
  std::vector<std::vector<Token>> write(const std::vector<std::vector<Token>>& prompts) {
    std::vector<std::vector<Token>> out = prompts;
    std::deque<BatchText> texts;
    std::vector<BatchText*> writing;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      texts_[i]->run.start(prompts[i]);  // queues it: the next passes read it
      texts.push_back({.run = &texts_[i]->run,
                       .rng = specula::PhiloxRandom{1, static_cast<std::uint32_t>(i)},
                       .limits = {.max_new_tokens = kTokens},
                       .sink = [own = &out[i]](specula::Tokens fresh) {
                         own->insert(own->end(), fresh.begin(), fresh.end());
                         return true;
                       }});
      writing.push_back(&texts.back());
    }
    while (!writing.empty()) {
      specula::run_round(writing, rounds_, [&](const specula::MergedPass& pass) {
        ++passes;
        return specula::run_pass(pass.model == &target_ ? target_ : draft_, pass);
      });
      std::erase_if(writing, [](const BatchText* text) {
        if (text->failure) std::rethrow_exception(text->failure);
        return text->state == specula::TextState::ended;
      });
    }
    return out;
  }
  long passes = 0;  // of both models

 private:
  static specula::cpu::DecoderOptions options(std::int32_t texts) {
    specula::cpu::DecoderOptions o;
    o.slots = texts, o.capacity = kPrompt + kTokens + 16, o.max_nodes = 8;
    return o;
  }

  Model target_, draft_;
  specula::BatchRounds<Run> rounds_;
  std::vector<std::unique_ptr<Text>> texts_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const int texts = argc > 1 ? std::atoi(argv[1]) : 4;
    const std::string folder = argc > 2 ? argv[2] : "examples/models";
    std::vector<std::vector<Token>> prompts;
    for (int i = 0; i < texts; ++i) {
      prompts.push_back({1});
      for (int t = 1; t < kPrompt; ++t) prompts.back().push_back(300 + (t * 37 + i * 101) % 1500);
    }
    Engine many(folder, texts), one(folder, 1);
    const auto written = many.write(prompts);
    int same = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) same += one.write({prompts[i]}).front() == written[i];
    std::printf("%d texts in %ld passes, one after the other in %ld; %d are the same\n", texts, many.passes,
                one.passes, same);
    return same == texts ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "batch-loop: %s\n", e.what());
    return 1;
  }
}
