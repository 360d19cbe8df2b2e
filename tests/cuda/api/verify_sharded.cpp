// SPDX-License-Identifier: MIT
// labels: optimised
// Verification with a vocabulary split over GPUs, against the CPU's rules.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify_sharded.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;
using device::Status;

namespace {

/// The verification results of a batch whose vocabulary is split over `shards`.
template <class Rule, class Element>
std::vector<DeviceResult> emulate_sharded(DeviceBatch<Element>& batch, int shards, std::uint64_t seed,
                                          const std::uint32_t* sequence = nullptr) {
  auto args = batch.args(device::ChosenDraft{});
  args.trees.sequence = sequence;
  const int all = tile_count(batch.vocab), nodes = static_cast<int>(batch.token.size()) + 3;  // a capacity
  const int of_shard = ceil_div(all, shards), used = ceil_div(all, of_shard);
  std::vector<device::TilePartial> tiles(static_cast<std::size_t>(used * nodes * of_shard));
  std::vector<float> child_logits(static_cast<std::size_t>(used * nodes), 1e30f);
  for (int s = 0; s < used; ++s) {
    device::ShardRows<Element> rows{};
    rows.first_token = s * of_shard * kTile;
    rows.tokens = std::min(batch.vocab - rows.first_token, of_shard * kTile);
    // The shard has its own rows.
    std::vector<Element> mine;
    for (std::size_t n = 0; n < batch.token.size(); ++n) {
      const auto row = batch.target.begin() + batch.offset + static_cast<std::ptrdiff_t>(n) * batch.stride +
                       rows.first_token;
      mine.insert(mine.end(), row, row + rows.tokens);
    }
    rows.logits = mine.data();
    rows.stride = rows.tokens;
    rows.params = batch.params.data();
    const int tiles_here = tile_count(rows.tokens);
    emulate({.clusters = static_cast<int>(batch.token.size()) * tiles_here, .threads = 32, .seed = seed},
            [&](EmulatedCluster cluster, int index, unsigned char*) {
              const auto warp = cluster.block().warp();
              const int node = index / tiles_here, local = index % tiles_here;
              const int b = sequence_of(args.trees.begin, batch.sequences(), node);
              const device::TilePartial out =
                  tile_partial(warp, args.trees, rows, b, node - batch.begin[static_cast<std::size_t>(b)],
                               rows.first_token / kTile + local, child_logits.data() + s * nodes);
              if (warp.rank() == 0)
                tiles[static_cast<std::size_t>((s * nodes + node) * of_shard + local)] = out;
            });
  }
  const device::GatheredPartials gathered{tiles.data(), child_logits.data(), used, of_shard};
  emulate({.clusters = batch.sequences(), .threads = 32, .seed = seed},
          [&](EmulatedCluster cluster, int b, unsigned char*) {
            ShardedSequenceVerifier<EmulatedCluster> verifier(cluster, args.trees, batch.params.data(),
                                                              args.out, gathered, batch.vocab, nodes,
                                                              batch.max_nodes, batch.width, b);
            Rule::decide(verifier);
          });
  return batch.results();
}

/// Differences from the CPU's verification results, and from each other for 1, 2, 3 and 8 shards.
template <class DeviceRule, class Element, class Rule>
void check(const Rule& rule, int vocab, int batches, std::uint64_t seed) {
  Random random(seed);
  int trees = 0, differ = 0;
  for (int round = 0; round < batches; ++round) {
    DeviceBatch<Element> batch(vocab);
    std::vector<DeviceResult> want;
    for (int i = 0; i < 8; ++i, ++trees) {
      const SamplingParams p{.temperature =
                                 random.bernoulli(0.2) ? 0.0f : static_cast<float>(random.between(0.3, 1.5))};
      const Case it = random_case(random, vocab, p,
                                  {.nodes = 1 + random.below(12),
                                   .draws = false,
                                   .distinct = false,
                                   .wide = 0.5,
                                   .spread = vocab == 1100 ? 9.0 : 3.0,
                                   .round = rounding(Element{})},
                                  random.bits());
      const std::uint64_t uniforms = random.bits();
      batch.add(it, p, uniforms);
      want.push_back(as_device(result_of(rule, it, p, uniforms), it.tree));
    }
    const auto one = emulate_sharded<DeviceRule>(batch, 1, random.bits());
    for (const int shards : {2, 3, 8})
      CHECK(emulate_sharded<DeviceRule>(batch, shards, random.bits()) == one);
    for (std::size_t i = 0; i < want.size(); ++i) differ += one[i] != want[i];
  }
  CHECK(trees == batches * 8);
  CHECK(differ == 0);
}

}  // namespace

