// SPDX-License-Identifier: MIT
// expect: the batched model's fork is not ForksTexts
// expect: the batched model's change_count makes no slot CountsChanges
// expect: the batched model's pass_seconds makes no slot TimesItself
// expect: the batched model's key_values makes no slot ExposesKeyValues
// expect: the batched model's features makes no slot ExposesFeatures
// expect: a batched model with set_target_state\(\) must make its slots TargetConditioned
// expect: a batched model that names TargetKeyValues must have set_target_state\(std::int32_t slot
// expect: a batched model that names TargetFeatures must have set_target_state\(std::int32_t slot
// expect: the model's change_count is not CountsChanges
// expect: check_slot_members(<|\(\) .with Slot = )[A-Za-z_:]*<[a-z_:]*B9
#include <specula/model/batched.hpp>
#include <specula/specula.hpp>

#include "conditioned_models.hpp"

using namespace specula;
using specula_test::ToyKeyValues;

// Each model of many texts has a member of another type than its concept asks for, or a part of them.
#ifdef SPECULA_MUST_FAIL
#define MEMBER(wrong, right) wrong
#else
#define MEMBER(wrong, right) right
#endif
struct Batch {
  std::int32_t vocab_size() const;
  std::int32_t slots() const;
  std::int32_t size(std::int32_t) const;
  std::int32_t capacity(std::int32_t) const;
  std::int32_t queued(std::int32_t) const;
  std::int32_t chunk() const;
  void append(std::int32_t, Tokens);
  LogitsView extend(std::span<const SlotNodes>);
  void commit(std::int32_t, Nodes);
  void truncate(std::int32_t, std::int32_t);
};
struct Reads : Batch {
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
};
struct B1 : Batch {
  MEMBER(void fork(std::int32_t, std::int32_t);, void fork(std::int32_t, std::int32_t, std::int32_t);)
};
struct B2 : Batch {
  MEMBER(std::uint64_t change_count() const;, std::uint64_t change_count(int) const;)
};
struct B3 : Batch {
  MEMBER(float, double) pass_seconds(std::int32_t) const;
};
struct B4 : Batch {
  MEMBER(ToyKeyValues key_values();, ToyKeyValues key_values(std::int32_t);)
};
struct B5 : Batch {
  MEMBER(ToyKeyValues, FeaturesView<float>) features(std::int32_t);
};
struct B6 : Reads {  // names no view
  MEMBER(, using TargetKeyValues = ToyKeyValues;)
  void set_target_state(std::int32_t, const ToyKeyValues&);
};
struct B7 : Reads {
  using TargetKeyValues = ToyKeyValues;
  MEMBER(, void set_target_state(std::int32_t, const ToyKeyValues&);)
};
struct B8 : Reads {  // takes one of the views that it names
  using TargetKeyValues = ToyKeyValues;
  using TargetFeatures = FeaturesView<float>;
  void set_target_state(std::int32_t, const ToyKeyValues&);
  MEMBER(, void set_target_state(std::int32_t, const FeaturesView<float>&);)
};
struct B9 : Reads {  // without a slot
  using TargetFeatures = FeaturesView<float>;
  MEMBER(void set_target_state(const FeaturesView<float>&);
         , void set_target_state(std::int32_t, const FeaturesView<float>&);)
};

/// A model of one text, too, as cpu::Decoder is.
struct Both : Batch {
  using Batch::append, Batch::capacity, Batch::commit, Batch::extend, Batch::size, Batch::truncate;
  std::int32_t size() const;
  std::int32_t capacity() const;
  void append(Tokens);
  LogitsView extend(Tokens, Nodes);
  void commit(Nodes);
  void truncate(std::int32_t);
  MEMBER(int, std::uint64_t) change_count() const;
};

void target_of(Both& model) { TreeVerifier verifier(model, Greedy{}); }
template <class B>
void slot_of(B& batch) {
  const SlotOf<B> slot(batch, 0);
  static_assert(LanguageModel<SlotOf<B>>);
}
void slots(B1& b1, B2& b2, B3& b3, B4& b4, B5& b5, B6& b6, B7& b7, B8& b8, B9& b9) {
  slot_of(b1), slot_of(b2), slot_of(b3), slot_of(b4), slot_of(b5), slot_of(b6), slot_of(b7), slot_of(b8),
      slot_of(b9);
}
#ifndef SPECULA_MUST_FAIL
static_assert(ForksTexts<B1>);
#endif
