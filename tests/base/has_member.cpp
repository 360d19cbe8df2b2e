// SPECULA_HAS_MEMBER: finds a name whatever it names, and nothing else.
#include <specula/base/has_member.hpp>

#include <doctest/doctest.h>

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
struct Inherits : Overloaded {};
struct Final final {
  void wanted(int) const {}
};
struct FinalNothing final {};

}  // namespace

TEST_CASE("a member is found whatever it is, and whether or not it can be called") {
  CHECK(has_wanted<Function>());
  CHECK(has_wanted<Overloaded>());
  CHECK(has_wanted<Template>());
  CHECK(has_wanted<Field>());
  CHECK(has_wanted<Constant>());
  CHECK(has_wanted<Deleted>());
  CHECK(has_wanted<Inherits>());
  CHECK(has_wanted<Final>());
}

TEST_CASE("what has no such member, or no members at all, has none") {
  CHECK_FALSE(has_wanted<Nothing>());
  CHECK_FALSE(has_wanted<FinalNothing>());
  CHECK_FALSE(has_wanted<int>());
  CHECK_FALSE(has_wanted<Function*>());
}
