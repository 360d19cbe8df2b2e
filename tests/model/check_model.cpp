// SPDX-License-Identifier: MIT
// check_model(): each planted mistake is named, and right models are silent.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <specula/model/check_model.hpp>
#include <specula/model/processed.hpp>
#include <specula/model/view_guard.hpp>

#include "model_findings.hpp"
#include "toy_batch.hpp"
#include "toy_model.hpp"

namespace {

using specula::kNoParent;
using specula::LogitsView;
using specula::ModelFinding;
using specula::NodeId;
using specula::Nodes;
using specula::Token;
using specula::Tokens;
using specula_test::words;

enum class Mistake : std::uint8_t {
  none,
  positions_by_index,
  no_compaction,
  siblings_visible,
  later_visible,
  ancestors_hidden,
  truncate_forgotten,
  truncate_keeps_values,
  rows_reversed,
  rows_stale,
  row_of_last,
  empty_commit_commits,
  empty_commit_keeps_nodes,
  append_late,
  append_never,
  append_queue_survives,
  stride_ignored,
  count_stands,
  numbers_restart,
  nodes_survive_append,
  commit_of_root_only,
  mask_of_eight,
  throws_at_trees,
  nan
};

/// One layer of attention with positions: a slot's value depends on its token, its position and what it
/// attends to; a row on the node's value. Its slots are those of a cache that commit() has to compact.
class Attention {
 public:
  static constexpr std::int32_t kVocab = 50;
  static constexpr int kWidth = 6;
  using Value = std::array<double, kWidth>;

  /// `noise`: of rows, by how many nodes are in their pass, as other products for other sizes have it.
  explicit Attention(Mistake mistake, bool lazy = false, double noise = 0)
      : mistake_(mistake), lazy_(lazy), noise_(noise) {}
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t capacity() const { return 64; }
  std::int32_t size() const { return committed_ + static_cast<std::int32_t>(queued_.size()); }
  std::uint64_t change_count() const { return changes_; }

