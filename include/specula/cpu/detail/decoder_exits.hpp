// SPDX-License-Identifier: MIT
// The members of Decoder for early exits and skipped blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "specula/cpu/detail/decoder_members.hpp"

namespace specula::cpu {

template <class Real>
std::int32_t Decoder<Real>::exits() const {
  return impl_->stages().count();
}

template <class Real>
std::int32_t Decoder<Real>::layers_to(std::int32_t exit) const {
  return impl_->stages().layers_to(exit);
}

template <class Real>
LogitsView Decoder<Real>::extend_to_exit(Tokens tokens, Nodes parents, std::int32_t exit) {
  impl_->check_exit(exit);
  impl_->check_nodes(impl_->first(), tokens, parents);
  impl_->check_skips(impl_->first());
  impl_->schedule.pass.input().require_view(impl_->first().target);
  impl_->reserve(0, impl_->first(), size() + node_count() + static_cast<std::int32_t>(tokens.size()));
  change_count_.next();
  impl_->add_nodes(tokens, parents, false);
  impl_->schedule.run_from(impl_->first(), impl_->first_row, exit);
  return impl_->view();
}

template <class Real>
LogitsView Decoder<Real>::resume_to_exit(std::span<const std::int32_t> rows, std::int32_t exit) {
  impl_->check_exit(exit);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NodeId node = impl_->first_row + rows[i];
    if (rows[i] < (i ? rows[i - 1] + 1 : 0) || rows[i] >= impl_->rows || node >= node_count() ||
        impl_->stages().skips())
      Impl::fail("resume_to_exit: row " + std::to_string(rows[i]) +
                 ", must be of the last extend_to_exit(), ascending");
    if (impl_->stages().node(node).stages > exit)
      Impl::fail("resume_to_exit: row " + std::to_string(rows[i]) + " is beyond exit " +
                 std::to_string(exit));
  }
  change_count_.next();
  impl_->schedule.run_to_exit(impl_->first(), impl_->first_row, rows, exit, /*to_exit_logits=*/true);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(impl_->schedule.pass.exit_logits().at(static_cast<std::ptrdiff_t>(i)),
                impl_->schedule.pass.logits().stride, impl_->schedule.pass.logits().at(rows[i]));
  return impl_->view();
}

template <class Real>
LogitsView Decoder<Real>::extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& skipped) {
  if (skipped.layers() != layers() || skipped.mlp.size() != skipped.attention.size())
    Impl::fail("extend_skipping: blocks of " + std::to_string(skipped.layers()) + " layers, the model has " +
               std::to_string(layers()));
  impl_->check_nodes(impl_->first(), tokens, parents);
  if (node_count() > 0 && !(impl_->stages().skips() && skipped == impl_->skipped))
    Impl::fail("extend_skipping: there are nodes that do not skip these blocks; truncate() first");
  impl_->schedule.calculate_pending(impl_->first());
  impl_->schedule.pass.input().require_view(impl_->first().target);
  impl_->reserve(0, impl_->first(), size() + node_count() + static_cast<std::int32_t>(tokens.size()));
  change_count_.next();
  impl_->skipped = skipped;
  impl_->add_nodes(tokens, parents, true);
  impl_->schedule.skip(impl_->first(), impl_->first_row, impl_->skipped);
  return impl_->view();
}

template <class Real>
std::span<const double> Decoder<Real>::attention_similarity() {
  return impl_->mean_cosines(detail::BlockKind::attention, impl_->similarity);
}

template <class Real>
std::span<const double> Decoder<Real>::mlp_similarity() {
  return impl_->mean_cosines(detail::BlockKind::mlp, impl_->mlp_similarity);
}

}  // namespace specula::cpu
