// specula: speculative decoding for any language model behind a small adapter.
//
// Everything that needs nothing but the standard library. Adapters are apart: specula/eigen/llama.hpp (needs
// Eigen).
#pragma once

#include "accept/greedy.hpp"
#include "accept/lenient.hpp"
#include "accept/rejection.hpp"
#include "accept/sample_and_match.hpp"
#include "accept/sampling.hpp"
#include "chance.hpp"
#include "concepts.hpp"
#include "draft/model_drafter.hpp"
#include "draft/no_drafter.hpp"
#include "rows.hpp"
#include "run/speculator.hpp"
#include "sampling_params.hpp"
#include "shape/chain.hpp"
#include "stats.hpp"
#include "target_laws.hpp"
#include "token_tree.hpp"
#include "verdict.hpp"
#include "verify/tree_mask.hpp"
#include "verify/tree_verifier.hpp"
#include "version.hpp"
