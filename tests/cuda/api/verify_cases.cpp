// SPDX-License-Identifier: MIT
// labels: optimised
// Verification kernels: mistakes that were made elsewhere, and the formats of a batch. Small enough for the
// sanitizers.
#include <doctest/doctest.h>
#include <specula/cuda/detail/verify/rules.cuh>

#include <specula/accept/exact_rules.hpp>

#include <map>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;
using device::Status;
using Greedily = GreedyRule;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const auto logits = [](const auto& batch) { return batch.logits_draft(); };
const auto none = [](const auto&) { return device::ChosenDraft{}; };
const auto dense_rejects = [](const Case& it, DenseUniforms& uniforms) {
  dense_rejection(it.dense, it.distributions, uniforms);
};
const auto dense_traverses = [](const Case& it, DenseUniforms& uniforms) {
  dense_traversal(it.dense, it.distributions, uniforms);
};
const auto dense_matches = [](const Case& it, DenseUniforms& uniforms) {
  dense_match(it.dense, it.distributions, uniforms);
};

/// A chain of tokens under a root, with target rows and draft rows given.
struct DraftedChain {
  int vocab;
  std::vector<Token> tokens;                      // the root first
  std::vector<std::vector<float>> target, draft;  // (N), (N - 1); no draft rows: chosen
  SamplingParams params = {};
  std::uint64_t seed = 1;
};

/// A batch of one sequence, its rows to be added.
template <class Element = float>
DeviceBatch<Element> one_tree(int vocab, std::vector<Token> tokens, std::vector<NodeId> parents,
                              device::SamplingParams params = {}, std::uint64_t seed = 3) {
  DeviceBatch<Element> b(vocab);
  b.begin = {0, static_cast<std::int32_t>(tokens.size())};
  b.max_nodes = b.width = static_cast<int>(tokens.size());
  b.token = std::move(tokens);
  b.parent = std::move(parents);
  b.position = {10};
  b.seed = {seed};
  b.params = {params};
  return b;
}

template <class Rule>
DeviceResult result_of_chain(const DraftedChain& chain, int blocks = 1) {
  const SamplingParams& p = chain.params;
  auto b = one_tree(chain.vocab, chain.tokens, {}, {p.temperature, p.top_k, p.top_p, p.min_p}, chain.seed);
  for (const auto& row : chain.target) b.add_row(b.target, row.data());
  detail::RowScan scan(chain.vocab);
  for (const auto& row : chain.draft) {
    b.add_row(b.draft, row.data());
    device::RowStats s{kNan, 0, 1, -kInf, device::kNoToken, Status::ok};
    try {
      const Distribution distribution = scan.distribution(row, {});
      s.log_z = distribution.log_z, s.shift = distribution.shift;
    } catch (const std::runtime_error&) {  // a bad row: sample() would have said so
    }
    b.stats.push_back(s);
  }
  if (chain.draft.empty()) {
    auto args = b.args(device::ChosenDraft{});
    args.trees.parent = nullptr;
    return emulate_verify<Rule>(b, args, blocks)[0];
  }
  auto args = b.args(device::LogitsDraft<float>{b.draft.data(), b.stride, b.stats.data()});
  args.trees.parent = nullptr;
  return emulate_verify<Rule>(b, args, blocks)[0];
}

}  // namespace

