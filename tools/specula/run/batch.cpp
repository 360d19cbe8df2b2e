// SPDX-License-Identifier: MIT
#include "batch.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "text_table.hpp"

namespace specula_tools {

namespace {

using Instant = std::chrono::steady_clock::time_point;

Instant now() { return std::chrono::steady_clock::now(); }
double seconds_since(Instant began) { return std::chrono::duration<double>(now() - began).count(); }

/// An answer that is being written.
struct Writing {
  Writing(std::size_t p, std::size_t t, const TextStream::BytesOf& bytes_of,
          const std::vector<std::string>& stops)
      : prompt(p), turn(t), stream(bytes_of, stops) {}
  std::size_t prompt, turn;
  TextStream stream;
  std::string text;
  std::size_t kept = 0;  // tokens, up to a stop string
  Instant began = now();
};

/// What a text failed with. What is no std::exception goes on.
std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void answer_batch(TextBatch& batch, std::span<AskedPrompt> prompts, const BatchRun& run,
                  const DecodeSettings& settings, const TextStream::BytesOf& bytes_of, std::ostream& notes,
                  const std::function<void(const Answer&)>& show) {
  std::map<specula::TextId, std::unique_ptr<Writing>> writing;
  std::vector<std::vector<Answer>> answers(prompts.size());
  std::vector<bool> done(prompts.size());
  const std::vector<std::size_t> numbers = first_numbers(prompts);
  std::size_t shown = 0, tokens = 0, texts = 0;
  const auto ask = [&](std::size_t p, std::size_t turn) {
    auto text = std::make_unique<Writing>(p, turn, bytes_of, run.stops);
    Writing* const own = text.get();
    specula::TextRequest request;
    request.prompt = prompts[p].tokens;
    request.max_new_tokens = settings.max_new_tokens;
    request.stop = settings.stop;
    request.params = run.params;
    request.seed = settings.seed;
    request.logprobs = settings.logprobs;
    request.sequence = static_cast<std::uint32_t>(numbers[p] + turn);
    if (run.begin)
      request.enter = [&run, size = request.prompt.size()](std::int32_t slot) { run.begin(slot, size); };
    request.sink = [own, &settings](Tokens fresh) {
      for (const Token token : fresh) {
        if (own->stream.stopped()) break;
        ++own->kept;
        const bool ends = std::find(settings.stop.begin(), settings.stop.end(), token) != settings.stop.end();
        if (!ends) own->text += own->stream.put(token);
      }
      return !own->stream.stopped();
    };
    writing.emplace(batch.join(std::move(request)), std::move(text));
    ++texts;
  };
  const Instant began = now();
  for (std::size_t p = 0; p < prompts.size(); ++p) ask(p, 0);
  while (!batch.empty()) {
    for (const specula::TextResult& ended : batch.step()) {
      const auto found = writing.find(ended.id);
      const std::unique_ptr<Writing> own = std::move(found->second);
      writing.erase(found);
      const std::size_t p = own->prompt;
      own->text += own->stream.flush();
      Answer answer{.prompt = p, .turn = own->turn, .asked = prompts[p].text, .text = own->text};
      answer.run.tokens.assign(ended.tokens.begin(),
                               ended.tokens.begin() + static_cast<std::ptrdiff_t>(own->kept));
      answer.run.stats = ended.stats;
      answer.run.logprobs = ended.logprobs;
      answer.run.prompt_tokens = prompts[p].tokens.size();
      answer.run.ending = ended.reason;
      answer.run.draft_error = batch.draft_error(ended.id);
      answer.run.decode_seconds = seconds_since(own->began);
      tokens += own->kept;
      if (ended.failure) answer.failure = message_of(ended.failure);
      answers[p].push_back(std::move(answer));
      if (ended.failure || !next_turn(prompts[p], answers[p]))
        done[p] = true;
      else
        ask(p, own->turn + 1);
    }
    for (; shown < prompts.size() && done[shown]; ++shown)
      for (const Answer& answer : answers[shown]) show(answer);
  }
  notes << run.pipeline << ": " << tokens << " tokens of " << texts << " texts, " << run.texts << " at once, "
        << fixed(static_cast<double>(tokens) / seconds_since(began), 1) << " tokens/s with the prompts\n";
}

}  // namespace specula_tools
