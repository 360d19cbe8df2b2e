// SPDX-License-Identifier: MIT
// labels: optimised
// Properties of thousands of random trees: masks, members of TokenTree, and results of every rule.
#include "random_trees.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <vector>

#include <specula/runtime/any_rule.hpp>
#include <specula/specula.hpp>

#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

template <class Rule, class... Rules>
constexpr bool kAnyOf = (std::is_same_v<Rule, Rules> || ...);

/// Calls f(rule) for every rule that accepts `tree`.
template <class F>
void for_every_rule(const TokenTree& tree, F f) {
  f(Greedy{});
  const bool in_turn = KSeq::lossless_for(tree.kind()) || tree.kind() == ProposalKind::deterministic ||
                       tree.kind() == ProposalKind::sampled;
  for (std::size_t name = 0; name < kRules.size(); ++name)
    detail::with_rule(static_cast<RuleName>(name), Lenient(2.5), [&]<class Rule>(const Rule& rule) {
      if (std::is_same_v<Rule, Block> && !tree.is_chain()) return;
      if (std::is_same_v<Rule, KSeq> && !in_turn) return;
      f(rule);
    });
}

/// Rules that choose a token before searching it among the children.
template <class Rule>
constexpr bool kTokenFirst = kAnyOf<Rule, Greedy, SampleAndMatch, GumbelCoupling>;

/// Rules that test each sibling, even if an earlier one has the same token.
template <class Rule>
constexpr bool kTestsAlike = kAnyOf<Rule, KSeq, Typical>;

/// How nodes get their tokens.
enum class Growth : std::uint8_t { chosen, drawn, distinct, shared, any };

/// A token tree with its draft rows and the target's.
struct Proposal {
  ProposalBuilder tree;
  std::vector<float> draft, target;  // (N, V)

  LogitsView rows() const { return {target.data(), tree.size(), tree.vocab(), tree.vocab()}; }
};

/// A tree of the parents of `form`; chosen nodes have its tokens too. Target rows that resemble the draft's,
/// so that some tokens are accepted.
Proposal grow(Random& random, const RandomTree& form, std::int32_t vocab, Growth growth,
              const SamplingParams& params, std::uint64_t seed) {
  const std::int32_t n = form.size(), room = random.below(3);
  Proposal out{ProposalBuilder(vocab, n + room, n), {}, {}};
  for (std::int32_t i = 0; i < n; ++i)
    for (float logit : mixed_row(random, vocab, 3, 0.2, 0.1)) {
      out.draft.push_back(logit);
      out.target.push_back(logit + static_cast<float>(random.between(-1, 1)));
    }
  const SamplingParams warm = params.greedy() ? SamplingParams{} : params;
  std::vector<Distribution> distributions(at(n));
  PhiloxRandom rng(seed);
  out.tree.reset(form.token(0), 1 + random.below(1000));
  for (NodeId i = 1; i < n; ++i) {
    const NodeId parent = form.parent(i);
    Distribution& distribution = distributions[at(parent)];
    if (distribution.logits == nullptr)
      distribution =
          out.tree.store(parent, std::span(out.draft).subspan(at(parent * vocab), at(vocab)), warm);
    const Growth how = growth == Growth::any ? static_cast<Growth>(random.below(3)) : growth;  // none shared
    if (how == Growth::chosen)
      out.tree.choose(parent, form.token(i), 0.5f);
    else if (how == Growth::shared)
      out.tree.draw_shared(parent, distribution, rng);
    else if (how == Growth::drawn || out.tree.draw_distinct(parent, distribution, rng) == kNoParent)
      out.tree.draw(parent, distribution, rng);
  }
  return out;
}

