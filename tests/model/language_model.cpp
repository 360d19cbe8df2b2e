// SPDX-License-Identifier: MIT
// What a language model is, and what makes it one that can more: no member is optional.
#include <specula/model/language_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <specula/base/stopwatch.hpp>

using namespace specula;

namespace {

enum { kNone, kVocabSize, kSize, kCapacity, kAppend, kExtend, kCommit, kTruncate, kModelEnd };

/// A language model without one member.
template <int without>
struct Model {
  std::int32_t vocab_size() const requires(without != kVocabSize) { return 2; }
  std::int32_t size() const requires(without != kSize) { return 0; }
  std::int32_t capacity() const requires(without != kCapacity) { return 1; }
  void append(Tokens) requires(without != kAppend) {}
  LogitsView extend(Tokens, Nodes) requires(without != kExtend) { return {}; }
  void commit(Nodes) requires(without != kCommit) {}
  void truncate(std::int32_t) requires(without != kTruncate) {}
};
using Whole = Model<kNone>;

/// Whether f(i) is true for each i in [1, end).
template <int end>
constexpr bool true_of_each(auto f) {
  return [&]<int... i>(std::integer_sequence<int, i...>) {
    return (f(std::integral_constant<int, i + 1>{}) && ...);
  }
  (std::make_integer_sequence<int, end - 1>{});
}
static_assert(LanguageModel<Whole>);
static_assert(true_of_each<kModelEnd>([](auto i) { return !LanguageModel<Model<i>>; }));

// A member of another type is none.
struct WideSize : Whole {
  std::int64_t size() const { return 0; }
};
struct CapacityNotConst : Whole {
  std::int32_t capacity() { return 0; }
};
struct OwnsRows : Whole {
  int extend(Tokens, Nodes) { return 0; }
};
static_assert(!LanguageModel<WideSize> && !LanguageModel<CapacityNotConst> && !LanguageModel<OwnsRows>);
static_assert(!LanguageModel<int> && !LanguageModel<const Whole>);

// What a model may have besides is nothing without the rest of a model.
template <class M>
struct Counts : M {
  std::uint64_t change_count() const { return 0; }
};
template <class M>
struct Keeps : M {
  LogitsView raw_rows() const { return {}; }
};
template <class M>
struct Timed : M {
  std::optional<double> seconds;
  std::optional<double> pass_seconds() const { return seconds; }
};
static_assert(CountsChanges<Counts<Whole>> && !CountsChanges<Whole> &&
              !CountsChanges<Counts<Model<kAppend>>>);
static_assert(KeepsRawRows<Keeps<Whole>> && !KeepsRawRows<Whole> && !KeepsRawRows<Keeps<Model<kAppend>>>);
template <class M>
struct Told : M {
  void set_context(std::int32_t) {}
};
static_assert(TakesContext<Told<Whole>> && !TakesContext<Whole> && !TakesContext<Told<Model<kAppend>>>);
static_assert(TimesItself<Timed<Whole>> && !TimesItself<Whole> && !TimesItself<Timed<Model<kAppend>>>);
struct CountsInInts : Whole {
  std::int32_t change_count() const { return 0; }
};
static_assert(!CountsChanges<CountsInInts>);

enum { kLayers = 1, kNodeCount, kExtendSkipping, kSimilarity, kSkipsEnd };
template <int without>
struct Skips : Whole {
  std::int32_t layers() const requires(without != kLayers) { return 3; }
  std::int32_t node_count() const requires(without != kNodeCount) { return 0; }
  LogitsView extend_skipping(Tokens, Nodes, const SkippedBlocks&) requires(without != kExtendSkipping) {
    return {};
  }
  std::span<const double> attention_similarity() requires(without != kSimilarity) { return {}; }
};
static_assert(SkipsLayers<Skips<kNone>>);
static_assert(true_of_each<kSkipsEnd>([](auto i) { return !SkipsLayers<Skips<i>>; }));

enum { kExits = 1, kLayersTo, kExtendToExit, kResumeToExit, kExitsEnd };
template <int without>
struct Exits : Whole {
  std::int32_t exits() const requires(without != kExits) { return 2; }
  std::int32_t layers_to(std::int32_t exit) const requires(without != kLayersTo) { return 2 * exit + 3; }
  LogitsView extend_to_exit(Tokens, Nodes, std::int32_t) requires(without != kExtendToExit) { return {}; }
  LogitsView resume_to_exit(std::span<const std::int32_t>, std::int32_t) requires(without != kResumeToExit) {
    return {};
  }
};
static_assert(ExitsEarly<Exits<kNone>>);
static_assert(true_of_each<kExitsEnd>([](auto i) { return !ExitsEarly<Exits<i>>; }));

struct Wraps : Whole {
  const void* wrapped = nullptr;
  const void* cache_id() const { return wrapped; }
};

}  // namespace

TEST_CASE("a model's cache has its own name, or that of the model that it wraps") {
  const Whole model;
  CHECK(detail::cache_of(model) == &model);
  Wraps wrapper;
  wrapper.wrapped = &model;
  CHECK(detail::cache_of(wrapper) == &model);
}

TEST_CASE("layers are those of one full pass, where a model can run less") {
  CHECK(detail::layers_of(Whole{}) == 0);
  CHECK(detail::layers_of(Skips<kNone>{}) == 3);
  CHECK(detail::layers_of(Exits<kNone>{}) == 5);
}

TEST_CASE("passes take what the model says, and wait for the rest; without its word they take wall time") {
  const auto wait = [](double until) {
    while (detail::monotonic_seconds() < until) continue;
  };
  Timed<Whole> model;
  Usage usage{.seconds = 1};
  model.seconds = 10;
  double before = detail::monotonic_seconds();
  {
    const detail::PassWatch watch(model, usage);
    model.seconds = 10.002;
    wait(before + 0.004);
  }
  CHECK(usage.seconds == doctest::Approx(1.002));
  CHECK(usage.waited_seconds >= 0.0015);
  CHECK(usage.waited_seconds <= detail::monotonic_seconds() - before);
  const double waited = usage.waited_seconds;
  {
    const detail::PassWatch watch(model, usage, 9.0);  // others ran it, and it waited for their texts
    model.seconds = 12.5;
    wait(detail::monotonic_seconds() + 0.001);
  }
  CHECK(usage.seconds == doctest::Approx(4.502));
  CHECK(usage.waited_seconds == waited);
  model.seconds.reset();
  usage = {};
  before = detail::monotonic_seconds();
  {
    const detail::PassWatch watch(model, usage);
    wait(before + 0.001);
  }
  CHECK(usage.seconds > 0.0009);
  CHECK(usage.seconds <= detail::monotonic_seconds() - before + 1e-9);
  CHECK(usage.waited_seconds < 0.1 * usage.seconds);
}

TEST_CASE("each state that a draft may read has a name for messages") {
  CHECK(name_of(Conditioning::nothing) == std::string_view("nothing"));
  CHECK(name_of(Conditioning::key_values) == std::string_view("keys and values"));
  CHECK(name_of(Conditioning::features) == std::string_view("features"));
}
