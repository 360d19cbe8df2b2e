// SPDX-License-Identifier: MIT
// read_decoder_config(): config.json of Llama, Mistral, Qwen2 and Qwen3 models, and of conditioned drafts.
#include <specula/cpu/read_decoder_config.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace specula::cpu;
using namespace specula::files;
using specula::Conditioning;

constexpr const char* kSizes =
    R"("vocab_size":100,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,"num_attention_heads":8)";

/// `more` must have new keys only.
DecoderConfig read(const std::string& more) {
  return read_decoder_config(parse_json(std::string("{") + kSizes + more + "}", "config"), "config");
}

std::string error_of(const std::string& text) {
  try {
    read_decoder_config(parse_json(text, "config"), "config");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}
std::string error_with(const std::string& more) {
  return error_of(std::string("{") + kSizes + ",\"model_type\":\"llama\"" + more + "}");
}

TEST_CASE("absent keys have the defaults of transformers") {
  const DecoderConfig config = read(R"(,"model_type":"llama")");
  CHECK(config.vocab_size == 100);
  CHECK(config.layers == 3);
  CHECK(config.kv_heads == 8);
  CHECK(config.head_dim == 8);
  CHECK(config.group() == 1);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_theta == 10000);
  CHECK_FALSE(config.tied_head);
  CHECK(config.rope_scaling.type == RopeType::none);
  CHECK(config.max_position == 2048);
  CHECK(read(R"(,"model_type":"llama","max_sequence_length":4096)").max_position == 4096);  // the older name
}

TEST_CASE("present keys override the defaults") {
  const DecoderConfig config =
      read(R"(,"architectures":["LlamaForCausalLM"],"num_key_value_heads":2,"head_dim":16,"rms_norm_eps":1e-5,
      "rope_theta":500000.0,"tie_word_embeddings":true,"max_position_embeddings":512,"rope_scaling":null,"attention_bias":false,"mlp_bias":false,
      "hidden_act":"silu")");
  CHECK(config.kv_heads == 2);
  CHECK(config.group() == 4);
  CHECK(config.head_dim == 16);
  CHECK(config.rms_norm_eps == 1e-5);
  CHECK(config.rope_theta == 500000);
  CHECK(config.tied_head);
  CHECK(config.max_position == 512);
}

TEST_CASE("rope parameters, old and new spelling") {
  const DecoderConfig old =
      read(R"(,"model_type":"llama","rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
      "high_freq_factor":4.0,"original_max_position_embeddings":8192})");
  CHECK(old.rope_scaling.type == RopeType::llama3);
  CHECK(old.rope_scaling.factor == 8);
  CHECK(old.rope_scaling.low_turns == 1);
  CHECK(old.rope_scaling.high_turns == 4);
  CHECK(old.rope_scaling.original_max_position == 8192);
  const DecoderConfig fresh =
      read(R"(,"model_type":"llama","rope_parameters":{"rope_type":"default","rope_theta":1000.0})");
  CHECK(fresh.rope_theta == 1000);
  CHECK(fresh.rope_scaling.type == RopeType::none);
}

TEST_CASE("linear and yarn scaling") {
  const auto scaling = [](const std::string& rope, const std::string& more = "") {
    return read(R"(,"model_type":"llama","rope_scaling":{)" + rope + "}" + more).rope_scaling;
  };
  const RopeScaling linear = scaling(R"("type":"linear","factor":2.5)");
  CHECK(linear.type == RopeType::linear);
  CHECK(linear.factor == 2.5);
  CHECK(linear.attention_factor == 1);
  const std::string yarn = R"("rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768)";
  const RopeScaling plain = scaling(yarn);
  CHECK(plain.type == RopeType::yarn);
  CHECK(plain.factor == 4);
  CHECK(plain.original_max_position == 32768);
  CHECK(plain.low_turns == 1);
  CHECK(plain.high_turns == 32);
  CHECK(plain.truncate);
  CHECK(plain.attention_factor == doctest::Approx(1 + 0.1 * std::log(4)));
  const RopeScaling given =
      scaling(yarn + R"(,"beta_fast":16,"beta_slow":2,"truncate":false,"attention_factor":1.5)");
  CHECK(given.low_turns == 2);
  CHECK(given.high_turns == 16);
  CHECK_FALSE(given.truncate);
  CHECK(given.attention_factor == 1.5);
  // Both of mscale and mscale_all_dim, or neither.
  CHECK(scaling(yarn + R"(,"mscale":1.2,"mscale_all_dim":0.7)").attention_factor ==
        doctest::Approx((0.1 * 1.2 * std::log(4) + 1) / (0.1 * 0.7 * std::log(4) + 1)));
  CHECK(scaling(yarn + R"(,"mscale":1.2)").attention_factor == plain.attention_factor);
  CHECK(
      scaling(R"("rope_type":"yarn","factor":1.0,"original_max_position_embeddings":64)").attention_factor ==
      1);
  // As in transformers, absent it is the model's length, and one beside the object comes first.
  CHECK(scaling(R"("rope_type":"yarn","factor":4.0)", R"(,"max_position_embeddings":640)")
            .original_max_position == 640);
  CHECK(scaling(R"("rope_type":"yarn","factor":4.0)").original_max_position == 2048);
  CHECK(scaling(yarn, R"(,"original_max_position_embeddings":512)").original_max_position == 512);
}

