// SPDX-License-Identifier: MIT
// labels: long

// Writing Hugging Face directories as GGUF: the same model and the same tokens.
#include "gguf_writer.hpp"

#include <doctest/doctest.h>

#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <specula/cpu/tensor_files.hpp>
#include <specula/llama_cpp/text.hpp>

#include "errors.hpp"
#include "pack.hpp"
#include "prompts.hpp"
#include "random.hpp"
#include "specula/cpu/decoder.hpp"
#include "tokenizer.hpp"

using namespace specula;
using namespace specula_test;
using specula_tools::GgufType;
using specula_tools::write_gguf;

namespace {

const std::filesystem::path kModels = SPECULA_MODELS_DIR;

/// A small model with features that the pack's lack: an untied LM head, scaled rotary angles, a head_dim
/// other than hidden size / heads, tokens that the tokenizer does not have.
constexpr int kVocab = 2052, kHidden = 48, kWide = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16;

/// What makes another architecture of it.
struct Parts {
  std::string type = "llama";
  bool qkv_bias = false, output_bias = false, norms = false;
  std::string scaling =
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64})";
  int heads = kHeads, kv_heads = kKvHeads;
};

/// With `eight_bits`, matrices are stored at 8 bits.
void write_directory(const std::filesystem::path& folder, const std::string& dtype, bool eight_bits = false,
                     const Parts& parts = {}) {
  Random random(3);
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    Tensor tensor{
        name, dtype, cols ? std::vector<std::int64_t>{rows, cols} : std::vector<std::int64_t>{rows}, {}};
    for (std::int64_t i = 0; i < rows * std::max<std::int64_t>(1, cols); ++i)
      tensor.values.push_back(
          static_cast<float>(cols ? random.between(-0.3, 0.3) : random.between(0.5, 1.5)));
    if (eight_bits && cols) {
      tensor.dtype = "I8";
      for (float& value : tensor.values) value = std::nearbyint(std::ldexp(value, 8));
      const std::int64_t groups = (cols + 31) / 32;
      tensors.push_back({name + ".exponents",
                         "I8",
                         {rows, groups},
                         std::vector<float>(static_cast<std::size_t>(rows * groups), -8)});
    }
    tensors.push_back(tensor);
  };
  add("model.embed_tokens.weight", kVocab, kHidden);
  add("lm_head.weight", kVocab, kHidden);
  add("model.norm.weight", kHidden, 0);
  for (int l = 0; l < 2; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const int queries = parts.heads * kHeadDim, keys = parts.kv_heads * kHeadDim;
    add(at + "self_attn.q_proj.weight", queries, kHidden);
    add(at + "self_attn.k_proj.weight", keys, kHidden);
    add(at + "self_attn.v_proj.weight", keys, kHidden);
    add(at + "self_attn.o_proj.weight", kHidden, queries);
    if (parts.qkv_bias) {
      add(at + "self_attn.q_proj.bias", queries, 0);
      add(at + "self_attn.k_proj.bias", keys, 0);
      add(at + "self_attn.v_proj.bias", keys, 0);
    }
    if (parts.output_bias) add(at + "self_attn.o_proj.bias", kHidden, 0);
    if (parts.norms) {
      add(at + "self_attn.q_norm.weight", kHeadDim, 0);
      add(at + "self_attn.k_norm.weight", kHeadDim, 0);
    }
    add(at + "mlp.gate_proj.weight", kWide, kHidden);
    add(at + "mlp.up_proj.weight", kWide, kHidden);
    add(at + "mlp.down_proj.weight", kHidden, kWide);
    add(at + "input_layernorm.weight", kHidden, 0);
    add(at + "post_attention_layernorm.weight", kHidden, 0);
  }
  write_file(folder / "model.safetensors", safetensors_bytes(tensors));
  write_file(folder / "config.json",
             R"({"vocab_size": 2052, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
                 "head_dim": 16, "rms_norm_eps": 1e-4, "rope_theta": 5000.0,
                 "tie_word_embeddings": false, "max_position_embeddings": 512, "sliding_window": null, "model_type": ")" +
                 parts.type + R"(", "num_attention_heads": )" + std::to_string(parts.heads) +
                 R"(, "num_key_value_heads": )" + std::to_string(parts.kv_heads) + R"(, "attention_bias": )" +
                 (parts.output_bias ? "true" : "false") + R"(, "rope_scaling": )" + parts.scaling + "}");
  std::filesystem::copy_file(kModels / "target" / "tokenizer.model", folder / "tokenizer.model");
}

