// SPDX-License-Identifier: MIT
// The residual after rejected siblings: of one row of the draft or of several, chosen ones, and those whose
// rejection left nothing, which are not subtracted.
#include <doctest/doctest.h>
#include <specula/cuda/detail/verify/residual.cuh>
#include <specula/cuda/detail/verify/row_scan.cuh>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "worst.hpp"

using namespace specula_test;
using namespace specula::cuda::detail;

namespace {

/// A tried sibling: its row of the draft, or the token that was chosen; and its rejection.
struct Tried {
  int row;
  specula::Token chosen;
  float keep, take;
};

/// Two rows of a draft's probabilities and one of a target's logits at temperature 1, which `Element` can
/// hold.
template <class Element>
struct Rows {
  std::vector<float> logits, probs;
  std::vector<Element> stored;
  device::RowStats stats{0, 0, 1, -INFINITY, device::kNoToken, device::Status::ok};

  int vocab;

  Rows(Random& random, int tokens) : logits(random.row(tokens, 3, 0, 0)), vocab(tokens) {
    for (float& l : logits) {
      if (const auto round = rounding(Element{})) l = round(l);
      store(l, stored.emplace_back());
    }
    double z = 0;
    stats.shift = *std::max_element(logits.begin(), logits.end());
    for (const float l : logits) z += std::exp(static_cast<double>(l - stats.shift));
    stats.log_z = std::log(z);
    for (int i = 0; i < 2 * vocab; ++i) probs.push_back(static_cast<float>(random.uniform() * 2 / vocab));
  }
  std::vector<double> left(const std::vector<Tried>& tried) const {
    std::vector<double> out;
    for (int x = 0; x < vocab; ++x) {
      double w = device::detail::prob(logits[static_cast<std::size_t>(x)], stats);
      for (const Tried& t : tried) {
        if (!(t.keep > 0)) continue;
        const double q = t.row >= 0
                             ? static_cast<double>(t.take) *
                                   static_cast<double>(probs[static_cast<std::size_t>(t.row * vocab + x)])
                             : (x == t.chosen ? 1.0 : 0.0);
        w = std::max(0.0, static_cast<double>(t.keep) * w - q);
      }
      out.push_back(w);
    }
    return out;
  }
};

template <class Element>
void check(const Rows<Element>& rows, const std::vector<Tried>& tried) {
  const device::ProbsDraft draft{rows.probs.data(), rows.vocab};
  Residual residual{rows.stats, Exponent(rows.stats), 1, 0, static_cast<int>(tried.size())};
  std::vector<Sibling> siblings;
  std::vector<DraftToken> tokens(tried.size() + 1);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const Tried& t = tried[i];
    siblings.push_back({static_cast<specula::NodeId>(i) + 1, t.keep, t.take});
    tokens[i + 1].row = t.row, tokens[i + 1].point = t.row >= 0 ? device::kNoToken : t.chosen;
  }
  const std::vector<double> want = rows.left(tried);
  const Row<Element> row{rows.stored.data(), rows.vocab};
  const ResidualFold<Element, device::ProbsDraft> fold(row, draft, residual, siblings.data(), tokens.data());
  double all = 0, off = 0;
  for (int first = 0; first < rows.vocab; first += 4) {
    float w[4];
    fold.weights(first, w);
    for (int e = 0; e < 4; ++e) {
      const double wanted = first + e < rows.vocab ? want[static_cast<std::size_t>(first + e)] : 0.0;
      off = worse(off, std::abs(static_cast<double>(w[e]) - wanted)), all += wanted;
    }
  }
  CHECK(off < 1e-7);
  const ScanSize size{rows.vocab, 1, 4096};
  double measured = 0;
  emulate({.blocks = 2, .threads = 64, .shared_bytes = RowScan<EmulatedCluster>::shared_bytes(size, 2)},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            RowScan<EmulatedCluster> scan(cluster, size, shared);
            scan.leave();
            fold.measure(scan);
            if (cluster.rank() == 0 && cluster.block().warp_rank() == 0) {
              const double total = scan.measured_total();
              if (cluster.block().rank() == 0) measured = total;
            }
          });
  CHECK(measured == doctest::Approx(all).epsilon(1e-5));
}

}  // namespace

TEST_CASE_TEMPLATE("one sibling, several of one row, of two rows, chosen ones among them", Element, float,
                   device::Half, device::BFloat16) {
  Random random(141);
  for (const int vocab :
       {700, 704, 1100, 1536, 2003}) {  // tiles that are whole and not, rows of 16 bytes and not
    const Rows<Element> rows(random, vocab);
    check(rows, {});
    check(rows, {{0, 0, 1.0f, 1.0f}});
    check(rows, {{0, 0, 1.0f, 1.0f}, {0, 0, 1.5f, 1.0f}});
    check(rows, {{0, 0, 1.0f, 1.0f}, {1, 0, 1.5f, 0.5f}});
    check(rows, {{1, 0, 1.0f, 1.0f}, {0, 0, 1.5f, 0.5f}, {1, 0, 1.2f, 0.3f}});
    check(rows, {{-1, 5, 1.0f, 1.0f}, {1, 0, 1.5f, 0.5f}});
    check(rows, {{0, 0, 1.0f, 1.0f}, {-1, 600, 1.5f, 0.5f}});
  }
}

TEST_CASE("a sibling whose rejection left nothing is not subtracted") {
  Random random(142);
  const Rows<float> rows(random, 700);
  check(rows, {{0, 0, 0, 1.0f}});
  check(rows, {{0, 0, 0, 1.0f}, {0, 0, 1.5f, 1.0f}});
  check(rows, {{0, 0, 1.5f, 1.0f}, {0, 0, 0, 1.0f}});
  check(rows, {{0, 0, 1.5f, 1.0f}, {1, 0, 0, 1.0f}, {0, 0, 1.1f, 0.2f}});
  check(rows, {{-1, 3, 0, 1.0f}, {1, 0, 1.1f, 0.2f}});
}
