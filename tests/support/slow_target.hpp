// SPDX-License-Identifier: MIT
// A target beside which every draft is cheap, by a clock that no machine disturbs.
#pragma once

namespace specula_test {

/// The model M, a call of which takes an hour by its own clock (TimesItself): whatever the machine's clock
/// says of the drafts, they pay.
template <class M>
struct SlowTarget : M {
  using M::M;
  double pass_seconds() const { return 3600.0 * static_cast<double>(this->change_count()); }
};

}  // namespace specula_test