/// Largest difference of logits between the GGUF file and our own decoder over the directory.
double difference(const std::filesystem::path& folder, GgufType type) {
  const auto file = folder / "model.gguf";
  write_gguf(folder, file, type);
  llama_cpp::Model model(llama_cpp::load(file), exact_options(200));
  // In floats, so that products round nothing.
  cpu::Decoder<float> decoder(
      std::make_shared<const cpu::DecoderWeights<float>>(
          cpu::load_decoder_weights<float>(folder, {}, {.stored = cpu::WeightType::full})),
      {.capacity = 200, .inputs = cpu::Inputs::full});
  Random random(4);
  std::vector<Token> tokens;
  std::vector<NodeId> parents;
  for (int i = 0; i < 64; ++i) tokens.push_back(random.below(kVocab)), parents.push_back(i - 1);
  for (int i = 0; i < 100; ++i) {
    const Token token = random.below(kVocab);
    model.append({&token, 1}), decoder.append({&token, 1});
  }
  const LogitsView rows = model.extend(tokens, parents), want = decoder.extend(tokens, parents);
  double most = 0;
  for (std::int32_t r = 0; r < rows.rows; ++r)
    for (std::size_t i = 0; i < rows.row(r).size(); ++i)
      most = std::max(most, static_cast<double>(std::abs(rows.row(r)[i] - want.row(r)[i])));
  return most;
}

}  // namespace

TEST_CASE("a model with all optional parts of a Llama") {
  quiet();
  const TemporaryDirectory exact("gguf_f32"), rounded("gguf_bf16");
  write_directory(exact.path, "F32");
  CHECK(difference(exact.path, GgufType::f32) < 1e-4);
  // Weights rounded when written change logits, but little.
  CHECK(difference(exact.path, GgufType::f16) < 0.05);
  CHECK(difference(exact.path, GgufType::bf16) < 0.3);
  CHECK(difference(exact.path, GgufType::bf16) > 1e-4);
  // Rows of 64 in blocks, those of 48 as bfloat16.
  const double at_8 = difference(exact.path, GgufType::q8_0), at_4 = difference(exact.path, GgufType::q4_0);
  CHECK(at_8 < 0.5);
  CHECK(at_4 < 8 * at_8);
  CHECK(at_4 > 2 * at_8);
  // Weights that are bfloat16 already are unchanged (libllama then rounds activations).
  write_directory(rounded.path, "BF16");
  CHECK(difference(rounded.path, GgufType::f32) < 1e-4);
  const auto weights = std::filesystem::file_size(rounded.path / "model.safetensors");
  write_gguf(rounded.path, rounded.path / "model.gguf", GgufType::bf16);
  CHECK(static_cast<double>(std::filesystem::file_size(rounded.path / "model.gguf")) <
        1.3 * static_cast<double>(weights));
}

TEST_CASE("models of other architectures, and with other scaled angles") {
  quiet();
  const TemporaryDirectory folder("gguf_parts");
  const auto file = folder.path / "model.gguf";
  const std::string linear = R"({"type": "linear", "factor": 2.5})",
                    yarn = R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64)",
                    betas = R"(, "beta_fast": 8, "beta_slow": 2, "attention_factor": 1.3)";
  const auto written = [&](const Parts& parts) {
    std::filesystem::remove_all(folder.path);
    std::filesystem::create_directory(folder.path);
    write_directory(folder.path, "F32", false, parts);
    CHECK(difference(folder.path, GgufType::f32) < 1e-4);
    char name[16];
    llama_model_meta_val_str(llama_cpp::load(file).get(), "general.architecture", name, sizeof name);
    return std::string(name);
  };
  CHECK(written({.type = "mistral", .scaling = linear, .heads = 2}) == "llama");
  CHECK(written({.type = "llama", .qkv_bias = true, .output_bias = true, .scaling = yarn + "}"}) == "llama");
  CHECK(written({.type = "llama", .scaling = yarn + betas + "}"}) == "llama");
  CHECK(written({.type = "qwen2", .qkv_bias = true, .scaling = "null", .heads = 6}) ==
        "llama");  // wide heads
  CHECK(written({.type = "qwen2", .qkv_bias = true, .scaling = yarn + "}", .heads = 3, .kv_heads = 1}) ==
        "qwen2");
  CHECK(written({.type = "qwen3", .norms = true, .scaling = yarn + R"(, "attention_factor": 1.3})"}) ==
        "qwen3");
  const auto error = [&](const Parts& parts) -> std::string {
    write_directory(folder.path, "F32", false, parts);
    try {
      write_gguf(folder.path, file, GgufType::f32);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what()).substr(folder.path.string().size());
    }
    return "none";
  };
  const std::string what = "/config.json: a GGUF file of architecture 'qwen3' has no place for ";
  std::filesystem::remove(folder.path / "tokenizer.model");
  CHECK(error({.type = "qwen3", .qkv_bias = true, .output_bias = true, .norms = true}) ==
        what + "a bias of the attention's output (attention_bias)");
  std::filesystem::remove(folder.path / "tokenizer.model");
  CHECK(error({.type = "qwen3", .norms = true}) ==
        what + "rope_scaling of type llama3, nor of type yarn with other betas than 32 and 1");
}

