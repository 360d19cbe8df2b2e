// SPDX-License-Identifier: MIT
// config.json of EAGLE-3 heads: what each writer's keys mean, and what is refused by name.
#include <specula/cpu/read_eagle3_config.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/read_decoder_config.hpp>

using namespace specula::cpu;
using specula::files::parse_json;
using States = std::vector<std::int32_t>;

namespace {

constexpr const char* kSizes =
    R"("vocab_size":100,"hidden_size":64,"intermediate_size":96,"num_attention_heads":4)";

/// As SpecForge writes it, with more keys.
std::string flat(const std::string& more = "", const std::string& name = "LlamaForCausalLMEagle3") {
  return "{\"architectures\":[\"" + name + "\"]," + kSizes + more + "}";
}
/// As speculators writes it.
std::string nested(const std::string& more = R"(,"norm_before_residual":true)",
                   const std::string& layer = R"(,"model_type":"llama","num_hidden_layers":1)") {
  return std::string(R"({"speculators_model_type":"eagle3","transformer_layer_config":{)") + kSizes + layer +
         "}" + more + "}";
}
DecoderConfig read(const std::string& text) {
  return read_decoder_config(parse_json(text, "config"), "config");
}
std::string error(const std::string& text) {
  try {
    read(text);
  } catch (const std::runtime_error& thrown) {
    return thrown.what();
  }
  return "";
}
bool fails(const std::string& text, const std::string& key, const std::string& what) {
  const std::string found = error(text);
  CAPTURE(found);
  const bool ok = found.find("key '" + key + "': ") != found.npos && found.find(what) != found.npos;
  CHECK(ok);
  return ok;
}
/// Its states, and where they are from.
struct Read {
  States states;
  StatesFrom from;
  bool operator==(const Read&) const = default;
};
Read states(const std::string& text) {
  const DecoderConfig config = read(text);
  return {config.eagle3->states, config.eagle3->states_from};
}

}  // namespace

TEST_CASE("a flat config of few keys: what absent keys mean") {
  const DecoderConfig config = read(flat(R"(,"draft_vocab_size":40,"rope_theta":null)"));
  REQUIRE(config.eagle3);
  CHECK(config.conditioned_on == specula::Conditioning::features);
  CHECK(config.rope_theta == 10000);
  CHECK(config.rope_scaling.type == RopeType::none);
  CHECK(config.layers == 1);
  CHECK(config.head_dim == 16);
  CHECK(config.kv_heads == 4);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.draft_vocab_size == 40);
  CHECK(config.feature_layers.empty());
  CHECK_FALSE(config.query_key_norms);
  CHECK_FALSE(config.tied_head);
  CHECK(config.eagle3->target_hidden_size == 64);
  const Eagle3Config& head = *config.eagle3;
  CHECK_FALSE((head.norm_before_residual || head.norm_before_fc || head.fc_norm || head.norm_output));
  CHECK(read(flat(R"(,"target_hidden_size":80)")).eagle3->target_hidden_size == 80);
}

TEST_CASE("which file is of a head") {
  CHECK(read(flat("", "Eagle3LlamaForCausalLM")).eagle3);
  CHECK(read(flat(R"(,"draft_vocab_size":40)", "LlamaForCausalLM")).eagle3);  // SafeAILab
  CHECK_FALSE(read(flat(R"(,"num_hidden_layers":1)", "LlamaForCausalLM")).eagle3);
  CHECK(read(nested()).eagle3);
  for (const char* name : {"PEagleDraftModel", "DFlashDraftModel", "Eagle3DeepseekV2ForCausalLM",
                           "Qwen3DSparkModel", "DominoDraftModel", "LlamaForCausalLMEagle3Deep"})
    CHECK(fails(flat("", name), "architectures", "is a draft head that other programs trained"));
  for (const char* type : {"peagle", "dflash", "dspark", "dflash2"})
    CHECK(fails(R"({"speculators_model_type":")" + std::string(type) + "\"}", "speculators_model_type",
                "is of a draft head that other programs trained"));
  CHECK(fails(flat(R"(,"mask_token_id":3)"), "mask_token_id", "several tokens in one pass"));
}