TEST_CASE("Mistral, Qwen2 and Qwen3") {
  const std::string sizes = R"(,"num_key_value_heads":4,"max_position_embeddings":4096)";
  const DecoderConfig mistral =
      read(R"(,"architectures":["MistralForCausalLM"],"sliding_window":null)" + sizes);
  CHECK(mistral.kv_heads == 4);
  CHECK_FALSE((mistral.qkv_bias || mistral.output_bias || mistral.query_key_norms));
  const DecoderConfig qwen2 = read(
      R"(,"architectures":["Qwen2ForCausalLM"],"use_sliding_window":false,"sliding_window":32,"max_window_layers":2)" +
      sizes);
  CHECK(qwen2.qkv_bias);
  CHECK_FALSE((qwen2.output_bias || qwen2.query_key_norms));
  const DecoderConfig qwen3 = read(R"(,"model_type":"qwen3","head_dim":16)" + sizes);
  CHECK(qwen3.query_key_norms);
  CHECK_FALSE((qwen3.output_bias || qwen3.qkv_bias));
  for (const char* type : {"llama", "qwen3"}) {
    const DecoderConfig biased =
        read(std::string(R"(,"model_type":")") + type + R"(","attention_bias":true,"head_dim":16)" + sizes);
    CHECK((biased.qkv_bias && biased.output_bias));
  }
  // Absent keys mean other things than in a Llama.
  const auto error = [](const std::string& more) { return error_of(std::string("{") + kSizes + more + "}"); };
  CHECK(error(R"(,"model_type":"mistral","max_position_embeddings":64)") ==
        "config: key 'num_key_value_heads': missing, expected an integer");
  CHECK(error(R"(,"model_type":"qwen2","num_key_value_heads":8)") ==
        "config: key 'max_position_embeddings': missing, expected an integer");
  CHECK(error(R"(,"model_type":"qwen3")" + sizes) == "config: key 'head_dim': missing, expected an integer");
}

TEST_CASE("sliding windows are refused, unless they are as long as the context") {
  const std::string as_gguf =
      ": run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)";
  const auto error = [](const std::string& type, const std::string& more) {
    return error_of(std::string("{") + kSizes +
                    R"(,"num_key_value_heads":8,"max_position_embeddings":4100,"model_type":")" + type +
                    "\"" + more + "}");
  };
  const auto window = [&](const std::string& tokens) {
    return "config: key 'sliding_window': a window of " + tokens +
           " tokens, fewer than max_position_embeddings 4100, is not supported" + as_gguf;
  };
  const std::string used = R"(,"use_sliding_window":true)", unused = R"(,"use_sliding_window":false)",
                    full = R"(,"layer_types":["full_attention","full_attention","full_attention"])",
                    mixed = R"(,"layer_types":["full_attention","sliding_attention","full_attention"])";
  CHECK(error("llama", "") == "no error");
  CHECK(error("llama", R"(,"sliding_window":512)") == window("512"));
  CHECK(error("mistral", R"(,"sliding_window":null)") == "no error");
  CHECK(error("mistral", R"(,"sliding_window":4100)") == "no error");
  CHECK(error("mistral", R"(,"sliding_window":4099)") == window("4099"));
  CHECK(error("mistral", unused + R"(,"sliding_window":512)") == window("512"));  // it has no such key
  CHECK(error("mistral", "") == window("4096"));
  CHECK(error("qwen2", R"(,"sliding_window":512)") == "no error");
  CHECK(error("qwen2", used + R"(,"sliding_window":512)") == window("512"));
  CHECK(error("qwen2", used) == window("4096"));
  CHECK(error("qwen2", used + full + R"(,"sliding_window":512)") == "no error");
  CHECK(error("qwen2", used + mixed + R"(,"sliding_window":512)") == window("512"));
  CHECK(error("qwen2", used + mixed + R"(,"sliding_window":4100)") == "no error");
  CHECK(error("qwen2", unused + mixed + R"(,"sliding_window":512)") == "no error");
  CHECK(error("qwen2", R"(,"layer_types":["linear_attention"])") ==
        "config: key 'layer_types': expected \"full_attention\", found \"linear_attention\"" + as_gguf);
}