TEST_CASE("weights at 8 bits are Q8_0 where rows are whole blocks") {
  quiet();
  const TemporaryDirectory folder("gguf_q8_0");
  write_directory(folder.path, "F32", /*eight_bits=*/true);
  // The weights are the same, so in floats nothing is lost. With Q8_0 libllama rounds activations to 8
  // bits.
  CHECK(difference(folder.path, GgufType::f32) < 1e-4);
  CHECK(difference(folder.path, GgufType::automatic) < 0.3);
  const auto file = folder.path / "model.gguf";
  CHECK(llama_model_ftype(llama_cpp::load(file).get()) == LLAMA_FTYPE_MOSTLY_BF16);  // most rows have 48
  ggml_context* tensors = nullptr;
  gguf_context* const header =
      gguf_init_from_file(file.string().c_str(), {.no_alloc = false, .ctx = &tensors});
  REQUIRE(header);
  cpu::TensorFiles source(folder.path);
  const std::vector<std::pair<const char*, const char*>> names{
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"},
      {"blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"}};
  for (const auto& [name, from] : names) {
    const ggml_tensor* const tensor = ggml_get_tensor(tensors, name);
    REQUIRE(tensor);
    const bool whole = tensor->ne[0] % 32 == 0;
    CHECK(tensor->type == (whole ? GGML_TYPE_Q8_0 : GGML_TYPE_BF16));
    std::vector<float> row(static_cast<std::size_t>(tensor->ne[0]));
    const auto& info = source.find(from);
    REQUIRE(info.shape == std::vector<std::int64_t>{tensor->ne[1], tensor->ne[0]});
    source.rows(info, [&](std::int64_t r, std::span<const float> want) {
      ggml_get_type_traits(tensor->type)
          ->to_float(static_cast<const char*>(tensor->data) + r * static_cast<std::int64_t>(tensor->nb[1]),
                     row.data(), tensor->ne[0]);
      REQUIRE(std::equal(row.begin(), row.end(), want.begin(), want.end()));
    });
  }
  gguf_free(header), ggml_free(tensors);
}

