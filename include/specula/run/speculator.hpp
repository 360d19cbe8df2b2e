// Runs rounds: propose, verify, commit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../concepts.hpp"
#include "../detail/explain.hpp"
#include "../stats.hpp"

namespace specula {

/// When generation ends, besides a full cache.
struct Limits {
  std::int32_t max_new_tokens = 256;
  Tokens stop = {};  // any of these is emitted, and nothing after it
};

/// A pipeline: a verifier (the target and its rule), a drafter, a shape. Policies are values, models are
/// referenced by them. After the constructor a round allocates nothing.
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.8f}},
///                           specula::ModelDrafter{draft}, specula::Chain<>{.length = 4}};
///   specula::PhiloxChance chance{seed};
///   run.generate(prompt, {.max_new_tokens = 256}, chance, [&](specula::Tokens fresh) { ... });
template <class V, class D, class S>
class Speculator {
  static_assert(
      Verifier<V>,
      "Speculator: its first part is no Verifier: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");
  static_assert(
      Drafter<D>,
      "Speculator: its second part is no Drafter: a member is missing or has another type; it is named "
      "below, and specula/concepts.hpp lists them all");
  static_assert(detail::explain_shape<S, D>());
  static_assert(!Verifier<V> || !ProposalShape<S, D> || Lossless<V, S>,
                "Lossless<Verifier, Shape> does not hold: this rule does not keep the target's law for "
                "proposals drawn as this "
                "shape draws them. Write accept_lossy(rule) if a text of another law is what you want.");

 public:
  /// Prompts are fed to the models in pieces that begin at multiples of this, so that two prompts with a
  /// common beginning are cut alike.
  static constexpr std::int32_t kPrefillChunk = 128;

  /// Empties the models. Throws std::invalid_argument if target and drafter have different vocabularies.
  Speculator(V verifier, D drafter, S shape)
      : verifier_(std::move(verifier)),
        drafter_(std::move(drafter)),
        shape_(std::move(shape)),
        tree_(checked_vocab(verifier_, drafter_), shape_.max_nodes(),
              S::law == DraftLaw::deterministic ? 0 : shape_.max_nodes()) {
    if constexpr (requires { verifier_.reserve(1); }) verifier_.reserve(shape_.max_nodes());
    if constexpr (requires { shape_.reserve(); }) shape_.reserve();
    forget();
    if constexpr (requires { drafter_.reserve(1); }) drafter_.reserve(verifier_.room() + shape_.max_nodes());
    text_.reserve(static_cast<std::size_t>(verifier_.room()) + static_cast<std::size_t>(shape_.max_nodes()) +
                  1);
    stats_.offered.resize(static_cast<std::size_t>(shape_.max_nodes()));
    stats_.accepted.resize(stats_.offered.size());
    stats_.drafters.resize(kDrafters);
  }

  Speculator(const Speculator&) = delete;  // the last verdict lives in the verifier
  Speculator& operator=(const Speculator&) = delete;

  /// Makes `prompt` the text: target first, then the drafter that may look into it. What it shares with the
  /// last text is kept. Throws std::invalid_argument, before anything changes, on an empty prompt, a token
  /// outside the vocabulary or a prompt that the target cannot hold.
  void start(Tokens prompt) {
    if (text_.empty()) forget();  // a start() that a model broke off may have left tokens in the caches
    check_prompt(prompt);
    const detail::Stopwatch watch(stats_.prefill_seconds);
    const std::vector<Token> next(prompt.begin(), prompt.end());  // the prompt may be a part of text()
    const auto context = static_cast<std::int32_t>(next.size()) - 1;
    std::int32_t keep = 0;
    while (keep < context && keep + 1 < static_cast<std::int32_t>(text_.size()) &&
           text_[at(keep)] == next[at(keep)])
      ++keep;
    keep = keep / kPrefillChunk * kPrefillChunk;
    text_.clear();  // if a model throws below, start() has to be called again, and begins from nothing
    verifier_.truncate(keep);
    drafter_.truncate(keep);
    for (std::int32_t from = keep; from < context; from += kPrefillChunk) {
      const std::int32_t to = std::min(from + kPrefillChunk, context);
      verifier_.append(Tokens(next).subspan(at(from), at(to - from)));
      if (to < drafter_.capacity()) drafter_.sync(Tokens(next).first(at(to)), {});
    }
    text_.assign(next.begin(), next.end());
    if constexpr (requires { shape_.reset(); }) shape_.reset();
  }

