// SPDX-License-Identifier: MIT
// expect: the drafter's reserve is not Reserves
// expect: the drafter's usage is not ReportsUsage
// expect: a drafter with kMembers must be HasMembers
// expect: the drafter's cache_id is not NamesItsCache
// expect: the shape's reserve is not Reserves
// expect: a shape with learn or reset must be LearnsFromRounds
// expect: the shape's reviewed is not CountsReviews
// expect: the shape's validate is not ValidatesFields
// expect: v\.reserve\(sizes\)[^a-z]* (is|would be) invalid
// expect: c\.usage\(\)
// expect: c\.cache_id\(\)
// expect: c\.logprobs\(\)
#include <specula/accept/exact_rules.hpp>
#include <specula/draft/no_drafter.hpp>
#include <specula/draft/stack.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/shape/cost_aware.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using Target = TreeVerifier<specula_test::ToyModel, Greedy>;

// Each type has one member of another type than its concept asks for, and in the twin that one: a drafter's
// and a shape's is optional, a verifier's is not.
#ifdef SPECULA_MUST_FAIL
#define MEMBER(wrong, right) wrong
#else
#define MEMBER(wrong, right) right
#endif
struct D1 : NoDrafter {
  MEMBER(void reserve(std::int32_t);, void reserve(const Sizes&);)
};
struct D2 : NoDrafter { MEMBER(Usage usage() const;, Usage usage() const noexcept;) };
struct D3 : NoDrafter {
  MEMBER(std::size_t kMembers() const;, static constexpr std::size_t kMembers = 2;)
  Usage usage(std::size_t) const noexcept;
  const void* cache_id(std::size_t) const;
  std::int32_t room(std::int32_t) const;
};
struct D4 : NoDrafter {
  static constexpr std::size_t kMembers = 2;
  MEMBER(Usage usage(std::size_t) const;, Usage usage(std::size_t) const noexcept;)
  const void* cache_id(std::size_t) const;
  std::int32_t room(std::int32_t) const;
};
struct D6 : NoDrafter {
  static constexpr std::size_t kMembers = 2;
  Usage usage(std::size_t) const noexcept;
  const void* cache_id(std::size_t) const;
  MEMBER(std::int32_t room() const;, std::int32_t room(std::int32_t) const;)
};
struct D7 : NoDrafter {
  static constexpr std::size_t kMembers = 2;
  Usage usage(std::size_t) const noexcept;
  MEMBER(const void* cache_id() const;, const void* cache_id(std::size_t) const;)
  std::int32_t room(std::int32_t) const;
};
struct D5 : NoDrafter { MEMBER(int cache_id() const;, const void* cache_id() const;) };
struct Learns : Chain<> {
  void learn(const TokenTree&, const VerifyResult&, const Timing&);
};
struct Resets : Chain<> {
  void reset();
};
struct S1 : Chain<> {
  MEMBER(void reserve(int);, void reserve(const Sizes&);)
};
struct S2 : Resets {
  MEMBER(void learn(const TokenTree&, const VerifyResult&);
         , void learn(const TokenTree&, const VerifyResult&, const Timing&);)
};
struct S3 : Learns {
  MEMBER(void reset(int);, void reset();)
};
struct S4 : Chain<> { MEMBER(void validate();, void validate() const;) };
struct S5 : Chain<> {
  MEMBER(int reviewed() const;, std::span<const Reviews> reviewed() const;)
};
struct S6 : Resets {
  MEMBER(, void learn(const TokenTree&, const VerifyResult&, const Timing&);)
};
struct V1 : Target {
  MEMBER(void reserve();, void reserve(const Sizes&);)
};
struct V2 : Target { MEMBER(double usage() const noexcept;, Usage usage() const noexcept;) };
struct V3 : Target {
  MEMBER(int cache_id() const;, const void* cache_id() const;)
};
struct V4 : Target {
  MEMBER(void logprobs() const;, Logprobs logprobs() const;)
};

void pipelines(Target v, NoDrafter d, D1 d1, D2 d2, D3 d3, D4 d4, D5 d5, D6 d6, D7 d7, V1 v1, V2 v2, V3 v3,
               V4 v4) {
  Speculator{v, d1, Chain<>{}}, Speculator{v, d2, Chain<>{}}, Speculator{v, d3, Chain<>{}};
  Speculator{v, d4, Chain<>{}}, Speculator{v, d6, Chain<>{}}, Speculator{v, d7, Chain<>{}};
  Stack{d, d5};
  CostAware{S1{}}, CostAware{S2{}};
  Speculator{v, d, S3{}}, Speculator{v, d, S4{}}, Speculator{v, d, S5{}}, Speculator{v, d, S6{}};
  Speculator{v1, d, Chain<>{}}, Speculator{v2, d, Chain<>{}}, Speculator{v3, d, Chain<>{}},
      Speculator{v4, d, Chain<>{}};
}