TEST_CASE("every rule gives the CPU's results on random trees, with every type of draft") {
  require_agreement(
      compare_with_cpu<RejectionRule, float>(Rejection{}, dense_rejects, logits, 150, 40, {.nodes = 16}, 1));
  require_agreement(compare_with_cpu<TraversalRule, device::BFloat16>(Traversal{}, dense_traverses, logits,
                                                                      150, 40, {.nodes = 16}, 2));
  require_agreement(compare_with_cpu<SampleAndMatchRule, device::Half>(SampleAndMatch{}, dense_matches, none,
                                                                       100, 40, {.nodes = 16}, 3));
  require_agreement(compare_with_cpu<Greedily, device::Half>(
      Greedy{}, [](const Case&, DenseUniforms&) {}, none, 100, 40, {.nodes = 16}, 4));
  const auto probs = [](auto& batch) { return batch.probs_draft(); };
  require_agreement(
      compare_with_cpu<RejectionRule, float>(Rejection{}, dense_rejects, probs, 150, 700, {.nodes = 9}, 5));
  require_agreement(
      compare_with_cpu<TraversalRule, float>(Traversal{}, dense_traverses, probs, 150, 30, {.nodes = 16}, 6));
  // Elements of two sizes: rows of 16 bits, and a draft's of floats.
  require_agreement(compare_with_cpu<TraversalRule, device::BFloat16>(Traversal{}, dense_traverses, probs,
                                                                      200, 1300, {.nodes = 9}, 9));
  const auto floats = [](auto& batch) { return batch.float_draft(); };
  for (const int vocab : {600, 1304})  // the second is read 16 bytes at a time to its end
    require_agreement(compare_with_cpu<RejectionRule, device::Half>(Rejection{}, dense_rejects, floats, 200,
                                                                    vocab, {.nodes = 9}, 10));
  const auto sparse = [](auto& batch) { return batch.sparse_draft(batch.vocab); };
  require_agreement(
      compare_with_cpu<RejectionRule, float>(Rejection{}, dense_rejects, sparse, 150, 20, {.nodes = 16}, 7));
  require_agreement(compare_with_cpu<TraversalRule, float>(Traversal{}, dense_traverses, sparse, 150, 20,
                                                           {.nodes = 16}, 8));
}

TEST_CASE("without a row map, a chain's draft tokens have draft rows in order") {
  Random random(21);
  DeviceBatch<float> batch(60);
  std::vector<DeviceResult> want;
  for (int i = 0; i < 30; ++i) {
    const SamplingParams p = device_settings()[static_cast<std::size_t>(random.below(6))];
    const Case it = random_case(
        random, 60, p, {.nodes = 1 + random.below(6), .distinct = false, .chooses = false, .wide = 0},
        random.bits());
    const std::uint64_t uniforms = random.bits();
    batch.add(it, p, uniforms);
    want.push_back(as_device(result_of(Rejection{}, it, p, uniforms), it.tree));
  }
  auto draft = batch.logits_draft();
  draft.row_of_node = nullptr;
  draft.scale = nullptr;
  auto args = batch.args(draft);
  args.trees.parent = nullptr;
  CHECK(emulate_verify<RejectionRule>(batch, args) == want);
}

TEST_CASE("target rows are found by the map") {
  Random random(22);
  DeviceBatch<float> batch(30);
  std::vector<DeviceResult> want;
  for (int i = 0; i < 10; ++i) {
    const Case it = random_case(random, 30, {}, {.nodes = 8}, random.bits());
    batch.add(it, {}, static_cast<std::uint64_t>(i));
    want.push_back(as_device(result_of(Rejection{}, it, {}, static_cast<std::uint64_t>(i)), it.tree));
  }
  auto args = batch.args(batch.logits_draft());
  // The rows back to front, so that row i is that of node N - 1 - i.
  const auto n = batch.token.size(), width = static_cast<std::size_t>(batch.stride);
  std::vector<float> turned;
  std::vector<std::int32_t> map;
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = batch.target.begin() + static_cast<std::ptrdiff_t>((n - 1 - i) * width);
    turned.insert(turned.end(), row, row + static_cast<std::ptrdiff_t>(width));
    map.push_back(static_cast<std::int32_t>(n - 1 - i));
  }
  args.target.logits = turned.data();
  args.target.row_of_node = map.data();
  CHECK(emulate_verify<RejectionRule>(batch, args) == want);
}

TEST_CASE("a token with p = 0 is never accepted, one with q = p always") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    DraftedChain chain{3, {0, 1}, {{0, -kInf, 1}, {0, 0, 0}}, {{0, 5, 0}}};
    chain.seed = seed;
    for (const DeviceResult& v :
         {result_of_chain<RejectionRule>(chain), result_of_chain<TraversalRule>(chain)}) {
      CHECK(v.status == Status::ok);
      REQUIRE(v.tokens.size() == 1);
      CHECK(v.tokens[0] != 1);
    }
    chain.target[0] = chain.draft[0];
    for (const DeviceResult& v :
         {result_of_chain<RejectionRule>(chain), result_of_chain<TraversalRule>(chain)}) {
      CHECK(v.status == Status::ok);
      REQUIRE(v.tokens.size() == 2);
      CHECK(v.tokens[0] == 1);
    }
  }
  CHECK_FALSE(device::PhiloxRandom{1, 0}.accept(0.0, {1, 1, device::RandomStream::accept, 0}));
  CHECK_FALSE(device::PhiloxRandom{1, 0}.accept(std::nan(""), {1, 1, device::RandomStream::accept, 0}));
  CHECK(device::PhiloxRandom{1, 0}.accept(1.0, {1, 1, device::RandomStream::accept, 0}));
  CHECK(uniform(0xFFFFFFFFu) < 1.0);
  CHECK(uniform(0) == 0.0);
}

