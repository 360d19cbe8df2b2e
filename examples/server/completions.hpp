// SPDX-License-Identifier: MIT
// Completions and chats in the common JSON form: requests as texts, and texts as answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <specula/batch/text_queue.hpp>
#include <specula/files/json_fields.hpp>
#include <specula/model/processors.hpp>
#include "chat_options.hpp"
#include "text_stream.hpp"

using Json = nlohmann::ordered_json;
using PenaltiesBySlot = std::map<std::int32_t, specula::Penalties>;  // of the thread that writes

inline std::string dump(const Json& json) {  // names of files may be no UTF-8
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The JSON of a text while it is written.
struct Answer {
  bool streams;
  Json form;              // of each part that is sent
  Json::json_pointer at;  // the text in it
  specula_tools::TextStream stream;
  std::vector<specula::Token> stop;
  std::size_t prompt, tokens = 0;
  std::string text = {};  // that is still to be sent
  bool ended = false;

  /// What is to be sent now. Throws the part's failure.
  std::string add(const specula::TextPart& part) {
    bool stops = false;
    for (auto token = part.tokens.begin(); token != part.tokens.end() && !stops; ++token, ++tokens) {
      stops = std::ranges::count(stop, *token) > 0;
      if (!stops) text += stream.put(*token), stops = stream.stopped();
    }
    if (part.failure && !stops) std::rethrow_exception(part.failure);
    ended = stops || part.ended;
    if (!ended && (!streams || text.empty())) return {};
    if (ended) {
      text += stream.flush();
      form["choices"][0]["finish_reason"] = stops ? "stop" : "length";
      form["usage"] = {
          {"prompt_tokens", prompt}, {"completion_tokens", tokens}, {"total_tokens", prompt + tokens}};
    }
    form[at] = std::exchange(text, {});
    return !streams ? dump(form) : "data: " + dump(form) + (ended ? "\n\ndata: [DONE]\n\n" : "\n\n");
  }
};

class Completions {
 public:
  /// Of a target whose rows are over `vocab` tokens.
  Completions(const std::filesystem::path& target, std::int32_t vocab, PenaltiesBySlot& penalties)
      : name((target / "").parent_path().filename().string()),  // with or without a slash
        penalties_(penalties),
        tokenizer_(target),
        template_(specula_tools::template_of(target, tokenizer_, kWithoutTemplate)) {
    std::erase_if(ends_, [vocab](specula::Token token) { return token >= vocab; });
  }
  const std::string name;

  /// Throws std::invalid_argument for a body that is wrong.
  std::pair<specula::TextRequest, Answer> read(const std::string& body, bool chat) const try {
    const auto json = specula::files::parse_json(body, "the body");
    const specula::files::JsonFields in(json, "the body");
    for (const char* unknown : {"tools", "response_format", "logit_bias", "logprobs", "echo"})
      if (const auto* value = in.find(unknown); value && *value != false) in.fail(unknown, "not supported");
    in.integer("n", 1, 1, 1);
    specula::TextRequest request;
    request.prompt = chat ? chat_of(in) : tokenizer_.encode(in.text("prompt"));
    request.max_new_tokens = in.integer("max_tokens", 256, 1, 1 << 20);
    request.stop = ends_;
    request.params = {.temperature = in.number("temperature", 1.0f, 0.0f, 100.0f),
                      .top_k = in.integer("top_k", 0),
                      .top_p = in.number("top_p", 1.0f, 1e-6f, 1.0f),
                      .min_p = in.number("min_p", 0.0f, 0.0f, 1.0f)};
    if (in.find("seed")) request.seed = in.integer<std::int64_t>("seed", 0, 0, std::int64_t{1} << 53);
    const specula::Penalties penalties{.presence = in.number("presence_penalty", 0.0f, -2.0f, 2.0f),
                                       .frequency = in.number("frequency_penalty", 0.0f, -2.0f, 2.0f),
                                       .from = static_cast<std::int32_t>(request.prompt.size())};
    request.enter = [this, penalties](std::int32_t slot) { penalties_[slot] = penalties; };
    const auto bytes_of = [this](specula::Token token) { return tokenizer_.bytes(token); };
    const std::vector<std::string> stops = in.texts("stop");  // each token of a text is compared with all
    if (stops.size() > 16) in.fail("stop", "expected at most 16 strings");
    const bool streams = in.flag("stream");
    const char* object = !chat ? "text_completion" : streams ? "chat.completion.chunk" : "chat.completion";
    const Json::json_pointer choice("/choices/0"), part(streams ? "/delta" : "/message");
    Json form = {{"object", object}, {"created", std::time(nullptr)}, {"model", name}};
    form[choice] = {{"index", 0}, {"finish_reason", nullptr}};
    if (chat) form[choice / part] = {{"content", ""}, {"role", "assistant"}};
    const auto at = chat ? choice / part / "content" : choice / "text";
    specula_tools::TextStream stream(bytes_of, stops);
    Answer answer{streams, std::move(form), at, std::move(stream), ends_, request.prompt.size()};
    return {std::move(request), std::move(answer)};
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }

 private:
  static constexpr char kWithoutTemplate[] = "ask /v1/completions";

  std::vector<specula::Token> chat_of(const specula::files::JsonFields& in) const {
    if (!template_) throw std::runtime_error(name + " has no chat template; " + kWithoutTemplate);
    std::vector<specula_tools::ChatTurn> turns;
    for (const auto& turn : in.objects("messages"))
      turns.push_back({turn.text("role"), turn.text("content")});
    return specula_tools::chat_tokens(specula_tools::ChatTemplate(*template_), vocabulary_, turns);
  }

  PenaltiesBySlot& penalties_;
  specula_tools::Tokenizer tokenizer_;
  specula_tools::ChatVocabulary vocabulary_ = specula_tools::chat_vocabulary(tokenizer_);
  std::vector<specula::Token> ends_ = tokenizer_.ends();
  std::optional<specula_tools::ChatTemplateText> template_;
};