template <class Rule>
VerifyResult result_of(const Rule& rule, const TokenTree& tree, LogitsView rows, const SamplingParams& params,
                       std::uint64_t seed) {
  VerifyWorkspace workspace(tree.vocab(), tree.size());
  PhiloxRandom rng(seed);
  VerifyResult out;
  // With shared noise a result is a path, too, although not exact.
  decide_checked(accept_lossy(rule), tree, TargetDistributions(rows, params, workspace), rng, out);
  return out;
}

SamplingParams some_params(Random& random) {
  const SamplingParams all[] = {{},
                                {.temperature = 0},
                                {.temperature = 0.7f, .top_p = 0.8f},
                                {.temperature = 1.3f, .top_k = 3, .min_p = 0.02f}};
  return all[random.below(4)];
}

/// Tokens that a result adds to the text.
std::vector<Token> text_of(const TokenTree& tree, const VerifyResult& result) {
  std::vector<Token> out;
  for (std::size_t i = 1; i < result.accepted.size(); ++i) out.push_back(tree.token(result.accepted[i]));
  out.push_back(result.next_token);
  return out;
}

bool has_duplicates(const RandomTree& form, NodeId node) {
  std::vector<Token> tokens = form.tokens_of(form.children(node));
  std::sort(tokens.begin(), tokens.end());
  return std::adjacent_find(tokens.begin(), tokens.end()) != tokens.end();
}

}  // namespace

TEST_CASE("the generator covers all kinds of trees") {
  Random random(1);
  std::int32_t alone = 0, full = 0, duplicates = 0, chains = 0, stars = 0;
  for (int i = 0; i < 4000; ++i) {
    const RandomTree form = random_tree(random, 6, 64);
    REQUIRE(form.size() >= 1);
    REQUIRE(form.size() <= 64);
    REQUIRE(form.tokens.size() == form.parents.size());
    REQUIRE(form.parent(0) == kNoParent);
    bool chain = true, star = true, alike = false;
    for (NodeId n = 1; n < form.size(); ++n) {
      REQUIRE(form.parent(n) >= 0);
      REQUIRE(form.parent(n) < n);
      chain = chain && form.parent(n) == n - 1;
      star = star && form.parent(n) == 0;
    }
    for (NodeId n = 0; n < form.size() && !alike; ++n) alike = has_duplicates(form, n);
    alone += form.size() == 1, full += form.size() == 64;
    duplicates += alike, chains += chain && form.size() > 8, stars += star && form.size() > 8;
  }
  CHECK(alone > 100);
  CHECK(full > 100);
  CHECK(duplicates > 2000);
  CHECK(chains > 300);
  CHECK(stars > 300);
}

TEST_CASE("the mask is the ancestor relation, with one to four words per row") {
  Random random(2);
  std::int32_t by_words[5] = {};
  for (int i = 0; i < 4000; ++i) {
    const RandomTree form = random_tree(random, 4, i % 10 == 0 ? 200 : 64);
    const std::size_t n = form.parents.size(), words = mask_words(n);
    ++by_words[words];
    std::vector<std::uint64_t> mask(n * words, 0xAAAAAAAAAAAAAAAAull);
    tree_mask(form.parents, mask);
    std::vector<std::uint64_t> want(n * words, 0);
    for (NodeId node = 0; node < form.size(); ++node)
      for (const NodeId seen : form.path_to(node))
        want[at(node) * words + at(seen) / 64] |= std::uint64_t{1} << (seen % 64);
    REQUIRE(mask == want);
    const NodeId last = form.size() - 1;  // sees() reads the same bits
    const auto path = form.path_to(last);
    const auto row = std::span<const std::uint64_t>(mask).last(words);
    for (NodeId node = 0; node <= last; ++node)
      REQUIRE(sees(row, at(node)) == (std::find(path.begin(), path.end(), node) != path.end()));
  }
  for (int words = 1; words <= 4; ++words) CHECK(by_words[words] > 10);
}