TEST_CASE("bad rows: a status and no tokens") {
  const std::vector<float> good{0, 1, 2};
  for (const int blocks : {1, 3}) {
    for (const float bad : {kNan, kInf}) {
      DraftedChain chain{3, {0, 2, 1}, {{0, 0, 90}, {0, bad, 0}, good}, {}};
      // after an accepted draft token
      DeviceResult v = result_of_chain<RejectionRule>(chain, blocks);
      CHECK(v.status == Status::not_a_number);
      CHECK(v.tokens.empty());
      CHECK(result_of_chain<TraversalRule>(chain, blocks).status == Status::not_a_number);
      CHECK(result_of_chain<SampleAndMatchRule>(chain, blocks).status == Status::not_a_number);
      CHECK(result_of_chain<Greedily>(chain, blocks).status == Status::not_a_number);
      chain.target[1] = {-kInf, -kInf, -kInf};
      CHECK(result_of_chain<RejectionRule>(chain, blocks).status == Status::empty_row);
      CHECK(result_of_chain<Greedily>(chain, blocks).status == Status::empty_row);
      chain.target[0] = {0, 90, 0};  // the draft token is rejected, so the bad row is never read
      v = result_of_chain<SampleAndMatchRule>(chain, blocks);
      CHECK(v.status == Status::ok);
      CHECK(v.tokens == std::vector<Token>{1});
    }
    const DraftedChain draft{3, {0, 2}, {good, good}, {{0, kNan, 0}}};
    CHECK(result_of_chain<RejectionRule>(draft, blocks).status == Status::not_a_number);
    CHECK(result_of_chain<RejectionRule>(draft, blocks).tokens.empty());
  }
}

TEST_CASE("an empty residual draws from p") {
  // p equals q up to rounding; in every case the next token has nonzero probability.
  Random random(23);
  for (int i = 0; i < 100; ++i) {
    std::vector<float> row = random.row(5, 2);
    std::vector<float> same = row;
    for (float& l : same) l += 3;  // the same distribution
    const DraftedChain chain{5, {0, random.below(5)}, {row, row}, {same}, {}, random.bits()};
    for (const DeviceResult& v :
         {result_of_chain<RejectionRule>(chain), result_of_chain<TraversalRule>(chain)}) {
      CHECK(v.status == Status::ok);
      for (const Token t : v.tokens) CHECK((t >= 0 && t < 5));
    }
  }
}

TEST_CASE("padding and the nodes below it are skipped") {
  DraftedChain chain{3, {0, -1, 2}, {{0, 0, 90}, {90, 0, 0}, {0, 0, 0}}, {}};
  CHECK(result_of_chain<RejectionRule>(chain).tokens == std::vector<Token>{2});
  CHECK(result_of_chain<TraversalRule>(chain).tokens == std::vector<Token>{2});
  CHECK(result_of_chain<SampleAndMatchRule>(chain).tokens == std::vector<Token>{2});
  // In a tree: a padded sibling between two others changes only the numbering.
  auto b = one_tree(3, {0, 1, -1, 2, 0}, {-1, 0, 0, 0, 3});
  const std::vector<float> certain{0, 0, 90}, flat{1, 1, 1};
  for (int n = 0; n < 5; ++n) b.add_row(b.target, n == 0 ? certain.data() : flat.data());
  for (const auto& v : {emulate_verify<RejectionRule>(b, b.args(device::ChosenDraft{}))[0],
                        emulate_verify<TraversalRule>(b, b.args(device::ChosenDraft{}))[0]}) {
    CHECK(v.status == Status::ok);
    REQUIRE(v.accepted.size() >= 2);
    CHECK(v.accepted[1] == 3);
    CHECK(v.tokens[0] == 2);
  }
}

