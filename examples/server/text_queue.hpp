// SPDX-License-Identifier: MIT
// Texts between many threads that ask for them and the one that writes them, by a BatchSpeculator.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/model/processors.hpp>

#include "text_stream.hpp"

/// What a client is told in place of a text, with its status.
struct Refused : std::runtime_error {
  Refused(int s, const std::string& why) : std::runtime_error(why), status(s) {}
  int status;
};

/// A text that is asked for.
struct AskedText {
  specula::TextRequest request;  // its sink and its enter are the queue's
  specula::Penalties penalties = {};
  std::optional<specula_tools::TextStream> stream = {};  // of the writing thread

  std::mutex mutex = {};  // guards the rest
  std::condition_variable changed = {};
  std::string fresh = {};                // written since it was last sent
  std::int64_t tokens = 0;               // so far
  std::string reason = {};               // of its end; empty: it is being written
  std::exception_ptr failure = nullptr;  // which ended it
  std::atomic<bool> left = false;        // nobody waits for it any more

  /// Its next tokens. False ends it.
  bool put(specula::Tokens more) {
    const std::lock_guard lock(mutex);
    for (const specula::Token token : more) {
      if (stream->stopped()) break;
      ++tokens;
      if (std::ranges::find(request.stop, token) == request.stop.end()) fresh += stream->put(token);
    }
    changed.notify_one();
    return !stream->stopped() && !left;
  }
  void end(const char* why, std::exception_ptr error = nullptr) {
    const std::lock_guard lock(mutex);
    fresh += stream->flush();
    reason = why, failure = std::move(error);
    changed.notify_one();
  }
};

class TextQueue {
 public:
  struct Counts {
    std::atomic<std::int64_t> requests = 0, tokens = 0, rounds = 0, running = 0, texts = 0;
  };

  /// At most so many texts wait and are written.
  explicit TextQueue(std::int64_t most) : most_(most) {}
  const Counts& counts() const { return counts_; }

  /// Throws Refused.
  void join(std::shared_ptr<AskedText> text) {
    const std::lock_guard lock(mutex_);
    if (stops_) throw Refused(503, "the server ends");
    if (counts_.texts >= most_)
      throw Refused(429, std::to_string(most_) + " texts wait and are written: try again later");
    ++counts_.texts, ++counts_.requests;
    joined_.push_back(std::move(text));
    changed_.notify_one();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_one();
  }

  /// Writes texts until stop(). rules[slot] are the penalties of the text in a slot.
  template <class Batch>
  void write(Batch& batch, std::vector<specula::Penalties>& rules) {
    std::vector<std::shared_ptr<AskedText>> joined;
    while (wait(joined, batch.empty())) {
      for (const auto& text : std::exchange(joined, {})) begin(batch, text, rules);
      for (const auto& [id, text] : writing_)
        if (text->left) batch.cancel(id);
      const std::vector<specula::TextResult>* ended = nullptr;
      try {
        ended = &batch.step();
      } catch (...) {  // a pass of the target failed: no text has changed, but the next may fail as well
        for (const auto& [id, text] : writing_) {
          batch.cancel(id);
          const std::lock_guard lock(text->mutex);
          text->failure = std::current_exception();
        }
      }
      if (ended)
        for (const specula::TextResult& text : *ended) end(text);
      counts_.running = batch.running();
    }
    for (const auto& [id, text] : std::exchange(writing_, {})) joined.push_back(text);
    const auto ends = std::make_exception_ptr(Refused(503, "the server ends"));
    for (const auto& text : joined) text->end("error", ends);
  }

 private:
  /// What has joined, once there is something to do; false after stop().
  bool wait(std::vector<std::shared_ptr<AskedText>>& joined, bool idle) {
    std::unique_lock lock(mutex_);
    if (idle) changed_.wait(lock, [&] { return stops_ || !joined_.empty(); });
    joined.swap(joined_);
    return !stops_;
  }
  template <class Batch>
  void begin(Batch& batch, const std::shared_ptr<AskedText>& text, std::vector<specula::Penalties>& rules) {
    specula::TextRequest request = text->request;
    request.sink = [own = text.get()](specula::Tokens more) { return own->put(more); };
    request.enter = [&rules, own = text.get()](std::int32_t slot) {
      own->penalties.validate();
      rules[static_cast<std::size_t>(slot)] = own->penalties;
    };
    try {
      writing_[batch.join(std::move(request))] = text;
    } catch (...) {  // limits or parameters out of range
      text->end("error", std::current_exception());
      --counts_.texts;
    }
  }
  void end(const specula::TextResult& result) {
    const auto found = writing_.find(result.id);
    const std::shared_ptr<AskedText> text = found->second;
    const std::exception_ptr failure = text->failure ? text->failure : result.failure;
    const bool stopped = result.reason == specula::FinishReason::stop_token || text->stream->stopped();
    counts_.tokens += result.stats.new_tokens, counts_.rounds += result.stats.rounds, --counts_.texts;
    writing_.erase(found);
    text->end(failure ? "error" : stopped ? "stop" : "length", failure);
  }

  std::int64_t most_;
  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::vector<std::shared_ptr<AskedText>> joined_;
  bool stops_ = false;
  std::map<specula::TextId, std::shared_ptr<AskedText>> writing_;  // of the writing thread
  Counts counts_;
};
