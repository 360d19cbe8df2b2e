// expect: the drafter's reserve is not ReservesMemory
// expect: the drafter's usage is not ReportsUsage
// expect: a drafter with kMembers must be HasMembers
// expect: the drafter's cache_id is not NamesItsCache
// expect: the shape's reserve is not ReservesWorkspace
// expect: the shape's learn is not LearnsFromRounds
// expect: the shape's reset is not ResetsPerText
// expect: the shape's validate is not ValidatesFields
// expect: the shape's least_nodes is not StatesLeastNodes
// expect: the shape's draft_nodes is not StatesDraftNodes
// expect: the verifier's reserve is not ReservesMemory
// expect: the verifier's usage is not ReportsUsage
// expect: the verifier's cache_id is not NamesItsCache
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

// Each type has one optional member: another than its concept asks for, and in the twin that one.
#ifdef SPECULA_MUST_FAIL
#define MEMBER(wrong, right) wrong
#else
#define MEMBER(wrong, right) right
#endif
struct D1 : NoDrafter { MEMBER(void reserve(const char*);, void reserve(std::int32_t);) };
struct D2 : NoDrafter { MEMBER(Usage usage() const;, Usage usage() const noexcept;) };
struct D3 : NoDrafter {
  MEMBER(std::size_t kMembers() const;, static constexpr std::size_t kMembers = 2;)
  Usage usage(std::size_t) const noexcept;
  std::int32_t room(std::int32_t) const;
};
struct D4 : NoDrafter {
  static constexpr std::size_t kMembers = 2;
  MEMBER(Usage usage(std::size_t) const;, Usage usage(std::size_t) const noexcept;)
  std::int32_t room(std::int32_t) const;
};
struct D6 : NoDrafter {
  static constexpr std::size_t kMembers = 2;
  Usage usage(std::size_t) const noexcept;
  MEMBER(std::int32_t room() const;, std::int32_t room(std::int32_t) const;)
};
struct D5 : NoDrafter { MEMBER(int cache_id() const;, const void* cache_id() const;) };
struct S1 : Chain<> { MEMBER(void reserve(int);, void reserve();) };
struct S2 : Chain<> {
  MEMBER(void learn(const TokenTree&, const VerifyResult&);
         , void learn(const TokenTree&, const VerifyResult&, const Timing&);)
};
struct S3 : Chain<> { MEMBER(void reset(int);, void reset();) };
struct S4 : Chain<> { MEMBER(void validate();, void validate() const;) };
struct S5 : Chain<> { MEMBER(std::size_t least_nodes() const;, std::int32_t least_nodes() const;) };
struct S6 : Chain<> { MEMBER(std::int32_t draft_nodes();, std::int32_t draft_nodes() const;) };
struct V1 : Target { MEMBER(void reserve();, void reserve(std::int32_t);) };
struct V2 : Target { MEMBER(double usage() const noexcept;, Usage usage() const noexcept;) };
struct V5 : Target { MEMBER(const void* cache_id();, const void* cache_id() const;) };

void pipelines(Target v, NoDrafter d, D1 d1, D2 d2, D3 d3, D4 d4, D5 d5, D6 d6, V1 v1, V2 v2, V5 v5) {
  Speculator{v, d1, Chain<>{}}, Speculator{v, d2, Chain<>{}}, Speculator{v, d3, Chain<>{}};
  Speculator{v, d4, Chain<>{}}, Speculator{v, d6, Chain<>{}};
  Stack{d, d5};
  CostAware{S1{}}, CostAware{S2{}};
  Speculator{v, d, S3{}}, Speculator{v, d, S4{}}, Speculator{v, d, S5{}}, Speculator{v, d, S6{}};
  Speculator{v1, d, Chain<>{}}, Speculator{v2, d, Chain<>{}}, Speculator{v5, d, Chain<>{}};
}