TEST_CASE("1, 2, 3 and 8 shards give the CPU's results") {
  check<GreedyRule, device::BFloat16>(Greedy{}, 4500, 2, 1);
  check<SampleAndMatchRule, float>(SampleAndMatch{}, 4500, 2, 2);
  check<SampleAndMatchRule, device::Half>(SampleAndMatch{}, 30, 10, 3);
  check<RejectionRule, device::BFloat16>(Rejection{}, 4500, 2, 4);
  check<RejectionRule, float>(Rejection{}, 1100, 12, 7);
  check<RejectionRule, float>(Rejection{}, 30, 20, 5);
  check<RejectionRule, float>(Rejection{}, 3, 40, 6);
}

TEST_CASE("bad rows and truncation give a status") {
  for (const int shards : {1, 2}) {
    DeviceBatch<float> b(700);
    std::vector<float> row(700, 0.5f);
    const auto add = [&](float value, std::size_t at, device::SamplingParams p) {
      row[at] = value;
      b.token.insert(b.token.end(), {0, 5});
      b.parent.insert(b.parent.end(), {-1, 0});
      b.add_row(b.target, row.data());
      row[at] = 0.5f;
      b.add_row(b.target, row.data());
      b.begin.push_back(static_cast<std::int32_t>(b.token.size()));
      b.position.push_back(3);
      b.seed.push_back(2);
      b.params.push_back(p);
    };
    add(std::numeric_limits<float>::quiet_NaN(), 650, {});
    add(std::numeric_limits<float>::infinity(), 5, {});
    add(0, 0, {1, 3, 1, 0});
    add(0, 0, {1, 0, 0.9f, 0});
    add(0, 0, {-1, 0, 1, 0});
    add(0, 0, {});
    b.max_nodes = b.width = 2;
    const auto v = emulate_sharded<SampleAndMatchRule>(b, shards, 1);
    const Status want[] = {Status::not_a_number,
                           Status::not_a_number,
                           Status::truncation_is_not_planned,
                           Status::truncation_is_not_planned,
                           Status::bad_parameters,
                           Status::ok};
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(v[i].status == want[i]);
      CHECK(v[i].tokens.empty() == (want[i] != Status::ok));
    }
  }
}

TEST_CASE("more tiles than lanes, rows whose quotient overflows, masks, and an invalid tree") {
  for (const int shards : {1, 3}) {
    const int vocab = 34 * 512;
    DeviceBatch<float> b(vocab);
    const auto add = [&](std::vector<float> row, device::SamplingParams p, NodeId parent = 0) {
      b.token.insert(b.token.end(), {0, 5});
      b.parent.insert(b.parent.end(), {-1, parent});
      b.add_row(b.target, row.data());
      b.add_row(b.target, row.data());
      b.begin.push_back(static_cast<std::int32_t>(b.token.size()));
      b.position.push_back(3);
      b.seed.push_back(2);
      b.params.push_back(p);
    };
    std::vector<float> row(vocab);
    row[100] = row[100 + 32 * 512] = 2;
    add(row, {0, 0, 1, 0});
    row[7] = 3e38f;
    add(row, {1e-3f, 0, 1, 0});
    row.assign(vocab, -3.4e38f);
    row[900] = 4;
    add(row, {0.5f, 0, 1, 0});
    add(row, {1, 0, 1, 0}, 1'000'000'000);
    b.max_nodes = b.width = 2;
    const auto v = emulate_sharded<SampleAndMatchRule>(b, shards, 1);
    CHECK(v[0].tokens == std::vector<Token>{100});
    CHECK(v[1].status == Status::overflow);
    CHECK(v[2].tokens == std::vector<Token>{900});
    CHECK(v[3].status == Status::bad_tree);
  }
}

TEST_CASE("each sequence has its own random numbers; sums of large logits") {
  Random random(41);
  for (const float shift : {0.0f, 20000.0f}) {
    DeviceBatch<float> b(1100);
    std::vector<std::vector<float>> rows;
    const std::vector<std::uint32_t> sequence{0, 7, 3, 7};
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<float> row = random.row(1100, 2);
      for (float& l : row) l += shift;
      b.token.push_back(5);
      b.parent.push_back(kNoParent);
      b.add_row(b.target, row.data());
      b.begin.push_back(static_cast<std::int32_t>(b.token.size()));
      b.position.push_back(3);
      b.seed.push_back(2);
      b.params.push_back({0.7f, 0, 1, 0});
      rows.push_back(row);
    }
    b.max_nodes = b.width = 1;
    const auto v = emulate_sharded<SampleAndMatchRule>(b, 2, 1, sequence.data());
    detail::RowScan scan(1100);
    for (std::size_t i = 0; i < 4; ++i) {
      PhiloxRandom rng(2, sequence[i]);
      const Distribution distribution = scan.distribution(rows[i], {.temperature = 0.7f});
      CHECK(v[i].tokens == std::vector<Token>{rng.draw(scan.weights(distribution), {4})});
    }
  }
}

