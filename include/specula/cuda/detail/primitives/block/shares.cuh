// SPDX-License-Identifier: MIT
// Divides a task among neighbouring lanes where there are fewer tasks than threads.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/group.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The warp of a Group that has several, or the Group itself.
template <class Group>
SPECULA_HD auto warp_of(Group group, int) -> decltype(group.warp()) {
  return group.warp();
}
template <class Group>
SPECULA_HD Group warp_of(Group group, long) {
  return group;
}
template <class Group>
using WarpOf = decltype(warp_of(*static_cast<Group*>(nullptr), 0));

/// How many lanes share a task; one where a warp is one thread.
template <class Group>
SPECULA_HD constexpr int share_of() {
  return WarpOf<Group>::size() == 1 ? 1 : 4;
}

/// step(i, part, chunk) for tasks i in [0, n) and somewhat beyond, by `share` lanes each, of which this is
/// number `part`. All lanes of a warp call it together, for the tasks of one chunk of size / share.
template <int share, class Group, class Step>
SPECULA_HD void each_task(Group group, int n, Step step) {
  constexpr auto kSize = static_cast<unsigned>(WarpOf<Group>::size());
  constexpr int kPer = static_cast<int>(kSize) / share;
  const auto rank = static_cast<unsigned>(group.rank()), size = static_cast<unsigned>(group.size());
  const auto lane = static_cast<int>(rank % kSize);
  SPECULA_NO_UNROLL
  for (int chunk = static_cast<int>(rank / kSize); chunk * kPer < n; chunk += static_cast<int>(size / kSize))
    step(chunk * kPer + lane / share, lane % share, chunk);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
