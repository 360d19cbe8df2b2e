// SPDX-License-Identifier: MIT
// The members of Decoder for several texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "specula/base/stopwatch.hpp"
#include "specula/cpu/detail/decoder_members.hpp"
#include "specula/model/batched.hpp"

namespace specula::cpu {

template <class Real>
std::int32_t Decoder<Real>::slots() const {
  return impl_->options.slots;
}

template <class Real>
std::int32_t Decoder<Real>::size(std::int32_t slot) const {
  return impl_->text(slot).stages.size();
}

template <class Real>
std::int32_t Decoder<Real>::capacity(std::int32_t slot) const {
  static_cast<void>(impl_->text(slot));
  return capacity();
}

template <class Real>
std::int32_t Decoder<Real>::queued(std::int32_t slot) const {
  return impl_->text(slot).stages.pending();
}

template <class Real>
std::int32_t Decoder<Real>::chunk() const {
  return detail::kLazyTokens;
}

template <class Real>
std::uint64_t Decoder<Real>::change_count(std::int32_t slot) const {
  return impl_->text(slot).changes.now() + (slot == 0 ? change_count() : 0);
}

template <class Real>
double Decoder<Real>::pass_seconds(std::int32_t slot) const {
  return impl_->text(slot).seconds;
}

template <class Real>
void Decoder<Real>::append(std::int32_t slot, Tokens tokens) {
  auto& text = impl_->text(slot);
  impl_->check_tokens(tokens);
  impl_->check_room(text.stages.size(), tokens.size(), "append");
  change(slot);
  text.stages.clear_nodes();
  text.stages.append(tokens);
}

template <class Real>
LogitsView Decoder<Real>::extend(std::span<const SlotNodes> nodes) {
  std::int32_t rows = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const SlotNodes& own = nodes[i];
    auto& text = impl_->text(own.slot);
    for (std::size_t other = 0; other < i; ++other)
      if (nodes[other].slot == own.slot)
        Impl::fail("extend: slot " + std::to_string(own.slot) + " is named twice");
    impl_->check_nodes(text, own.tokens, own.parents);
    impl_->check_skips(text);
    impl_->schedule.pass.input().require_view(text.target);
    const auto count = static_cast<std::int32_t>(own.tokens.size());
    impl_->reserve(own.slot, text, text.stages.size() + text.stages.node_count() + count);
    rows += count;
  }
  const double begin = pass_seconds();
  for (const SlotNodes& own : nodes) {
    change(own.slot);
    impl_->text(own.slot).stages.add_nodes(own.tokens, own.parents, false);
  }
  impl_->first_row = 0;  // resume_to_exit() is for one text
  impl_->rows = rows;
  double shares = 0;
  const auto share = [&](const SlotNodes& own) {
    return static_cast<double>(own.tokens.size()) + impl_->text(own.slot).stages.pending();
  };
  for (const SlotNodes& own : nodes) impl_->text(own.slot).share = share(own), shares += share(own);
  impl_->schedule.run(nodes);
  const double seconds = pass_seconds() - begin;
  for (const SlotNodes& own : nodes)
    if (shares > 0) impl_->text(own.slot).seconds += seconds * impl_->text(own.slot).share / shares;
  return impl_->view();
}

template <class Real>
void Decoder<Real>::commit(std::int32_t slot, Nodes path) {
  auto& text = impl_->text(slot);
  impl_->check_path(text, path);
  change(slot);
  impl_->commit(text, path);
}

template <class Real>
void Decoder<Real>::truncate(std::int32_t slot, std::int32_t n) {
  auto& text = impl_->text(slot);
  impl_->check_size(text, n);
  change(slot);
  text.stages.truncate(n);
}

template <class Real>
void Decoder<Real>::fork(std::int32_t from, std::int32_t to, std::int32_t n) {
  auto& source = impl_->text(from);
  auto& text = impl_->text(to);
  const std::int32_t computed = source.stages.computed(source.stages.count() - 1);
  const auto tokens_of = [](std::int32_t slot) { return " tokens of slot " + std::to_string(slot); };
  if (from == to) Impl::fail("fork: from slot " + std::to_string(from) + " to itself");
  if (n < 0 || n > computed)
    Impl::fail("fork: " + std::to_string(n) + tokens_of(from) + ", of which " + std::to_string(computed) +
               " have run");
  if (n > text.stages.size() || text.stages.node_count() > 0)
    Impl::fail("fork: " + std::to_string(n) + tokens_of(to) + ", which has " +
               std::to_string(text.stages.size()) + " and " + std::to_string(text.stages.node_count()) +
               " nodes");
  if (n <= text.stages.computed(text.stages.count() - 1)) return;
  impl_->reserve(to, text, n);
  text.memory.copy(source.memory, n);
  text.stages.mark_first_computed(n);
}

template <class Real>
KeyValuesView<Real> Decoder<Real>::key_values(std::int32_t slot) {
  auto& text = impl_->text(slot);
  impl_->reserve(slot, text, text.stages.size());
  impl_->schedule.calculate_pending(text);
  return {text.memory.cache, text.stages.size(), guard(slot)};
}

template <class Real>
FeaturesView<Real> Decoder<Real>::features(std::int32_t slot) {
  auto& text = impl_->text(slot);
  impl_->reserve(slot, text, text.stages.size());
  impl_->schedule.calculate_pending(text);
  return {text.memory.features.at(0),  text.stages.size(), config().hidden_size,
          text.memory.features.stride, guard(slot),        text.memory.hidden_states()};
}

template <class Real>
void Decoder<Real>::set_target_state(std::int32_t slot, const KeyValuesView<Real>& view) {
  impl_->schedule.pass.input().set_target_state(impl_->text(slot).target, view);
}

template <class Real>
void Decoder<Real>::set_target_state(std::int32_t slot, const FeaturesView<Real>& view) {
  impl_->schedule.pass.input().set_target_state(impl_->text(slot).target, view);
}

template <class Real>
void Decoder<Real>::change(std::int32_t slot) {
  (slot == 0 ? change_count_ : impl_->text(slot).changes).next();
}

template <class Real>
specula::detail::ViewGuard Decoder<Real>::guard(std::int32_t slot) const {
  return specula::detail::ViewGuard(slot == 0 ? change_count_ : impl_->text(slot).changes);
}

}  // namespace specula::cpu