  void append(Tokens tokens) {
    ++changes_;
    if (mistake_ != Mistake::nodes_survive_append) drop();
    queued_.insert(queued_.end(), tokens.begin(), tokens.end());
    if (!lazy_ && mistake_ != Mistake::append_late) run_queue();
  }
  LogitsView extend(Tokens tokens, Nodes parents) {
    ++changes_;
    if (mistake_ == Mistake::throws_at_trees)
      for (std::size_t i = 0; i < parents.size(); ++i)
        if (parents[i] != static_cast<NodeId>(nodes_.size() + i) - 1) throw std::invalid_argument("no chain");
    if (mistake_ != Mistake::append_late) run_queue();
    const auto first = static_cast<NodeId>(nodes_.size()),
               numbers = mistake_ == Mistake::numbers_restart ? first : NodeId{0};
    const std::ptrdiff_t stride = kVocab + 3;
    std::vector<float> rows(tokens.size() * stride, 9.0f);
    // What a node sees of later ones is there before any of them runs.
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      NodeId parent = parents[i] == kNoParent ? kNoParent : parents[i] + numbers;
      if (parent >= static_cast<NodeId>(nodes_.size())) parent = kNoParent;  // only if numbers restart
      const int depth = parent == kNoParent ? 0 : nodes_[static_cast<std::size_t>(parent)].depth + 1;
      nodes_.push_back({parent, depth, tokens[i]});
      slots_.push_back({});
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId node = first + static_cast<NodeId>(i);
      std::vector<std::size_t> seen;
      for (std::size_t s = 0; s < static_cast<std::size_t>(committed_); ++s) seen.push_back(s);
      NodeId a = nodes_[static_cast<std::size_t>(node)].parent;
      if (mistake_ == Mistake::ancestors_hidden) a = kNoParent;
      if (mistake_ == Mistake::siblings_visible) a = node - 1;
      while (a != kNoParent) {
        if (mistake_ != Mistake::mask_of_eight || a < 8)
          seen.push_back(static_cast<std::size_t>(committed_ + a));
        a = mistake_ == Mistake::siblings_visible ? a - 1 : nodes_[static_cast<std::size_t>(a)].parent;
      }
      const auto place = static_cast<std::size_t>(committed_ + node);
      const int depth =
          mistake_ == Mistake::positions_by_index ? node : nodes_[static_cast<std::size_t>(node)].depth;
      slots_[place] = value(tokens[i], committed_ + depth, seen);
      if (mistake_ == Mistake::later_visible && i + 1 < tokens.size())
        slots_[place][0] += 0.1 * tokens[i + 1];
      std::size_t at = i;
      if (mistake_ == Mistake::rows_reversed) at = tokens.size() - 1 - i;
      if (mistake_ == Mistake::row_of_last && i + 1 == tokens.size())
        for (std::size_t k = 0; k < i; ++k)
          write(slots_[place], rows.data() + static_cast<std::ptrdiff_t>(k) * stride);
      write(slots_[place], rows.data() + static_cast<std::ptrdiff_t>(at) * stride);
    }
    if (mistake_ == Mistake::append_late) run_queue();
    if (mistake_ == Mistake::rows_stale) rows.swap(next_), rows.resize(next_.size(), 1.0f);
    rows_ = std::move(rows);
    for (std::size_t i = 0; i < rows_.size(); ++i)
      rows_[i] += static_cast<float>(noise_ * weight(1000 * tokens.size() + i));
    if (mistake_ == Mistake::nan && tokens.size() == 3) rows_[5] = std::numeric_limits<float>::quiet_NaN();
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), kVocab,
            mistake_ == Mistake::stride_ignored ? kVocab : stride};
  }
  void commit(Nodes path) {
    if (mistake_ != Mistake::count_stands) ++changes_;
    if (path.empty() && mistake_ == Mistake::empty_commit_keeps_nodes) return;
    if (path.empty() && mistake_ == Mistake::empty_commit_commits && !nodes_.empty()) {
      // The newest committed slot becomes that of the first node: the size stays.
      if (committed_ > 0)
        slots_[static_cast<std::size_t>(committed_) - 1] = slots_[static_cast<std::size_t>(committed_)];
    }
    run_queue();
    for (std::size_t i = 0; i < path.size(); ++i) {
      const auto to = static_cast<std::size_t>(committed_) + i;
      auto from = static_cast<std::size_t>(committed_ + path[i]);
      if (mistake_ == Mistake::no_compaction) from = to;
      if (mistake_ == Mistake::commit_of_root_only && i > 0)
        from = static_cast<std::size_t>(committed_ + path[0]);
      slots_[to] = slots_[from];
    }
    committed_ += static_cast<std::int32_t>(path.size());
    drop();
  }
  void truncate(std::int32_t n) {
    ++changes_;
    drop();
    if (mistake_ == Mistake::append_queue_survives && n >= committed_) return;
    if (n < size() && mistake_ == Mistake::truncate_forgotten) return;
    if (n >= committed_) {
      queued_.resize(static_cast<std::size_t>(n - committed_));
      return;
    }
    queued_.clear();
    if (mistake_ == Mistake::truncate_keeps_values && n > 0)
      std::swap(slots_[static_cast<std::size_t>(n) - 1], slots_[static_cast<std::size_t>(committed_) - 1]);
    committed_ = n;
    drop();
  }

 private:
  struct Node {
    NodeId parent;
    int depth;
    Token token;
  };
  static double weight(std::uint64_t i) {
    i = (i + 1) * 0x9E3779B97F4A7C15ull;
    i ^= i >> 29, i *= 0xBF58476D1CE4E5B9ull, i ^= i >> 32;
    return static_cast<double>(i >> 11) / 9007199254740992.0 - 0.5;
  }
  Value value(Token token, std::int32_t position, const std::vector<std::size_t>& seen) const {
    Value out{};
    for (int d = 0; d < kWidth; ++d) {
      double sum =
          3 * weight(static_cast<std::uint64_t>(token * kWidth + d)) + std::sin(position * (1.0 + d) * 0.7);
      for (const std::size_t s : seen)
        sum += 1.5 * slots_[s][static_cast<std::size_t>((d + 1) % kWidth)] / static_cast<double>(seen.size());
      out[static_cast<std::size_t>(d)] = std::tanh(sum);
    }
    return out;
  }
  static void write(const Value& value, float* row) {
    for (int t = 0; t < kVocab; ++t) {
      double sum = 0;
      for (int d = 0; d < kWidth; ++d)
        sum += value[static_cast<std::size_t>(d)] * weight(static_cast<std::uint64_t>(9000 + t * kWidth + d));
      row[t] = static_cast<float>(4 * sum);
    }
  }
  void run_queue() {
    for (const Token token : queued_) {
      std::vector<std::size_t> seen;
      for (std::size_t s = 0; s < static_cast<std::size_t>(committed_); ++s) seen.push_back(s);
      if (mistake_ == Mistake::append_never) seen.clear();
      const Value entry = value(token, mistake_ == Mistake::append_never ? 0 : committed_, seen);
      slots_.insert(slots_.begin() + committed_, mistake_ == Mistake::append_never ? Value{} : entry);
      ++committed_;
    }
    queued_.clear();
  }
  void drop() {
    nodes_.clear();
    slots_.resize(static_cast<std::size_t>(committed_));
  }

  Mistake mistake_;
  bool lazy_;
  double noise_;
  std::uint64_t changes_ = 0;
  std::int32_t committed_ = 0;
  std::vector<Token> queued_;
  std::vector<Value> slots_;  // committed, then those of the nodes
  std::vector<Node> nodes_;
  std::vector<float> rows_, next_;
};
static_assert(specula::CountsChanges<Attention>);

