// SPDX-License-Identifier: MIT
// labels: optimised
// verify_batch(): its law by enumeration, batches as single calls, damage, and what it allocates and copies.
#include <specula/accept/verify_batch.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <specula/accept/exact_rules.hpp>

#include "count_allocations.hpp"
#include "exact_random.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::arrays;
using namespace specula_test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Draws from a source that the caller owns.
struct Borrowed {
  ExactRandom& rng;
  bool accept(double probability, const RandomKey& key) { return rng.accept(probability, key); }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    return rng.draw(weights, key);
  }
};

enum class Form { chosen, logits, stats, probabilities, sparse };
constexpr Form kDrawn[] = {Form::logits, Form::stats, Form::probabilities, Form::sparse};
constexpr std::int32_t kVocab = 3;

/// A proposal over three tokens whose draft tokens an engine draws itself: parents, and whether siblings are
/// drawn without replacement.
struct Plan {
  std::vector<NodeId> parent;
  bool distinct = false;
};

/// Arrays of one sequence, filled by an engine.
struct Engine {
  Plan plan;
  SamplingParams params;
  std::vector<std::vector<float>> p, q;  // logits after a text of up to three tokens: rows by its number
  std::vector<float> target, draft, probs, sparse_prob;
  std::vector<Token> token, sparse_token;
  std::vector<RowStats> stats;
  std::vector<std::int32_t> row_of_node;
  std::vector<double> scale;
  std::int32_t begin[2] = {0, 0}, position = 3;
  std::uint64_t seed = 0;
  Token out_token[8];
  NodeId out_accepted[8];
  std::int32_t out_count = 0;
  Status out_status = Status::ok;
  float out_log_prob[8];
  BatchMemory memory;
  bool wrong_row = false;

  Engine(Plan shape, const SamplingParams& sampling, Random& random)
      : plan(std::move(shape)), params(sampling) {
    for (int i = 0; i < 40; ++i) {
      p.push_back(random.row(kVocab, 2, 0.1, 0.1));
      q.push_back(p.back());
      for (float& l : q.back()) l += static_cast<float>(random.between(-1, 1));
    }
  }
  int nodes() const { return static_cast<int>(plan.parent.size()); }
  /// Number of the text that the path to `node` makes, the root's being 0.
  std::size_t text_of(NodeId node) const {
    if (node == 0) return 0;
    const auto n = static_cast<std::size_t>(node);
    return 3 * text_of(plan.parent[n]) + 1 + static_cast<std::size_t>(token[n]);
  }
  /// q after a text. At temperature 0 the engine draws at temperature 1.
  std::vector<double> draft_prob(std::size_t text) const { return plain_distribution(q[text], params); }