  /// Drops what start() could keep: to be called when somebody else has used the models since the last round.
  void forget() {
    text_.clear();
    verifier_.truncate(0);
    drafter_.truncate(0);
  }

  /// One round. Returns the tokens that it added to text(): at least one. Throws std::length_error when the
  /// target's cache is full; if a model throws, text() and the committed context are what they were.
  template <class C>
  Tokens step(C& chance) {
    static_assert(detail::explain_chance<C, S::law == DraftLaw::shared>());
    if (text_.empty()) throw std::invalid_argument("Speculator::step: start() comes first");
    if (room() < 1)
      throw std::length_error("Speculator::step: the target's context is full, " +
                              std::to_string(text_.size() - 1) + " tokens");
    {
      const Meter meter(*this);
      const detail::Stopwatch watch(stats_.round_seconds);
      round(chance);
    }
    return Tokens(text_).last(static_cast<std::size_t>(added_));
  }

  /// start(), then rounds until a limit is met or the cache is full; each round's tokens go to sink(Tokens).
  /// Returns how many tokens were emitted. text() may hold a few more than were emitted: those that the last
  /// round accepted beyond the limit.
  template <class C, class Sink>
  std::int32_t generate(Tokens prompt, const Limits& limits, C&& chance, Sink sink) {
    static_assert(detail::explain_chance<std::remove_reference_t<C>, S::law == DraftLaw::shared>());
    start(prompt);
    std::int32_t emitted = 0;
    for (bool stopped = false; !stopped && emitted < limits.max_new_tokens && room() >= 1;) {
      Tokens fresh = step(chance);
      fresh = fresh.first(std::min(fresh.size(), at(limits.max_new_tokens - emitted)));
      const auto stop =
          std::find_first_of(fresh.begin(), fresh.end(), limits.stop.begin(), limits.stop.end());
      stopped = stop != fresh.end();
      if (stopped) fresh = fresh.first(static_cast<std::size_t>(stop - fresh.begin()) + 1);
      emitted += static_cast<std::int32_t>(fresh.size());
      sink(fresh);
    }
    return emitted;
  }

  /// Prompt and everything generated; the last token is the next round's root.
  Tokens text() const { return text_; }
  /// Nodes that the target can still hold.
  std::int32_t room() const { return verifier_.room(); }
  const Stats& stats() const { return stats_; }
  /// The last round's proposal and verdict, for those who look into it.
  const TokenTree& proposal() const { return tree_; }
  /// Throws std::logic_error before the first round, and after one that threw.
  const Verdict& verdict() const {
    if (!verdict_) throw std::logic_error("Speculator::verdict: no round has ended");
    return *verdict_;
  }
  V& verifier() { return verifier_; }
  D& drafter() { return drafter_; }
  S& shape() { return shape_; }
  const S& shape() const { return shape_; }

 private:
  static constexpr std::size_t kDrafters = [] {
    if constexpr (requires { D::kMembers; }) return D::kMembers;
    return std::size_t{1};
  }();

  /// Books what the models take during its life, also when a round throws.
  class Meter {
   public:
    explicit Meter(Speculator& run) : run_(run), target_(usage(run.verifier_)), drafters_(run.drafters()) {}
    ~Meter() {
      run_.stats_.target += usage(run_.verifier_) - target_;
      const std::array<Usage, kDrafters> now = run_.drafters();
      for (std::size_t i = 0; i < kDrafters; ++i) {
        const Usage spent = now[i] - drafters_[i];
        run_.stats_.drafters[i] += spent;
        run_.stats_.draft += spent;
      }
    }
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

   private:
    Speculator& run_;
    Usage target_;
    std::array<Usage, kDrafters> drafters_;
  };

