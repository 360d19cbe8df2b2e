// SPDX-License-Identifier: MIT
// expect: the model's change_count is not CountsChanges
// expect: the model's pass_seconds is not TimesItself
// expect: the model's raw_rows is not KeepsRawRows
// expect: the model's key_values is not ExposesKeyValues
// expect: the model's features is not ExposesFeatures
// expect: a model with set_target_state\(\) must be TargetConditioned
// expect: a model that names TargetKeyValues must have set_target_state
// expect: a model that names TargetFeatures must have set_target_state
// expect: a model with extend_skipping or attention_similarity must be SkipsLayers
// expect: a model with extend_to_exit or resume_to_exit must be ExitsEarly
// expect: the model's cache_id is not NamesItsCache
#include <specula/any.hpp>
#include <specula/specula.hpp>

#include "conditioned_models.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel, specula_test::ToyKeyValues;

// Each model has a member of another type than its concept asks for, or a part of them.
#ifdef SPECULA_MUST_FAIL
#define MEMBER(wrong, right) wrong
#else
#define MEMBER(wrong, right) right
#endif
struct M1 : ToyModel {
  MEMBER(int, std::uint64_t) change_count() const;
};
struct M2 : ToyModel {
  MEMBER(double pass_seconds();, double pass_seconds() const;)
};
struct M3 : ToyModel {
  MEMBER(std::vector<float>, LogitsView) raw_rows() const;
};
struct M4 : ToyModel {
  MEMBER(const float*, ToyKeyValues) key_values();
};
struct M5 : ToyModel {
  MEMBER(std::span<const float>, FeaturesView<float>) features();
};
struct M6 : ToyModel {
  using TargetFeatures = FeaturesView<float>;
  void set_target_state(const FeaturesView<float>&);
  Conditioning conditioned_on() const;
  MEMBER(, bool keeps_speculation() const;)
};
struct M7 : ToyModel {  // takes features, and says that it takes keys and values, too
  using TargetFeatures = FeaturesView<float>;
  MEMBER(using TargetKeyValues = ToyKeyValues;, )
  void set_target_state(const FeaturesView<float>&);
  Conditioning conditioned_on() const;
  bool keeps_speculation() const;
};
struct M8 : ToyModel {
  MEMBER(using TargetFeatures = FeaturesView<float>;, )
};
struct M9 : ToyModel {
  std::int32_t layers() const;
  MEMBER(, std::int32_t node_count() const;)
  LogitsView extend_skipping(Tokens, Nodes, const SkippedBlocks&);
  std::span<const double> attention_similarity();
};
struct M10 : ToyModel {
  std::int32_t exits() const;
  std::int32_t layers_to(std::int32_t) const;
  LogitsView extend_to_exit(Tokens, Nodes, std::int32_t);
  MEMBER(void, LogitsView) resume_to_exit(std::span<const std::int32_t>, std::int32_t);
};
struct M11 : ToyModel {
  MEMBER(std::uintptr_t, const void*) cache_id() const;
};

void pipelines(M1& m1, M2& m2, M3& m3, M4& m4, M5& m5, M6& m6, M7& m7, M8& m8, M9& m9, M10& m10, M11& m11) {
  TreeVerifier{m1, Greedy{}}, PathVerifier{m2, Greedy{}}, TreeVerifier{m3, Greedy{}}, AnyModel{m4};
  Processed{m5, [](Tokens, std::span<float>) {}};
  ModelDrafter{m6}, ModelDrafter{m7}, AnyModel{m8}, ModelDrafter{m9}, ModelDrafter{m10};
  TreeVerifier{m11, Greedy{}};
}
