// labels: light
#include <specula/detail/follow.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace specula;

TEST_CASE("it follows what was guessed, the first of equal siblings, and ends where nothing was") {
  TokenTree tree(9, 6, 0);
  tree.reset(0, 0);
  tree.choose(0, 3, 1);  // 1
  tree.choose(0, 5, 1);  // 2
  tree.choose(0, 5, 1);  // 3
  tree.choose(2, 7, 1);  // 4
  tree.choose(3, 8, 1);  // 5
  std::vector<NodeId> asked;
  Verdict out;
  const auto text = [&](std::vector<Token> tokens) {
    asked.clear();
    detail::follow(tree, out, [&](NodeId node) {
      asked.push_back(node);
      return tokens[asked.size() - 1];
    });
  };
  text({5, 8});
  CHECK(out.path == std::vector<NodeId>{0, 2});
  CHECK(out.next == 8);
  CHECK(asked == std::vector<NodeId>{0, 2});
  text({5, 7, 1});
  CHECK(out.path == std::vector<NodeId>{0, 2, 4});
  CHECK(out.next == 1);
  text({4});
  CHECK(out.path == std::vector<NodeId>{0});
  CHECK(out.next == 4);
}
