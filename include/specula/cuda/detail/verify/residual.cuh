// SPDX-License-Identifier: MIT
// Residual distribution of the target after rejected sibling draft tokens, subtracted one after the other.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/verify/draft_distributions.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Facts of a draft token that are known before its sequence is verified.
struct DraftToken {
  double draft_prob;  // q of its own token, given its earlier siblings
  double scale;       // of its distribution, 1 where it was not drawn without replacement
  std::int64_t row;   // of its distribution, -1: it was chosen
  Exponent exponent;  // of that row
  float logit;        // the target's, of its own token
  Token point;        // of its distribution, or kNoToken
};

/// A child of the node whose residual is computed: left = keep * left - take * q. keep 0: not rejected.
struct Sibling {
  NodeId node;
  float keep, take;
};

/// The node of the residual.
struct alignas(16) Residual {
  RowStats distribution;  // p after it
  Exponent target;        // of that
  double total;           // mass of the residual
  NodeId node;
  int tried;  // siblings tried so far
};

/// The residual's fold, over p = `row` and the tried siblings.
template <class Element, class Draft>
class ResidualFold {
 public:
  SPECULA_HD ResidualFold(Row<Element> row, const Draft& draft, const Residual& of, const Sibling* siblings,
                          const DraftToken* draft_tokens)
      : row_(row), draft_(draft), of_(of), siblings_(siblings), draft_tokens_(draft_tokens) {}

  /// The residual, not normalised, of four tokens from `first` on.
  SPECULA_HD void weights(int first, float (&w)[4]) const {
    if (of_.distribution.point != kNoToken) {
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) w[e] = first + e == of_.distribution.point ? 1.0f : 0.0f;
    } else {
      load_four(row_, first, w);
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) w[e] = of_.target.weight(w[e]);
    }
    float q[4];
    std::int64_t held = -1;  // the row that q holds
    SPECULA_NO_UNROLL
    for (int j = 0; j < of_.tried; ++j) {
      const Sibling& s = siblings_[j];
      const DraftToken& draft_token = draft_tokens_[s.node];
      if (!(s.keep > 0)) continue;
      if (draft_token.point == kNoToken && draft_token.row != held) {
        fill_from(draft_, draft_token.exponent, draft_token.row, row_.vocab, first, q);
        held = draft_token.row;
      }
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float less = draft_token.point != kNoToken ? (first + e == draft_token.point ? 1.0f : 0.0f)
                                                         : product(s.take, q[e]);
        w[e] = left(s.keep, w[e], less);
      }
    }
  }

  /// All threads of the cluster: measures the residual of each tile. Where it depends on p and one row of the
  /// draft alone, as after most rejections, both are streamed.
  template <class Scan>
  SPECULA_HD void measure(Scan& scan) const {
    int rejected = 0, last = -1;
    bool streams = has_rows(&draft_) && of_.distribution.point == kNoToken;
    for (int j = 0; j < of_.tried; ++j) {
      if (!(siblings_[j].keep > 0)) continue;
      const DraftToken& draft_token = draft_tokens_[siblings_[j].node];
      streams = streams && draft_token.point == kNoToken &&
                (last < 0 || draft_token.row == draft_tokens_[siblings_[last].node].row);
      last = j;
      ++rejected;
    }
    if constexpr (has_rows(static_cast<Draft*>(nullptr)))
      if (streams && rejected > 0) {
        const Exponent target = of_.target, draft = draft_tokens_[siblings_[last].node].exponent;
        const auto row = row_in(draft_, draft_tokens_[siblings_[last].node].row, row_.vocab);
        const float keep = siblings_[last].keep, take = siblings_[last].take;
        const ResidualFold& self = *this;
        if (rejected == 1) {
          scan.measure_two(row_, row, [&self, target, draft, keep, take](float p, float q) {
            return left(keep, target.weight(p), product(take, weight_in(self.draft_, draft, q)));
          });
        } else {
          scan.measure_two(row_, row, [&self, target, draft](float p, float q) {
            float w = target.weight(p);
            const float less = weight_in(self.draft_, draft, q);
            SPECULA_NO_UNROLL
            for (int j = 0; j < self.of_.tried; ++j) {
              const Sibling& s = self.siblings_[j];
              if (s.keep > 0) w = left(s.keep, w, product(s.take, less));
            }
            return w;
          });
        }
        return;
      }
    scan.measure([&](int first, float(&w)[4]) { weights(first, w); });
  }

 private:
  /// NaN is kept.
  SPECULA_HD static float left(float keep, float w, float less) {
    return max_or_nan(difference(product(keep, w), less), 0.0f);
  }

  Row<Element> row_;
  const Draft& draft_;
  const Residual& of_;
  const Sibling* siblings_;
  const DraftToken* draft_tokens_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