TEST_CASE("the pack's models in blocked formats: all matrices, with similar logits") {
  quiet();
  const TemporaryDirectory folder("gguf_pack");
  /// Writes a model, checks what all its matrices are stored as, and returns its logits for 40 tokens.
  const auto logits = [&](const char* name, GgufType asked, ggml_type type, llama_ftype file_type,
                          int layers) {
    const auto file = folder.path / "model.gguf";
    write_gguf(kModels / name, file, asked);
    ggml_context* tensors = nullptr;
    gguf_context* const header =
        gguf_init_from_file(file.string().c_str(), {.no_alloc = true, .ctx = &tensors});
    REQUIRE(header);
    int matrices = 0;
    for (auto* tensor = ggml_get_first_tensor(tensors); tensor;
         tensor = ggml_get_next_tensor(tensors, tensor)) {
      if (ggml_n_dims(tensor) < 2) continue;
      CHECK(tensor->type == type);
      ++matrices;
    }
    CHECK(matrices == 1 + layers * 7);
    gguf_free(header), ggml_free(tensors);
    const auto weights = llama_cpp::load(file);
    CHECK(llama_model_ftype(weights.get()) == file_type);
    llama_cpp::Model model(weights, exact_options(64));
    Random random(5);
    std::vector<Token> tokens;
    std::vector<NodeId> parents;
    for (int i = 0; i < 40; ++i) tokens.push_back(random.below(2048)), parents.push_back(i - 1);
    const LogitsView rows = model.extend(tokens, parents);
    std::vector<float> out;
    for (std::int32_t r = 0; r < rows.rows; ++r)
      out.insert(out.end(), rows.row(r).begin(), rows.row(r).end());
    return out;
  };
  /// How far `a` is from `b`, of how far `b` is from its mean: root mean squares.
  const auto error = [](const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double mean = 0, apart = 0, spread = 0;
    for (const float x : b) mean += x / static_cast<double>(b.size());
    for (std::size_t i = 0; i < b.size(); ++i)
      apart += std::pow(a[i] - b[i], 2), spread += std::pow(b[i] - mean, 2);
    return std::sqrt(apart / spread);
  };
  const auto exact = logits("target", GgufType::automatic, GGML_TYPE_Q8_0, LLAMA_FTYPE_MOSTLY_Q8_0, 16);
  CHECK(logits("target", GgufType::q8_0, GGML_TYPE_Q8_0, LLAMA_FTYPE_MOSTLY_Q8_0, 16) == exact);
  const double lost =
      error(logits("target", GgufType::q4_0, GGML_TYPE_Q4_0, LLAMA_FTYPE_MOSTLY_Q4_0, 16), exact);
  CHECK(lost < 0.3);
  CHECK(lost > 0.01);  // it is lossy
  // The same weights; products of Q8_0 round what they multiply.
  const auto draft = logits("small", GgufType::bf16, GGML_TYPE_BF16, LLAMA_FTYPE_MOSTLY_BF16, 3);
  const double rounded =
      error(logits("small", GgufType::automatic, GGML_TYPE_Q8_0, LLAMA_FTYPE_MOSTLY_Q8_0, 3), draft);
  CHECK(rounded < 0.05);
}

TEST_CASE("metadata of the file") {
  quiet();
  const TemporaryDirectory folder("gguf_metadata");
  write_directory(folder.path, "F32");
  write_gguf(folder.path, folder.path / "model.gguf", GgufType::f16);
  const auto model = llama_cpp::load(folder.path / "model.gguf");
  CHECK(llama_model_n_ctx_train(model.get()) == 512);
  CHECK(llama_model_n_embd(model.get()) == kHidden);
  CHECK(llama_model_n_layer(model.get()) == 2);
  CHECK(llama_model_n_head(model.get()) == kHeads);
  CHECK(llama_model_n_head_kv(model.get()) == kKvHeads);
  CHECK(llama_model_ftype(model.get()) == LLAMA_FTYPE_MOSTLY_F16);
  const llama_vocab* const vocab = llama_model_get_vocab(model.get());
  CHECK(llama_vocab_n_tokens(vocab) == kVocab);
  CHECK(std::string(llama_vocab_get_text(vocab, 2050)) == "[PAD2050]");
  CHECK(llama_vocab_get_attr(vocab, 2050) == LLAMA_TOKEN_ATTR_UNUSED);
  CHECK(llama_vocab_get_attr(vocab, 0) == LLAMA_TOKEN_ATTR_UNKNOWN);
  CHECK(llama_vocab_bos(vocab) == 1);
  CHECK(llama_vocab_eos(vocab) == 2);
  CHECK(llama_vocab_get_add_bos(vocab));
  CHECK(!llama_vocab_get_add_eos(vocab));
}

TEST_CASE("libllama tokenizes and detokenizes texts as SentencePiece does") {
  const auto model = pack_model("target");
  const llama_vocab* const vocab = llama_model_get_vocab(model.get());
  const specula_tools::Tokenizer tokenizer(kModels / "target" / "tokenizer.model");
  REQUIRE(llama_vocab_n_tokens(vocab) == tokenizer.vocab_size());
  CHECK(llama_vocab_eos(vocab) == tokenizer.end());
  int texts = 0;
  for (const auto& prompt : specula_tools::load_prompts(kModels / ".." / "prompts" / "default.jsonl")) {
    const std::string text = prompt.put(specula_tools::Style::automatic);
    std::vector<Token> tokens(text.size() + 8);
    const std::int32_t count =
        llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                       static_cast<std::int32_t>(tokens.size()), true, false);
    REQUIRE(count > 0);
    tokens.resize(static_cast<std::size_t>(count));
    CHECK(tokens == tokenizer.encode(text));
    ++texts;
  }
  CHECK(texts >= 8);
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    char piece[64];
    const std::int32_t size = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
    REQUIRE(size >= 0);
    if (token != 0) CHECK(std::string(piece, static_cast<std::size_t>(size)) == tokenizer.bytes(token));
  }
}

