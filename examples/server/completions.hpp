// SPDX-License-Identifier: MIT
// Completions and chats in the common JSON form: requests as texts, and texts as answers.
#pragma once

#include <atomic>
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

[[noreturn]] inline void wrong(const std::string& what) { throw Refused(400, what); }

/// `in[name]`, or `otherwise` where it is left out or null. Throws Refused for another type or range.
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
inline const std::string& string_of(const Json& value, const char* name) {
  if (!value.is_string()) wrong(std::string(name) + " must be a string");
  return value.get_ref<const std::string&>();
}
inline const std::string& string_in(const Json& in, const char* name) {
  static const Json nothing;
  return string_of(in.is_object() && in.contains(name) ? in[name] : nothing, name);
}
/// One or a few: each token of a text is compared with all.
inline std::vector<std::string> stops_of(const Json& body) {
  std::vector<std::string> all;
  if (!body.contains("stop") || body["stop"].is_null()) return all;
  if (!body["stop"].is_array()) return {string_of(body["stop"], "stop")};
  if (body["stop"].size() > 16) wrong("stop must be at most 16 strings");
  for (const Json& one : body["stop"]) all.push_back(string_of(one, "stop"));
  return all;
}
inline std::string dump(const Json& what) {
  return what.dump(-1, ' ', false, Json::error_handler_t::replace);
}
inline void send(httplib::Response& out, const Json& what) {
  out.set_content(dump(what), "application/json");
}

/// The status of an exception, and what it says.
inline std::pair<int, std::string> told(const std::exception_ptr& why) try {
  std::rethrow_exception(why);
} catch (const Refused& error) {
  return {error.status, error.what()};
} catch (const std::invalid_argument& error) {  // such as a prompt that does not fit
  return {400, error.what()};
} catch (const std::exception& error) {
  return {500, error.what()};
}
inline Json error_of(const std::exception_ptr& why) {
  const auto [status, message] = told(why);
  return {{"error", {{"message", message}, {"code", status}}}};
}
inline void refuse(httplib::Response& out, const std::exception_ptr& why) {
  out.status = told(why).first;
  if (out.status == 429) out.set_header("Retry-After", "1");
  send(out, error_of(why));
}

/// Requests as texts, and texts as answers.
class Api {
 public:
  /// Of a target whose rows are over `vocab` tokens, and whose texts have at most `capacity`.
  Api(const std::filesystem::path& target, std::int32_t vocab, std::int32_t capacity, TextQueue& queue)
      : name_(target.filename().string()),
        capacity_(static_cast<std::size_t>(capacity)),
        queue_(queue),
        tokenizer_(target),
        vocabulary_(specula_tools::chat_vocabulary(tokenizer_)),
        ends_(tokenizer_.ends()) {
    std::erase_if(ends_, [&](specula::Token token) { return token >= vocab; });
    try {
      if (auto found = specula_tools::template_of(target, tokenizer_, kWithoutTemplate))
        template_.emplace(std::move(*found));
      else
        no_template_ = name_ + " has no chat template; " + kWithoutTemplate;
    } catch (const std::runtime_error& error) {
      no_template_ = error.what();
    }
  }
  const std::string& name() const { return name_; }
  /// Answers that are not sent to their ends.
  int open() const { return open_; }

  void answer(const std::string& body, httplib::Response& out, bool chat) {
    const Json asked = Json::parse(body, nullptr, false);
    if (!asked.is_object()) wrong("the body is no JSON object");
    const bool streams = asked.contains("stream") && asked["stream"] == true;
    const std::shared_ptr<AskedText> text = text_of(asked, chat);
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
      if (reason == "error" && !streams) return false;  // the client sees that its answer is not whole
      std::string sent;
      if (streams && !fresh.empty()) sent = event(json_of(*text, chat, streams, fresh, ""));
      if (reason == "error")
        sent += event(error_of(text->failure));
      else if (!reason.empty() && streams)
        sent += event(json_of(*text, chat, streams, "", reason)) + "data: [DONE]\n\n";
      else if (!reason.empty())
        sent = dump(json_of(*text, chat, streams, all, reason));
      const bool there = sent.empty() ? sink.is_writable() : sink.write(sent.data(), sent.size());
      if (there && !reason.empty()) sink.done();
      return there;
    };
    ++open_;
    out.set_chunked_content_provider(streams ? "text/event-stream" : "application/json", provide,
                                     [this, text](bool) { text->left = true, --open_; });
  }

 private:
  static constexpr char kWithoutTemplate[] = "ask /v1/completions";

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
    request.prompt = chat ? chat_of(body) : tokenizer_.encode(string_in(body, "prompt"));
    request.max_new_tokens = number(body, "max_tokens", 256, 1, 1 << 20);
    request.stop = ends_;
    request.params = {.temperature = number(body, "temperature", 1.0f, 0, 100),
                      .top_k = number(body, "top_k", 0, 0, 1 << 30),
                      .top_p = number(body, "top_p", 1.0f, 1e-6, 1),
                      .min_p = number(body, "min_p", 0.0f, 0, 1)};
    if (body.contains("seed") && !body["seed"].is_null())
      request.seed = number<std::uint64_t>(body, "seed", 0, 0, 0x1p53);
    text->penalties = {.presence = number(body, "presence_penalty", 0.0f, -2, 2),
                       .frequency = number(body, "frequency_penalty", 0.0f, -2, 2),
                       .from = static_cast<std::int32_t>(request.prompt.size())};
    text->stream.emplace([this](specula::Token token) { return tokenizer_.bytes(token); }, stops_of(body));
    return text;
  }

  std::vector<specula::Token> chat_of(const Json& body) const try {
    if (!template_) wrong(no_template_);
    static const Json none = Json::array();
    const Json& turns = body.contains("messages") && body["messages"].is_array() ? body["messages"] : none;
    const std::size_t first = !turns.empty() && string_in(turns[0], "role") == "system";
    if ((turns.size() - first) % 2 == 0) wrong("messages must end with the user's");
    specula_tools::Chat chat(*template_, vocabulary_, first ? string_in(turns[0], "content") : "");
    for (std::size_t i = first;; ++i) {
      const bool asks = (i - first) % 2 == 0;
      const std::string& content = string_in(turns[i], "content");
      if (string_in(turns[i], "role") != (asks ? "user" : "assistant"))
        wrong("messages must be the user's and the assistant's in turn");
      if (!asks) {
        chat.answer(vocabulary_.encode(content, false), content);
        continue;
      }
      const std::vector<specula::Token>& tokens = chat.ask(content);
      if (tokens.size() >= capacity_)
        wrong("the messages take " + std::to_string(tokens.size()) +
              " tokens or more, and there is room for " + std::to_string(capacity_));
      if (i + 1 == turns.size()) return tokens;
    }
  } catch (const Refused&) {
    throw;
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

  std::string name_, no_template_;
  std::size_t capacity_;
  TextQueue& queue_;
  specula_tools::Tokenizer tokenizer_;
  specula_tools::ChatVocabulary vocabulary_;
  std::vector<specula::Token> ends_;
  std::optional<specula_tools::ChatTemplate> template_;
  std::atomic<int> open_ = 0;
};
