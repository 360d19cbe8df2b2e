// SPDX-License-Identifier: MIT
// accept_matching(): follows the target's tokens through the proposal.
#include <specula/accept/rules/matching.hpp>

#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace specula;

TEST_CASE("accept_matching follows the first child with the target's token, and ends where no child has it") {
  ProposalBuilder tree(9, 6, 0);
  tree.reset(0, 0);
  tree.choose(0, 3, 1);  // 1
  tree.choose(0, 5, 1);  // 2
  tree.choose(0, 5, 1);  // 3
  tree.choose(2, 7, 1);  // 4
  tree.choose(3, 8, 1);  // 5
  std::vector<NodeId> asked;
  VerifyResult out;
  const auto text = [&](std::vector<Token> tokens) {
    asked.clear();
    detail::SequenceState sequence(tree, out);
    rules::accept_matching(sequence, [&](NodeId node, int) {
      asked.push_back(node);
      return tokens[asked.size() - 1];
    });
  };
  text({5, 8});
  CHECK(out.accepted == std::vector<NodeId>{0, 2});
  CHECK(out.next_token == 8);
  CHECK(asked == std::vector<NodeId>{0, 2});
  text({5, 7, 1});
  CHECK(out.accepted == std::vector<NodeId>{0, 2, 4});
  CHECK(out.next_token == 1);
  text({4});
  CHECK(out.accepted == std::vector<NodeId>{0});
  CHECK(out.next_token == 4);
}