TEST_CASE("drafts that are conditioned on a target") {
  const DecoderConfig plain = read(R"(,"model_type":"llama")");
  CHECK(plain.conditioned_on == Conditioning::nothing);
  const DecoderConfig glide = read(
      R"(,"architectures":["SpeculaGlide"],"rope_theta":100,"target":{"num_hidden_layers":5,"num_attention_heads":6,
      "num_key_value_heads":2,"head_dim":32,"rope_theta":50000.0,"rope_scaling":null})");
  CHECK(glide.conditioned_on == Conditioning::key_values);
  CHECK(glide.rope_theta == 100);
  CHECK(glide.target.layers == 5);
  CHECK(glide.target.heads == 6);
  CHECK(glide.target.kv_heads == 2);
  CHECK(glide.target.head_dim == 32);
  CHECK(glide.target.rope_theta == 50000);
  CHECK(glide.target_layer(0) == 2);
  CHECK(glide.target_layer(2) == 4);
  const DecoderConfig chosen = read(
      R"(,"model_type":"specula_glide","target":{"num_hidden_layers":2,"num_attention_heads":6,"head_dim":32,
      "layers_read":[1,0,1]})");
  CHECK(chosen.target.reads == std::vector<std::int32_t>{1, 0, 1});  // of three layers over a target of two
  CHECK(chosen.target_layer(1) == 0);
  const DecoderConfig head = read(R"(,"model_type":"specula_feature_head")");
  CHECK(head.conditioned_on == Conditioning::features);

  const auto glide_error = [](const std::string& target) {
    return error_of(std::string("{") + kSizes + R"(,"model_type":"specula_glide")" + target + "}");
  };
  CHECK(glide_error("") == "config: key 'target': missing, expected an object");
  CHECK(glide_error(R"(,"target":3)") == "config: key 'target': expected an object, found 3");
  const auto read_error = [&](const std::string& reads) {
    return glide_error(
        R"(,"target":{"num_hidden_layers":4,"num_attention_heads":4,"head_dim":8,"layers_read":)" + reads +
        "}");
  };
  CHECK(read_error("3") == "config: key 'target': key 'layers_read': expected an array of integers, found 3");
  CHECK(read_error("[0,1,-1]") ==
        "config: key 'target': key 'layers_read': expected integers from 0 to 2147483647, found -1");
  CHECK(read_error("[0,1]") ==
        "config: key 'target': layers_read names 2 layers, expected one for each of the draft's 3");
  CHECK(read_error("[0,1,4]") == "config: key 'target': layers_read has 4, expected 0 to 3");
  CHECK(glide_error(R"(,"target":{"num_attention_heads":4})") ==
        "config: key 'target': key 'head_dim': missing, expected an integer");
  CHECK(glide_error(R"(,"target":{"num_hidden_layers":2,"num_attention_heads":4,"head_dim":8})") ==
        "config: key 'target': num_hidden_layers is 2, expected at least the draft's 3");
  CHECK(
      glide_error(
          R"(,"target":{"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":3,"head_dim":8})") ==
      "config: key 'target': num_attention_heads 4 is no multiple of num_key_value_heads 3");
}