  /// Draws the draft tokens, and fills the arrays of a draft of this form. Rows are in the order of parents,
  /// so siblings share one.
  void propose(Form form, ExactRandom& rng) {
    const auto n = static_cast<std::size_t>(nodes());
    token.assign(n, 0);
    row_of_node.assign(n, -1);
    scale.assign(n, 0);
    target.clear(), draft.clear(), probs.clear(), stats.clear(), sparse_token.clear(), sparse_prob.clear();
    detail::RowScan scan(kVocab);
    for (std::size_t i = 1; i < n; ++i) {
      const NodeId parent = plan.parent[i];
      const std::size_t text = text_of(parent);
      std::vector<double> weights = draft_prob(text);
      double left = 1;
      bool first = true;
      for (std::size_t c = 1; c < i; ++c)
        if (plan.parent[c] == parent) {
          first = false;
          row_of_node[i] = row_of_node[c];
          if (plan.distinct) {
            double& earlier = weights[static_cast<std::size_t>(token[c])];
            left -= earlier;
            earlier = 0;
          }
        }
      if (form == Form::chosen) {
        token[i] = static_cast<Token>((text + i) % kVocab);
        continue;
      }
      if (left < 1e-9) {  // nothing distinct is left: padding
        token[i] = -1;
        row_of_node[i] = -1;
        continue;
      }
      token[i] = draw(weights, {position, 100, RandomStream::own, static_cast<std::uint32_t>(i)}, rng);
      if (plan.distinct) scale[i] = 1 / left;
      if (first) {
        row_of_node[i] = static_cast<std::int32_t>(stats.size());
        const std::vector<float>& row = q[wrong_row ? text + 1 : text];
        draft.insert(draft.end(), row.begin(), row.end());
        const Distribution d = scan.distribution(row, params);
        stats.push_back({d.log_z, d.shift, params.temperature, d.min_logit, d.point, Status::ok});
        const std::vector<double> dense = plain_distribution(row, params);
        for (Token x = 0; x < kVocab; ++x) probs.push_back(static_cast<float>(dense[std::size_t(x)]));
        for (Token x = kVocab - 1; x >= 0; --x) {
          sparse_token.push_back(dense[std::size_t(x)] > 0 ? x : -1);
          sparse_prob.push_back(static_cast<float>(dense[std::size_t(x)]));
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::vector<float>& row = p[token[i] < 0 ? 0 : text_of(static_cast<NodeId>(i))];
      target.insert(target.end(), row.begin(), row.end());
    }
    begin[1] = nodes();
  }
  static Token draw(const std::vector<double>& weights, const RandomKey& key, ExactRandom& rng) {
    for (Token x = 0, left = kVocab; x < kVocab; ++x, --left) {
      double rest = 0;
      for (Token y = x; y < kVocab; ++y) rest += weights[static_cast<std::size_t>(y)];
      RandomKey one = key;
      one.index = key.index * 8 + static_cast<std::uint32_t>(x);
      if (rest > 0 && rng.accept(weights[static_cast<std::size_t>(x)] / rest, one)) return x;
    }
    throw std::logic_error("no weight");
  }
  Trees trees() const {
    return {begin, token.data(), plan.parent.data(), &position, &seed, nullptr, nullptr};
  }
  VerifyResults results() { return {out_token, out_accepted, &out_count, &out_status, out_log_prob}; }
  template <class Rule, class Draft>
  void verify_with(const Rule& rule, const Draft& d, ExactRandom& rng) {
    const VerifyCapacity capacity{1, nodes(), 7, kVocab};
    const Trees proposal = trees();
    const TargetRows<float> rows{target.data(), kVocab, nullptr, &params};
    const VerifyResults out = results();
    detail::verify_each(rule, detail::BatchArguments<float, Draft>{capacity, proposal, rows, d, out}, memory,
                        [&](std::int32_t) { return Borrowed{rng}; });
    if (out_status != Status::ok) throw std::runtime_error(std::string(memory.message(0)));
  }
  template <class Rule>
  void verify(const Rule& rule, Form form, ExactRandom& rng) {
    if (form == Form::chosen || stats.empty()) return verify_with(rule, ChosenDraft{}, rng);
    const std::int32_t* rows = row_of_node.data();
    if (form == Form::logits)
      return verify_with(rule, LogitsDraft<float>{draft.data(), kVocab, nullptr, rows, scale.data()}, rng);
    if (form == Form::stats)
      return verify_with(rule, LogitsDraft<float>{draft.data(), kVocab, stats.data(), rows, scale.data()},
                         rng);
    if (form == Form::probabilities)
      return verify_with(rule, ProbsDraft{probs.data(), kVocab, rows, scale.data()}, rng);
    verify_with(rule, SparseDraft{sparse_token.data(), sparse_prob.data(), kVocab, rows, scale.data()}, rng);
  }
};

/// The largest distance of the law of the next `depth` tokens from the target's, where a text that a round
/// left short goes on by the target itself.
template <class Rule>
double distance(const Rule& rule, Engine& engine, Form form, std::size_t depth) {
  const Arithmetic exact(Isa::reference);
  std::map<std::vector<Token>, double> law;
  const auto after = [&](const std::vector<Token>& text) {
    std::size_t at = 0;
    for (const Token t : text) at = 3 * at + 1 + static_cast<std::size_t>(t);
    return plain_distribution(engine.p[at], engine.params);
  };
  const std::function<void(std::vector<Token>, double)> go_on = [&](std::vector<Token> text, double weight) {
    if (weight == 0) return;
    if (text.size() == depth) return void(law[text] += weight);
    const std::vector<double> next = after(text);
    for (Token x = 0; x < kVocab; ++x) {
      text.push_back(x);
      go_on(text, weight * next[static_cast<std::size_t>(x)]);
      text.pop_back();
    }
  };
  ExactRandom rng;
  do {
    rng.begin();
    engine.propose(form, rng);
    engine.verify(rule, form, rng);
    std::vector<Token> text(engine.out_token, engine.out_token + engine.out_count);
    text.resize(std::min(text.size(), depth));
    go_on(text, rng.weight());
  } while (rng.next());
  const std::map<std::vector<Token>, double> got = std::move(law);
  law.clear();
  go_on({}, 1);
  double worst = 0;
  for (const auto& [text, weight] : law)
    worst = worse(worst, std::abs(weight - (got.count(text) ? got.at(text) : 0)));
  for (const auto& [text, weight] : got)
    if (!law.count(text)) worst = worse(worst, weight);
  return worst;
}

const SamplingParams kSettings[] = {{}, {.temperature = 0.7f, .top_k = 2}, {.top_p = 0.8f}, {.min_p = 0.3f}};
const Plan kChain{{-1, 0, 1}}, kSiblings{{-1, 0, 0, 1}}, kDistinct{{-1, 0, 0, 2}, true},
    kPadded{{-1, 0, 0, 0, 3}, true};

}  // namespace

TEST_CASE("the law of the emitted tokens is the target's, for every rule, form of q, tree and setting") {
  int enumerated = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const SamplingParams& params : kSettings)
      for (const Plan* plan : {&kChain, &kSiblings, &kDistinct, &kPadded})
        for (const Form form : {Form::chosen, Form::logits, Form::stats, Form::probabilities, Form::sparse}) {
          if (plan == &kPadded && seed > 1) continue;
          Random random(seed);
          Engine engine(*plan, params, random);
          // Probabilities are given as floats: the engine drew by others, in double.
          const double near = form == Form::probabilities || form == Form::sparse ? 2e-7 : 1e-12;
          const auto check = [&](const auto& rule) {
            CHECK(distance(rule, engine, form, 3) < near);
            ++enumerated;
          };
          check(SampleAndMatch{});
          check(Rejection{});
          check(Traversal{});
          check(Sampling{});
          if (plan == &kChain && form != Form::chosen) check(Block{});
        }
  CHECK(enumerated > 700);
}