  template <class C>
  void round(C& chance) {
    const Timing before{usage(verifier_), usage(drafter_)};
    const Tokens context = Tokens(text_).first(text_.size() - 1);
    const auto size = static_cast<std::int32_t>(context.size());
    const std::int32_t fits =
        std::min({shape_.max_nodes(), verifier_.room(), std::max(1, drafter_.capacity() - size)});
    verdict_ = nullptr;
    tree_.reset(text_.back(), size, fits);
    if (drafter_.capacity() > size && fits > 1)
      shape_.propose(drafter_, Round{context, verifier_.params(), fits}, tree_, chance);
    if (tree_.size() > 1 && !covers(S::law, tree_.law()))
      throw std::logic_error("Speculator: the shape drew its proposal in another way than its law declares");
    verdict_ = &(verifier_.verify)(tree_, chance);
    added_ = static_cast<std::int32_t>(verdict_->path.size());
    for (std::size_t i = 1; i < verdict_->path.size(); ++i) text_.push_back(tree_.token(verdict_->path[i]));
    text_.push_back(verdict_->next);
    record();
    if constexpr (requires { shape_.learn(tree_, *verdict_); })
      shape_.learn(tree_, *verdict_);
    else if constexpr (requires { shape_.learn(tree_, *verdict_, before); })
      shape_.learn(tree_, *verdict_,
                   Timing{usage(verifier_) - before.target, usage(drafter_) - before.draft});
  }

  void record() {
    ++stats_.rounds;
    stats_.new_tokens += added_;
    stats_.proposed += tree_.size() - 1;
    const auto depth = static_cast<std::size_t>(verdict_->accepted());
    for (std::size_t d = 0; d < depth; ++d) ++stats_.offered[d], ++stats_.accepted[d];
    if (tree_.first_child(verdict_->path.back()) != kNoParent) ++stats_.offered[depth];
  }

  void check_prompt(Tokens prompt) const {
    if (prompt.empty())
      throw std::invalid_argument("Speculator::start: the prompt is empty; it needs at least one token");
    for (std::size_t i = 0; i < prompt.size(); ++i)
      if (prompt[i] < 0 || prompt[i] >= tree_.vocab())
        throw std::invalid_argument("Speculator::start: prompt token " + std::to_string(i) + " is " +
                                    std::to_string(prompt[i]) + ", the vocabulary has " +
                                    std::to_string(tree_.vocab()) + " tokens");
    const std::size_t held = text_.empty() ? 0 : text_.size() - 1;
    const std::size_t capacity = held + static_cast<std::size_t>(std::max(0, verifier_.room()));
    if (prompt.size() > capacity)
      throw std::invalid_argument("Speculator::start: the prompt has " + std::to_string(prompt.size()) +
                                  " tokens, the target holds " + std::to_string(capacity));
  }
  static std::int32_t checked_vocab(const V& verifier, const D& drafter) {
    if (verifier.vocab_size() != drafter.vocab_size())
      throw std::invalid_argument("Speculator: the target's vocabulary has " +
                                  std::to_string(verifier.vocab_size()) + " tokens, the drafter's " +
                                  std::to_string(drafter.vocab_size()));
    return verifier.vocab_size();
  }
  template <class Policy>
  static Usage usage(const Policy& policy) {
    if constexpr (requires { policy.usage(); }) return policy.usage();
    return {};
  }
  std::array<Usage, kDrafters> drafters() const {
    std::array<Usage, kDrafters> all;
    for (std::size_t i = 0; i < kDrafters; ++i) {
      if constexpr (requires { drafter_.usage(i); })
        all[i] = drafter_.usage(i);
      else
        all[i] = usage(drafter_);
    }
    return all;
  }
  static std::size_t at(std::int32_t n) { return static_cast<std::size_t>(n); }

  V verifier_;
  D drafter_;
  S shape_;
  TokenTree tree_;
  std::vector<Token> text_;
  const Verdict* verdict_ = nullptr;
  std::int32_t added_ = 0;
  Stats stats_;
};

}  // namespace specula