TEST_CASE("members of TokenTree agree with the links") {
  Random random(3);
  ProposalBuilder tree(7, 200, 0);
  for (int i = 0; i < 4000; ++i) {
    const RandomTree form = random_tree(random, 7, i % 10 == 0 ? 200 : 64);
    const std::int32_t origin = random.below(100000);
    tree.reset(form.token(0), origin, form.size() + random.below(3));
    for (NodeId n = 1; n < form.size(); ++n) REQUIRE(tree.choose(form.parent(n), form.token(n), 0.5f) == n);

    REQUIRE(tree.size() == form.size());
    REQUIRE(std::equal(form.parents.begin(), form.parents.end(), tree.parents().begin()));
    REQUIRE(std::equal(form.tokens.begin(), form.tokens.end(), tree.tokens().begin()));
    bool chain = true, right = true;
    for (NodeId n = 0; n < form.size(); ++n) {
      const auto depth = static_cast<std::int32_t>(form.path_to(n).size()) - 1;
      const auto children = form.children(n);
      std::vector<NodeId> linked;
      tree.children(n, [&](NodeId c) { return linked.push_back(c), true; });
      right = right && tree.depth(n) == depth && tree.position(n) == origin + depth && linked == children;
      right = right && tree.first_child(n) == (children.empty() ? kNoParent : children.front());
      for (std::size_t c = 0; c < children.size(); ++c)
        right = right &&
                tree.next_sibling(children[c]) == (c + 1 < children.size() ? children[c + 1] : kNoParent);
      chain = chain && (n == 0 || form.parent(n) == n - 1);
      // Each node has its own uniform draws.
      right = right && tree.accept_key(n) == RandomKey{origin + depth, origin, RandomStream::accept,
                                                       static_cast<std::uint32_t>(n)};
      right = right && tree.sample_key(n) == RandomKey{origin + depth + 1, 0, RandomStream::sample, 0};
      right =
          right && tree.residual_key(n) == RandomKey{origin + depth + 1, origin, RandomStream::residual, 0};
    }
    REQUIRE(right);
    REQUIRE(tree.is_chain() == chain);
    REQUIRE(tree.kind() == ProposalKind::deterministic);
  }
}

TEST_CASE("every rule's result is a path from the root, through the first of siblings with the same token") {
  Random random(4);
  std::int64_t trees = 0, deep = 0, second = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const std::int32_t vocab = i % 50 == 0 ? 600 : 1 + random.below(8);
    const RandomTree form = random_tree(random, vocab, i % 50 == 0 ? 20 : 64);
    const SamplingParams params = some_params(random);
    const Proposal it = grow(random, form, vocab, static_cast<Growth>(i % 5), params, i);
    for_every_rule(it.tree, [&](const auto& rule) {
      using Rule = std::remove_cvref_t<decltype(rule)>;
      const VerifyResult out = result_of(rule, it.tree, it.rows(), params, i);
      REQUIRE(!out.accepted.empty());
      REQUIRE(out.accepted[0] == 0);
      for (std::size_t d = 1; d < out.accepted.size(); ++d) {
        const NodeId node = out.accepted[d];
        REQUIRE(node > 0);
        REQUIRE(node < it.tree.size());
        REQUIRE(it.tree.parent(node) == out.accepted[d - 1]);
        // An earlier sibling with the same token would have been accepted, or the token was rejected.
        if (kTestsAlike<Rule> || (kAnyOf<Rule, Lenient> && params.greedy())) continue;
        it.tree.children(out.accepted[d - 1], [&](NodeId c) {
          second += c > node && it.tree.token(c) == it.tree.token(node);
          REQUIRE((c >= node || it.tree.token(c) != it.tree.token(node)));
          return true;
        });
      }
      REQUIRE(out.next_token >= 0);
      REQUIRE(out.next_token < vocab);
      VerifyWorkspace workspace(vocab, it.tree.size());
      const TargetDistributions target(it.rows(), params, workspace);
      if (std::is_same_v<Rule, Greedy>)
        REQUIRE(out.next_token == target.argmax(out.accepted.back()));
      else
        REQUIRE(target[out.accepted.back()](out.next_token) > 0);
      if (kTokenFirst<Rule>)
        it.tree.children(out.accepted.back(), [&](NodeId c) {
          REQUIRE(it.tree.token(c) != out.next_token);
          return true;
        });
      ++trees, deep += out.accepted_count() >= 3;
    });
  }
  CHECK(deep * 20 > trees);  // some accepted paths are deep
  CHECK(second > 1000);      // with identical siblings before them
}

