// SPDX-License-Identifier: MIT
// A toy model of many texts whose caches take pages of a pool that they have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <specula/model/batched.hpp>

#include "toy_batch.hpp"

namespace specula_test {

/// A ToyBatch in which the tokens and nodes of all texts take at most `pages` pages of kPage. A pass for
/// which that is too little throws NoRoom, and changes nothing.
class PagedBatch : public ToyBatch {
 public:
  static constexpr std::int32_t kPage = 4;

  PagedBatch(std::int32_t slots, std::int32_t tokens, std::uint64_t seed, std::int32_t pages,
             std::int32_t chunk = 1000, std::int32_t capacity = 64)
      : ToyBatch(slots, tokens, seed, chunk, capacity), pages_(pages) {}

  LogitsView extend(std::span<const specula::SlotNodes> nodes) {
    std::int32_t taken = 0;
    for (std::int32_t s = 0; s < slots(); ++s) {
      const ToyModel& text = std::as_const(*this).at(s);
      std::int32_t held = text.size() + text.held_nodes();
      for (const specula::SlotNodes& slot_nodes : nodes)
        if (slot_nodes.slot == s)
          held += static_cast<std::int32_t>(slot_nodes.tokens.size()) +
                  (slot_nodes.tokens.empty() ? std::min(queued(s), chunk()) : queued(s));
      taken += (held + kPage - 1) / kPage;
    }
    most_pages = std::max(most_pages, std::min(taken, pages_));
    if (taken > pages_) {
      ++refused;
      throw specula::NoRoom("of " + std::to_string(pages_) + " pages " + std::to_string(taken) +
                            " are needed");
    }
    return ToyBatch::extend(nodes);
  }
  void limit(std::int32_t pages) { pages_ = pages; }

  std::int64_t refused = 0;     // passes
  std::int32_t most_pages = 0;  // that were taken

 private:
  std::int32_t pages_;
};

}  // namespace specula_test
