// Entries of the registry that stand in files of their own, so that these compile beside one another.
#pragma once

#include "pipelines.hpp"

namespace specula_examples {

// cascade_pipelines.cpp
PipelineFactory prepare_max_gram(PipelineSpec& spec);
PipelineFactory prepare_cost_aware_max_gram(PipelineSpec& spec);
PipelineFactory prepare_prompt_lookup(PipelineSpec& spec);
/// `absent` is the first drafter where none is named.
PipelineFactory prepare_horizontal(PipelineSpec& spec, specula::Draw mode,
                                   const char* absent = kDefaultDraft);
PipelineFactory prepare_vertical(PipelineSpec& spec, specula::Draw mode);
PipelineFactory prepare_cascade(PipelineSpec& spec, specula::Draw mode);
PipelineFactory prepare_cost_aware_cascade(PipelineSpec& spec);

// self_pipelines.cpp
PipelineFactory prepare_adaptive_chain(PipelineSpec& spec);
PipelineFactory prepare_s2d(PipelineSpec& spec);
PipelineFactory prepare_cost_aware_s2d(PipelineSpec& spec);
PipelineFactory prepare_layer_skip(PipelineSpec& spec);
PipelineFactory prepare_cost_aware_layer_skip(PipelineSpec& spec);

}  // namespace specula_examples