TEST_CASE("bad trees and parameters: a status for that sequence; the others are verified") {
  DeviceBatch<float> b(4);
  const std::vector<float> row{0, 3, 1, 2};
  const auto add = [&](const std::vector<Token>& tokens, const std::vector<NodeId>& parents,
                       device::SamplingParams p) {
    for (std::size_t n = 0; n < tokens.size(); ++n) {
      b.token.push_back(tokens[n]);
      b.parent.push_back(parents[n]);
      b.add_row(b.target, row.data());
    }
    b.begin.push_back(static_cast<std::int32_t>(b.token.size()));
    b.position.push_back(1);
    b.seed.push_back(1);
    b.params.push_back(p);
  };
  add({0, 1}, {-1, 0}, {});
  add({0, 4}, {-1, 0}, {});                          // a token outside the vocabulary
  add({0, 1}, {-1, 1}, {});                          // its own parent
  add({0, 1}, {0, 0}, {});                           // a root with a parent
  add({0, 1}, {-1, -1}, {});                         // two roots
  add({0, 1, 1, 1, 1, 1}, {-1, 0, 1, 2, 3, 4}, {});  // too many nodes
  add({0, 1}, {-1, 0}, {-1, 0, 1, 0});
  add({0, 1}, {-1, 0}, {kNan, 0, 1, 0});
  add({0, 1, 1, 1}, {-1, 0, 1, 2}, {0, 0, 1, 0});  // deeper than the width: an error only if the path is
  add({0, 1}, {-1, 0}, {0, 0, 1, 0});
  add({}, {}, {});  // an empty slot
  b.max_nodes = 5;
  b.width = 3;
  const auto v = emulate_verify<SampleAndMatchRule>(b, b.args(device::ChosenDraft{}), 2);
  const Status want[] = {
      Status::ok,       Status::bad_tree,       Status::bad_tree,       Status::bad_tree, Status::bad_tree,
      Status::bad_tree, Status::bad_parameters, Status::bad_parameters, Status::bad_tree, Status::ok,
      Status::ok};
  for (std::size_t i = 0; i < v.size(); ++i) {
    CAPTURE(i);
    CHECK(v[i].status == want[i]);
    CHECK(v[i].tokens.empty() == (want[i] != Status::ok || i == 10));
  }
  CHECK(v[9].tokens == std::vector<Token>{1, 1});
}

TEST_CASE("two siblings with one token: the first is accepted") {
  auto b = one_tree(3, {0, 2, 2, 1}, {-1, 0, 0, 2});
  const std::vector<float> certain{0, 0, 90};
  for (int n = 0; n < 4; ++n) b.add_row(b.target, certain.data());
  for (const auto& v : {emulate_verify<RejectionRule>(b, b.args(device::ChosenDraft{}))[0],
                        emulate_verify<TraversalRule>(b, b.args(device::ChosenDraft{}))[0],
                        emulate_verify<SampleAndMatchRule>(b, b.args(device::ChosenDraft{}))[0]})
    CHECK(v.accepted == std::vector<NodeId>{0, 1});
}

TEST_CASE("the parameters apply to the next token, too") {
  // All draft tokens are accepted; the next token's row has one token left by top-k.
  Random random(24);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> flat{0.1f, 0.2f, 0.3f, 0.25f};
    const DraftedChain chain{4, {0, 2}, {{-90, -90, 90, -90}, flat}, {}, {.top_k = 1}, random.bits()};
    for (const DeviceResult& v :
         {result_of_chain<RejectionRule>(chain), result_of_chain<TraversalRule>(chain),
          result_of_chain<SampleAndMatchRule>(chain)})
      CHECK(v.tokens == std::vector<Token>{2, 2});
  }
}