TEST_CASE("rules that choose a token first accept the same from a tree as from its best branch") {
  Random random(5);
  std::int64_t longer = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::int32_t vocab = 2 + random.below(5);
    const RandomTree form = random_tree(random, vocab, 48);
    const SamplingParams params = some_params(random);
    const Proposal it = grow(random, form, vocab, Growth::chosen, params, i);
    const auto compare = [&](const auto& rule) {
      const VerifyResult whole = result_of(rule, it.tree, it.rows(), params, i);
      const std::vector<Token> text = text_of(it.tree, whole);
      std::int32_t best = 0;
      for (const NodeId leaf : form.leaves()) {
        const std::vector<NodeId> path = form.path_to(leaf);
        std::vector<float> rows;
        bool first = true;  // no node of the path has an earlier sibling with the same token
        ProposalBuilder chain(vocab, static_cast<std::int32_t>(path.size()), 0);
        chain.reset(it.tree.token(0), it.tree.origin());
        for (std::size_t d = 0; d < path.size(); ++d) {
          const auto from = it.target.begin() + path[d] * vocab;
          rows.insert(rows.end(), from, from + vocab);
          if (d == 0) continue;
          chain.choose(static_cast<NodeId>(d) - 1, it.tree.token(path[d]), 0.5f);
          for (const NodeId c : form.children(path[d - 1]))
            first = first && (c >= path[d] || form.token(c) != form.token(path[d]));
        }
        const VerifyResult alone =
            result_of(rule, chain, {rows.data(), chain.size(), vocab, vocab}, params, i);
        if (!first) continue;
        const std::vector<Token> part = text_of(chain, alone);
        REQUIRE(part.size() <= text.size());
        REQUIRE(std::equal(part.begin(), part.end(), text.begin()));
        best = std::max(best, alone.accepted_count());
      }
      REQUIRE(best == whole.accepted_count());
      longer += best > 1;
    };
    compare(Greedy{});
    compare(SampleAndMatch{});
    compare(GumbelCoupling{});
  }
  CHECK(longer > 200);
}

TEST_CASE("siblings with the same token: the first is accepted, nodes below the others are never reached") {
  // 0 -> {1: a, 2: a, 3: b}; 1 -> {4: c}; 2 -> {5: d}, where the target's tokens are a, then d.
  const Token a = 0, b = 1, c = 2, d = 3;
  const std::int32_t vocab = 4;
  ProposalBuilder tree(vocab, 6, 0);
  tree.reset(b, 10);
  tree.choose(0, a, 1), tree.choose(0, a, 1), tree.choose(0, b, 1), tree.choose(1, c, 1),
      tree.choose(2, d, 1);
  std::vector<float> rows(at(tree.size() * vocab), 0.0f);
  const auto says = [&](NodeId node, Token token) { rows[at(node * vocab + token)] = 200; };
  says(0, a), says(1, d), says(2, d);
  for_every_rule(tree, [&](const auto& rule) {
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 0}}) {
      const VerifyResult out = result_of(rule, tree, {rows.data(), tree.size(), vocab, vocab}, params, 1);
      if (kAnyOf<std::remove_cvref_t<decltype(rule)>, Typical>) {  // takes the longest path
        CHECK(out.accepted == std::vector<NodeId>{0, 2, 5});
      } else {
        CHECK(out.accepted == std::vector<NodeId>{0, 1});
        CHECK(out.next_token == d);
      }
    }
  });
}