/// libllama's view of the vocabulary that is written for a folder, and what is left out of the file.
struct Written {
  std::vector<Token> left_out;
  std::shared_ptr<llama_model> model;
  const llama_vocab* vocab;
  explicit Written(const std::filesystem::path& folder)
      : left_out(write_gguf(folder, folder / "model.gguf", GgufType::bf16)),
        model(llama_cpp::load(folder / "model.gguf")),
        vocab(llama_model_get_vocab(model.get())) {}
};

TEST_CASE("all tokens that end a text, as far as the format has places") {
  quiet();
  const TemporaryDirectory folder("gguf_ends");
  write_directory(folder.path, "BF16");
  CHECK(llama_cpp::end_tokens(Written(folder.path).vocab) == std::vector<Token>{2});
  write_file(folder.path / "generation_config.json", R"({"eos_token_id": [2, 7, 464]})");
  const Written three(folder.path);
  CHECK(llama_cpp::end_tokens(three.vocab) == std::vector<Token>{2, 7, 464});
  CHECK(three.left_out.empty());
  CHECK(llama_vocab_eos(three.vocab) == 2);
  // A fifth that libllama knows by its text needs no place.
  write_file(folder.path / "generation_config.json", R"({"eos_token_id": [2, 7, 9, 464, 2049]})");
  write_file(folder.path / "added_tokens.json", R"({"<|im_end|>": 2049})");
  const Written five(folder.path);
  CHECK(llama_cpp::end_tokens(five.vocab) == std::vector<Token>{2, 7, 9, 2049});
  CHECK(five.left_out == std::vector<Token>{464});
  CHECK(!std::filesystem::exists(folder.path / "model.gguf.vocabulary"));
}

TEST_CASE("a text that begins with the beginning token, as templates write it, gets no second one") {
  quiet();
  const TemporaryDirectory folder("gguf_begin");
  write_directory(folder.path, "BF16");
  const Written written(folder.path);
  const auto tokens = [&](const char* text, bool special) {
    return llama_cpp::tokenize(written.vocab, text, special);
  };
  const auto plain = tokens("def f(x):", false);
  CHECK(plain.front() == 1);
  CHECK(tokens("<s>def f(x):", true) == plain);
  CHECK(tokens("def f(x):", true) == plain);
  CHECK(tokens("<s>", true) == std::vector<Token>{1});
  CHECK(tokens("<s><s>def f(x):", true).size() == plain.size() + 1);  // a further one is the user's
  CHECK(tokens("<s>def f(x):", false).size() > plain.size() + 1);     // as text
  write_file(folder.path / "tokenizer_config.json", R"({"add_bos_token": false})");
  CHECK(llama_cpp::tokenize(Written(folder.path).vocab, "<s>def f(x):", true) == plain);
}

TEST_CASE("added tokens and what begins a text: libllama's tokens are ours") {
  quiet();
  const TemporaryDirectory folder("gguf_added");
  write_directory(folder.path, "BF16");
  const std::string decoder =
      R"("added_tokens_decoder": {"2048": {"content": "<t>", "special": false}, "2050": {"content": "<u>", "special": true}})";
  for (const char* more :
       {"", R"(, "add_bos_token": false)", R"(, "bos_token": null)", R"(, "bos_token": "ly")"}) {
    CAPTURE(more);
    write_file(folder.path / "tokenizer_config.json", "{" + decoder + more + "}");
    const Written written(folder.path);
    const specula_tools::Tokenizer tokenizer(folder.path);
    CHECK(llama_vocab_get_add_bos(written.vocab) == tokenizer.adds_begin());
    for (const char* text : {"def f(x):", "a<t>b <t>", "<u> and <t><t>"})
      CHECK(llama_cpp::tokenize(written.vocab, text) == tokenizer.encode(text));
    for (const Token token : {2048, 2049, 2050})  // 2049 is padding
      CHECK(llama_cpp::token_bytes(written.vocab, token) == tokenizer.bytes(token));
  }
  const auto error = [&](const std::string& config) -> std::string {
    write_file(folder.path / "tokenizer_config.json", config);
    try {
      write_gguf(folder.path, folder.path / "model.gguf", GgufType::bf16);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what()).substr(folder.path.string().size());
    }
    return "none";
  };
  CHECK(error("{" + decoder + R"(, "legacy": false})") ==
        ": added token '<t>': a GGUF file cannot say that no space follows it (legacy is false)");
  CHECK(error(R"({"added_tokens_decoder": {"2048": {"content": "<t>", "rstrip": true}}})") ==
        ": added token '<t>': a GGUF file cannot say that it takes white space along");
}