TEST_CASE("ids of states: where the key stands says what they mean") {
  const std::string ids = R"("eagle_aux_hidden_state_layer_ids":[3,1,12])";
  CHECK(states(flat()) == Read{{}, StatesFrom::standard});
  CHECK(states(flat("," + ids)) == Read{{3, 1, 12}, StatesFrom::states});
  CHECK(states(nested(R"(,"norm_before_residual":false,)" + ids)) == Read{{3, 1, 12}, StatesFrom::states});
  CHECK(states(flat(R"(,"eagle_config":{)" + ids + "}")) == Read{{4, 2, 13}, StatesFrom::nested_outputs});
  CHECK(states(flat(R"(,"eagle_config":{"layer_ids":[0,5]})")) == Read{{0, 5}, StatesFrom::states});
  CHECK(states(flat("," + ids + R"(,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[7,8]})")) ==
        Read{{3, 1, 12}, StatesFrom::states});
  CHECK(states(flat(R"(,"model_type":"qwen3","target_layer_ids":[1,2,3,4,5])", "Qwen3Eagle3Model")) ==
        Read{{2, 3, 4, 5, 6}, StatesFrom::outputs});
  CHECK(states(
            flat(R"(,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[],"use_aux_hidden_state":null})")) ==
        Read{{}, StatesFrom::standard});
  const std::string one = R"(,"eagle_config":{"use_aux_hidden_state":false,)" + ids + "}";
  CHECK(states(flat(one)) == Read{{}, StatesFrom::final_norm});
  CHECK_FALSE(read(flat(one)).eagle3->mixes_states());
  CHECK(read(flat("," + ids)).feature_layers == States{1, 3, 12});
  CHECK(fails(flat(R"(,"eagle_aux_hidden_state_layer_ids":[-1,2])"), "eagle_aux_hidden_state_layer_ids",
              "expected integers"));
  CHECK(fails(flat("," + ids + R"(,"num_aux_hidden_states":4)"), "num_aux_hidden_states", "not the number"));
  CHECK(states(flat("," + ids + R"(,"num_aux_hidden_states":3)")).states.size() == 3);
  for (const StatesFrom from : {StatesFrom::standard, StatesFrom::states, StatesFrom::nested_outputs,
                                StatesFrom::outputs, StatesFrom::final_norm, StatesFrom::caller})
    CHECK_FALSE(to_string(from).empty());
}

TEST_CASE("states that a file does not name depend on its target's layers") {
  DecoderConfig target = read(flat(R"(,"num_hidden_layers":32)", "LlamaForCausalLM"));
  const auto of = [&](std::int32_t layers) {
    target.layers = layers;
    return for_target(read(flat()), target, "head");
  };
  CHECK(of(32).eagle3->states == States{2, 16, 29});
  CHECK(of(32).feature_layers == States{2, 16, 29});
  CHECK(of(28).eagle3->states == States{2, 14, 25});
  CHECK_THROWS_WITH_AS(of(6), doctest::Contains("not three states of a target of 6 layers"),
                       std::runtime_error);
  const DecoderConfig named = read(flat(R"(,"eagle_aux_hidden_state_layer_ids":[6,0])"));
  CHECK(for_target(named, target, "head").eagle3->states == States{6, 0});
  CHECK_NOTHROW(validate_target(named, target, "head"));  // the last is the one before the final norm
  target.layers = 5;
  CHECK_THROWS_WITH_AS(validate_target(named, target, "head"),
                       doctest::Contains("head: it reads state 6 of its target"), std::runtime_error);
  target.layers = 6, target.hidden_size = 80;
  CHECK_THROWS_WITH_AS(validate_target(named, target, "head"), doctest::Contains("made for another target"),
                       std::runtime_error);
  const DecoderConfig wider =
      read(flat(R"(,"target_hidden_size":80,"eagle_aux_hidden_state_layer_ids":[6])"));
  CHECK_NOTHROW(validate_target(wider, target, "head"));
  target.vocab_size = 99;
  CHECK_THROWS_WITH_AS(validate_target(wider, target, "head"), doctest::Contains("vocab_size is 100"),
                       std::runtime_error);
}