TEST_CASE("right models are silent, and empty afterwards") {
  for (const bool lazy : {false, true}) {
    Attention model(Mistake::none, lazy);
    CHECK(words(specula::check_model(model)) == "");
    CHECK(model.size() == 0);
    CHECK(words(specula::check_model(model, {.nodes = 32, .seed = 7})) == "");
  }
  for (const int vocab : {2, 3, 40}) {
    specula_test::ToyModel model(vocab, 3);
    CHECK(words(specula::check_model(model)) == "");
  }
  Attention inner(Mistake::none);
  specula::Processed penalised(inner, [](Tokens path, std::span<float> row) {
    for (const Token token : path) row[static_cast<std::size_t>(token)] -= 1;
  });
  CHECK(words(specula::check_model(penalised)) == "");
}

TEST_CASE("noise is no finding, and hides none") {
  Attention noisy(Mistake::none, false, 0.05);  // some 1% of a row's range
  CHECK(words(specula::check_model(noisy)) == "");
  CHECK(specula::check_model(noisy, {.tolerance = 1e-4}).size() > 0);
  for (const auto& [mistake, duty] :
       {std::pair{Mistake::positions_by_index, "positions"}, std::pair{Mistake::no_compaction, "commit"},
        std::pair{Mistake::siblings_visible, "mask"}, std::pair{Mistake::append_late, "append"},
        std::pair{Mistake::truncate_keeps_values, "truncate"}}) {
    Attention model(mistake, false, 0.05);
    const std::vector<ModelFinding> findings = specula::check_model(model);
    REQUIRE(!findings.empty());
    CHECK(findings.front().duty == duty);
  }
}

TEST_CASE("a model of chains only, and one with little room") {
  Attention chains(Mistake::throws_at_trees);
  CHECK(words(specula::check_model(chains, {.trees = false})) == "");
  specula_test::ToyModel small(40, 3, 2.0f, 12), less(40, 3, 2.0f, 11);
  CHECK(words(specula::check_model(small)) == "");
  CHECK(words(specula::check_model(less)) == "sizes: capacity() is 11, the check needs 12\n");
  CHECK_THROWS_WITH_AS(specula::check_model(small, {.nodes = 3}),
                       "ModelCheck::nodes is 3, must be in [4, 4096]", std::invalid_argument);
}

