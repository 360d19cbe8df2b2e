// SPDX-License-Identifier: MIT
// A verifier of plain vectors that has the documented members and nothing else, and rules over it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "dense_rules.hpp"

namespace specula_test {

/// A verifier over rows of probabilities. `broken` names the first thing that a rule did against the
/// documentation.
class DenseVerifier {
 public:
  struct State {
    int distribution = -1;  // the node that it belongs to
    double weight = 0, keep = 0;
  };

  /// The reads of rows after the first `good_reads` fail.
  DenseVerifier(const DenseTree& tree, const std::vector<Dense>& rows, DenseUniforms& uniforms,
                int good_reads = 1 << 30)
      : tree_(tree), rows_(rows), uniforms_(uniforms), good_reads_(good_reads), states_(tree.token.size()) {}

  bool ok() const { return ok_; }
  void check_proposal() { expect(reads_ == 0, "check_proposal() after a row was read"); }
  specula::Token token(specula::NodeId node) const { return tree_.token[index(node)]; }
  specula::NodeId parent(specula::NodeId node) const { return tree_.parent[index(node)]; }
  specula::NodeId next_child(specula::NodeId node, specula::NodeId after) {
    expect(ok_, "next_child() after an error");
    expect(after == node || parent(after) == node, "next_child() after another node's child");
    for (std::size_t c = index(after) + 1; c < tree_.token.size(); ++c)
      if (tree_.parent[c] == node) return static_cast<specula::NodeId>(c);
    return specula::kNoParent;
  }
  specula::NodeId child_with(specula::NodeId node, specula::Token token) const {
    for (const specula::NodeId c : tree_.children(node))
      if (tree_.token[index(c)] == token) return c;
    return specula::kNoParent;
  }

  specula::Token argmax(specula::NodeId node, int depth) {
    const Dense& p = read(node, depth);
    return static_cast<specula::Token>(std::max_element(p.begin(), p.end()) - p.begin());
  }
  specula::Token drawn(specula::NodeId node, int depth) {
    const int p = distribution(node, depth);
    return ok_ ? sample(node, p, depth) : specula::kNoToken;
  }
  int distribution(specula::NodeId node, int depth) {
    read(node, depth);
    return node;
  }
  specula::Token sample(specula::NodeId node, int p, int depth) {
    expect(ok_, "sample() after an error");
    expect(p == node && last_read_ == node && depth == tree_.depth(node), "sample() of a row not read last");
    const Dense& row = rows_[index(node)];
    const auto sure = std::find(row.begin(), row.end(), 1.0);
    return sure != row.end() ? static_cast<specula::Token>(sure - row.begin())
                             : uniforms_.draw(row, sample_key(tree_, node));
  }
  double target_prob(int p, specula::NodeId child) {
    expect(ok_, "target_prob() after an error");
    expect(p == parent(child), "target_prob() of a token that does not follow the row's node");
    return rows_[index(p)][index(token(child))];
  }
  double draft_prob(specula::NodeId child) const { return tree_.q[index(child)][index(token(child))]; }

  bool accept(double probability, specula::NodeId node, int depth) {
    expect(ok_, "accept() after an error");
    expect(depth == tree_.depth(node), "accept() at another depth");
    expect(std::find(accepts_.begin(), accepts_.end(), node) == accepts_.end() || judged_twice_,
           "a node's uniform draw was used twice");
    accepts_.push_back(node);
    return uniforms_.accept(probability, accept_key(tree_, node));
  }
  specula::NodeId accept_chain() const { return 0; }

  void start_residual(specula::NodeId node, int p, int tried) {
    expect(p == node, "start_residual() from another node's row");
    expect(node != owner_, "start_residual() of the residual that is held");
    owner_ = node;
    residual_ = rows_[index(p)];
    next_ = next_child(node, node);
    for (; tried > 0; --tried, next_ = next_child(node, next_))
      if (states_[index(next_)].keep > 0) subtract(next_, states_[index(next_)].keep);
  }
  double residual_prob(specula::NodeId child) {
    expect(parent(child) == owner_, "residual_prob() of another node's child");
    return residual_[index(token(child))];
  }
  double reject(double weight) {
    expect(next_ != specula::kNoParent, "reject() without a child that was not tried yet");
    if (next_ == specula::kNoParent) return 0;
    const specula::NodeId child = next_;
    next_ = next_child(owner_, child);
    const double left = subtract(child, weight);
    states_[index(child)].keep = left > 0 ? weight : 0;
    return left;
  }
  specula::Token sample_residual(int depth) {
    expect(depth == tree_.depth(owner_), "sample_residual() at another depth");
    return uniforms_.draw(residual_, residual_key(tree_, owner_));
  }

