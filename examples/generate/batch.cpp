#include "batch.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "text_batch.hpp"
#include "text_stream.hpp"
#include "text_table.hpp"

namespace specula_examples {

namespace {

using Instant = std::chrono::steady_clock::time_point;

Instant now() { return std::chrono::steady_clock::now(); }
double seconds_since(Instant began) { return std::chrono::duration<double>(now() - began).count(); }

/// An answer that is being written.
struct Writing {
  Writing(std::size_t p, const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : prompt(p), stream([&](Token token) { return tokenizer.bytes(token); }, stops) {}
  std::size_t prompt;
  TextStream stream;
  std::string text;
  std::size_t kept = 0;  // tokens, up to a stop string
  Instant began = now();
};

}  // namespace

void answer_batch(ModelPack& models, std::span<AskedPrompt> prompts, const BatchRun& run,
                  const DecodeSettings& settings, const Tokenizer& tokenizer, std::ostream& notes,
                  const std::function<void(const BatchAnswer&)>& show) {
  const auto batch = make_text_batch(models, run.pipeline, run.params, run.texts);
  std::map<specula::TextId, std::unique_ptr<Writing>> writing;
  std::vector<std::vector<BatchAnswer>> answers(prompts.size());
  std::vector<bool> done(prompts.size());
  std::uint32_t sequence = 0;
  std::size_t shown = 0, tokens = 0;
  const auto ask = [&](std::size_t p) {
    auto text = std::make_unique<Writing>(p, tokenizer, run.stops);
    Writing* const own = text.get();
    specula::TextRequest request;
    request.prompt = prompts[p].tokens;
    request.max_new_tokens = settings.max_new_tokens;
    request.stop = settings.stop;
    request.params = run.params;
    request.seed = settings.seed, request.sequence = sequence++;
    request.sink = [own, &settings](Tokens fresh) {
      for (const Token token : fresh) {
        if (own->stream.stopped()) break;
        ++own->kept;
        const bool ends = std::find(settings.stop.begin(), settings.stop.end(), token) != settings.stop.end();
        if (!ends) own->text += own->stream.put(token);
      }
      return !own->stream.stopped();
    };
    writing.emplace(batch->join(std::move(request)), std::move(text));
  };
  const Instant began = now();
  for (std::size_t p = 0; p < prompts.size(); ++p) ask(p);
  while (!batch->empty()) {
    for (const specula::TextResult& ended : batch->step()) {
      const auto found = writing.find(ended.id);
      const std::unique_ptr<Writing> own = std::move(found->second);
      writing.erase(found);
      if (ended.failure) std::rethrow_exception(ended.failure);
      own->text += own->stream.flush();
      BatchAnswer answer{prompts[own->prompt].text, own->text, {}};
      answer.run.tokens.assign(ended.tokens.begin(),
                               ended.tokens.begin() + static_cast<std::ptrdiff_t>(own->kept));
      answer.run.stats = ended.stats;
      answer.run.ending = ended.reason;
      answer.run.decode_seconds = seconds_since(own->began);
      tokens += own->kept;
      Tokens said(answer.run.tokens);
      if (ended.reason == specula::FinishReason::stop_token) said = said.first(said.size() - 1);
      const bool more = prompts[own->prompt].next(said, own->text);
      answers[own->prompt].push_back(std::move(answer));
      if (more)
        ask(own->prompt);
      else
        done[own->prompt] = true;
    }
    for (; shown < prompts.size() && done[shown]; ++shown)
      for (const BatchAnswer& answer : answers[shown]) show(answer);
  }
  notes << run.pipeline << ": " << tokens << " tokens of " << sequence << " texts, " << run.texts
        << " at once, " << fixed(static_cast<double>(tokens) / seconds_since(began), 1)
        << " tokens/s with the prompts\n";
}

}  // namespace specula_examples
