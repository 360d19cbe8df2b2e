// SPDX-License-Identifier: MIT
// labels: long optimised
// tree_attention() over a cache of e4m3 bytes.
#include <doctest/doctest.h>
#include <specula/cuda/api/tree_attention_mma.cuh>

#include "attention_cases.hpp"

using namespace specula_test;
using Variant = MmaAttention<AsBytes>;

ATTENTION_CASES(Variant);
