// labels: long
// tree_attention() over a cache of e4m3 bytes.
#include <doctest/doctest.h>
#include <specula/cuda/device/tree_attention.cuh>

#include "attention_cases.hpp"

using namespace specula_test;
using Variant = MmaAttention<AsBytes>;

TEST_CASE_TEMPLATE_INVOKE(attention_random, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_edges, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_wide, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_cross, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_of_nothing, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_scales, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_positions, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_maxima, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_order, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_invariance, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_capacities, Variant);
TEST_CASE_TEMPLATE_INVOKE(attention_bad_input, Variant);