TEST_CASE("exits") {
  CHECK(read(R"(,"model_type":"llama")").exits.empty());
  CHECK(read(R"(,"model_type":"llama","exits":[1,3])").exits == std::vector<std::int32_t>{1, 3});
  CHECK(error_with(R"(,"exits":3)") ==
        "config: key 'exits': expected an array of numbers of layers, found 3");
  const std::string integers = "config: key 'exits': expected integers from 1 to num_hidden_layers, found ";
  CHECK(error_with(R"(,"exits":[0,3])") == integers + "0");
  CHECK(error_with(R"(,"exits":[1,4])") == integers + "4");
  CHECK(error_with(R"(,"exits":[1.5,3])") == integers + "1.5");
  CHECK(error_with(R"(,"exits":["1",3])") == integers + "\"1\"");
  for (const char* numbers : {"[2,1,3]", "[1,1,3]"})
    CHECK(error_with(std::string(R"(,"exits":)") + numbers) ==
          "config: key 'exits': expected ascending numbers of layers, from 1 on");
  CHECK(error_with(R"(,"exits":[1,2])") ==
        "config: key 'exits': the last is 2, expected num_hidden_layers 3");
  CHECK(error_of(std::string("{") + kSizes + R"(,"model_type":"specula_feature_head","exits":[1,3]})") ==
        "config: key 'exits': a draft that is conditioned on a target has none");
}