TEST_CASE("greedy verification writes the largest logits") {
  Random random(5);
  for (const Form form : {Form::chosen, Form::logits, Form::probabilities}) {
    Engine engine(kSiblings, {}, random);
    ExactRandom rng;
    do {
      rng.begin();
      engine.propose(form, rng);
      engine.verify(Greedy{}, form, rng);
      std::size_t text = 0;
      for (int i = 0; i < engine.out_count; ++i) {
        const auto& row = engine.p[text];
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        REQUIRE(engine.out_token[i] == best);
        REQUIRE(engine.out_log_prob[i] == 0);
        text = 3 * text + 1 + static_cast<std::size_t>(best);
      }
    } while (rng.next());
  }
}

TEST_CASE("with q of another row the law is another: the enumeration would find it") {
  int found = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const Form form : kDrawn) {
      Random random(seed);
      Engine engine(kChain, {}, random);
      engine.wrong_row = true;
      found += distance(Rejection{}, engine, form, 3) > 1e-3;
      found += distance(Traversal{}, engine, form, 3) > 1e-3;
      all += 2;
    }
  CHECK(found == all);
}

namespace {

/// A batch of chains and trees as an engine has it, with rows of `Element`, and results beside it.
template <class Element>
struct Batch {
  std::int32_t vocab, sequences, width;
  std::vector<std::int32_t> begin{0}, position, row_of_node;
  std::vector<Token> token;
  std::vector<NodeId> parent;
  std::vector<std::uint64_t> seed;
  std::vector<std::uint32_t> sequence;
  std::vector<SamplingParams> params;
  std::vector<Element> target, draft;
  std::vector<float> probs, log_prob;
  std::vector<Token> out_token;
  std::vector<NodeId> out_accepted;
  std::vector<std::int32_t> out_count;
  std::vector<Status> out_status;

  static void put(float x, float& out) { out = x; }
  static void put(float x, Half& out) { out.bits = detail::round_to_half(x); }
  static void put(float x, BFloat16& out) {
    out.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  }