TEST_CASE("results do not depend on the slot, the batch, the cluster size or the order of threads") {
  Random random(25);
  std::vector<Case> cases;
  std::vector<SamplingParams> params;
  for (int i = 0; i < 12; ++i) {
    params.push_back(device_settings()[static_cast<std::size_t>(random.below(7))]);
    cases.push_back(random_case(random, 1200, params.back(), {.nodes = 10}, random.bits()));
  }
  const auto run = [&](const std::vector<std::size_t>& order, int blocks, int threads) {
    DeviceBatch<float> b(1200);
    for (const std::size_t i : order) b.add(cases[i], params[i], 1000 + i);
    const auto v = emulate_verify<TraversalRule>(b, b.args(b.logits_draft()), blocks, threads, random.bits());
    std::map<std::size_t, DeviceResult> out;
    for (std::size_t i = 0; i < order.size(); ++i) out[order[i]] = v[i];
    return out;
  };
  const auto all = run({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 1, 64);
  CHECK(run({11, 3, 5, 7, 1, 0, 2, 4, 6, 8, 10, 9}, 3, 64) == all);
  CHECK(run({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 16, 64) == all);
  for (std::size_t i = 0; i < 12; ++i) CHECK(run({i}, 2, 96).at(i) == all.at(i));
}

TEST_CASE("a greedy draft's distribution is a point, and so is the target's at temperature 0") {
  Random random(26);
  for (int i = 0; i < 60; ++i) {
    const std::vector<float> p = random.row(6, 2), q = random.row(6, 2);
    const auto best = static_cast<Token>(std::max_element(q.begin(), q.end()) - q.begin());
    auto b = one_tree(6, {0, best}, {}, {i % 2 ? 0.0f : 0.8f, 0, 1, 0}, random.bits());
    b.add_row(b.target, p.data());
    b.add_row(b.target, p.data());
    b.add_row(b.draft, q.data());
    b.stats.push_back({0, 0, 0, -kInf, best, Status::ok});  // the RowStats of sample() at temperature 0
    auto drawn = b.args(device::LogitsDraft<float>{b.draft.data(), b.stride, b.stats.data()});
    drawn.trees.parent = nullptr;
    const auto a = emulate_verify<RejectionRule>(b, drawn)[0];
    auto chosen = b.args(device::ChosenDraft{});
    chosen.trees.parent = nullptr;
    CHECK(emulate_verify<RejectionRule>(b, chosen)[0] == a);
    CHECK(a.status == Status::ok);
  }
}

#if defined(__linux__) && defined(MAP_NORESERVE)
TEST_CASE("rows beyond 32-bit offsets") {
  constexpr std::size_t kStride = 1'600'000'000,
                        kRows = 3;  // 3.2 GB each, almost all untouched
  void* memory = mmap(nullptr, kStride * kRows * 2, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    MESSAGE("skipped: no address space for it");
    return;
  }
  auto* rows = static_cast<device::BFloat16*>(memory);
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t x = 0; x < 40; ++x) store(x == r + 5 ? 20.0f : 0.0f, rows[r * kStride + x]);
  auto b = one_tree<device::BFloat16>(40, {0, 5, 6}, {});
  auto args = b.args(device::ChosenDraft{});
  args.trees.parent = nullptr;
  args.target.logits = rows;
  args.target.stride = kStride;
  CHECK(emulate_verify<SampleAndMatchRule>(b, args)[0].tokens == std::vector<Token>{5, 6, 7});
  munmap(memory, kStride * kRows * 2);
}
#endif

TEST_CASE("the first token of rounds drafted and verified on the device has the target's distribution") {
  // Draft drawn from q, one draft token; 4 tokens, 6,000 rounds; chi-square with 3 degrees of freedom: above
  // 21.1 with probability 1e-4. Drafting and verification use the same seed, as in practice, so shared
  // uniform draws would show as a bias.
  const std::vector<float> p{0.2f, 1, -0.5f, 0.4f}, q{1, 0, 0.7f, -1};
  const std::vector<double> want = plain_distribution(p, {});
  for (const bool traverses : {false, true}) {
    std::map<Token, int> seen;
    detail::RowScan scan(4);
    const Distribution distribution = scan.distribution(q, {});
    constexpr int kRounds = 6000;
    for (int i = 0; i < kRounds; ++i) {
      DraftedChain chain{4, {0, 0}, {p, p}, {q}, {}, static_cast<std::uint64_t>(i)};
      PhiloxRandom rng(chain.seed);
      chain.tokens[1] = rng.draw(scan.weights(distribution), {11, 10, RandomStream::draft, 0});
      ++seen[(traverses ? result_of_chain<TraversalRule>(chain) : result_of_chain<RejectionRule>(chain))
                 .tokens[0]];
    }
    double chi = 0;
    for (Token t = 0; t < 4; ++t) {
      const double expected = kRounds * want[static_cast<std::size_t>(t)];
      chi += (seen[t] - expected) * (seen[t] - expected) / expected;
    }
    CHECK(chi < 21.1);
  }
}
