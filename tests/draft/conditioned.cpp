// SPDX-License-Identifier: MIT
// Drafters conditioned on the target (Glide, FeatureHead): which nodes are kept, dropped and recomputed.
#include <specula/draft/conditioned.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conditioned_models.hpp"
#include "random_rounds.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 4;
using List = std::vector<Token>;

struct GlideKind {
  using Draft = ToyGlide;
  static Glide<ToyGlide, SeenModel> make(ToyGlide& draft, SeenModel& target) { return {draft, target}; }
  static std::string name() { return "Glide"; }
};
struct HeadKind {
  using Draft = ToyHead;
  static FeatureHead<ToyHead, SeenModel> make(ToyHead& draft, SeenModel& target) { return {draft, target}; }
  static std::string name() { return "FeatureHead"; }
};

bool same(std::span<const float> row, const List& text, std::int32_t view_size, const auto& draft) {
  const std::vector<float> want = draft.row(text, view_size);
  return std::equal(want.begin(), want.end(), row.begin(), row.end());
}

/// Brings the target to the text, by commits or appends, with the same result.
void follow(SeenModel& target, const List& text, Random& random) {
  std::int32_t same = 0;
  while (same < target.size() && static_cast<std::size_t>(same) < text.size() &&
         target.cache()[static_cast<std::size_t>(same)] == text[static_cast<std::size_t>(same)])
    ++same;
  target.truncate(same);
  const Tokens rest = Tokens(text).subspan(static_cast<std::size_t>(same));
  if (random.bernoulli(0.5)) return target.append(rest);
  std::vector<NodeId> parents, path;
  for (NodeId n = 0; static_cast<std::size_t>(n) < rest.size(); ++n)
    parents.push_back(n - 1), path.push_back(n);
  target.extend(rest, parents);
  target.commit(path);
}

}  // namespace

TEST_CASE_TEMPLATE(
    "after any accepted tokens and errors, rows are those of a new draft whose context was computed with the "
    "target's current state",
    Kind, GlideKind, HeadKind) {
  int thrown = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SeenModel target(kVocab, 1, 2.0f, 500);
    typename Kind::Draft draft(kVocab, 1, 1.0f, seed % 2 == 0, 500);
    auto drafter = Kind::make(draft, target);
    Random random(seed);
    List context, draft_tokens;
    DraftNodes nodes;
    // Sometimes a model's call throws; then it is repeated.
    const auto careful = [&](auto call) {
      if (random.bernoulli(0.1)) draft.throw_view = draft.view_calls + 1;
      if (random.bernoulli(0.1)) target.throw_view = target.view_calls + 1;
      if (random.bernoulli(0.1)) draft.model.throw_append = draft.model.appends + 1 + random.below(2);
      if (random.bernoulli(0.1)) draft.model.throw_call = draft.model.calls + 1;
      for (bool done = false; !done;) {
        try {
          call();
          done = true;
        } catch (const std::runtime_error&) {
          ++thrown;
        }
        draft.throw_view = target.throw_view = draft.model.throw_append = draft.model.throw_call = -1;
      }
    };
    for (int round = 0; round < 50; ++round) {
      go_on(context, draft_tokens, nodes, drafter, random, kVocab, 0.06);
      follow(target, context, random);
      // Draft tokens of a round: first the last round's, then longer and different ones.
      for (int turn = 1 + random.below(3); turn > 0; --turn) {
        if (random.bernoulli(0.3)) draft_tokens.resize(draft_tokens.size() - draft_tokens.size() / 2);
        for (int i = random.below(4); i > 0; --i) draft_tokens.push_back(random.below(kVocab));
        if (random.bernoulli(0.2)) draft_tokens.clear();
        nodes = {};
        for (bool done = false; !done;) {
          try {
            careful([&] { drafter.sync(context, draft_tokens); });
            REQUIRE(draft.model.cache() == joined(context, draft_tokens));
            nodes = {};
            for (int call = random.below(3); call > 0; --call) {
              const DraftNodes more = nodes.grow(random, kVocab);
              if (random.bernoulli(0.1)) draft.model.throw_call = draft.model.calls + 1;
              const LogitsView rows = drafter.extend(more.token, more.parent);
              for (std::size_t i = 0; i < more.token.size(); ++i)
                REQUIRE(
                    same(rows.row(static_cast<std::int32_t>(i)),
                         joined(joined(context, draft_tokens),
                                nodes.path(static_cast<NodeId>(nodes.token.size() - more.token.size() + i))),
                         static_cast<std::int32_t>(context.size()), draft));
            }
            done = true;
          } catch (const std::runtime_error&) {  // of extend(): a sync repairs it
            ++thrown;
            draft.model.throw_call = -1;
          }
        }
      }
      if (context.size() > 400) break;
    }
  }
  CHECK(thrown > 500);
}