  Batch(Random& random, std::int32_t tokens, std::int32_t count, std::int32_t most_nodes)
      : vocab(tokens), sequences(count), width(most_nodes) {
    const SamplingParams settings[] = {
        {}, {.temperature = 0.8f, .top_k = 7}, {.top_p = 0.9f}, {.temperature = 0}, {.min_p = 0.05f}};
    std::int32_t rows = 0;
    for (std::int32_t b = 0; b < count; ++b) {
      const std::int32_t nodes = random.below(most_nodes + 1);
      params.push_back(settings[random.below(5)]);
      position.push_back(random.below(1000));
      seed.push_back(random.bits());
      sequence.push_back(static_cast<std::uint32_t>(b));
      for (std::int32_t n = 0; n < nodes; ++n) {
        std::vector<float> row = random.row(tokens, 3, 0.1, 0.1);
        add(target, row);
        parent.push_back(n == 0 ? -1 : random.bernoulli(0.7) ? n - 1 : random.below(n));
        token.push_back(random.bernoulli(0.05) ? -1 : random.below(tokens));
        row_of_node.push_back(n == 0 || random.bernoulli(0.3) ? -1 : rows++);
        if (row_of_node.back() < 0) continue;
        for (float& l : row) l += static_cast<float>(random.between(-1, 1));
        add(draft, row);
        for (const double q :
             plain_distribution(row, params.back().greedy() ? SamplingParams{} : params.back()))
          probs.push_back(static_cast<float>(q));
      }
      begin.push_back(static_cast<std::int32_t>(token.size()));
    }
    add(draft, std::vector<float>(static_cast<std::size_t>(tokens)));  // no array is empty
    probs.resize(probs.size() + static_cast<std::size_t>(tokens));
    token.push_back(0), parent.push_back(0), row_of_node.push_back(0);
    const auto cells = static_cast<std::size_t>(count) * static_cast<std::size_t>(width);
    out_token.assign(cells, -7), out_accepted.assign(cells, -7), log_prob.assign(cells, -7);
    out_count.assign(static_cast<std::size_t>(count), -7);
    out_status.assign(static_cast<std::size_t>(count), Status::ok);
  }
  void add(std::vector<Element>& rows, const std::vector<float>& row) const {
    for (const float x : row) {
      rows.emplace_back();
      put(x, rows.back());
    }
  }
  VerifyCapacity capacity() const { return {sequences, width, width - 1, vocab}; }
  Trees trees() const {
    return {begin.data(), token.data(),    parent.data(), position.data(),
            seed.data(),  sequence.data(), nullptr};
  }
  TargetRows<Element> rows() const { return {target.data(), vocab, nullptr, params.data()}; }
  VerifyResults results() {
    return {out_token.data(), out_accepted.data(), out_count.data(), out_status.data(), log_prob.data()};
  }
  LogitsDraft<Element> logits_draft() const { return {draft.data(), vocab, nullptr, row_of_node.data()}; }
  ProbsDraft probs_draft() const { return {probs.data(), vocab, row_of_node.data()}; }
};

}  // namespace

TEST_CASE_TEMPLATE("a batch of 64 is 64 single calls, in any order", Element, float, Half, BFloat16) {
  Random random(3);
  BatchMemory memory, alone;
  for (int round = 0; round < 6; ++round) {
    Batch<Element> batch(random, round % 2 ? 700 : 30, 64, 9);
    const auto run = [&](const auto& rule, const auto& draft) {
      const std::int32_t failed =
          verify_batch(rule, batch.capacity(), batch.trees(), batch.rows(), draft, batch.results(), memory);
      CHECK(failed == 0);
      const Batch<Element> together = batch;
      for (std::int32_t i = 0; i < 64; ++i) {
        const std::int32_t b = 63 - (i * 37) % 64;
        const auto at = static_cast<std::size_t>(b);
        const std::size_t cell = at * static_cast<std::size_t>(batch.width);
        Trees one = batch.trees();
        one.begin += b, one.position += b, one.seed += b, one.sequence += b;
        TargetRows<Element> rows = batch.rows();
        rows.params = batch.params.data() + b;
        const VerifyResults out{batch.out_token.data() + cell, batch.out_accepted.data() + cell,
                                batch.out_count.data() + b, batch.out_status.data() + b,
                                batch.log_prob.data() + cell};
        batch.out_count[at] = -7;
        VerifyCapacity capacity = batch.capacity();
        capacity.sequences = 1;
        verify_batch(rule, capacity, one, rows, draft, out, alone);
      }
      CHECK(batch.out_token == together.out_token);
      CHECK(batch.out_accepted == together.out_accepted);
      CHECK(batch.out_count == together.out_count);
      CHECK(batch.out_status == together.out_status);
      CHECK(batch.log_prob == together.log_prob);
    };
    run(Rejection{}, batch.logits_draft());
    run(Traversal{}, batch.probs_draft());
    run(Sampling{}, batch.probs_draft());
    run(SampleAndMatch{}, ChosenDraft{});
    run(Greedy{}, ChosenDraft{});
  }
}

