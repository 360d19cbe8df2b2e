// SPDX-License-Identifier: MIT
// Fuzzes the reading of config.json: any bytes give an error or a valid config.
#include <specula/cpu/read_decoder_config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz_seeds.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;

void require(bool ok) {
  if (!ok) std::abort();
}

constexpr std::string_view kSeeds[] = {
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":2})",
    R"({"model_type":"llama","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})",
    R"({"architectures":["Qwen3ForCausalLM"],"vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":64,"use_sliding_window":true,"sliding_window":64,"layer_types":["sliding_attention"],"rope_parameters":{"rope_type":"yarn","rope_theta":1e6,"factor":4,"original_max_position_embeddings":16,"beta_fast":4,"beta_slow":0.5,"mscale":1.2,"mscale_all_dim":0.7,"truncate":false}})",
    R"({"model_type":"specula_glide","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":2,"target":{"num_attention_heads":4,"head_dim":2,"num_hidden_layers":3,"layers_read":[2]},"exits":null})",
    R"({"architectures":["SpeculaDraft"],"model_type":"specula_draft","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":2,"num_attention_heads":2,"target_hidden_size":16,"draft_vocab_size":5,"exits":[1,2]})",
    R"({"model_type":"specula_feature_head","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":1,"num_attention_heads":2,"draft_vocab_size":9,"tie_word_embeddings":true})",
    R"({"architectures":["LlamaForCausalLMEagle3"],"vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_attention_heads":2,"draft_vocab_size":5,"fc_norm":true,"target_hidden_size":12,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,4],"use_aux_hidden_state":true,"parallel_draft_step":1}})",
    R"({"speculators_model_type":"eagle3","draft_vocab_size":5,"norm_before_residual":true,"eagle_aux_hidden_state_layer_ids":[2,0,1],"transformer_layer_config":{"model_type":"qwen3","vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":2,"num_attention_heads":2,"rope_parameters":{"rope_theta":null}}})",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Json json = parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const DecoderConfig config = read_decoder_config(json, "fuzz");
    require(config.heads % config.kv_heads == 0 && config.head_dim % 2 == 0 && config.vocab_size > 0);
    require(config.head_rows() >= 1 && config.head_rows() <= config.vocab_size &&
            config.target_hidden_size >= 0);
    require(config.draft_vocab_size == 0 || config.is_draft());
  } catch (const std::runtime_error&) {
  }
  return 0;
}

extern "C" std::size_t specula_fuzz_seed(std::uint32_t index, std::uint8_t* data, std::size_t capacity) {
  return specula_test::write_seed(kSeeds, index, data, capacity);
}