TEST_CASE("a planted mistake is named") {
  const std::pair<Mistake, const char*> planted[] = {
      {Mistake::positions_by_index, "positions"},
      {Mistake::no_compaction, "commit"},
      {Mistake::siblings_visible, "mask"},
      {Mistake::later_visible, "mask"},
      {Mistake::ancestors_hidden, "mask"},
      {Mistake::truncate_forgotten, "truncate"},
      {Mistake::truncate_keeps_values, "truncate"},
      {Mistake::rows_reversed, "rows"},
      {Mistake::rows_stale, "rows"},
      {Mistake::row_of_last, "rows"},
      {Mistake::empty_commit_commits, "empty commit"},
      {Mistake::empty_commit_keeps_nodes, "empty commit"},
      {Mistake::append_late, "append"},
      {Mistake::append_never, "append"},
      {Mistake::append_queue_survives, "truncate"},
      {Mistake::stride_ignored, "stride"},
      {Mistake::count_stands, "change_count"},
      {Mistake::numbers_restart, "nodes"},
      {Mistake::nodes_survive_append, "append"},
      {Mistake::commit_of_root_only, "commit"},
      {Mistake::mask_of_eight, "mask"},
      {Mistake::throws_at_trees, "calls"},
      {Mistake::nan, "rows"},
  };
  for (const auto& [mistake, duty] : planted) {
    const int number = static_cast<int>(mistake);  // clang 14 captures no structured binding
    CAPTURE(number);
    Attention model(mistake, mistake == Mistake::append_queue_survives);
    const std::vector<ModelFinding> findings = specula::check_model(model);
    CAPTURE(words(findings));
    REQUIRE(!findings.empty());
    CHECK(findings.front().duty == duty);
    for (const ModelFinding& f : findings) CHECK(f.what.find('\n') == std::string::npos);
  }
}

/// A model of many texts whose slots get into each other's way.
class Mixed : public specula_test::ToyBatch {
  using Batch = specula_test::ToyBatch;

 public:
  enum class By : std::uint8_t { nothing, order, commit, truncate, prompt };

  explicit Mixed(By by) : Batch(3, 40, 5), by_(by) {}
  LogitsView extend(std::span<const specula::SlotNodes> nodes) {
    std::vector<specula::SlotNodes> sorted(nodes.begin(), nodes.end());
    if (by_ == By::order)
      std::ranges::sort(sorted, {}, [](const specula::SlotNodes& slot_nodes) { return slot_nodes.slot; });
    LogitsView rows = Batch::extend(sorted);
    if (by_ == By::prompt && nodes.front().tokens.empty()) ++rows.rows;
    return rows;
  }
  void commit(std::int32_t slot, Nodes path) {
    Batch::commit(slot, path);
    if (by_ == By::commit)
      for (std::int32_t s = 0; s < slots(); ++s) Batch::truncate(s, size(s));
  }
  void truncate(std::int32_t slot, std::int32_t n) {
    Batch::truncate(slot, n);
    if (by_ == By::truncate)
      for (std::int32_t s = 0; s < slots(); ++s) Batch::truncate(s, std::min(n, size(s)));
  }

 private:
  By by_;
};

TEST_CASE("slots that mix") {
  for (const auto& [by, duty] :
       {std::pair{Mixed::By::nothing, ""}, std::pair{Mixed::By::order, "rows"},
        std::pair{Mixed::By::commit, "calls"}, std::pair{Mixed::By::truncate, "slots"},
        std::pair{Mixed::By::prompt, "rows"}}) {
    Mixed model(by);
    const std::vector<ModelFinding> findings = specula::check_batched_model(model);
    CAPTURE(words(findings));
    CHECK((findings.empty() ? "" : findings.front().duty) == duty);
    for (std::int32_t s = 0; s < 3; ++s) CHECK(model.size(s) == 0);
  }
}

}  // namespace
