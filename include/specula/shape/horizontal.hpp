// The horizontal cascade: the first guesses from the best drafter, later ones from cheaper drafters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../concepts.hpp"
#include "../detail/candidates.hpp"
#include "../detail/chain_growth.hpp"
#include "../detail/fields.hpp"

namespace specula {

/// A chain of counts[0] guesses of a Stack's first drafter, then counts[1] of its second, and so on: a guess
/// counts only if all before it stay, so early ones deserve the better drafter. Where a drafter has nothing
/// to say the next one goes on. Coins: one `draft` a guess when sampled. Cost: one call of its drafter a
/// guess. Source: Cascade Speculative Drafting (Chen et al. 2024), section 3.2.
template <std::size_t drafters = 2, Draw mode = Draw::greedy>
struct Horizontal {
  static_assert(mode != Draw::shared, "cascades choose or draw their guesses");
  static constexpr DraftLaw law = law_of_chain(mode);

  std::array<std::int32_t, drafters> counts{};

  std::int32_t max_nodes() const {
    std::int64_t nodes = 1;
    for (const std::int32_t count : counts) nodes += count;
    return detail::node_count(nodes);
  }

  /// Throws std::invalid_argument if a count is negative, or all come to more nodes than there can be.
  void validate() const {
    detail::expect_all_in("Horizontal::counts", counts, 0, detail::kMostGuesses);
    detail::expect_nodes("Horizontal", *this);
  }

  template <detail::StackOf<drafters> D, ChanceSource C>
  void propose(D& stack, const Round& round, TokenTree& tree, C& chance) const {
    grow<0>(stack, round, tree, chance);
  }

 private:
  template <std::size_t i, class D, class C>
  void grow(D& stack, const Round& round, TokenTree& tree, C& chance) const {
    detail::grow<mode>(stack.template get<i>(), round, counts[i], tree, chance);
    if constexpr (i + 1 < drafters) grow<i + 1>(stack, round, tree, chance);
  }
};

}  // namespace specula
