// Rejection that forgives: more guesses stay, and the text is no longer the target's.
#pragma once

#include <utility>

#include "../detail/fields.hpp"
#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

/// Accepts x with probability min(1, lenience * p(x) / q(x)); what is left after a rejection is norm((p - q /
/// lenience)+). With temperature 0: accepts x if it is the target's first largest logit, or if q(x) <=
/// lenience * p(x), p being the softmax at temperature 1. Lenience 1 is rejection. Exact for nothing: as a
/// final rule it compiles only within accept_lossy(). Source: Cascade Speculative Drafting, section 3.1. Cost
/// and coins as Rejection's.
class Lenient {
 public:
  /// Throws std::invalid_argument unless lenience is in [1, 1e30].
  explicit Lenient(double lenience) : lenience_(lenience) {
    detail::expect_in("Lenient: lenience", lenience, 1.0, detail::kMostLenience);
  }
  double lenience() const { return lenience_; }
  static constexpr bool exact_for(DraftLaw) { return false; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    target.check_for("Lenient", tree);
    out.clear();
    const bool greedy = target.params().greedy();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at;
      const RowLaw law = target.law(from, greedy ? SamplingParams{} : target.params());
      const Token best = greedy ? target.argmax(from) : kNoToken;
      detail::Residual* left = nullptr;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double draft_prob =
            greedy ? static_cast<double>(tree.confidence(c)) : tree.draft_prob(c, token);
        if (greedy) {
          if (token == best || (lenience_ > 1 && draft_prob <= lenience_ * law(token))) at = c;
          return at == kNoParent;
        }
        const double target_prob = left ? left->prob(token) : law(token);
        if (chance.accept(lenience_ * target_prob / draft_prob, tree.accept_site(c))) {
          at = c;
          return false;
        }
        if (!left) left = &target.residual(law);
        left->reject(tree, c, lenience_);
        return true;
      });
      if (at != kNoParent)
        out.path.push_back(at);
      else if (greedy)
        out.next = best;
      else if (left)
        out.next = chance.draw(left->measured(), tree.residual_site(from));
      else
        out.next = target.sample(law, tree.sample_site(from), chance);
    }
  }

 private:
  double lenience_;
};

/// A rule whose user knows that the text will not be the target's.
template <class Rule>
struct AcceptLossy : Rule {
  static constexpr bool exact_for(DraftLaw) { return true; }
  static constexpr bool lossy = true;

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    (Rule::verify)(tree, target.for_lossy(), chance, out);
  }
};

/// Lets an unsound pair of shape and rule compile. The name says what it costs.
template <class Rule>
AcceptLossy<Rule> accept_lossy(Rule rule) {
  return {std::move(rule)};
}

}  // namespace specula
