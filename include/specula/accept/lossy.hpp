// SPDX-License-Identifier: MIT
// accept_lossy(): opt-in to lossy verification, which does not keep the target's distribution.
#pragma once

#include <utility>

#include "specula/base/proposal_kind.hpp"

namespace specula {

///   specula::TreeVerifier verifier{target, specula::accept_lossy(specula::Lenient{2.0})};
///
/// A rule that the caller allows to be lossy: the text need not have the target's distribution.
/// **Draws.** As `Rule`. **Cost.** As `Rule`. **Throws.** As `Rule`; decide_checked() not
/// for shared noise. **Source.** That of `Rule`.
template <class Rule>
struct AcceptLossy : Rule {
  /// So that every pair compiles, without the guarantee.
  static constexpr bool lossless_for(ProposalKind) { return true; }
  static constexpr bool lossy = true;  ///< tells it from a lossless rule
};

/// Lets a pair of shape and rule compile that is not lossless: the text loses the target's distribution.
template <class Rule>
AcceptLossy<Rule> accept_lossy(Rule rule) {
  return {std::move(rule)};
}

}  // namespace specula
