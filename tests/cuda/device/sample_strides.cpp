// Outputs of sample() with gaps between rows: tokens into trees, laws among those of other guesses.
#include <doctest/doctest.h>
#include <specula/cuda/device/sample.cuh>

#include <vector>

#include "emulated_gpu.hpp"

using namespace specula_test;
namespace device = specula::cuda;

namespace {

constexpr int kRows = 3, kDraws = 2, kVocab = 40;

struct Outputs {
  std::vector<device::Token> token;
  std::vector<float> prob;
  std::vector<double> scale;
  std::vector<device::RowStats> stats;
};

/// Two draws, without replacement, of each of three rows. Strides of 0: without gaps.
Outputs draw(std::int64_t token, std::int64_t prob, std::int64_t scale, std::int64_t stats) {
  std::vector<float> logits;
  for (int i = 0; i < kRows * kVocab; ++i) logits.push_back(static_cast<float>((i * 37) % 23) / 8);
  const std::vector<std::uint64_t> seed{5, 6, 7};
  const std::vector<std::int32_t> position{10, 20, 30};
  const auto size = [](std::int64_t stride, int row) {
    return static_cast<std::size_t>(kRows * (stride ? stride : row));
  };
  Outputs out{std::vector<device::Token>(size(token, kDraws), -77),
              std::vector<float>(size(prob, kDraws), -77), std::vector<double>(size(scale, kDraws), -77),
              std::vector<device::RowStats>(size(stats, 1), {-77, 0, 0, 0, -77, device::Status::bad_tree})};
  device::SampleArgs<float> args{};
  args.logits = logits.data();
  args.stride = kVocab;
  args.seed = seed.data();
  args.position = position.data();
  args.distinct = true;
  args.token = out.token.data();
  args.prob = out.prob.data();
  args.scale = out.scale.data();
  args.stats = out.stats.data();
  args.token_stride = token, args.prob_stride = prob, args.scale_stride = scale, args.stats_stride = stats;
  const device::detail::ScanSize scan{kVocab, 1, 4096};
  emulate({.clusters = kRows,
           .blocks = 1,
           .threads = 64,
           .shared_bytes = device::detail::sample_bytes<EmulatedCluster>(scan, 2, kDraws)},
          [&](EmulatedCluster cluster, int r, unsigned char* shared) {
            device::detail::sample_row(cluster, r, shared, args, scan, kDraws);
          });
  return out;
}

/// `with` holds the rows of `without`, `stride` apart, and -77 in between.
template <class T>
void check_spread(const std::vector<T>& with, const std::vector<T>& without, std::int64_t stride) {
  std::vector<T> wanted(with.size(), T{-77});
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t d = 0; d < kDraws; ++d)
      wanted[r * static_cast<std::size_t>(stride) + d] = without[r * kDraws + d];
  CHECK(with == wanted);
}

}  // namespace

TEST_CASE("outputs with strides are those without, and nothing in between is written") {
  const Outputs plain = draw(0, 0, 0, 0), spread = draw(5, 3, 4, 2);
  check_spread(spread.token, plain.token, 5);
  check_spread(spread.prob, plain.prob, 3);
  check_spread(spread.scale, plain.scale, 4);
  for (std::size_t r = 0; r < kRows; ++r) {
    CHECK(plain.stats[r].status == device::Status::ok);
    CHECK(spread.stats[2 * r].log_z == plain.stats[r].log_z);
    CHECK(spread.stats[2 * r].shift == plain.stats[r].shift);
    CHECK(spread.stats[2 * r].status == device::Status::ok);
    CHECK(spread.stats[2 * r + 1].log_z == -77);
  }
}

TEST_CASE("a stride that is shorter than a row's outputs is refused") {
  std::vector<float> logits(kVocab), prob(kDraws);
  std::vector<std::uint64_t> seed(1);
  std::vector<std::int32_t> position(1);
  std::vector<device::Token> token(kDraws);
  device::SamplePlan<float> plan;
  plan.draws = kDraws;
  device::SampleArgs<float> good{};
  good.logits = logits.data();
  good.seed = seed.data();
  good.position = position.data();
  good.token = token.data();
  const auto valid = [&](auto change) {
    device::SampleArgs<float> args = good;
    change(args);
    return device::detail::valid_args(args, plan);
  };
  CHECK(valid([](auto&) {}));
  CHECK(valid([](auto& a) { a.token_stride = a.prob_stride = a.scale_stride = kDraws; }));
  CHECK_FALSE(valid([](auto& a) { a.token_stride = kDraws - 1; }));
  CHECK_FALSE(valid([](auto& a) { a.prob_stride = kDraws - 1; }));
  CHECK_FALSE(valid([](auto& a) { a.scale_stride = kDraws - 1; }));
  CHECK_FALSE(valid([](auto& a) { a.stats_stride = -1; }));
}
