// SPDX-License-Identifier: MIT
// What check_model() tries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/philox.hpp"
#include "specula/base/rows.hpp"
#include "specula/model/detail/checked_calls.hpp"
#include "specula/model/model_finding.hpp"

namespace specula::detail {

/// All trees of up to four nodes, larger ones, and what commits them or takes them back, after contexts of
/// several sizes. `M` is a LanguageModel.
template <class M>
class ModelChecker {
 public:
  using Text = std::vector<Token>;

  ModelChecker(M& model, const ModelCheck& how, std::vector<ModelFinding>& findings, std::string whose = "")
      : calls_(model, findings, std::move(whose)), how_(how), findings_(&findings) {
    expect_in("ModelCheck::nodes", how.nodes, 4, 4096);
    expect_in("ModelCheck::tolerance", how.tolerance, 0.0, 1.0);
  }

  void run() {
    calls_.begin({});
    const std::int32_t room = calls_.capacity();
    if (room < 12) calls_.end("sizes", "capacity() is " + number(room) + ", the check needs 12");
    if (calls_.vocab_size() < 1) calls_.end("sizes", "vocab_size() is " + number(calls_.vocab_size()));
    draw_tokens();
    // The last: just below the end of a page of 16 or 32 tokens.
    for (const std::int32_t n : {0, 5, 31})
      if (n + 8 <= room) contexts_.push_back(context(n));
    repeats();
    measure_tolerance();
    try_all([this](const Text& before) { appends(before); });
    calls_.append_works = true;
    try_all([this](const Text& before) { small_trees(before); });
    try_all([this](const Text& before) { several_passes(before); });
    try_all([this](const Text& before) { commits(before), rollback(before); });
    try_all([this](const Text& before) {
      if (static_cast<std::int32_t>(before.size()) + how_.nodes + 2 <= calls_.capacity()) large_tree(before);
    });
  }

  /// Tokens of the context: a longer one begins with a shorter one.
  Text context(std::int32_t n) const { return {drawn_.begin() + kProbes, drawn_.begin() + kProbes + n}; }
  /// Tokens of nodes, which differ from each other if the vocabulary has as many.
  Token probe(std::size_t i) const { return drawn_[i]; }
  static constexpr std::size_t kProbes = 5;

  CheckedCalls<M>& calls() { return calls_; }

 private:
  static Text joined(Text a, std::initializer_list<Token> more) {
    a.insert(a.end(), more);
    return a;
  }

  /// With each context. Findings end the check: what is tried later would fail for the same reason.
  template <class Try>
  void try_all(const Try& run) {
    for (const Text& before : contexts_) run(before);
    if (std::ranges::any_of(*findings_, [](const ModelFinding& f) { return f.duty != "change_count"; }))
      throw CheckIsOver{};
  }

  void draw_tokens() {
    const auto vocab = static_cast<std::uint32_t>(calls_.vocab_size());
    const std::size_t wanted = kProbes + 31 + static_cast<std::size_t>(how_.nodes);
    for (std::uint32_t i = 0; drawn_.size() < wanted; ++i) {
      const auto token = static_cast<Token>(philox({i, 0, 0, 0}, how_.seed).x % vocab);
      const bool again = std::ranges::find(drawn_, token) != drawn_.end();
      if (!again || vocab < 2 * wanted || vocab <= drawn_.size()) drawn_.push_back(token);
    }
    // Of a small vocabulary at least the probes differ.
    for (std::size_t i = 0; i < kProbes && vocab < 2 * wanted; ++i)
      drawn_[i] = static_cast<Token>((static_cast<std::uint32_t>(drawn_[0]) + i) % vocab);
  }