TEST_CASE("norms") {
  const auto head = [](const std::string& text) { return *read(text).eagle3; };
  CHECK(head(flat(R"(,"fc_norm":true,"norm_output":true)")).fc_norm);
  CHECK(head(flat(R"(,"fc_norm":true,"norm_output":true)")).norm_output);
  CHECK(head(flat(R"(,"use_aux_norm":true)")).fc_norm);
  CHECK(head(flat(R"(,"norm_before_fc":true)")).norm_before_fc);
  CHECK(head(flat(R"(,"norm_before_fc":true,"eagle_config":{"norm_before_fc":false})")).norm_before_fc ==
        false);
  CHECK(head(flat(R"(,"eagle_config":{"norm_before_fc":true})")).norm_before_fc);
  CHECK(head(nested()).norm_before_residual);
  CHECK(fails(
      nested(""), "norm_before_residual",
      "readers of this format disagree on what that means: add true or false, as the head was trained"));
  CHECK(fails(flat(R"(,"fc_norm":true,"norm_before_fc":true)"), "fc_norm", "expected one"));
  CHECK(fails(flat(R"(,"fc_norm":true,"eagle_config":{"use_aux_hidden_state":false})"), "fc_norm",
              "reads one state"));
  CHECK(fails(flat(R"(,"fc_norm":1)"), "fc_norm", "expected true or false"));
}

TEST_CASE("layers: Llama and Qwen3, several of them, angles") {
  CHECK(read(nested(R"(,"norm_before_residual":true)", R"(,"model_type":"qwen3","num_hidden_layers":3)"))
            .layers == 3);
  CHECK(read(nested(R"(,"norm_before_residual":true)", R"(,"model_type":"qwen3")")).query_key_norms);
  CHECK(fails(nested(R"(,"norm_before_residual":true)", R"(,"model_type":"gemma3_text")"), "model_type",
              "layers of 'gemma3_text'"));
  const std::string deep = R"(,"model_type":"qwen3","target_layer_ids":[1,2,3,4,5],"num_hidden_layers":)";
  CHECK(read(flat(deep + "1", "Qwen3Eagle3Model")).query_key_norms);
  CHECK(fails(flat(deep + "2", "Qwen3Eagle3Model"), "num_hidden_layers", "each take the embedding"));
  CHECK(fails(flat(R"(,"model_type":"qwen3")", "Qwen3Eagle3Model"), "target_layer_ids", "missing"));
  const DecoderConfig scaled = read(flat(
      R"(,"rope_scaling":{"type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64},"rope_theta":500000.0,"attention_bias":true)"));
  CHECK(scaled.rope_theta == 500000);
  CHECK(scaled.rope_scaling.type == RopeType::llama3);
  CHECK(scaled.qkv_bias);
  CHECK(read(flat(R"(,"rope_parameters":{"rope_type":"default","rope_theta":5000})")).rope_theta == 5000);
  CHECK(read(flat(R"(,"rope_scaling":{"type":"linear","factor":2.0})")).rope_scaling.type ==
        RopeType::linear);
  for (const char* type : {"dynamic", "longrope", "mrope"})
    CHECK(fails(flat(R"(,"rope_scaling":{"factor":2.0,"type":")" + std::string(type) + "\"}"), "rope_scaling",
                "is not supported"));
  CHECK(fails(flat(R"(,"partial_rotary_factor":0.5)"), "partial_rotary_factor", "expected 1"));
  CHECK(fails(flat(R"(,"hidden_act":"gelu")"), "hidden_act", "expected 'silu'"));
  CHECK(fails(flat(R"(,"mlp_bias":true)"), "mlp_bias", "expected false"));
  CHECK(read(flat(R"(,"sliding_window":16,"use_sliding_window":false)")).eagle3);
  CHECK(fails(flat(R"(,"sliding_window":16,"use_sliding_window":true)"), "sliding_window", "fewer tokens"));
  CHECK(
      fails(flat(R"(,"sliding_window":16,"layer_types":["sliding_attention"])"), "sliding_window", "fewer"));
  CHECK(fails(flat(R"(,"layer_types":["linear_attention"])"), "layer_types", "full_attention"));
}

