// SPDX-License-Identifier: MIT
// generate(): limits, stop tokens, sinks and why a text ends, over a run whose rounds are scripted.
#include <specula/run/generate.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/distribution/random_source.hpp>

using namespace specula;

namespace {

using List = std::vector<Token>;

/// Emits 10, 11, 12, ... in rounds of the given sizes, until its room is used.
class Scripted {
 public:
  explicit Scripted(std::vector<std::int32_t> rounds) : rounds_(std::move(rounds)) {}
  std::int32_t vocab_size() const { return 100; }
  void start(Tokens prompt) {
    expect_no_sink();
    prompts.emplace_back(prompt.begin(), prompt.end());
    round_ = 0;
    next_ = 10;
  }
  std::int32_t room() const { return static_cast<std::int32_t>(rounds_.size() - round_); }
  Tokens step(PhiloxRandom&, Tokens stop) {
    expect_no_sink();
    ends.assign(stop.begin(), stop.end());
    fresh_.clear();
    for (std::int32_t i = 0; i < rounds_[round_]; ++i) fresh_.push_back(next_++);
    ++round_;
    emitted_ = static_cast<std::int32_t>(fresh_.size());
    return fresh_;
  }
  void count_emitted(std::int32_t n) {
    REQUIRE(n <= emitted_);
    emitted_ = n;
  }
  std::int32_t emitted() const { return emitted_; }
  struct Inside {
    explicit Inside(bool& flag) : in(flag) { in = true; }
    ~Inside() { in = false; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    bool& in;
  };
  Inside enter_sink() { return Inside(in_sink_); }

  std::vector<List> prompts;  // of all texts
  List ends;                  // where the last round's draft was to end