TEST_CASE("errors name what cannot be written") {
  const TemporaryDirectory folder("gguf_errors");
  const auto file = folder.path / "model.gguf";
  const std::string glide = (kModels / "glide" / "config.json").string();
  CHECK_THROWS_WITH_AS(write_gguf(kModels / "glide", file, GgufType::f32),
                       (glide + ": a draft that needs its target is no model of llama.cpp").c_str(),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(write_gguf(folder.path, file, GgufType::f32),
                       ((folder.path / "config.json").string() + ": cannot be opened").c_str(),
                       std::runtime_error);
  write_directory(folder.path, "F32");
  std::filesystem::remove(folder.path / "tokenizer.model");
  const std::string tokenizer = (folder.path / "tokenizer.model").string();
  CHECK_THROWS_WITH_AS(write_gguf(folder.path, file, GgufType::f32),
                       (tokenizer + ": cannot be opened for reading").c_str(), std::runtime_error);
  write_file(tokenizer, "not one");
  CHECK_THROWS_AS(write_gguf(folder.path, file, GgufType::f32), std::runtime_error);
  CHECK(!std::filesystem::exists(file));
  CHECK_THROWS_WITH_AS(write_gguf(kModels / "small", folder.path / "no" / "x.gguf", GgufType::f32),
                       ((folder.path / "no" / "x.gguf").string() + ": cannot be opened for writing").c_str(),
                       std::runtime_error);

  CHECK(specula_tools::parse_gguf_type("f16") == GgufType::f16);
  CHECK(specula_tools::parse_gguf_type("bf16") == GgufType::bf16);
  CHECK(specula_tools::parse_gguf_type("q8_0") == GgufType::q8_0);
  CHECK(specula_tools::parse_gguf_type("q4_0") == GgufType::q4_0);
  CHECK(specula_tools::parse_gguf_type("f32") == GgufType::f32);
  CHECK_THROWS_WITH_AS(specula_tools::parse_gguf_type("q4_k"),
                       "type 'q4_k', must be f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or auto",
                       specula_tools::UsageError);
}

TEST_CASE("a tokenizer with more tokens than the model is refused") {
  const TemporaryDirectory folder("gguf_tokens");
  for (const char* name : {"tokenizer.model", "model.safetensors"})
    std::filesystem::copy_file(kModels / "small" / name, folder.path / name);
  std::ifstream original(kModels / "small" / "config.json");
  std::string config{std::istreambuf_iterator<char>(original), {}};
  const auto at = config.find("\"vocab_size\": 2048");
  REQUIRE(at != std::string::npos);
  config.replace(at, 18, "\"vocab_size\": 2000");
  write_file(folder.path / "config.json", config);
  CHECK_THROWS_WITH_AS(
      write_gguf(folder.path, folder.path / "model.gguf", GgufType::f32),
      ((folder.path / "tokenizer.model").string() + ": 2048 tokens, the model has 2000").c_str(),
      std::runtime_error);
}

TEST_CASE("a vocabulary whose scores are not ranks is refused") {
  const TemporaryDirectory folder("gguf_unigram");
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(kModels / "small" / name, folder.path / name);
  std::ifstream original(kModels / "small" / "tokenizer.model", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(original), {}};
  const auto field = [](float score) {  // of a piece, as protocol buffers write it
    std::string out(5, '\x15');
    std::memcpy(out.data() + 1, &score, sizeof score);
    return out;
  };
  const auto at = bytes.find(field(-1781));  // the last piece's
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 5, field(-7.25f));
  write_file(folder.path / "tokenizer.model", bytes);
  CHECK_THROWS_WITH_AS(write_gguf(folder.path, folder.path / "model.gguf", GgufType::f32),
                       ((folder.path / "tokenizer.model").string() +
                        ": the score of token 2047 is no rank; only BPE vocabularies can be written")
                           .c_str(),
                       std::runtime_error);
}
