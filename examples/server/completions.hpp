// SPDX-License-Identifier: MIT
// Completions and chats in the common JSON form: requests as texts, and texts as answers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <httplib.h>

#include <nlohmann/json.hpp>

#include "chat_options.hpp"
#include "text_queue.hpp"

using Json = nlohmann::ordered_json;

[[noreturn]] inline void wrong(const std::string& what) { throw std::invalid_argument(what); }

/// `in[name]`, or `otherwise` where it is left out or null. Throws for another type or range.
template <class Number>
Number number(const Json& in, const char* name, Number otherwise, double least, double most) {
  if (!in.contains(name) || in[name].is_null()) return otherwise;
  constexpr bool whole = std::is_integral_v<Number>;
  const Json& value = in[name];
  const bool fits = whole ? value.is_number_integer() : value.is_number();
  if (!fits || !(value.get<double>() >= least && value.get<double>() <= most))
    wrong(std::string(name) + " must be a " + (whole ? "whole " : "") + "number from " + Json(least).dump() +
          " to " + Json(most).dump());
  return value.get<Number>();
}
inline const std::string& string_of(const Json& in, const char* name) {
  if (!in.is_object() || !in.contains(name) || !in[name].is_string())
    wrong(std::string(name) + " must be a string");
  return in[name].get_ref<const std::string&>();
}
/// One or a list.
inline std::vector<std::string> strings_of(const Json& in, const char* name) {
  std::vector<std::string> all;
  if (!in.contains(name) || in[name].is_null()) return all;
  if (!in[name].is_array()) return {string_of(in, name)};
  for (const Json& one : in[name]) all.push_back(string_of({{name, one}}, name));
  return all;
}
inline std::string dump(const Json& what) {
  return what.dump(-1, ' ', false, Json::error_handler_t::replace);
}
inline void send(httplib::Response& out, const Json& what) {
  out.set_content(dump(what), "application/json");
}

/// Requests as texts, and texts as answers.
class Api {
 public:
  Api(const std::filesystem::path& target, TextQueue& queue)
      : name_(target.filename().string()),
        queue_(queue),
        tokenizer_(target),
        vocabulary_(specula_examples::chat_vocabulary(tokenizer_)) {
    if (auto found = specula_examples::template_of(target, tokenizer_)) template_.emplace(std::move(*found));
  }
  const std::string& name() const { return name_; }

  void answer(const httplib::Request& in, httplib::Response& out, bool chat) const {
    const Json body = Json::parse(in.body, nullptr, false);
    if (!body.is_object()) wrong("the body is no JSON object");
    const bool streams = body.contains("stream") && body["stream"] == true;
    const std::shared_ptr<AskedText> text = text_of(body, chat);
    queue_.join(text);
    {  // until it has begun, the status is open
      std::unique_lock lock(text->mutex);
      text->changed.wait(lock, [&] { return text->tokens > 0 || !text->reason.empty(); });
      if (text->failure) std::rethrow_exception(text->failure);
    }
    const auto provide = [this, text, chat, streams, all = std::string()](std::size_t,
                                                                          httplib::DataSink& sink) mutable {
      const auto [fresh, reason] = next(*text);
      all += fresh;
      std::string sent;
      if (streams && !fresh.empty()) sent = event(json_of(*text, chat, streams, fresh, ""));
      if (!reason.empty()) {
        const Json last = json_of(*text, chat, streams, streams ? "" : all, reason);
        sent += streams ? event(last) + "data: [DONE]\n\n" : dump(last);
      }
      const bool there = sent.empty() ? sink.is_writable() : sink.write(sent.data(), sent.size());
      if (there && !reason.empty()) sink.done();
      return there;
    };
    out.set_chunked_content_provider(streams ? "text/event-stream" : "application/json", provide,
                                     [text](bool) { text->left = true; });
  }

