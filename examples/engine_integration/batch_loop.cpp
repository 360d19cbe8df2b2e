// An engine whose own loop decodes many texts: it owns models, slots and schedule, and merges the passes that
// rounds wait for. A round of each text is a Speculator that it begins, answers and ends; what to draft is
// one decision for all of them (SharedDraft). BatchSpeculator is the same loop with a queue, limits, sinks
// and failures.
//
//   batch-loop [TEXTS] [FOLDER]    FOLDER holds the models `target` and `small`
//
// Each text is then written once more by itself, and must be the same.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/run/shared_draft.hpp>
#include <specula/specula.hpp>

namespace {

using specula::Token;
using Model = specula::cpu::Decoder<float>;
using Slot = specula::SlotOf<Model>;
using Run = specula::Speculator<specula::TreeVerifier<Slot, specula::Sampling>, specula::ModelDrafter<Slot>,
                                specula::Chain<>>;
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
  specula::PhiloxRandom rng{1};
  specula::SharedDraft<Run>::Text shared{.run = &run};
};

class Engine {
 public:
  Engine(const std::string& folder, std::int32_t texts)
      : target_(folder + "/target", options(texts)),
        draft_(folder + "/small", options(texts)),
        shared_(specula::BatchBudget(), texts, {.most = 7}) {
    for (std::int32_t i = 0; i < texts; ++i) texts_.push_back(std::make_unique<Text>(target_, draft_, i));
  }

  /// Writes kTokens tokens after each prompt; a text that has them leaves the batch.
  std::vector<std::vector<Token>> write(const std::vector<std::vector<Token>>& prompts) {
    std::vector<Text*> writing;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      texts_[i]->run.start(prompts[i]);  // queues it: the next passes read it
      writing.push_back(texts_[i].get());
    }
    while (!writing.empty()) {
      step(writing);
      std::erase_if(writing, [](Text* text) { return text->run.text().size() >= kPrompt + kTokens; });
    }
    std::vector<std::vector<Token>> out;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const specula::Tokens text = texts_[i]->run.text().first(kPrompt + kTokens);
      out.emplace_back(text.begin(), text.end());
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

  /// A round of all texts.
  void step(const std::vector<Text*>& texts) {
    std::vector<specula::SharedDraft<Run>::Text*> parts;
    for (Text* text : texts) parts.push_back(&text->shared);
    shared_.begin(parts, static_cast<std::int32_t>(parts.size()));
    for (Text* text : texts) text->run.begin(text->rng, {}, shared_.cost_model(), shared_.max_nodes());
    while (shared_.grant() || pass(draft_, texts)) {
    }
    shared_.choose();
    pass(target_, texts);
    for (Text* text : texts) shared_.ended(text->shared, static_cast<std::int32_t>(text->run.end().size()));
    shared_.end();
  }

  /// One pass of a model over all texts that wait for it; false if none does.
  bool pass(Model& model, const std::vector<Text*>& texts) {
    std::vector<specula::SlotNodes> nodes;
    std::vector<Text*> waiting;
    std::int32_t queued = 0, row = 0;
    for (Text* text : texts)
      if (const specula::PassRequest* want = text->run.want(); want && want->batch == &model) {
        nodes.push_back({want->slot, want->tokens, want->parents});
        waiting.push_back(text);
        queued += model.queued(want->slot);
      }
    if (nodes.empty()) return false;
    const auto began = std::chrono::steady_clock::now();
    const specula::LogitsView rows = model.extend(nodes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    ++passes;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto count = static_cast<std::int32_t>(nodes[i].tokens.size());
      waiting[i]->shared.calls += &model == &draft_;
      waiting[i]->run.give(rows.part(row, count));
      row += count;
    }
    if (&model == &draft_)
      shared_.drafted(row, queued, seconds);
    else
      shared_.verified(static_cast<std::int32_t>(nodes.size()), row, queued, seconds);
    return true;
  }

  Model target_, draft_;
  specula::SharedDraft<Run> shared_;
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