TEST_CASE_TEMPLATE(
    "accepted tokens are recomputed once the target has their state; other draft tokens are dropped", Kind,
    GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft draft(kVocab, 1);
  auto drafter = Kind::make(draft, target);
  const List prompt = {1, 2, 3};
  target.append(prompt);
  drafter.sync(prompt, {});
  CHECK(draft.seen.empty());  // it is lazy
  // 0 is the root; below it the chain 1 - 2, and 3, a sibling of 1.
  drafter.extend(List{0, 1, 2, 3}, std::vector<NodeId>{-1, 0, 1, 0});
  CHECK(draft.seen == std::vector<Observation>{{1, 0, 3, false},
                                               {2, 1, 3, false},
                                               {3, 2, 3, false},
                                               {0, 3, 3, true},
                                               {1, 4, 3, true},
                                               {2, 5, 3, true},
                                               {3, 4, 3, true}});
  CHECK(drafter.usage().calls == 1);
  CHECK(drafter.usage().nodes == 4);

  // 0 and 1 are accepted; they saw 3 of the target's tokens, and now see 5.
  target.append(List{0, 1});
  draft.seen.clear();
  const List context = {1, 2, 3, 0, 1};
  drafter.sync(context, {});
  CHECK(draft.model.cache() == context);
  const LogitsView rows = drafter.extend(List{3}, std::vector<NodeId>{-1});
  CHECK(draft.seen == std::vector<Observation>{{0, 3, 5, false}, {1, 4, 5, false}, {3, 5, 5, true}});
  CHECK(same(rows.row(0), {1, 2, 3, 0, 1, 3}, 5, draft));
  CHECK(!same(rows.row(0), {1, 2, 3, 0, 1, 3}, 3, draft));  // its row if they had been kept

  // Draft tokens are computed when drafted or fed, and recomputed once they are context. The first of them is
  // the root.
  draft.seen.clear();
  drafter.sync(context, List{3, 2});
  drafter.extend(List{1}, std::vector<NodeId>{-1});
  CHECK(draft.seen ==
        std::vector<Observation>{{2, 6, 5, false}, {1, 7, 5, true}});  // 3 was drafted in this round
  target.append(List{3, 2, 1});
  draft.seen.clear();
  drafter.sync(joined(context, {3, 2, 1}), {});
  drafter.extend(List{0}, std::vector<NodeId>{-1});
  CHECK(draft.seen ==
        std::vector<Observation>{{3, 5, 8, false}, {2, 6, 8, false}, {1, 7, 8, false}, {0, 8, 8, true}});
  CHECK(drafter.usage().calls == 4);
  CHECK(drafter.usage().nodes == 7);
  CHECK(drafter.usage().seconds > 0);
}

TEST_CASE("a draft whose KV cache does not depend on the target keeps accepted nodes") {
  struct Keeping : ToyGlide {
    using ToyGlide::ToyGlide;
    bool keeps_speculation() const { return keeps; }
    bool keeps = true;
  };
  for (const bool keeps : {true, false}) {
    SeenModel target(kVocab, 1);
    Keeping draft(kVocab, 1);
    draft.keeps = keeps;
    Glide drafter{draft, target};
    const List prompt = {1, 2, 3};
    target.append(prompt);
    drafter.sync(prompt, {});
    drafter.extend(List{0, 1, 2, 3}, std::vector<NodeId>{-1, 0, 1, 0});
    target.append(List{0, 1, 1});
    draft.seen.clear();
    drafter.sync(List{1, 2, 3, 0, 1, 1}, {});
    drafter.extend(List{3}, std::vector<NodeId>{-1});
    CHECK(draft.model.cache() == List{1, 2, 3, 0, 1, 1});
    CHECK(draft.seen.size() == (keeps ? 2 : 4));  // one that was not drafted, and the root
    CHECK(draft.seen.back() == Observation{3, 6, 6, true});
  }
}