  /// The same calls after truncate(0) give the same rows.
  void repeats() {
    const Text text{probe(0), probe(1), probe(2)};
    std::vector<float> first;
    for (const Token token : {probe(1), probe(0), probe(0)}) {
      calls_.begin({});
      first = calls_.rows()[0];
      calls_.extend({token}, {kNoParent});
    }
    if (calls_.difference(first, calls_.rows()[0]) > calls_.tolerance)
      calls_.end("rows", "the same pass gave another row before this: are rows those of an earlier pass?");
    calls_.know(text);
    first = calls_.plain(text);
    calls_.forget_plain();
    calls_.know(text);
    if (calls_.difference(first, calls_.plain(text)) > calls_.tolerance)
      calls_.end("truncate",
                 "after truncate(0), plain decoding of these tokens gives another row than before it");
  }

  /// By how much rows of a chain in one pass differ from plain decoding: a mistake changes more than that.
  /// Where they have the same bits, siblings need not: attention may sum their keys in other groups.
  void measure_tolerance() {
    double most = 0;
    for (const Text& before : contexts_) {
      const std::int32_t room = calls_.capacity() - static_cast<std::int32_t>(before.size());
      if (before.size() > 5) continue;
      Text text = before;
      for (std::int32_t i = 0; i < std::min(room, how_.nodes); ++i)
        text.push_back(i < 4 ? probe(static_cast<std::size_t>(i)) : node_token(i));
      calls_.know(text);
      for (const std::int32_t n : {2, 4, std::min(room, how_.nodes)}) {
        calls_.begin({});
        for (const Token token : before) {
          calls_.extend({token}, {kNoParent});
          calls_.commit({0});
        }
        const auto first = text.begin() + static_cast<std::ptrdiff_t>(before.size());
        std::vector<NodeId> parents;
        for (NodeId i = 0; i < n; ++i) parents.push_back(i - 1);
        calls_.extend({first, first + n}, parents);
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          const double off = calls_.difference(calls_.rows()[static_cast<std::size_t>(i)],
                                               calls_.plain({text.begin(), first + i + 1}));
          if (off <= CheckedCalls<M>::kLargest) most = std::max(most, off);  // else it is no noise
        }
        calls_.expect_row("mask", 0, {text.begin(), first + 1}, "nodes after it change it");
      }
    }
    calls_.tolerance = how_.tolerance > 0
                           ? how_.tolerance
                           : std::clamp(4 * most, CheckedCalls<M>::kLeast, CheckedCalls<M>::kLargest);
  }

  /// append() at once, in parts, between passes and after a node.
  void appends(const Text& before) {
    const Text one = joined(before, {probe(0)}), two = joined(one, {probe(1)}),
               instead = joined(before, {probe(1)});
    const Text three = joined(two, {probe(2)}), then = joined(instead, {probe(2)});
    for (const Text& text : {one, three, then}) calls_.know(text);
    calls_.begin({});
    const auto half = before.begin() + static_cast<std::ptrdiff_t>(before.size() / 2);
    calls_.append({before.begin(), half});
    calls_.append({half, before.end()});
    calls_.extend({probe(0)}, {kNoParent});
    calls_.expect_row("append", 0, one);
    calls_.commit({0});
    calls_.append({probe(1)});
    calls_.extend({probe(2)}, {kNoParent});
    calls_.expect_row("append", 0, three);
    calls_.begin(before);
    calls_.extend({probe(0)}, {kNoParent});
    calls_.append({probe(1)});
    calls_.extend({probe(2)}, {kNoParent});
    calls_.expect_row("append", 0, then);
  }