 private:
  static std::string event(const Json& what) { return "data: " + dump(what) + "\n\n"; }
  /// What there is to send, and why the text has ended; after a fifth of a second, if there is nothing.
  static std::pair<std::string, std::string> next(AskedText& text) {
    std::unique_lock lock(text.mutex);
    text.changed.wait_for(lock, std::chrono::milliseconds(200),
                          [&] { return !text.fresh.empty() || !text.reason.empty(); });
    return {std::exchange(text.fresh, {}), text.reason};
  }

  std::shared_ptr<AskedText> text_of(const Json& body, bool chat) const {
    for (const char* name : {"tools", "response_format", "logit_bias", "logprobs", "echo"})
      if (body.contains(name) && !body[name].is_null() && body[name] != false)
        wrong(std::string(name) + " is not supported");
    number(body, "n", 1, 1, 1);
    auto text = std::make_shared<AskedText>();
    specula::TextRequest& request = text->request;
    request.prompt = chat ? chat_of(body) : tokenizer_.encode(string_of(body, "prompt"));
    request.max_new_tokens = number(body, "max_tokens", 256, 1, 1 << 20);
    request.stop = tokenizer_.ends();
    request.params = {.temperature = number(body, "temperature", 1.0f, 0, 100),
                      .top_k = number(body, "top_k", 0, 0, 1 << 30),
                      .top_p = number(body, "top_p", 1.0f, 1e-6, 1),
                      .min_p = number(body, "min_p", 0.0f, 0, 1)};
    if (body.contains("seed")) request.seed = number<std::uint64_t>(body, "seed", 0, 0, 0x1p53);
    text->penalties = {.presence = number(body, "presence_penalty", 0.0f, -2, 2),
                       .frequency = number(body, "frequency_penalty", 0.0f, -2, 2),
                       .from = static_cast<std::int32_t>(request.prompt.size())};
    text->stream.emplace([this](specula::Token token) { return tokenizer_.bytes(token); },
                         strings_of(body, "stop"));
    return text;
  }

  std::vector<specula::Token> chat_of(const Json& body) const try {
    if (!template_) wrong(name_ + " has no chat template");
    std::vector<Json> turns;
    if (body.contains("messages") && body["messages"].is_array()) turns = body["messages"];
    std::string system;
    if (!turns.empty() && string_of(turns[0], "role") == "system") {
      system = string_of(turns[0], "content");
      turns.erase(turns.begin());
    }
    if (turns.size() % 2 == 0) wrong("messages must end with the user's");
    specula_examples::Chat chat(*template_, vocabulary_, system);
    for (std::size_t i = 0;; ++i) {
      const std::string& content = string_of(turns[i], "content");
      if (string_of(turns[i], "role") != (i % 2 ? "assistant" : "user"))
        wrong("messages must be the user's and the assistant's in turn");
      if (i % 2)
        chat.answer(vocabulary_.encode(content, false), content);
      else if (const auto& tokens = chat.ask(content); i + 1 == turns.size())
        return tokens;
    }
  } catch (const std::runtime_error& error) {  // of the template
    wrong(error.what());
  }

  Json json_of(AskedText& text, bool chat, bool streams, const std::string& fresh,
               const std::string& reason) const {
    Json choice = {{"index", 0}, {"finish_reason", reason.empty() ? Json() : Json(reason)}};
    if (!chat)
      choice["text"] = fresh;
    else if (streams)
      choice["delta"] = {{"content", fresh}};
    else
      choice["message"] = {{"role", "assistant"}, {"content", fresh}};
    Json all = {{"object", !chat     ? "text_completion"
                           : streams ? "chat.completion.chunk"
                                     : "chat.completion"},
                {"created", std::time(nullptr)},
                {"model", name_},
                {"choices", Json::array({choice})}};
    const auto prompt = static_cast<std::int64_t>(text.request.prompt.size());
    if (!reason.empty())
      all["usage"] = {{"prompt_tokens", prompt},
                      {"completion_tokens", text.tokens},
                      {"total_tokens", prompt + text.tokens}};
    return all;
  }

  std::string name_;
  TextQueue& queue_;
  specula_examples::Tokenizer tokenizer_;
  specula_examples::ChatVocabulary vocabulary_;
  std::optional<specula_examples::ChatTemplate> template_;
};
