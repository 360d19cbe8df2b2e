// SPDX-License-Identifier: MIT
// expect: a model or a drafter with begin_pass or end_pass must be MergesPasses
// expect: a verifier with begin_round or end_round must be MergesRounds
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*D1
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*D2
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*D3
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*D4
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*D5
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*M1
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*M2
// expect: check_pass_halves(<|\(\) .with M = )[a-z_:]*M3
// expect: check_verifier_members(<|\(\) .with V = )[a-z_:]*V1
// expect: check_verifier_members(<|\(\) .with V = )[a-z_:]*V2
// expect: check_verifier_members(<|\(\) .with V = )[a-z_:]*V3
// expect: check_verifier_members(<|\(\) .with V = )[a-z_:]*V4
// expect: check_verifier_members(<|\(\) .with V = )[a-z_:]*V5
#include <specula/any.hpp>
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;
using Target = TreeVerifier<ToyModel, Greedy>;

// A pass has two halves, each of one type, or it would be run alone, and nothing would say so.
#ifdef SPECULA_MUST_FAIL
#define MEMBER(wrong, right) wrong
#else
#define MEMBER(wrong, right) right
#endif
struct Ends : NoDrafter {
  LogitsView end_pass(const LogitsView&);
};
struct Begins : NoDrafter {
  PassRequest begin_pass(Tokens, Nodes);
};
struct D1 : Ends {
  MEMBER(PassRequest begin_pass(Tokens);, PassRequest begin_pass(Tokens, Nodes);)
};
struct D2 : Ends {
  MEMBER(, PassRequest begin_pass(Tokens, Nodes);)
};
struct D3 : Begins {
  MEMBER(void end_pass(const LogitsView&);, LogitsView end_pass(const LogitsView&);)
};
struct D4 : Begins {
  MEMBER(, LogitsView end_pass(const LogitsView&);)
};
struct D5 : Ends {
#ifdef SPECULA_MUST_FAIL
  PassRequest begin_pass(Tokens, int);
  PassRequest begin_pass(Nodes);
#else
  template <class N>
  PassRequest begin_pass(Tokens, const N&);
#endif
};
struct M1 : ToyModel {
  MEMBER(std::optional<PassRequest> begin_pass(Tokens, Nodes);, PassRequest begin_pass(Tokens, Nodes);)
  LogitsView end_pass(const LogitsView&);
};
struct M2 : ToyModel {
  PassRequest begin_pass(Tokens, Nodes);
  MEMBER(, LogitsView end_pass(const LogitsView&);)
};
struct M3 : ToyModel {
  PassRequest begin_pass(Tokens, Nodes);
  MEMBER(LogitsView end_pass(LogitsView&);, LogitsView end_pass(LogitsView);)
};
struct Batched : Target {
  const void* batch() const;
};
struct V1 : Batched {
  PassRequest begin_round(const TokenTree&);
  MEMBER(void, const VerifyResult&) end_round(const TokenTree&, const LogitsView&, PhiloxRandom&);
};
struct V2 : Batched {
  MEMBER(, PassRequest begin_round(const TokenTree&);)
  VerifyResult end_round(const TokenTree&, const LogitsView&, PhiloxRandom&);
};
struct V3 : Batched {
  MEMBER(void begin_round(const TokenTree&);, PassRequest begin_round(const TokenTree&);)
  const VerifyResult& end_round(const TokenTree&, const LogitsView&, PhiloxRandom&);
};
struct V4 : Batched {
  PassRequest begin_round(const TokenTree&);
  MEMBER(const VerifyResult& end_round(const LogitsView&, PhiloxRandom&);
         , const VerifyResult& end_round(const TokenTree&, const LogitsView&, PhiloxRandom&);)
};

struct V5 : Target {
  MEMBER(, const void* batch() const;)
  PassRequest begin_round(const TokenTree&);
  VerifyResult end_round(const TokenTree&, const LogitsView&, PhiloxRandom&);
};

// These are no optional members: the names are free for what a caller cannot reach.
class Hidden : public ToyModel {
 private:
  void begin_pass() {}
  int features() { return 0; }
};

void pipelines(Target v, NoDrafter d, D1 d1, D2 d2, D3 d3, D4 d4, D5 d5, M1& m1, M2& m2, M3& m3, V1 v1, V2 v2,
               V3 v3, V4 v4, V5 v5, Hidden& hidden) {
  Speculator{v, d1, Chain<>{}}, Speculator{v, d2, Chain<>{}}, Speculator{v, d3, Chain<>{}};
  Speculator{v, d4, Chain<>{}};
  Stack{d, d5};
  TreeVerifier{m1, Greedy{}}, ModelDrafter{m2}, PathVerifier{m3, Greedy{}};
  Speculator{v1, d, Chain<>{}}, Speculator{v2, d, Chain<>{}}, Speculator{v3, d, Chain<>{}};
  Speculator{v4, d, Chain<>{}}, Speculator{v5, d, Chain<>{}}, TreeVerifier{hidden, Greedy{}};
}