TEST_CASE("errors name unsupported and invalid values, and the way out") {
  const std::string
      as_gguf = ": run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)",
      types =
          "expected one of llama, mistral, qwen2, qwen3, specula_glide, specula_draft, specula_feature_head";
  CHECK(error_of("[]") == "config: expected a JSON object, found an array of 0");
  CHECK(error_of("{}") == "config: key 'model_type': '' is not supported, " + types + as_gguf);
  CHECK(error_of(R"({"model_type":"llama"})") == "config: key 'vocab_size': missing, expected an integer");
  CHECK(error_of(R"({"model_type":"llama","vocab_size":"x"})") ==
        "config: key 'vocab_size': expected an integer from 0 to 2147483647, found \"x\"");
  CHECK(error_of(R"({"model_type":"llama","vocab_size":-1})") ==
        "config: key 'vocab_size': expected an integer from 0 to 2147483647, found -1");
  CHECK(error_of(R"({"model_type":"gpt2"})") ==
        "config: key 'model_type': 'gpt2' is not supported, " + types + as_gguf);
  CHECK(error_of(R"({"architectures":["SpeculaGlide"],"model_type":"llama"})") ==
        "config: key 'model_type': 'llama' is not supported, expected 'specula_glide'" + as_gguf);
  CHECK(error_of(R"({"model_type":3})") == "config: key 'model_type': expected a string, found 3");
  CHECK(
      error_of(R"({"architectures":["GPT2LMHeadModel"]})") ==
      "config: key 'architectures': expected one of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
      "Qwen3ForCausalLM, SpeculaGlide, SpeculaDraft, SpeculaFeatureHead, found [\"GPT2LMHeadModel\"]" +
          as_gguf);
  CHECK(error_with(R"(,"hidden_act":"gelu")") ==
        "config: key 'hidden_act': 'gelu' is not supported, expected 'silu'" + as_gguf);
  CHECK(error_with(R"(,"mlp_bias":true)") ==
        "config: key 'mlp_bias': true is not supported, expected false" + as_gguf);
  CHECK(error_with(R"(,"mlp_bias":0)") == "config: key 'mlp_bias': expected true or false, found 0");
  CHECK(error_with(R"(,"quantization_config":{"bits":4})") ==
        "config: key 'quantization_config': quantized weights, found an object of 1 keys, are not read: take "
        "the model as it was before, or " +
            as_gguf.substr(2));
  CHECK(error_with(R"(,"quantization":{"bits":4,"group_size":64})")  // MLX
            .starts_with("config: key 'quantization': quantized weights, found an object of 2 keys, are not "
                         "read: take the model as it was before, or run its GGUF file"));
  CHECK(error_with(R"(,"partial_rotary_factor":0.5)") ==
        "config: key 'partial_rotary_factor': is not supported, expected 1, found 0.5" + as_gguf);
  CHECK(error_with(R"(,"quantization_config":null,"sliding_window":null,"partial_rotary_factor":1.0)") ==
        "no error");
  CHECK(error_with(R"(,"rms_norm_eps":-1e-9)") ==
        "config: rms_norm_eps is -1e-09, expected a finite number from 0 on");
  CHECK(error_with(R"(,"rms_norm_eps":"small")") ==
        "config: key 'rms_norm_eps': expected a number, found \"small\"");
  CHECK(error_with(R"(,"rope_theta":0)") == "config: rope_theta is 0, expected a positive number");
  CHECK(error_with(R"(,"num_key_value_heads":3)") ==
        "config: num_attention_heads 8 is no multiple of num_key_value_heads 3");
  CHECK(error_with(R"(,"num_key_value_heads":0)") ==
        "config: num_key_value_heads is 0, expected 1 to 16777216");
  CHECK(
      error_of(
          R"({"model_type":"llama","vocab_size":9,"hidden_size":0,"intermediate_size":9,"num_hidden_layers":1,"num_attention_heads":1,"head_dim":2})") ==
      "config: hidden_size is 0, expected 1 to 16777216");
  CHECK(
      error_of(
          R"({"model_type":"llama","vocab_size":9,"hidden_size":9,"intermediate_size":9,"num_hidden_layers":1,"num_attention_heads":65537,"num_key_value_heads":1,"head_dim":2})") ==
      "config: num_attention_heads is 65537, expected at most 65536");
  CHECK(
      error_of(
          R"({"model_type":"llama","vocab_size":9,"hidden_size":9,"intermediate_size":9,"num_hidden_layers":1,"num_attention_heads":65536,"head_dim":512})") ==
      "config: num_attention_heads * head_dim is over 16777216");
  CHECK(
      error_with(
          R"(,"rope_scaling":{"rope_type":"llama3","factor":2.0,"low_freq_factor":4.0,"high_freq_factor":1.0,"original_max_position_embeddings":8})") ==
      "config: rope_scaling: expected 0 < low_freq_factor < high_freq_factor");
  CHECK(error_with(R"(,"head_dim":7)") == "config: head_dim is 7, expected an even number");
  CHECK(error_with(R"(,"rope_scaling":{"type":"dynamic","factor":2.0})") ==
        "config: key 'rope_scaling': rope_type 'dynamic' is not supported, expected 'default', 'linear', "
        "'llama3' or 'yarn'" +
            as_gguf);
  const auto yarn_error = [&](const std::string& more) {
    return error_with(R"(,"rope_scaling":{"rope_type":"yarn")" + more);
  };
  CHECK(yarn_error(R"(,"original_max_position_embeddings":64})") ==
        "config: key 'rope_scaling': key 'factor': missing, expected a number");
  CHECK(yarn_error(R"(,"factor":2.0,"original_max_position_embeddings":0})") ==
        "config: rope_scaling: original_max_position_embeddings must be positive");
  CHECK(yarn_error(R"(,"factor":2.0,"original_max_position_embeddings":64,"beta_fast":1})") ==
        "config: rope_scaling: expected 0 < beta_slow < beta_fast");
  CHECK(yarn_error(R"(,"factor":2.0,"original_max_position_embeddings":64,"attention_factor":-1.0})") ==
        "config: rope_scaling: attention_factor must be positive");
  CHECK(yarn_error(R"(,"factor":2.0,"original_max_position_embeddings":64},"rope_theta":1)") ==
        "config: rope_scaling of type yarn needs rope_theta > 1");
  CHECK(error_with(R"(,"rope_scaling":{"type":"linear","factor":0})") ==
        "config: rope_scaling: factor must be positive");
  CHECK(error_with(R"(,"rope_scaling":{"rope_type":"llama3","factor":2.0})") ==
        "config: key 'rope_scaling': key 'low_freq_factor': missing, expected a number");
  CHECK(
      error_with(R"(,"rope_parameters":{"partial_rotary_factor":0.5})") ==
      "config: key 'rope_parameters': key 'partial_rotary_factor': is not supported, expected 1, found 0.5" +
          as_gguf);
  CHECK(error_with(R"(,"rope_parameters":{"full_attention":{"rope_theta":5}})") ==
        "config: key 'rope_parameters': key 'full_attention': angles of their own for some layers are not "
        "supported" +
            as_gguf);
  CHECK(error_with(R"(,"rope_scaling":7)") == "config: key 'rope_scaling': expected an object, found 7");
  CHECK(
      error_of(
          R"({"model_type":"llama","vocab_size":9,"hidden_size":10,"intermediate_size":9,"num_hidden_layers":1,"num_attention_heads":3})") ==
      "config: key 'hidden_size': 10 is no multiple of num_attention_heads 3, and there is no head_dim");
  CHECK(
      error_of(
          R"({"model_type":"llama","vocab_size":9,"hidden_size":10,"intermediate_size":9,"num_hidden_layers":1,"num_attention_heads":0})") ==
      "config: key 'hidden_size': 10 is no multiple of num_attention_heads 0, and there is no head_dim");
}

