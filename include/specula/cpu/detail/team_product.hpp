// SPDX-License-Identifier: MIT
// Matrix products over a batch of tokens, shared by the threads of a team.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/bf16_product.hpp"
#include "specula/cpu/detail/block_product.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/panel_product.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"
#include "specula/cpu/panel_matrix.hpp"
#include "specula/cpu/thread_team.hpp"

namespace specula::cpu::detail {

/// Vectors of one kind, (count, size), each padded to whole panels, with 16 more values after the last:
/// blocks may read past the end.
template <class Real>
struct Activations {
  Activations() = default;
  Activations(std::int32_t count, std::int32_t size)
      : stride(column_stride<Real>(size)),
        values(static_cast<std::size_t>(count) * static_cast<std::size_t>(stride) + kPanel) {}
  Real* at(std::ptrdiff_t index) { return values.data() + index * stride; }
  void copy(std::int32_t from, std::int32_t to) { std::copy_n(at(from), stride, at(to)); }
  /// Room for `count` vectors, more than now; none if there are none of this kind.
  void grow(std::int32_t count) {
    if (stride == 0) return;
    AlignedVector<Real> more(static_cast<std::size_t>(count) * static_cast<std::size_t>(stride) + kPanel);
    std::copy_n(values.begin(), values.size() - kPanel, more.begin());
    values = std::move(more);
  }
  std::ptrdiff_t stride = 0;
  AlignedVector<Real> values;
};

/// One thread of the team and its tokens of the batch, [first, last).
struct Worker {
  std::int32_t thread, first, last;
};

/// Owns the team and the memory of its products. Nothing is allocated after the constructor.
template <class Real>
class TeamProduct {
 public:
  /// `most_cols`: of the widest matrix; `bytes`: of all, where each pass reads all; `block_cols`: of the
  /// widest matrix with blocks.
  TeamProduct(const DecoderOptions& options, std::int32_t most_cols, std::size_t bytes = 0,
              std::int32_t block_cols = 0)
      : isa_(options.isa),
        block_isa_(block_isa(options.isa, options.vnni)),
        many_isa_(options.inputs == Inputs::int8 ? block_isa_ : for_many(block_isa_)),
        to_bytes_(options.inputs == Inputs::int8),
        team_(options.team ? options.team : std::make_shared<ThreadTeam>(options.threads)) {
    for (std::int32_t t = 0; t < options.threads; ++t) {
      if (options.inputs == Inputs::bf16)
        rounded_.emplace_back(pass_columns(options), most_cols, bytes > kCached);
      if (block_cols > 0)
        integers_.emplace_back(pass_columns(options), block_cols, many_isa_ == BlockIsa::amx);
    }
  }

  const std::shared_ptr<ThreadTeam>& team() const { return team_; }

  /// A thread's share of `total`: [first, second).
  std::pair<std::int32_t, std::int32_t> share(std::int32_t thread, std::int32_t total) const {
    const auto cut = [&](std::int64_t t) { return static_cast<std::int32_t>(total * t / team_->size()); };
    return {cut(thread), cut(thread + 1)};
  }

  /// All threads wait for each other.
  void barrier() { team_->barrier(); }

  /// out[i - first + to] = matrix * in[i], this thread's rows. All threads wait before, for the input, and
  /// after.
  void multiply(std::int32_t thread, const PanelMatrix<Real>& matrix, Activations<Real>& in,
                Activations<Real>& out, std::int32_t first, std::int32_t last, std::int32_t to = 0) {
    team_->barrier();
    constexpr std::int32_t kBlock = 4;  // panels that a register block may span
    const auto [block, last_block] = share(thread, (matrix.panels() + kBlock - 1) / kBlock);
    const std::int32_t panel = block * kBlock,
                       panels = std::min(last_block * kBlock, matrix.panels()) - panel;
    bool rounded = false;
    matrix.for_panels(panel, panels, [&](auto of, std::int32_t from, std::int32_t count) {
      const Columns<Real> io{in.at(first), in.stride, out.at(to) + static_cast<std::ptrdiff_t>(from) * kPanel,
                             out.stride};
      if constexpr (std::is_same_v<decltype(of), BlockPanels>) {
        if constexpr (std::is_same_v<Real, float>) {
          RoundedInputs& integers = integers_[static_cast<std::size_t>(thread)];
          const BlockIsa isa = last - first < kManyInputs ? block_isa_ : many_isa_;
          if (!std::exchange(rounded, true))
            round_inputs(isa, to_bytes_, io.x, io.ldx, matrix.cols(), last - first, integers);
          block_product(isa, of, {count, round_up(matrix.cols(), kGroup) / kGroup}, to_bytes_, integers, io.y,
                        io.ldy, last - first);
        }
      } else if constexpr (std::is_same_v<decltype(of), Bf16Panels> && std::is_same_v<Real, float>) {
        if (rounded_.empty())
          panel_product(isa_, of, count, matrix.cols(), io, last - first);
        else
          rounded_[static_cast<std::size_t>(thread)].run(of, count, matrix.cols(), io, last - first);
      } else {
        panel_product(isa_, of, count, matrix.cols(), io, last - first);
      }
    });
    team_->barrier();
  }

 private:
  static constexpr std::size_t kCached = std::size_t{32} << 20;  // what last-level caches mostly hold

  Isa isa_;
  BlockIsa block_isa_, many_isa_;  // for few inputs and for many
  bool to_bytes_;
  std::shared_ptr<ThreadTeam> team_;
  std::vector<Bf16Product> rounded_;     // one per thread; empty unless inputs are rounded to bfloat16
  std::vector<RoundedInputs> integers_;  // one per thread; empty without matrices in blocks
};

}  // namespace specula::cpu::detail