  const State& state(specula::NodeId node) const { return states_[index(node)]; }
  template <class F>
  void change(specula::NodeId node, F f) {
    f(states_[index(node)]);
  }

  void put(int i, specula::NodeId node, specula::Token next) {
    expect(ok_ && finished_ < 0, "put() after an error or after finish()");
    const int other = puts_.empty() ? i : puts_.back();
    expect(puts_.empty() || i == other + 1 || i == other - 1, "put() out of order");
    puts_.push_back(i);
    if (index(i) >= path_.size()) path_.resize(index(i) + 1);
    path_[index(i)] = {node, next};
  }
  void finish(int count) {
    expect(finished_ < 0, "finish() twice");
    expect(!ok_ || index(count) == puts_.size(), "finish() with another number of elements");
    finished_ = count;
  }

  /// Traversal compares a node's draw with a bound on its weight, and then with the weight.
  void allow_judging_twice() { judged_twice_ = true; }
  specula::VerifyResult result() const {
    specula::VerifyResult out;
    out.clear();
    out.accepted.clear();
    for (const Element& e : path_) out.accepted.push_back(e.node);
    if (!path_.empty()) out.next_token = path_.back().next;
    return out;
  }
  /// Whether each element's token is that of the next node.
  bool tokens_match() const {
    for (std::size_t i = 0; i + 1 < path_.size(); ++i)
      if (path_[i].next != token(path_[i + 1].node)) return false;
    return true;
  }
  int reads() const { return reads_; }
  int finished() const { return finished_; }
  const std::vector<specula::NodeId>& accepts() const { return accepts_; }
  std::string broken;

 private:
  struct Element {
    specula::NodeId node = specula::kNoParent;
    specula::Token next = specula::kNoToken;
  };
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  void expect(bool holds, const char* what) {
    if (!holds && broken.empty()) broken = what;
  }
  const Dense& read(specula::NodeId node, int depth) {
    expect(ok_, "a row was read after an error");
    expect(depth == tree_.depth(node), "a row was read at another depth");
    if (reads_++ == good_reads_) ok_ = false;
    last_read_ = node;
    return rows_[index(node)];
  }
  /// residual <- norm((weight * residual - q)+), unless nothing is left. Returns the mass before norm.
  double subtract(specula::NodeId child, double weight) {
    Dense left = dense_residual(residual_, tree_.q[index(child)], weight);
    const double total = dense_sum(left);
    if (!(total > 0)) return 0;
    for (double& w : left) w /= total;
    residual_ = left;
    return total;
  }

  const DenseTree& tree_;
  const std::vector<Dense>& rows_;
  DenseUniforms& uniforms_;
  int good_reads_, reads_ = 0, finished_ = -1;
  bool ok_ = true, judged_twice_ = false;
  specula::NodeId last_read_ = specula::kNoParent, owner_ = specula::kNoParent, next_ = specula::kNoParent;
  Dense residual_;
  std::vector<State> states_;
  std::vector<int> puts_;
  std::vector<Element> path_;
  std::vector<specula::NodeId> accepts_;
};

/// Runs `rule` on random proposals and compares it with dense(case, uniform draws). Then lets each of its
/// reads of a row fail.
template <class Rule, class DenseRule>
void compare(Rule rule, DenseRule dense, Mix mix, bool judges_twice = false) {
  static const specula::SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 0}};
  Random random(5);
  int compared = 0, accepted = 0, failed = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    CAPTURE(i);
    mix.nodes = 1 + random.below(9);
    const Case it = random_case(random, 2 + random.below(8), settings[i % 3], mix, i);
    DenseUniforms wanted(i + 100), uniforms(i + 100);
    const specula::VerifyResult want = dense(it, wanted);
    if (wanted.margin < 1e-11) continue;
    DenseVerifier verifier(it.dense, it.distributions, uniforms);
    if (judges_twice) verifier.allow_judging_twice();
    rule(verifier);
    CHECK(verifier.broken == "");
    CHECK(verifier.finished() == static_cast<int>(want.accepted.size()));
    const specula::VerifyResult got = verifier.result();
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
    CHECK(verifier.tokens_match());
    ++compared, accepted += got.accepted_count();
    for (int reads = 0; reads < verifier.reads(); ++reads) {
      DenseVerifier bad(it.dense, it.distributions, uniforms, reads);
      if (judges_twice) bad.allow_judging_twice();
      rule(bad);
      CHECK(bad.broken == "");
      CHECK(!bad.ok());
      CHECK(bad.reads() == reads + 1);
      CHECK(bad.finished() >= 0);
      ++failed;
    }
  }
  CHECK(compared > 2500);
  CHECK(accepted > 700);
  CHECK(failed > 3000);
}

inline const Mix kChains{.wide = 0};

}  // namespace specula_test
