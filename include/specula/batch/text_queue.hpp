// SPDX-License-Identifier: MIT
// A bounded, thread-safe queue in front of a BatchSpeculator: many threads ask for texts, one writes them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/batch/text_request.hpp"

namespace specula {

/// TextQueue::join() throws it if there are as many texts as the queue takes.
class QueueFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// TextQueue::join() throws it after stop(); also the failure of texts that stop() ended.
class QueueStopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What has been written of a text since its reader last asked.
struct TextPart {
  std::vector<Token> tokens = {};        ///< in order; may be empty
  bool ended = false;                    ///< nothing follows
  std::exception_ptr failure = nullptr;  ///< of a text that has ended: why it is not complete
};

namespace detail {

/// A text of a TextQueue, held by its reader and by the queue.
struct SharedText {
  explicit SharedText(std::atomic<std::int64_t>& all) : texts(all) { ++texts; }
  ~SharedText() { --texts; }
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;

  bool add(Tokens tokens) {
    const std::lock_guard lock(mutex);
    part.tokens.insert(part.tokens.end(), tokens.begin(), tokens.end());
    changed.notify_one();
    return !left;
  }
  void end(std::exception_ptr failure) {
    const std::lock_guard lock(mutex);
    part.ended = true, part.failure = std::move(failure);
    changed.notify_one();
  }
  std::atomic<std::int64_t>& texts;
  std::atomic<bool> left = false;  // the reader has
  std::mutex mutex;                // guards the rest
  std::condition_variable changed;
  TextPart part;
};

}  // namespace detail

/// A text that TextQueue::join() has queued, for one reader. Destroying it cancels the text, so a client that
/// leaves costs at most one more round. The queue must outlive it.
class QueuedText {
 public:
  /// Waits until there are tokens, or the text has ended.
  TextPart next() {
    std::unique_lock lock(text_->mutex);
    text_->changed.wait(lock, [&] { return some(); });
    return take();
  }
  /// The same, for at most this time, after which the part is empty.
  TextPart next(std::chrono::milliseconds most) {
    std::unique_lock lock(text_->mutex);
    text_->changed.wait_for(lock, most, [&] { return some(); });
    return take();
  }

  QueuedText(QueuedText&&) noexcept = default;  ///< The other one may only be destroyed.
  ~QueuedText() {
    if (text_) text_->left = true;
  }

 private:
  friend class TextQueue;
  explicit QueuedText(std::shared_ptr<detail::SharedText> text) : text_(std::move(text)) {}
  bool some() const { return text_->part.ended || !text_->part.tokens.empty(); }
  TextPart take() { return std::exchange(text_->part, {.ended = text_->part.ended}); }

  std::shared_ptr<detail::SharedText> text_;
};

/// Texts between the threads that ask for them and the one that writes them. Each text is what the batch
/// alone would write.
///
///   specula::TextQueue queue(64);
///   std::thread writer([&] { queue.write(batch); });
///   ...                                                             // in a thread for each client:
///   specula::QueuedText text = queue.join({.prompt = prompt});      // may throw QueueFull
///   for (bool ended = false; !ended;) {
///     const specula::TextPart part = text.next();
///     ...
///     ended = part.ended;
///   }
class TextQueue {
 public:
  /// For metrics. Each is exact, but they are not of one instant.
  struct Counts {
    std::atomic<std::int64_t> joined = 0;   ///< since the queue was made
    std::atomic<std::int64_t> texts = 0;    ///< that wait, are written, or whose reader holds them
    std::atomic<std::int64_t> running = 0;  ///< that have a slot
    std::atomic<std::int64_t> tokens = 0;   ///< of texts that have ended
    std::atomic<std::int64_t> rounds = 0;   ///< of these
  };

  /// A queue of at most `most` texts, of which each counts until it has ended and its reader has released it:
  /// slow readers keep others out, so that a server's threads are bounded, too.
  explicit TextQueue(std::int64_t most) : most_(most) {}

  const Counts& counts() const { return counts_; }  ///< To be read by any thread.

  /// Queues a text; any thread may call it. The request's sink is replaced, and its `enter` is called by the
  /// writing thread. Throws QueueFull and QueueStopped. What BatchSpeculator::join() refuses is the text's
  /// failure.
  QueuedText join(TextRequest request) {
    const std::lock_guard lock(mutex_);
    if (stops_) throw QueueStopped("no more texts are written");
    if (counts_.texts >= most_)
      throw QueueFull("there are " + std::to_string(most_) + " texts already: try again later");
    auto text = std::make_shared<detail::SharedText>(counts_.texts);
    joined_.emplace_back(text, std::move(request));
    ++counts_.joined;
    changed_.notify_one();
    return QueuedText(std::move(text));
  }

  /// Any thread may call it: write() returns after its round, and texts that are not complete end with the
  /// failure QueueStopped.
  void stop() {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_one();
  }

  /// Writes texts until stop(), by the thread that calls it. Nothing else may use the batch meanwhile. If a
  /// pass of the target fails, all texts that are being written end with that failure.
  template <class Batch>
  void write(Batch& batch) {
    std::map<TextId, std::shared_ptr<detail::SharedText>> writing;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stops_ || !joined_.empty() || !batch.empty(); });
      if (stops_) break;
      auto joined = std::exchange(joined_, {});
      lock.unlock();
      for (auto& [text, request] : joined) begin(batch, writing, text, std::move(request));
      for (const auto& [id, text] : writing)
        if (text->left) batch.cancel(id);  // its sink is not called before its prompt has been read
      try {
        for (const TextResult& result : batch.step()) {
          counts_.tokens += result.stats.new_tokens, counts_.rounds += result.stats.rounds;
          if (const auto text = writing.extract(result.id)) text.mapped()->end(result.failure);
        }
      } catch (...) {  // no text has changed, but the next pass may fail as well
        for (const auto& [id, text] : std::exchange(writing, {}))
          batch.cancel(id), text->end(std::current_exception());
      }
      counts_.running = batch.running();
      lock.lock();
    }
    const auto stopped = [] {
      return std::make_exception_ptr(QueueStopped("the text is not complete: no more is written"));
    };
    for (const auto& [id, text] : writing) batch.cancel(id), text->end(stopped());
    for (const auto& [text, request] : std::exchange(joined_, {})) text->end(stopped());
  }

 private:
  using Text = std::shared_ptr<detail::SharedText>;

  template <class Batch>
  static void begin(Batch& batch, std::map<TextId, Text>& writing, const Text& text, TextRequest request) {
    // The batch keeps the sink of a text that has ended: it must not keep the text.
    request.sink = [weak = std::weak_ptr(text)](Tokens tokens) {
      const Text there = weak.lock();
      return there && there->add(tokens);
    };
    try {
      writing[batch.join(std::move(request))] = text;
    } catch (...) {
      text->end(std::current_exception());
    }
  }

  std::int64_t most_;
  Counts counts_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<std::pair<Text, TextRequest>> joined_;
  bool stops_ = false;
};

}  // namespace specula
