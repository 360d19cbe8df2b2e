// Entries of the registry that stand in files of their own, so that these compile beside one another.
#pragma once

#include "pipelines.hpp"

namespace specula_examples {

// cascade_pipelines.cpp
Recipe prepare_max_gram(PipelineSpec& spec);
Recipe prepare_cost_aware_max_gram(PipelineSpec& spec);
Recipe prepare_prompt_lookup(PipelineSpec& spec);
/// `absent` is the first drafter where none is named.
Recipe prepare_horizontal(PipelineSpec& spec, specula::Draw mode, const char* absent = kDefaultDraft);
Recipe prepare_vertical(PipelineSpec& spec, specula::Draw mode);
Recipe prepare_cascade(PipelineSpec& spec, specula::Draw mode);
Recipe prepare_cost_aware_cascade(PipelineSpec& spec);

// self_pipelines.cpp
Recipe prepare_adaptive_chain(PipelineSpec& spec);
Recipe prepare_sorted(PipelineSpec& spec);
Recipe prepare_cost_aware_sorted(PipelineSpec& spec);
Recipe prepare_layer_skip(PipelineSpec& spec);
Recipe prepare_cost_aware_layer_skip(PipelineSpec& spec);

}  // namespace specula_examples
