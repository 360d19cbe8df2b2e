// SPDX-License-Identifier: MIT
#include "answers.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <numeric>

namespace specula_tools {
namespace {

const char* name_of(specula::FinishReason ending) {
  using specula::FinishReason;
  switch (ending) {
    case FinishReason::limit:
      return "limit";
    case FinishReason::stop_token:
      return "stop token";
    case FinishReason::cancelled:
      return "stop string";
    case FinishReason::context_full:
      break;
  }
  return "context full";
}

/// Of the tokens, and of the likeliest ones at their places.
void add_logprobs(nlohmann::ordered_json& out, const Decoded& run) {
  const std::size_t tokens = std::min(run.tokens.size(), run.logprobs.size());
  for (std::size_t i = 0; i < tokens; ++i) {
    out["logprobs"].push_back(run.logprobs[i].logprob);
    auto top = nlohmann::ordered_json::array();
    for (const auto& [token, logprob] : run.logprobs.top(i))
      top.push_back({{"token", token}, {"logprob", logprob}});
    if (!top.empty()) out["top_logprobs"].push_back(std::move(top));
  }
}

nlohmann::ordered_json to_json(const Answer& answer) {
  nlohmann::ordered_json out{{"prompt", answer.asked}, {"text", answer.text}};
  const Decoded& run = answer.run;
  out["prompt_tokens"] = run.prompt_tokens;
  out["tokens"] = run.tokens;
  if (!run.from_draft.empty()) out["from_draft"] = run.from_draft;
  add_logprobs(out, run);
  if (answer.failure.empty()) {
    const auto tokens = static_cast<double>(run.tokens.size());
    out["ended"] = run.interrupted ? "interrupted" : name_of(run.ending);
    out["new_tokens"] = run.tokens.size();
    out["target_calls"] = run.stats.target.calls;
    out["mat"] = tokens / static_cast<double>(std::max<std::int64_t>(1, run.stats.target.calls));
    const specula::Stats& stats = run.stats;
    out["accepted_draft_tokens"] =
        std::accumulate(stats.accepted.begin(), stats.accepted.end(), std::int64_t{0});
    out["acceptance_by_depth"] = nlohmann::ordered_json::array();
    for (std::size_t d = 0; d < stats.offered.size() && stats.offered[d] > 0; ++d)
      out["acceptance_by_depth"].push_back(stats.acceptance(static_cast<std::int32_t>(d) + 1));
    out["prefill_seconds"] = run.prefill_seconds;
    out["decode_seconds"] = run.decode_seconds;
  } else {
    out["failed"] = answer.failure;
  }
  if (!run.draft_error.empty()) out["draft_error"] = run.draft_error;
  return out;
}

}  // namespace

Tokens answer_of(const Decoded& run) {
  const Tokens all(run.tokens);
  return run.ending == specula::FinishReason::stop_token ? all.first(all.size() - 1) : all;
}

bool next_turn(AskedPrompt& prompt, std::vector<Answer>& answers) {
  const Answer& last = answers.back();
  try {
    return prompt.next(answer_of(last.run), last.text);
  } catch (const std::exception& error) {
    answers.push_back({.prompt = last.prompt,
                       .turn = last.turn + 1,
                       .asked = prompt.text,
                       .text = {},
                       .run = {},
                       .failure = error.what()});
    return false;
  }
}

void Answers::add(const Answer& answer) {
  if (!answer.failure.empty()) {
    failed_ = true;
    *notes_ << program_ << ": " << failure_text(answer.prompt / samples_, answer.turn, answer.failure)
            << std::endl;
  }
  drafts_.add(answer.run.draft_error);
  auto json = to_json(answer);
  if (samples_ > 1) json["sample"] = answer.prompt % samples_ + 1;
  json_.push_back(std::move(json));
}

}  // namespace specula_tools
