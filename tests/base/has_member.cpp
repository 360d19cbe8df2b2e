// SPDX-License-Identifier: MIT
// SPECULA_HAS_MEMBER: finds a name whatever it names, and nothing else.
#include <specula/base/has_member.hpp>

#include <doctest/doctest.h>

#include <span>

namespace {

SPECULA_HAS_MEMBER(wanted)

struct Nothing {
  void unwanted() {}
};
struct Function {
  void wanted() noexcept {}
};
struct Overloaded {
  void wanted() {}
  void wanted(int) {}
};
struct Template {
  template <class T>
  void wanted(T) {}
};
struct Field {
  int wanted;
};
struct Constant {
  [[maybe_unused]] static constexpr int wanted = 0;
};
struct Deleted {
  void wanted() = delete;
};
class Private {
  [[maybe_unused]] void wanted() {}
};
class PrivateOverloads {
  [[maybe_unused]] void wanted() {}
  [[maybe_unused]] void wanted(int) {}
};
template <bool has>
struct Constrained {
  void wanted() requires has {}
};
template <bool has>
struct ConstrainedOverloads {
  void wanted(int) requires has {}
  auto wanted(std::span<const int> numbers, const int&) requires has { return numbers.size(); }
};
struct ReferenceOverloads {
  void wanted(int&, std::span<const int>) {}
  void wanted(const ReferenceOverloads&) {}
};
struct Inherits : Overloaded {};
struct Final final {
  void wanted(int) const {}
};
struct FinalOverloaded final {
  void wanted(int) {}
  void wanted(int, int, std::span<const int>) const {}
};
struct FinalNothing final {};
struct Takes : Overloaded {
  void wanted() = delete;
};

}  // namespace

TEST_CASE("a member is found whatever it is") {
  CHECK(has_wanted<Function>());
  CHECK(has_wanted<Overloaded>());
  CHECK(has_wanted<Template>());
  CHECK(has_wanted<Field>());
  CHECK(has_wanted<Constant>());
  CHECK(has_wanted<Inherits>());
  CHECK(has_wanted<Final>());
  CHECK(has_wanted<FinalOverloaded>());
  CHECK(has_wanted<Constrained<true>>());
  CHECK(has_wanted<ConstrainedOverloads<true>>());
  CHECK(has_wanted<ReferenceOverloads>());
}

TEST_CASE("what has no such member, or no members at all, has none") {
  CHECK_FALSE(has_wanted<Nothing>());
  CHECK_FALSE(has_wanted<FinalNothing>());
  CHECK_FALSE(has_wanted<Private>());
  CHECK_FALSE(has_wanted<PrivateOverloads>());
  CHECK_FALSE(has_wanted<Deleted>());
  CHECK_FALSE(has_wanted<Takes>());
  CHECK_FALSE(has_wanted<Constrained<false>>());
  CHECK_FALSE(has_wanted<ConstrainedOverloads<false>>());
  CHECK_FALSE(has_wanted<int>());
  CHECK_FALSE(has_wanted<Function*>());
}