TEST_CASE("rows need no map, are any stride apart, and may be in any order") {
  Random random(4);
  BatchMemory memory;
  for (int round = 0; round < 20; ++round) {
    Batch<float> batch(random, 20, 5, 6);
    REQUIRE(verify_batch(Rejection{}, batch.capacity(), batch.trees(), batch.rows(), batch.logits_draft(),
                         batch.results(), memory) == 0);
    const Batch<float> want = batch;
    // The same rows, the last first, with NaN between them.
    const auto n = static_cast<std::int32_t>(batch.target.size() / 20);
    std::vector<float> apart(static_cast<std::size_t>(n) * 23 + 1, kNan);
    std::vector<std::int32_t> map;
    for (std::int32_t r = 0; r < n; ++r) {
      map.push_back(n - 1 - r);
      std::copy_n(batch.target.begin() + 20 * r, 20, apart.begin() + 23 * (n - 1 - r));
    }
    map.push_back(0);
    verify_batch(Rejection{}, batch.capacity(), batch.trees(),
                 TargetRows<float>{apart.data(), 23, map.data(), batch.params.data()}, batch.logits_draft(),
                 batch.results(), memory);
    CHECK(batch.out_token == want.out_token);
    if (n > 0)
      verify_batch(Rejection{}, batch.capacity(), batch.trees(),
                   TargetRows<float>{apart.data() + 23 * (n - 1), -23, nullptr, batch.params.data()},
                   batch.logits_draft(), batch.results(), memory);
    CHECK(batch.out_token == want.out_token);
    CHECK(batch.log_prob == want.log_prob);
  }
}

TEST_CASE("draft token i of the batch has row i where there is no map") {
  Random random(6);
  BatchMemory memory;
  for (int round = 0; round < 20; ++round) {
    Batch<float> batch(random, 20, 6, 5);
    std::int32_t row = 0;
    batch.draft.clear();
    for (std::size_t b = 0; b < 6; ++b)
      for (std::int32_t n = batch.begin[b]; n < batch.begin[b + 1]; ++n)
        batch.row_of_node[static_cast<std::size_t>(n)] = n == batch.begin[b] ? -1 : row++;
    for (std::int32_t r = 0; r <= row; ++r) batch.add(batch.draft, random.row(20, 2, 0, 0));
    verify_batch(Traversal{}, batch.capacity(), batch.trees(), batch.rows(), batch.logits_draft(),
                 batch.results(), memory);
    const Batch<float> want = batch;
    LogitsDraft<float> draft = batch.logits_draft();
    draft.row_of_node = nullptr;
    verify_batch(Traversal{}, batch.capacity(), batch.trees(), batch.rows(), draft, batch.results(), memory);
    CHECK(batch.out_token == want.out_token);
  }
}

TEST_CASE("a steady call allocates nothing, whatever its rule and rows") {
  Random random(7);
  BatchMemory memory;
  Batch<BFloat16> batch(random, 1300, 16, 8);
  const auto all = [&] {
    const auto run = [&](const auto& rule, const auto& draft) {
      verify_batch(rule, batch.capacity(), batch.trees(), batch.rows(), draft, batch.results(), memory);
    };
    run(Rejection{}, batch.logits_draft());
    run(Traversal{}, batch.logits_draft());
    run(Rejection{}, batch.probs_draft());
    run(Traversal{}, batch.probs_draft());
    run(SampleAndMatch{}, ChosenDraft{});
    run(Greedy{}, ChosenDraft{});
  };
  all();
  const AllocationCount allocated;
  all();
  const auto n = allocated.count();
  CHECK(n == 0);
}