TEST_CASE("a chain equals a tree with one branch, for every rule and the same uniform draws") {
  Random random(6);
  std::int32_t accepted = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::int32_t vocab = i % 50 == 0 ? 600 : 1 + random.below(8), length = random.below(20);
    const RandomTree form = random_tree(random, 1 + length, vocab, TreeProfile::chain);
    const SamplingParams params = some_params(random);
    const std::uint64_t numbers = random.bits();
    const auto grown = [&](Growth growth) {
      Random same(numbers);  // the same rows and the same origin
      return grow(same, form, vocab, growth, params, i);
    };
    // Without siblings, a distinct draw is a plain draw.
    const Proposal drawn = grown(Growth::drawn), distinct = grown(Growth::distinct),
                   chosen = grown(Growth::chosen);
    REQUIRE(
        std::equal(drawn.tree.tokens().begin(), drawn.tree.tokens().end(), distinct.tree.tokens().begin()));
    for (const Proposal* it : {&drawn, &distinct, &chosen}) REQUIRE(it->tree.is_chain());
    // A builder that held a bush before.
    ProposalBuilder again(vocab, 64, 64);
    PhiloxRandom uniforms(i + 7);
    const RandomTree bush = random_tree(random, 64, vocab, TreeProfile::bush);
    again.reset(0, 3);
    std::vector<Distribution> distributions(64);
    for (NodeId n = 1; n < 64; ++n) {
      Distribution& distribution = distributions[at(bush.parent(n))];
      if (distribution.logits == nullptr)
        distribution = again.store(bush.parent(n), random.row(vocab, 2), {});
      again.draw(bush.parent(n), distribution, uniforms);
    }
    PhiloxRandom draft(i);
    again.reset(form.token(0), drawn.tree.origin());
    for (NodeId n = 0; n < length; ++n)
      again.draw_distinct(n,
                          again.store(n, std::span(drawn.draft).subspan(at(n * vocab), at(vocab)),
                                      params.greedy() ? SamplingParams{} : params),
                          draft);
    REQUIRE(std::equal(drawn.tree.tokens().begin(), drawn.tree.tokens().end(), again.tokens().begin()));

    for_every_rule(drawn.tree, [&](const auto& rule) {
      const VerifyResult one = result_of(rule, drawn.tree, drawn.rows(), params, i + 1),
                         two = result_of(rule, distinct.tree, distinct.rows(), params, i + 1),
                         three = result_of(rule, again, drawn.rows(), params, i + 1);
      REQUIRE(one.accepted == two.accepted);
      REQUIRE(one.next_token == two.next_token);
      REQUIRE(one.accepted == three.accepted);
      REQUIRE(one.next_token == three.next_token);
      for (std::size_t d = 0; d < one.accepted.size(); ++d)
        REQUIRE(one.accepted[d] == static_cast<NodeId>(d));
      accepted += one.accepted_count();
    });
    // Rules that are equivalent on such a proposal.
    const auto same = [&](const auto& rule, const auto& other, const Proposal& it) {
      const VerifyResult one = result_of(rule, it.tree, it.rows(), params, i),
                         two = result_of(other, it.tree, it.rows(), params, i);
      REQUIRE(one.accepted == two.accepted);
      REQUIRE(one.next_token == two.next_token);
    };
    same(Sampling{}, SampleAndMatch{}, chosen);
    if (length > 0 && drawn.tree.kind() == ProposalKind::sampled) same(Sampling{}, Traversal{}, drawn);
    for (const Proposal* it : {&drawn, &chosen}) {
      same(Block{}, Traversal{}, *it);
      same(KSeq{}, Rejection{}, *it);
      if (!params.greedy()) same(Lenient(1), Rejection{}, *it);
    }
  }
  CHECK(accepted > 5000);
}