 private:
  void expect_no_sink() const {
    if (in_sink_) throw std::logic_error("within the sink");
  }
  std::vector<std::int32_t> rounds_;
  std::size_t round_ = 0;
  Token next_ = 10;
  List fresh_;
  std::int32_t emitted_ = 0;
  bool in_sink_ = false;
};
static_assert(TextRun<Scripted, PhiloxRandom>);
static_assert(!TextRun<Scripted, int>);  // no random source of its step()

const List kPrompt{1, 2};

/// The text of a new run, its number of tokens and why it ended; all must agree.
struct Text {
  List tokens;
  FinishReason reason;
  bool operator==(const Text&) const = default;
};
template <class Ends>
Text text(const Limits& limits, Ends ends) {
  Scripted run({4, 2, 3});  // 10 to 13, 14 and 15, 16 to 18
  Text out{{}, {}};
  const Generated done = generate(run, kPrompt, limits, PhiloxRandom(1), [&](Tokens fresh) {
    CHECK(!fresh.empty());
    CHECK(run.emitted() == static_cast<std::int32_t>(fresh.size()));
    CHECK(std::equal(run.ends.begin(), run.ends.end(), limits.stop.begin(), limits.stop.end()));
    const bool goes_on = ends(run, fresh);
    out.tokens.insert(out.tokens.end(), fresh.begin(), fresh.begin() + run.emitted());
    return goes_on;
  });
  CHECK(done.tokens == static_cast<std::int32_t>(out.tokens.size()));
  CHECK(run.prompts == std::vector<List>{kPrompt});
  out.reason = done.reason;
  return out;
}
const auto kNever = [](Scripted&, Tokens) { return true; };

List upto(Token last) {
  List tokens;
  for (Token token = 10; token <= last; ++token) tokens.push_back(token);
  return tokens;
}

}  // namespace

TEST_CASE("every limit, and every token as the stop token: what is emitted, and why it ends") {
  for (std::int32_t n = 0; n <= 12; ++n)
    for (Token stop = 9; stop <= 19; ++stop) {
      CAPTURE(n);
      CAPTURE(stop);
      const bool comes = stop >= 10 && stop <= 18;  // within the room
      const Text got = text({.max_new_tokens = n, .stop = {&stop, 1}}, kNever);
      if (comes && stop < 10 + n)  // the stop token, although it may be the last that is allowed
        CHECK(got == Text{upto(stop), FinishReason::stop_token});
      else if (n <= 9)
        CHECK(got == Text{upto(9 + n), FinishReason::limit});
      else
        CHECK(got == Text{upto(18), FinishReason::context_full});
    }
}

TEST_CASE("a sink that returns false cancels, unless the text ends there anyway") {
  const auto after = [](int rounds) {
    return [left = rounds](Scripted&, Tokens) mutable { return --left > 0; };
  };
  CHECK(text({}, after(1)) == Text{upto(13), FinishReason::cancelled});
  CHECK(text({}, after(2)) == Text{upto(15), FinishReason::cancelled});
  CHECK(text({}, after(3)) == Text{upto(18), FinishReason::cancelled});  // and the room is used
  CHECK(text({.max_new_tokens = 4}, after(1)) == Text{upto(13), FinishReason::limit});
  const Token stop = 13;
  CHECK(text({.stop = {&stop, 1}}, after(1)) == Text{upto(13), FinishReason::stop_token});
}

TEST_CASE("a sink that finds the end within its tokens: the others are not emitted, whatever it returns") {
  for (const bool goes_on : {true, false})
    for (Token last = 9; last <= 18; ++last) {
      CAPTURE(goes_on);
      CAPTURE(last);
      const auto ends = [&](Scripted& run, Tokens fresh) {
        const auto keep = std::max(0, last + 1 - fresh.front());
        if (keep >= static_cast<std::int32_t>(fresh.size())) return fresh.back() != last || goes_on;
        run.count_emitted(keep);
        return goes_on;
      };
      const bool cuts = last != 13 && last != 15 && last != 18;  // these are the last of their round
      const Text got = text({}, ends);
      if (cuts)
        CHECK(got == Text{upto(last), FinishReason::cancelled});
      else if (!goes_on)
        CHECK(got == Text{upto(last), FinishReason::cancelled});
      // The stop token after the end does not count.
      const Token stop = 16;
      if (cuts && last < stop)
        CHECK(text({.stop = {&stop, 1}}, ends) == Text{upto(last), FinishReason::cancelled});
    }
}

TEST_CASE("a sink that returns nothing, and one that throws or calls its run") {
  Scripted run({4, 2, 3});
  List seen;
  CHECK(generate(run, kPrompt, {.max_new_tokens = 6}, PhiloxRandom(1), [&](Tokens fresh) {
          seen.insert(seen.end(), fresh.begin(), fresh.end());
        }) == Generated{6, FinishReason::limit});
  CHECK(seen == upto(15));
  PhiloxRandom rng(1);
  CHECK_THROWS_WITH(generate(run, kPrompt, {}, rng, [](Tokens) { throw std::runtime_error("no"); }), "no");
  CHECK_THROWS_WITH(generate(run, kPrompt, {}, rng, [&](Tokens) { run.step(rng, {}); }), "within the sink");
  CHECK_THROWS_WITH(generate(run, kPrompt, {}, rng, [&](Tokens) { run.start(kPrompt); }), "within the sink");
  CHECK_NOTHROW(run.step(rng, {}));
}

TEST_CASE("limits are checked before anything changes") {
  Scripted run({1});
  const Token outside = 100;
  CHECK_THROWS_WITH_AS(generate(run, kPrompt, {.max_new_tokens = -1}, PhiloxRandom(1), [](Tokens) {}),
                       "Limits::max_new_tokens is -1, must be in [0, 2147483647]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(generate(run, kPrompt, {.stop = {&outside, 1}}, PhiloxRandom(1), [](Tokens) {}),
                       "Limits::stop[0] is 100, must be in [0, 99]", std::invalid_argument);
  CHECK(run.prompts.empty());
}