TEST_CASE("what is wrong with one sequence is its own status and message") {
  const std::int32_t begin[] = {0, 3, 6};
  std::vector<Token> token{0, 1, 2, 0, 1, 2};
  std::vector<NodeId> parent{-1, 0, 1, -1, 0, 1};
  std::int32_t position[] = {5, 6};
  const std::uint64_t seed[] = {1, 2};
  SamplingParams params[2];
  std::vector<float> target(6 * 4, 1), draft(6 * 4, 1), probs(6 * 4, 0.25f);
  std::vector<double> scale(6, 0.0);
  Token out_token[6];
  NodeId out_accepted[6];
  std::int32_t count[2];
  Status status[2];
  BatchMemory memory;
  std::int64_t rows = 0;
  const auto verify = [&](const auto& rule, const auto& form) {
    return verify_batch(rule, {2, 3, 2, 4}, {begin, token.data(), parent.data(), position, seed},
                        TargetRows<float>{target.data(), 4, nullptr, params}, form,
                        {out_token, out_accepted, count, status}, memory);
  };
  const auto says = [&](Status which, const char* what, const auto& rule, const auto& form) {
    CHECK(verify(rule, form) == 1);
    CHECK(status[0] == Status::ok);
    CHECK(count[0] >= 1);
    CHECK(status[1] == which);
    CHECK(count[1] == 0);
    CHECK(out_token[3] == -1);
    CHECK(memory.message(0).empty());
    CHECK(memory.message(1) == std::string("verify_batch: sequence 1: ") + what);
  };
  const auto logits = [&] {
    return LogitsDraft<float>{draft.data(), 4, nullptr, nullptr, scale.data(), rows};
  };
  const auto as_probs = [&] { return ProbsDraft{probs.data(), 4, nullptr, scale.data(), rows}; };
  REQUIRE(verify(Rejection{}, logits()) == 0);

  token[4] = 4;
  says(Status::bad_tree, "node 1 is token 4, outside the vocabulary of 4", Rejection{}, logits());
  token[4] = 1;
  parent[5] = 2;
  says(Status::bad_tree, "node 2 has parent 2, must be an earlier node", Rejection{}, logits());
  parent[5] = -1;
  says(Status::bad_tree, "node 2 has parent -1, must be an earlier node", Greedy{}, logits());
  parent[5] = 0;
  says(Status::bad_tree, "Block: the proposal is no chain; Traversal takes trees", Block{}, logits());
  parent[5] = 1;
  parent[3] = 0;
  says(Status::bad_tree, "node 0 has parent 0, must be -1", SampleAndMatch{}, logits());
  parent[3] = -1;
  position[1] = 2147483647;
  says(Status::bad_tree, "trees.position is 2147483647, too large for its draft tokens", Rejection{},
       logits());
  position[1] = 6;
  params[1].top_p = 0;
  says(Status::bad_parameters, "SamplingParams::top_p is 0, must be in (0, 1]", Rejection{}, logits());
  params[1].top_p = 1;
  target[3 * 4 + 2] = kNan;
  says(Status::not_a_number,
       "the target's row after node 0: a row of logits holds NaN or +infinity at token 2", Rejection{},
       logits());
  target[3 * 4 + 2] = 3e38f;
  params[1].temperature = 0.5f;
  CHECK(verify(Rejection{}, logits()) == 1);
  CHECK(status[1] == Status::overflow);
  params[1].temperature = 1;
  std::fill_n(target.begin() + 12, 4, -std::numeric_limits<float>::infinity());
  says(Status::empty_row, "the target's row after node 0: a row of logits is empty: none is above -infinity",
       Greedy{}, logits());
  std::fill_n(target.begin() + 12, 4, 1.0f);
  draft[3 * 4] = kNan;  // draft tokens 2 and 3 are of sequence 1
  says(Status::not_a_number,
       "row 3 of the draft, of node 2: a row of logits holds NaN or +infinity at token 0", Rejection{},
       logits());
  draft[3 * 4] = 1;
  std::vector<RowStats> stats(
      4, {std::log(4.0), 1, 1, -std::numeric_limits<float>::infinity(), kNoToken, Status::ok});
  stats[3].point = 4;
  says(Status::bad_draft_row,
       "row 3 of the draft, of node 2: draft.stats has the point 4, outside the vocabulary of 4", Rejection{},
       LogitsDraft<float>{draft.data(), 4, stats.data()});
  stats[3] = {0, 1, 1, 1, kNoToken, Status::empty_row};
  says(Status::empty_row, "row 3 of the draft, of node 2: draft.stats has a status that is not ok",
       Rejection{}, LogitsDraft<float>{draft.data(), 4, stats.data()});
  rows = 3;
  says(Status::bad_draft_row, "node 2 has row 3 of the draft, which has 3", Traversal{}, logits());
  rows = 0;
  probs[2 * 4] = 0.26f;
  says(Status::bad_draft_sum,
       "row 2 of the draft, of node 1: the probabilities add up to 1.0099999904632568, must be 1 within "
       "0.001: "
       "give them as they were drawn from, renormalised as floats",
       Traversal{}, as_probs());
  for (std::size_t x = 0; x < 4; ++x) probs[2 * 4 + x] /= 1.01f;
  CHECK(verify(Traversal{}, as_probs()) == 0);
  probs[2 * 4] = kNan;
  CHECK(verify(Traversal{}, as_probs()) == 1);
  CHECK(status[1] == Status::not_a_number);
  CHECK(verify(SampleAndMatch{}, as_probs()) == 0);  // does not read q
}