TEST_CASE_TEMPLATE("several syncs in a round: draft tokens shared with the last sync are not recomputed",
                   Kind, GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft draft(kVocab, 1, 1.0f, false);
  auto drafter = Kind::make(draft, target);
  const List context = {1, 2, 3};
  target.append(context);
  const auto ran = [&](const List& draft_tokens) {
    draft.seen.clear();
    drafter.sync(context, draft_tokens);
    REQUIRE(draft.model.cache() == joined(context, draft_tokens));
    const std::vector<Observation> seen = draft.seen;
    CHECK(same(drafter.extend(List{1}, std::vector<NodeId>{-1}).row(0),
               joined(joined(context, draft_tokens), {1}), 3, draft));
    return seen;
  };
  CHECK(ran({}).size() == 3);
  CHECK(ran({}).empty());
  CHECK(ran({0, 1}) == std::vector<Observation>{{0, 3, 3, false}, {1, 4, 3, false}});
  CHECK(ran({0, 1}).empty());
  CHECK(ran({0, 1, 2}) == std::vector<Observation>{{2, 5, 3, false}});
  CHECK(ran({0, 2, 2}) == std::vector<Observation>{{2, 4, 3, false}, {2, 5, 3, false}});
  CHECK(ran({0}).empty());
  CHECK(ran({0, 2}).size() == 1);  // it was dropped completely
  CHECK(ran({}).empty());
  CHECK(ran({0}).size() == 1);
}

TEST_CASE_TEMPLATE("a prompt in pieces, and a second prompt with a common prefix", Kind, GlideKind,
                   HeadKind) {
  for (const bool lazy : {false, true}) {
    CAPTURE(lazy);
    SeenModel target(kVocab, 1);
    typename Kind::Draft draft(kVocab, 1, 1.0f, lazy);
    auto drafter = Kind::make(draft, target);
    const auto prefill = [&](const List& prompt, std::size_t from) {
      draft.seen.clear();
      for (std::size_t to = from; to < prompt.size();) {
        const std::size_t next = std::min(to + 4, prompt.size());
        target.append(Tokens(prompt).subspan(to, next - to));
        drafter.sync(Tokens(prompt).first(to = next), {});
      }
      const LogitsView rows = drafter.extend(List{1}, std::vector<NodeId>{-1});
      CHECK(same(rows.row(0), joined(prompt, {1}), static_cast<std::int32_t>(prompt.size()), draft));
      for (std::size_t i = 0; i < draft.seen.size(); ++i)
        CHECK(draft.seen[i].view_size >= draft.seen[i].position);  // nothing that it saw has changed
      return draft.seen.size() - 1;
    };
    CHECK(prefill({1, 2, 3, 0, 1, 2, 3, 0, 1}, 0) == 9);
    target.truncate(5);
    drafter.truncate(5);
    CHECK(draft.model.cache() == List{1, 2, 3, 0, 1});
    CHECK(prefill({1, 2, 3, 0, 1, 0, 0}, 5) == 2);
    target.truncate(0);
    drafter.truncate(0);
    CHECK(prefill({3, 3}, 0) == 2);
    // Truncating beyond its size drops what was not context.
    drafter.sync(List{3, 3}, List{2, 1});
    drafter.truncate(3);
    CHECK(draft.model.cache() == List{3, 3});
  }
}