  /// Calls `run` with the parents of every tree of `n` nodes, or of every chain.
  template <class Run>
  void each_tree(std::int32_t n, const Run& run) const {
    std::vector<NodeId> parents(static_cast<std::size_t>(n), kNoParent);
    for (;;) {
      if (how_.trees || is_chain(parents)) run(parents);
      std::size_t i = parents.size();
      while (i > 0 && parents[i - 1] + 1 >= static_cast<NodeId>(i) - 1) --i;
      if (i == 0) return;
      ++parents[i - 1];
      std::fill(parents.begin() + static_cast<std::ptrdiff_t>(i), parents.end(), kNoParent);
    }
  }
  static bool is_chain(const std::vector<NodeId>& parents) {
    for (std::size_t i = 0; i < parents.size(); ++i)
      if (parents[i] != static_cast<NodeId>(i) - 1) return false;
    return true;
  }
  /// The nodes from a root to `node`.
  static std::vector<NodeId> path_to(NodeId node, const std::vector<NodeId>& parents) {
    std::vector<NodeId> path;
    for (; node != kNoParent; node = parents[static_cast<std::size_t>(node)]) path.push_back(node);
    std::ranges::reverse(path);
    return path;
  }
  static Text text_to(const Text& before, NodeId node, const std::vector<NodeId>& parents,
                      const Text& tokens) {
    Text text = before;
    for (const NodeId n : path_to(node, parents)) text.push_back(tokens[static_cast<std::size_t>(n)]);
    return text;
  }
  Text probes(std::size_t n) const {
    return {drawn_.begin(), drawn_.begin() + static_cast<std::ptrdiff_t>(n)};
  }
  Token node_token(std::int32_t i) const { return drawn_[kProbes + 31 + static_cast<std::size_t>(i)]; }

  void small_trees(const Text& before) {
    for (std::int32_t n = 1; n <= 4; ++n)
      each_tree(n, [&](const std::vector<NodeId>& parents) {
        const Text tokens = probes(parents.size());
        for (NodeId i = 0; i < n; ++i) calls_.know(text_to(before, i, parents, tokens));
        calls_.begin(before);
        calls_.extend(tokens, parents);
        for (NodeId i = 0; i < n; ++i) {
          const Text text = text_to(before, i, parents, tokens);
          if (calls_.difference(calls_.rows()[static_cast<std::size_t>(i)], calls_.plain(text)) <=
              calls_.tolerance)
            continue;
          const auto [duty, why] = cause(before, i, parents, tokens);
          calls_.begin(before);
          calls_.extend(tokens, parents);
          calls_.expect_row(duty, static_cast<std::size_t>(i), text, why);
          return;  // the nodes after it may follow from it
        }
      });
  }
  /// Why the row of node `i` differs: by running the tree with other tokens in its place.
  std::pair<const char*, const char*> cause(const Text& before, NodeId i, const std::vector<NodeId>& parents,
                                            const Text& tokens) {
    const std::vector<NodeId> path = path_to(i, parents);
    const std::vector<float> row = calls_.rows()[static_cast<std::size_t>(i)];
    const auto depends_on = [&](bool ancestors) {
      Text others = tokens;
      bool any = false;
      for (NodeId n = 0; n < static_cast<NodeId>(tokens.size()); ++n)
        if (n != i && (std::ranges::find(path, n) != path.end()) == ancestors)
          others[static_cast<std::size_t>(n)] = probe(4), any = true;
      if (!any) return false;
      calls_.begin(before);
      calls_.extend(others, parents);
      return calls_.difference(calls_.rows()[static_cast<std::size_t>(i)], row) > calls_.tolerance;
    };
    if (depends_on(false)) return {"mask", "it depends on nodes that are not its ancestors"};
    if (path.size() > 1 && !depends_on(true)) return {"mask", "it does not depend on its ancestors"};
    return {"positions", "only its ancestors change it: a node's position is size() plus its depth"};
  }

  void several_passes(const Text& before) {
    const Text two = joined(before, {probe(0), probe(1)}), three = joined(two, {probe(2)}),
               branch = joined(before, {probe(0), probe(2)});
    for (const Text& text : {two, three, branch}) calls_.know(text);
    calls_.begin(before);
    calls_.extend({probe(0)}, {kNoParent});
    calls_.extend({probe(1)}, {0});
    calls_.expect_row("nodes", 0, two);
    calls_.extend({probe(2)}, {1});
    calls_.expect_row("nodes", 0, three);
    if (!how_.trees) return;
    calls_.begin(before);
    calls_.extend({probe(0), probe(1)}, {kNoParent, kNoParent});
    calls_.extend({probe(2)}, {0});
    calls_.expect_row("nodes", 0, branch);
  }

