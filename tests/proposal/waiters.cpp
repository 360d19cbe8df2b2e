// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <exception>
#include <stdexcept>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>
#include <specula/proposal/waiters.hpp>

using namespace specula;

namespace {

Steps wait_for(ProposalBuilder& tree, const PassRequest& request, std::int32_t& rows) {
  detail::PassWaiter pass(tree.waiter(), request);
  const LogitsView given = co_await pass;
  rows = given.rows;
}

Steps ask_for(ProposalBuilder& tree, const DraftCall& call, bool& pays) {
  detail::GrantWaiter waiter(tree.bidder(), call);
  struct Answer {
    detail::GrantWaiter& of;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> frame) noexcept { of.suspend(frame); }
    bool await_resume() const noexcept { return of.pays(); }
  };
  pays = co_await Answer{waiter};
}

}  // namespace

TEST_CASE("a bid waits at its place until it is answered, or dropped") {
  ProposalBuilder tree(3, 4, 0);
  const DraftCall call{.reach = 0.5, .width = 2, .adds = 3, .nodes = 4};
  for (const bool answer : {true, false}) {
    bool pays = !answer;
    Steps steps = ask_for(tree, call, pays);
    REQUIRE_FALSE(steps.advance());
    REQUIRE(tree.bidder() != nullptr);
    CHECK(tree.bidder()->call().adds == 3);
    tree.bidder()->grant(answer);
    CHECK(tree.bidder() == nullptr);
    CHECK(steps.done());
    CHECK(pays == answer);
  }
  {
    bool pays = false;
    Steps steps = ask_for(tree, call, pays);
    REQUIRE_FALSE(steps.advance());
  }
  CHECK(tree.bidder() == nullptr);
}

TEST_CASE("a request waits at its place until it is given rows, fails, or is dropped") {
  ProposalBuilder tree(3, 4, 0);
  const std::vector<Token> tokens{1, 2};
  const std::vector<NodeId> parents{kNoParent, 0};
  const PassRequest nothing;
  std::int32_t rows = 0;
  {
    const PassRequest request{&tree, 7, tokens, parents};
    Steps steps = wait_for(tree, request, rows);
    CHECK(tree.waiter() == nullptr);
    REQUIRE_FALSE(steps.advance());
    REQUIRE(tree.waiter() != nullptr);
    CHECK(tree.waiter()->request().batch == &tree);
    CHECK(tree.waiter()->request().slot == 7);
    CHECK(tree.waiter()->request().tokens.data() == tokens.data());
    CHECK(tree.waiter()->request().parents.size() == 2);
    tree.waiter()->give({nullptr, 2, 3, 3});
    CHECK(tree.waiter() == nullptr);
    CHECK(steps.done());
    CHECK(rows == 2);
  }
  {
    Steps steps = wait_for(tree, nothing, rows);
    REQUIRE_FALSE(steps.advance());
    tree.waiter()->fail(std::make_exception_ptr(std::runtime_error("no memory")));
    CHECK(tree.waiter() == nullptr);
    REQUIRE(steps.done());
    CHECK_THROWS_WITH_AS(steps.rethrow(), "no memory", std::runtime_error);
  }
  {
    Steps steps = wait_for(tree, nothing, rows);
    REQUIRE_FALSE(steps.advance());
  }
  CHECK(tree.waiter() == nullptr);
}