TEST_CASE_TEMPLATE("contexts that do not fit are errors that change nothing", Kind, GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft draft(kVocab, 1);
  auto drafter = Kind::make(draft, target);
  CHECK(drafter.vocab_size() == kVocab);
  CHECK(drafter.capacity() == 64);
  target.append(List{1, 2, 3});
  drafter.sync(List{1, 2, 3}, List{0});
  const std::int64_t view_calls = target.view_calls;
  CHECK_THROWS_WITH_AS(
      drafter.sync(List{1, 2}, {}),
      (Kind::name() + "::sync: a context of 2 tokens after one of 3; truncate first").c_str(),
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      drafter.sync(List{1, 2, 3, 0}, {}),
      (Kind::name() + "::sync: a context of 4 tokens, but the target holds 3; bring the target "
                      "there first")
          .c_str(),
      std::logic_error);
  target.append(List{1, 0});
  CHECK_THROWS_WITH_AS(
      drafter.sync(List{1, 2, 3, 1}, {}),
      (Kind::name() + "::sync: a context of 4 tokens, but the target holds 5; bring the target "
                      "there first")
          .c_str(),
      std::logic_error);
  CHECK(draft.model.cache() == List{1, 2, 3, 0});
  CHECK(target.view_calls == view_calls);
  drafter.sync(List{1, 2, 3, 1, 0}, {});
  CHECK(draft.model.cache() == List{1, 2, 3, 1, 0});
  drafter.truncate(2);
  target.truncate(2);
  drafter.sync(List{1, 2}, {});
  CHECK(draft.model.cache() == List{1, 2});
}

TEST_CASE_TEMPLATE("drafting with a stale view of the target is an error", Kind, GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft draft(kVocab, 1);
  auto drafter = Kind::make(draft, target);
  target.append(List{1, 2, 3});
  drafter.sync(List{1, 2, 3}, {});
  drafter.extend(List{1}, std::vector<NodeId>{-1});
  target.truncate(3);
  CHECK_THROWS_AS(drafter.extend(List{1}, std::vector<NodeId>{0}), std::logic_error);
  drafter.sync(List{1, 2, 3}, {});  // the same context again, with a new view
  CHECK(same(drafter.extend(List{1}, std::vector<NodeId>{-1}).row(0), {1, 2, 3, 1}, 3, draft));
}

TEST_CASE_TEMPLATE("tokens that a draft model held before are not reused, since they did not see the target",
                   Kind, GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  target.append(List{1, 2, 3});
  typename Kind::Draft draft(kVocab, 1);
  draft.append(List{1, 2, 0});
  auto drafter = Kind::make(draft, target);
  CHECK(target.view_calls == 1);
  drafter.sync(List{1, 2, 3}, {});
  CHECK(drafter.usage().calls == 0);
  const double seconds = drafter.usage().seconds;
  CHECK(seconds > 0);
  CHECK(draft.model.cache() == List{1, 2, 3});
  CHECK(same(drafter.extend(List{1}, std::vector<NodeId>{-1}).row(0), {1, 2, 3, 1}, 3, draft));
  CHECK(drafter.usage().seconds > seconds);
}

TEST_CASE_TEMPLATE("the constructor refuses models that do not match", Kind, GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft other(kVocab + 1, 1), draft(kVocab, 1);
  CHECK_THROWS_WITH_AS(Kind::make(other, target),
                       (Kind::name() + ": the draft's vocabulary has 5 tokens, the target's 4").c_str(),
                       std::invalid_argument);
  CHECK(other.view_calls == 0);
  draft.throw_view = 1;  // as a draft does whose sizes are not those of the target
  CHECK_THROWS_WITH_AS(Kind::make(draft, target), "set_target_state failed", std::runtime_error);
}

TEST_CASE_TEMPLATE("use of the draft model by another caller is an error; truncate(0) starts anew", Kind,
                   GlideKind, HeadKind) {
  SeenModel target(kVocab, 1);
  typename Kind::Draft draft(kVocab, 1);
  auto drafter = Kind::make(draft, target);
  target.append(List{1, 2, 3});
  drafter.sync(target.cache(), {});
  draft.truncate(1);
  target.append(List{0});
  CHECK_THROWS_WITH_AS(drafter.sync(target.cache(), {}),
                       doctest::Contains("the draft model holds 1 tokens, this drafter left 3"),
                       std::logic_error);
  drafter.truncate(0);
  drafter.sync(target.cache(), {});
  CHECK(draft.size() == 4);
  CHECK(drafter.cache_id() == &draft);
}