TEST_CASE("a draft vocabulary, and a draft over its target's embedding") {
  const DecoderConfig draft = read(
      R"(,"architectures":["SpeculaDraft"],"target_hidden_size":576,"draft_vocab_size":40,"exits":[1,3])");
  CHECK(draft.conditioned_on == Conditioning::nothing);
  CHECK(draft.target_hidden_size == 576);
  CHECK(draft.draft_vocab_size == 40);
  CHECK(draft.vocab_size == 100);
  CHECK(draft.borrows_embedding());
  CHECK(draft.exits == std::vector<std::int32_t>{1, 3});
  CHECK(read(R"(,"model_type":"specula_draft","target_hidden_size":8)").head_rows() == 100);
  const DecoderConfig head = read(R"(,"model_type":"specula_feature_head","draft_vocab_size":40,
                                      "tie_word_embeddings":true)");
  CHECK(head.draft_vocab_size == 40);
  CHECK(head.target_hidden_size == 0);
  const DecoderConfig glide =
      read(R"(,"model_type":"specula_glide","draft_vocab_size":40,"target_hidden_size":576,
              "target":{"num_hidden_layers":5,"num_attention_heads":6,"head_dim":8})");
  CHECK(glide.conditioned_on == Conditioning::key_values);
  CHECK(glide.target_hidden_size == 576);
  CHECK(glide.draft_vocab_size == 40);

  const auto error = [](const std::string& more) {
    return error_of(std::string("{") + kSizes + "," + more + "}");
  };
  CHECK(error(R"("model_type":"specula_draft")") ==
        "config: key 'target_hidden_size': missing, expected an integer");
  CHECK(error(R"("model_type":"specula_draft","target_hidden_size":0)") ==
        "config: key 'target_hidden_size': 0, expected the hidden_size of the target");
  CHECK(error(R"("model_type":"llama","target_hidden_size":8)") ==
        "config: key 'target_hidden_size': only SpeculaDraft and SpeculaGlide take their target's embedding");
  CHECK(error(R"("model_type":"specula_feature_head","target_hidden_size":8)") ==
        "config: key 'target_hidden_size': only SpeculaDraft and SpeculaGlide take their target's embedding");
  CHECK(error(R"("model_type":"specula_feature_head","draft_vocab_size":0)") ==
        "config: key 'draft_vocab_size': 0, expected 1 to vocab_size, or no such key for all tokens");
  CHECK(error(R"("model_type":"specula_feature_head","draft_vocab_size":101)") ==
        "config: key 'draft_vocab_size': 101, expected 1 to vocab_size 100");
}

TEST_CASE("heads that other programs trained are told so, however they say that they are one") {
  const auto error = [](const std::string& more) {
    return error_of(std::string("{") + kSizes + "," + more + "}");
  };
  const std::string way_out =
      "a draft head that other programs trained, of which those of EAGLE-3 alone are read, as folders "
      "(docs/heads.md): specula-train draft trains one for the target (docs/own_draft.md); a smaller model "
      "of "
      "its vocabulary and copies (chain@max-gram) need no training";
  for (const std::string name : {"Eagle3DeepseekV2ForCausalLM", "EagleModel", "Eagle3Speculator",
                                 "MedusaModel", "DFlashDraftModel", "Qwen3NextMTP"}) {
    CAPTURE(name);
    CHECK(error(R"("model_type":"llama","architectures":[")" + name + "\"]") ==
          "config: key 'architectures': '" + name + "' is " + way_out);
    CHECK(error(R"("model_type":")" + name + "\"") ==
          "config: key 'model_type': '" + name + "' is " + way_out);
  }
  for (const std::string key :
       {"speculators_model_type", "eagle_config", "dflash_config", "medusa_num_heads"}) {
    CAPTURE(key);
    CHECK(error(R"("architectures":["LlamaForCausalLM"],"model_type":"llama",")" + key + "\":50") ==
          "config: key '" + key + "': is of " + way_out);
    CHECK(error(R"("architectures":["LlamaForCausalLM"],"model_type":"llama",")" + key + "\":null") ==
          "no error");
  }
}

}  // namespace
