// SPDX-License-Identifier: MIT
// expect: error: static.assert[^!]*TreeVerifier or PathVerifier: the target is no LanguageModel
// expect: type.constraint[^!]*c\.vocab_size\(\)|c\.vocab_size\(\)[^!]*return-type-requirement
// expect: c\.size\(\)[^a-z]* (is|would be) invalid
// expect: c\.capacity\(\)[^a-z]* (is|would be) invalid
// expect: m\.append\(tokens\)[^a-z]* (is|would be) invalid
// expect: type.constraint[^!]*m\.extend\(tokens, parents\)|m\.extend\(tokens, parents\)[^!]*return-type-requirement
// expect: m\.commit\(path\)[^a-z]* (is|would be) invalid
// expect: m\.truncate\(n\)[^a-z]* (is|would be) invalid
// expect: ModelDrafter: the draft is no LanguageModel
// expect: the model's set_context is not TakesContext
#include <specula/accept/exact_rules.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;

// Each type lacks one member or has it with another type.
struct VocabSize : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  std::size_t vocab_size() const;
#endif
};
struct Size : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  void size() const = delete;
#endif
};
struct Capacity : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  std::int32_t capacity();  // not const
#endif
};
struct Append : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  void append(const std::vector<Token>&) = delete;
#endif
};
struct Extend : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  std::vector<float> extend(Tokens, Nodes);
#endif
};
struct Commit : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  void commit(Nodes) = delete;
#endif
};
struct Truncate : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  void truncate(std::int32_t) = delete;
#endif
};

// It has an optional one with another type.
struct Context : specula_test::ToyModel {
#ifdef SPECULA_MUST_FAIL
  bool set_context(std::int32_t);
#else
  void set_context(std::int32_t);
#endif
};

// The arguments are deduced, as in a pipeline.
void verifiers(VocabSize& a, Size& b, Capacity& c, Append& d, Extend& e, Commit& f, Truncate& g) {
  TreeVerifier{a, Greedy{}}, TreeVerifier{b, Greedy{}}, TreeVerifier{c, Greedy{}}, TreeVerifier{d, Greedy{}};
  TreeVerifier{e, Greedy{}}, TreeVerifier{f, Greedy{}}, TreeVerifier{g, Greedy{}};
  ModelDrafter{g};
}
void drafter(Context& context) { ModelDrafter{context}; }
