// SPDX-License-Identifier: MIT
// labels: long optimised
// tree_attention_wgmma() over a cache of e4m3 bytes.
#include <doctest/doctest.h>
#include <specula/cuda/api/tree_attention_wgmma.cuh>

#include "attention_cases.hpp"
#include "wgmma_attention.hpp"

using namespace specula_test;
using Variant = WgmmaAttention<AsBytes>;

ATTENTION_CASES(Variant);