  void commits(const Text& before) {
    for (std::int32_t n = 1; n <= 3; ++n)
      each_tree(n, [&](const std::vector<NodeId>& parents) {
        const Text tokens = probes(parents.size());
        for (NodeId last = 0; last < n; ++last) {
          const Text text = text_to(before, last, parents, tokens);
          know_next(text);
          calls_.begin(before);
          calls_.extend(tokens, parents);
          calls_.commit(path_to(last, parents));
          goes_on("commit", text);
        }
      });
    const Text longer = joined(before, {probe(1)});
    know_next(before), know_next(longer);
    calls_.begin(before);
    calls_.extend({probe(0)}, {kNoParent});
    calls_.append({probe(1)});  // drops the node
    goes_on("append", longer);
    for (const bool with_nodes : {false, true}) {
      calls_.begin(before);
      if (with_nodes) calls_.extend({probe(0), probe(1)}, {kNoParent, 0});
      calls_.commit({});
      goes_on("empty commit", before);
    }
  }

  void rollback(const Text& before) {
    const auto size = static_cast<std::int32_t>(before.size());
    const Text longer = joined(before, {probe(0)});
    know_next(before), know_next(longer);
    for (const bool committed : {false, true}) {
      calls_.begin(before);
      calls_.extend({probe(0), probe(1)}, {kNoParent, 0});
      if (committed) calls_.commit({0, 1});
      calls_.truncate(size);
      goes_on("truncate", before);
    }
    calls_.begin(before);
    calls_.append({probe(0), probe(1)});
    calls_.truncate(size + 1);
    goes_on("truncate", longer);
    calls_.begin(before);
    calls_.extend({probe(0)}, {kNoParent});
    calls_.commit({0});
    calls_.truncate(size / 2);
    calls_.append({before.begin() + size / 2, before.end()});
    goes_on("truncate", before);
  }

  /// One of ModelCheck::nodes nodes, in two passes, and the commit of a deep path.
  void large_tree(const Text& before) {
    Text tokens;
    std::vector<NodeId> parents;
    for (std::int32_t i = 0; i < how_.nodes; ++i) {
      tokens.push_back(node_token(i));
      const std::uint32_t draw = philox({static_cast<std::uint32_t>(i), 1, 0, 0}, how_.seed).x;
      // Not above the last few, so that it is as deep as it is wide.
      parents.push_back(how_.trees ? std::max(kNoParent, i - 1 - static_cast<NodeId>(draw % 4)) : i - 1);
    }
    for (NodeId i = 0; i < how_.nodes; ++i) calls_.know(text_to(before, i, parents, tokens));
    const NodeId last = how_.nodes - 1;
    const Text text = text_to(before, last, parents, tokens);
    know_next(text);
    calls_.begin(before);
    const std::int32_t half = how_.nodes / 2;
    for (const std::int32_t from : {0, half}) {
      const std::int32_t to = from == 0 ? half : how_.nodes;
      calls_.extend({tokens.begin() + from, tokens.begin() + to},
                    {parents.begin() + from, parents.begin() + to});
      for (NodeId i = from; i < to; ++i)
        if (!calls_.expect_row("mask", static_cast<std::size_t>(i - from),
                               text_to(before, i, parents, tokens)))
          return;
    }
    calls_.commit(path_to(last, parents));
    goes_on("commit", text);
  }

  /// Whether the context is `text`, and the next nodes are 0 and 1.
  void goes_on(const char* duty, const Text& text) {
    calls_.extend({probe(3)}, {kNoParent});
    if (!calls_.expect_row(duty, 0, joined(text, {probe(3)}))) return;
    calls_.extend({probe(4)}, {0});
    calls_.expect_row(duty, 0, joined(text, {probe(3), probe(4)}), "node numbers begin at 0 again");
  }
  void know_next(const Text& text) {
    calls_.know(joined(text, {probe(3)}));
    calls_.know(joined(text, {probe(3), probe(4)}));
  }

  CheckedCalls<M> calls_;
  ModelCheck how_;
  std::vector<ModelFinding>* findings_;
  Text drawn_;  // probes, a context, the other tokens of large trees
  std::vector<Text> contexts_;
};

}  // namespace specula::detail