TEST_CASE("values of eagle_config that are another head are refused") {
  const auto eagle = [](const std::string& inner) { return flat(R"(,"eagle_config":{)" + inner + "}"); };
  CHECK(
      read(
          eagle(
              R"("use_input_layernorm_in_first_layer":true,"use_last_layernorm":true,"use_mtp_layernorm":false,"next_layer_regular":true,"parallel_draft_step":1,"parallel_draft_heads_num_layers":4,"has_lm_head":true)"))
          .eagle3);
  CHECK(fails(eagle(R"("use_input_layernorm_in_first_layer":false)"), "use_input_layernorm_in_first_layer",
              "false is not supported"));
  CHECK(fails(eagle(R"("use_last_layernorm":false)"), "use_last_layernorm", "false is not supported"));
  CHECK(fails(eagle(R"("use_mtp_layernorm":true)"), "use_mtp_layernorm", "true is not supported"));
  CHECK(fails(eagle(R"("next_layer_regular":false)"), "next_layer_regular", "false is not supported"));
  CHECK(fails(eagle(R"("parallel_draft_step":4)"), "parallel_draft_step", "expected 1"));
  CHECK(fails(eagle(R"("eagle_decoder_type":"kimik2")"), "eagle_decoder_type", "expected 'llama'"));
  CHECK(fails(eagle(R"("something":1)"), "something", "is not known"));
}

TEST_CASE("unknown keys are refused by name, known ones that change nothing are not") {
  CHECK(fails(flat(R"(,"logit_scale":0.5)"), "logit_scale",
              "is not known, and may change what the head computes"));
  CHECK(fails(flat(R"(,"rope":1)"), "rope", "is not known"));  // a part of a known key
  CHECK(fails(flat(R"(,"fc_norm use_cache":1)"), "fc_norm use_cache", "is not known"));
  CHECK(fails(nested(R"(,"norm_before_residual":true,"hidden_size":64)"), "hidden_size", "is not known"));
  CHECK(
      fails(nested(R"(,"norm_before_residual":true)", R"(,"logit_scale":2)"), "logit_scale", "is not known"));
  CHECK(read(flat(R"(,"logit_scale":null)")).eagle3);
  CHECK(read(flat(R"(,"torch_dtype":"bfloat16","use_cache":true,"pad_token_id":0,"target_model_type":"qwen3",
      "transformers_version":"4.57.0","max_window_layers":28,"attention_dropout":0.0,"pretraining_tp":1)"))
            .eagle3);
}

TEST_CASE("quantised heads and sizes of vocabularies") {
  CHECK(fails(flat(R"(,"quantization_config":{"quant_method":"fp8"})"), "quantization_config",
              "quantised heads are not read: take the head in BF16 or F16"));
  CHECK(fails(nested(R"(,"norm_before_residual":true,"quantization_config":{"format":"x"})"),
              "quantization_config", "quantised heads are not read: take the head in BF16 or F16"));
  CHECK(read(flat(R"(,"draft_vocab_size":100)")).draft_vocab_size == 0);  // all
  CHECK(read(flat(R"(,"draft_vocab_size":null)")).draft_vocab_size == 0);
  CHECK(fails(flat(R"(,"draft_vocab_size":0)"), "draft_vocab_size", "expected 1 to vocab_size"));
  CHECK(fails(flat(R"(,"draft_vocab_size":101)"), "draft_vocab_size", "expected 1 to vocab_size 100"));
  CHECK(read(flat(R"(,"tie_word_embeddings":true)")).tied_head);
}
