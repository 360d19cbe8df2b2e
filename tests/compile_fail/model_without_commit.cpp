// expect: m\.commit\(ids\)
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

struct Model : specula_test::ToyModel {
  using ToyModel::ToyModel;
#ifdef SPECULA_MUST_FAIL
  void commit(Nodes) = delete;
#endif
};

void pipeline(TreeVerifier<Model, Greedy>& verifier) { verifier.truncate(0); }