TEST_CASE("a path that the results have no room for, a negative row, padding with anything in its maps") {
  // Greedy: all draft tokens are the largest logits.
  const std::int32_t begin[] = {0, 4}, position = 0;
  std::vector<Token> token{0, 2, 2, 2};
  const NodeId parent[] = {-1, 0, 1, 2};
  std::vector<float> target(4 * 3);
  for (std::size_t n = 0; n < 4; ++n) target[3 * n + 2] = 5;
  const std::uint64_t seed = 1;
  std::vector<std::int32_t> row{0, 1, 2, 3};
  Token out_token[8];
  NodeId accepted[8];
  std::int32_t count;
  Status status;
  BatchMemory memory;
  const auto verify = [&](const auto& rule, int depth, const auto& draft) {
    std::fill_n(out_token, 8, -7);
    return verify_batch(rule, {1, 4, depth, 3}, {begin, token.data(), parent, &position, &seed},
                        TargetRows<float>{target.data(), 3, row.data()}, draft,
                        {out_token, accepted, &count, &status}, memory);
  };
  CHECK(verify(Greedy{}, 3, ChosenDraft{}) == 0);
  CHECK(count == 4);
  CHECK(verify(Greedy{}, 2, ChosenDraft{}) == 1);
  CHECK(status == Status::bad_tree);
  CHECK(count == 0);
  CHECK(memory.message(0) == "verify_batch: sequence 0: a path of 4 nodes, capacity.max_depth is 2");
  CHECK((out_token[0] == -1 && out_token[2] == -1 && out_token[3] == -7));
  row[2] = -1;
  CHECK(verify(Greedy{}, 3, ChosenDraft{}) == 1);
  CHECK(memory.message(0) == "verify_batch: sequence 0: node 2 has row -1 in target.row_of_node");
  row[0] = -5;
  CHECK(verify(Greedy{}, 3, ChosenDraft{}) == 1);
  CHECK(memory.message(0) == "verify_batch: sequence 0: node 0 has row -5 in target.row_of_node");
  row[0] = 0;
  // Node 1 is padding, so nodes 2 and 3 are, too: their places in maps are anything.
  token[1] = -1;
  row[2] = row[1] = -100, row[3] = 1 << 30;
  const std::int32_t draft_rows[] = {0, 1 << 30, 1 << 30, 1 << 30};
  const float probs[] = {0.2f, 0.3f, 0.5f};
  CHECK(verify(Greedy{}, 3, ChosenDraft{}) == 0);
  CHECK(count == 1);
  for (int i = 0; i < 2; ++i) {
    const ProbsDraft draft{probs, 3, draft_rows, nullptr, 1};
    CHECK((i ? verify(Traversal{}, 3, draft) : verify(Rejection{}, 3, draft)) == 0);
    CHECK(count == 1);
  }
}

TEST_CASE("sequences of one seed draw apart by their number, and alike without") {
  std::vector<std::int32_t> begin;
  for (std::int32_t b = 0; b <= 64; ++b) begin.push_back(b);
  const std::vector<Token> token(64, 0);
  const std::vector<NodeId> parent(64, -1);
  const std::vector<std::int32_t> position(64, 9);
  const std::vector<std::uint64_t> seed(64, 5);
  std::vector<std::uint32_t> sequence;
  for (std::uint32_t b = 0; b < 64; ++b) sequence.push_back(b);
  const std::vector<float> target(64 * 8);
  std::vector<Token> out(64);
  std::vector<NodeId> accepted(64);
  std::vector<std::int32_t> count(64);
  std::vector<Status> status(64);
  BatchMemory memory;
  const auto verify = [&](const std::uint32_t* numbers) {
    verify_batch(SampleAndMatch{}, {64, 1, 0, 8},
                 {begin.data(), token.data(), parent.data(), position.data(), seed.data(), numbers},
                 TargetRows<float>{target.data(), 8}, ChosenDraft{},
                 {out.data(), accepted.data(), count.data(), status.data()}, memory);
  };
  verify(sequence.data());
  for (std::uint32_t b = 0; b < 64; ++b) {
    PhiloxRandom rng(5, b);
    detail::RowScan scan(8);
    CHECK(out[b] == rng.draw(scan.weights(std::span(target).first(8), {}), detail::sample_key(9, 0)));
  }
  CHECK(std::count(out.begin(), out.end(), out[0]) < 20);
  verify(nullptr);
  CHECK(std::count(out.begin(), out.end(), out[0]) == 64);
}

TEST_CASE("NaN in a draft row whose statistics say ok is found where the row is read") {
  // 600 tokens: a row of two tiles. Every draft token is rejected: p is 0 there.
  Random random(2);
  std::vector<float> target(2 * 600, 0.0f), draft(600, 0.0f);
  for (const std::size_t bad : {std::size_t{1}, std::size_t{599}}) {
    for (const auto isa : {Isa::portable, best_isa()}) {
      const Arithmetic arithmetic(isa);
      std::vector<float> row = draft;
      row[bad] = kNan;
      target[7] = -std::numeric_limits<float>::infinity();
      const RowStats stats{std::log(600.0), 0,         1, -std::numeric_limits<float>::infinity(),
                           kNoToken,        Status::ok};
      const std::int32_t begin[] = {0, 2}, position = 0;
      const Token token[] = {0, 7};
      const std::uint64_t seed = 1;
      Token out_token[2];
      NodeId accepted[2];
      std::int32_t count;
      Status status;
      BatchMemory memory;
      CHECK(verify_batch(Rejection{}, {1, 2, 1, 600}, {begin, token, nullptr, &position, &seed},
                         TargetRows<float>{target.data(), 600}, LogitsDraft<float>{row.data(), 600, &stats},
                         {out_token, accepted, &count, &status}, memory) == 1);
      CHECK(status == Status::not_a_number);
    }
  }
}

