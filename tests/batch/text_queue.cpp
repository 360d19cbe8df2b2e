// SPDX-License-Identifier: MIT
// labels: threads
// TextQueue: texts of many threads are those of the batch alone, also beside readers that leave, refused
// requests, failed passes and the end of the queue.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/batch/text_queue.hpp>
#include <specula/specula.hpp>

#include "thread_sanitizer.hpp"
#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;

namespace {

constexpr std::int32_t kSlots = 3, kVocab = 5;

TextRequest request(std::uint64_t number, std::int32_t tokens = 20) {
  TextRequest one;
  one.prompt = {static_cast<Token>(number % kVocab), 1, 2};
  one.max_new_tokens = tokens;
  one.seed = number;
  return one;
}

/// A queue and the thread that writes its texts.
class Server {
 public:
  explicit Server(std::int64_t most, std::int64_t failing_pass = -1, std::int32_t capacity = 64)
      : queue(most), target(kSlots, kVocab, 7, 1000, capacity) {
    target.throw_pass = failing_pass;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) slots_.emplace_back(target, slot);
    writer_ = std::thread([this] {
      BatchSpeculator batch{kSlots,
                            [this](std::int32_t slot) {
                              return Speculator{
                                  TreeVerifier{slots_[static_cast<std::size_t>(slot)], Sampling{}},
                                  MaxGram{kVocab}, Chain<>{.length = 2}};
                            },
                            target};
      queue.write(batch);
    });
  }
  ~Server() {
    queue.stop();
    if (writer_.joinable()) writer_.join();
  }
  TextQueue queue;
  ToyBatch target;

 private:
  std::deque<SlotOf<ToyBatch>> slots_;
  std::thread writer_;
};

/// A whole text. Throws its failure.
std::vector<Token> read(QueuedText text) {
  std::vector<Token> all;
  while (true) {
    const TextPart part = text.next();
    all.insert(all.end(), part.tokens.begin(), part.tokens.end());
    if (part.failure) std::rethrow_exception(part.failure);
    if (part.ended) return all;
    CHECK(!part.tokens.empty());
  }
}

/// Waits for something that another thread does.
bool soon(const std::function<bool()>& true_soon) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!true_soon() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true_soon();
}

}  // namespace

TEST_CASE("each of many threads reads the text that it would read alone") {
  constexpr std::size_t kTexts = 24;
  Server server(2 * kTexts);  // texts whose readers have left count until the next round
  std::vector<std::vector<Token>> alone, beside(kTexts);
  for (std::uint64_t i = 0; i < kTexts; ++i) alone.push_back(read(server.queue.join(request(i))));
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < kTexts; ++i)
    readers.emplace_back([&, i] {
      if (i % 4 == 3) server.queue.join(request(100 + i, 50)).next();  // and leaves
      beside[i] = read(server.queue.join(request(i)));
    });
  for (std::thread& reader : readers) reader.join();
  CHECK(beside == alone);
  CHECK(alone[0].size() == 20);
  CHECK(soon([&] { return server.queue.counts().texts == 0; }));
  CHECK(server.queue.counts().joined == 2 * kTexts + kTexts / 4);
  CHECK(server.queue.counts().tokens >= 2 * 20 * static_cast<std::int64_t>(kTexts));
  CHECK(server.queue.counts().rounds > 0);
}

TEST_CASE("a full queue refuses texts until a reader has released one that has ended") {
  Server server(2);
  std::optional<QueuedText> first = server.queue.join(request(1));
  const QueuedText second = server.queue.join(request(2));
  CHECK_THROWS_WITH_AS(server.queue.join(request(3)), "there are 2 texts already: try again later",
                       QueueFull);
  while (!first->next().ended) {
  }
  const TextPart after = first->next(std::chrono::milliseconds(1));
  CHECK(after.ended);
  CHECK(after.tokens.empty());
  CHECK_THROWS_AS(server.queue.join(request(3)), QueueFull);
  first.reset();
  CHECK(soon([&] { return server.queue.counts().texts == 1; }));
  CHECK(read(server.queue.join(request(3))).size() == 20);
}

TEST_CASE("a text whose reader leaves ends, whether it is written or waits") {
  Server server(2 * kSlots, -1, 1 << 16);
  {
    std::vector<QueuedText> texts;
    for (std::uint64_t i = 0; i < 2 * kSlots; ++i) texts.push_back(server.queue.join(request(i, 60000)));
    texts.front().next();
    CHECK(texts.back().next(std::chrono::milliseconds(0)).tokens.empty());  // it waits for a slot
  }
  CHECK(soon([&] { return server.queue.counts().texts == 0; }));
  CHECK(server.queue.counts().tokens < 60000);
}

// Not under the thread sanitizer, which does not see how libstdc++ counts the references to an exception.
UNTHREADED_TEST_CASE("a request that the batch refuses fails alone") {
  Server server(4);
  TextRequest wrong = request(1);
  wrong.params.temperature = -1;
  CHECK_THROWS_AS(read(server.queue.join(wrong)), std::invalid_argument);
  TextRequest long_prompt = request(1);
  long_prompt.prompt.assign(1000, 1);
  CHECK_THROWS_AS(read(server.queue.join(long_prompt)), std::invalid_argument);
  CHECK(read(server.queue.join(request(2))).size() == 20);
}

UNTHREADED_TEST_CASE("a failed pass fails the texts that are written, and no later one") {
  Server server(4, 4);
  CHECK_THROWS_WITH(read(server.queue.join(request(1))), "the pass failed");
  CHECK(soon([&] { return server.queue.counts().texts == 0; }));
  CHECK(read(server.queue.join(request(1))).size() == 20);
}

TEST_CASE("stop() ends texts that are not complete") {
  Server server(4, -1, 1 << 16);
  std::vector<QueuedText> texts;
  for (std::uint64_t i = 0; i < 4; ++i) texts.push_back(server.queue.join(request(i, 60000)));
  texts.front().next();
  server.queue.stop();
  for (QueuedText& text : texts) CHECK_THROWS_AS(read(std::move(text)), QueueStopped);
  CHECK_THROWS_AS(server.queue.join(request(5)), QueueStopped);
}