TEST_CASE("invalid shards are refused on the host") {
  float logit = 0;
  device::TilePartial partial{};
  CHECK(device::detail::valid_shard(device::ShardRows<float>{&logit, 512, 0, 512}, 2));
  CHECK_FALSE(device::detail::valid_shard(device::ShardRows<float>{&logit, 511, 0, 512}, 2));
  CHECK_FALSE(device::detail::valid_shard(device::ShardRows<float>{nullptr, 512, 0, 512}, 2));
  CHECK(device::detail::valid_shard(device::ShardRows<float>{&logit, 512, 1024, 512}, 2));
  CHECK_FALSE(device::detail::valid_shard(device::ShardRows<float>{&logit, 512, 1000, 512}, 2));
  CHECK_FALSE(device::detail::valid_shard(device::ShardRows<float>{&logit, 512, -512, 512}, 2));
  CHECK_FALSE(device::detail::valid_shard(device::ShardRows<float>{&logit, 512, 0, 0}, 2));
  CHECK(device::detail::valid_gathered({&partial, &logit, 2, 3}, 6 * 512));
  CHECK_FALSE(device::detail::valid_gathered({&partial, &logit, 2, 3}, 6 * 512 + 1));
  CHECK_FALSE(device::detail::valid_gathered({&partial, nullptr, 2, 3}, 512));
  CHECK_FALSE(device::detail::valid_gathered({&partial, &logit, 0, 3}, 1));
}

TEST_CASE("a sequence whose nodes exceed the gathered ones: a status, and no reads there") {
  DeviceBatch<float> b(3);
  const std::vector<float> row{0, 9, 0};
  b.token = {0, 1, 0, 1}, b.parent = {-1, 0, -1, 0};
  b.begin = {0, 2, 4}, b.position = {1, 1}, b.seed = {1, 2}, b.params = {{}, {}};
  b.max_nodes = b.width = 2;
  for (int n = 0; n < 4; ++n) b.add_row(b.target, row.data());
  const auto args = b.args(device::ChosenDraft{});
  const device::TilePartial one{9, 1, 1, 1, 1, 1};
  const std::vector<device::TilePartial> tiles(3, one);  // of three nodes
  const std::vector<float> child_logits(3, 9.0f);
  const device::GatheredPartials gathered{tiles.data(), child_logits.data(), 1, 1};
  emulate({.clusters = 2, .threads = 32}, [&](EmulatedCluster cluster, int sequence, unsigned char*) {
    ShardedSequenceVerifier<EmulatedCluster> verifier(cluster, args.trees, b.params.data(), args.out,
                                                      gathered, 3, 3, 2, 2, sequence);
    GreedyRule::decide(verifier);
  });
  const auto v = b.results();
  CHECK(v[0].status == Status::ok);
  CHECK(v[0].tokens == std::vector<Token>{1, 1});
  CHECK(v[1].status == Status::bad_tree);
  CHECK(v[1].tokens.empty());
}