TEST_CASE("memory for random arrays is never left, and what is emitted is in range") {
  Random random(11);
  BatchMemory memory;
  int verified = 0, refused = 0;
  for (int round = 0; round < 10000; ++round) {
    const std::int32_t vocab = 1 + random.below(6), sequences = 1 + random.below(4), nodes = 12;
    const auto some = [&](std::size_t size, std::int32_t low, std::int32_t high) {
      std::vector<std::int32_t> out(size);
      for (auto& x : out)
        x = random.bernoulli(0.02) ? static_cast<std::int32_t>(random.bits())
                                   : low + random.below(high - low);
      return out;
    };
    std::vector<std::int32_t> begin(static_cast<std::size_t>(sequences) + 1);
    for (std::int32_t b = 0; b < sequences; ++b)
      begin[static_cast<std::size_t>(b) + 1] = std::min(
          nodes, begin[static_cast<std::size_t>(b)] + random.below(6) - (random.bernoulli(0.05) ? 2 : 0));
    for (auto& at : begin) at = std::max(at, 0);
    const auto token = some(12, -1, vocab), parent = some(12, -1, 4), position = some(4, 0, 50);
    const auto map = some(12, -1, 12);
    std::vector<std::int32_t> draft_row(12);
    for (std::size_t n = 0; n < 12; ++n) draft_row[n] = std::min(11, map[n]);  // in the rows that there are
    std::vector<NodeId> parents(parent);
    for (const auto first : begin)
      if (first < nodes) parents[static_cast<std::size_t>(first)] = -1;
    std::vector<std::uint64_t> seed(4, random.bits());
    std::vector<float> target(12 * 6), draft(12 * 6), probs(12 * 6, 1 / static_cast<float>(vocab));
    for (auto* rows : {&target, &draft})
      for (float& x : *rows)
        x = random.bernoulli(0.02)   ? std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()))
            : random.bernoulli(0.02) ? -std::numeric_limits<float>::infinity()
                                     : static_cast<float>(random.between(-3, 3));
    for (float& x : probs)
      if (random.bernoulli(0.01)) x = static_cast<float>(random.between(-1, 2));
    std::vector<SamplingParams> params(4);
    for (auto& p : params)
      if (random.bernoulli(0.2))
        p = {static_cast<float>(random.between(0, 2)), random.below(4),
             static_cast<float>(random.between(-0.1, 1)), static_cast<float>(random.between(0, 1.1))};
    std::vector<double> scale(12, random.bernoulli(0.8) ? 0 : random.between(-1, 5));
    std::vector<Token> out_token(static_cast<std::size_t>(sequences) * 5);
    std::vector<NodeId> accepted(out_token.size());
    std::vector<std::int32_t> count(4);
    std::vector<Status> status(4);
    std::vector<float> logs(out_token.size());
    const auto run = [&](const auto& rule, const auto& form) {
      const std::int32_t failed =
          verify_batch(rule, {sequences, 5, 4, vocab},
                       {begin.data(), token.data(), parents.data(), position.data(), seed.data()},
                       TargetRows<float>{target.data(), 6, nullptr, params.data()}, form,
                       {out_token.data(), accepted.data(), count.data(), status.data(), logs.data()}, memory);
      refused += failed;
      verified += sequences - failed;
      for (std::int32_t b = 0; b < sequences; ++b)
        for (std::int32_t i = 0; i < count[static_cast<std::size_t>(b)]; ++i) {
          const auto cell = static_cast<std::size_t>(b * 5 + i);
          REQUIRE((out_token[cell] >= 0 && out_token[cell] < vocab));
          REQUIRE((accepted[cell] >= 0 && accepted[cell] < 5));
        }
    };
    switch (round % 4) {
      case 0:
        run(Rejection{}, LogitsDraft<float>{draft.data(), 6, nullptr, draft_row.data(), scale.data(), 12});
        break;
      case 1:
        run(Traversal{}, ProbsDraft{probs.data(), 6, draft_row.data(), scale.data(), 12});
        break;
      case 2:
        run(Traversal{}, SparseDraft{map.data(), probs.data(), 1, draft_row.data(), scale.data(), 12});
        break;
      default:
        run(SampleAndMatch{}, ChosenDraft{});
    }
  }
  CHECK(verified > 5000);
  CHECK(refused > 1000);
}
