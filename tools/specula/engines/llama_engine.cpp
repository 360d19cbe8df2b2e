// SPDX-License-Identifier: MIT
#include "llama_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include <specula/llama_cpp/grammar.hpp>
#include <specula/llama_cpp/rpc.hpp>

#include "context.hpp"
#include "json_file.hpp"
#include "make_text_batch.hpp"
#include "named_draft.hpp"

namespace specula_tools {
namespace {

/// Warnings and errors.
void log_problems(ggml_log_level level, const char* text, void*) {
  static bool shown = false;  // a message may come in parts
  if (level != GGML_LOG_LEVEL_CONT) shown = level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
  if (std::string_view(text).find("default pooling_type") != std::string_view::npos)
    return;  // the adapter wants none
  if (shown) std::fputs(text, stderr);
}

GgufFiles files_of(const ModelOptions& options) {
  if (options.target.empty()) throw UsageError("--target is required with --engine llama.cpp: a GGUF file");
  GgufFiles files{options.target, {}, options.bigram, options.gpu_layers, options.rpc, options.draft_rpc};
  files.same_bits = options.same_bits;
  files.rpc_limit = options.rpc_limit;
  for (const NamedDraft& draft : named_drafts(options.drafts)) {
    if (draft.reading.asks())
      throw UsageError(draft.reading.given + ": no EAGLE-3 head runs inside llama.cpp");
    files.drafts.emplace(draft.name, draft.path);
  }
  return files;
}

/// The drafts of the pipelines, each once, without those with exits: GgufModels refuses these.
std::vector<std::string> drafts_of(std::span<const specula::PipelineFactory> factories) {
  std::vector<std::string> drafts;
  for (const auto& factory : factories)
    for (const auto& draft : factory.drafts)
      if (std::find(drafts.begin(), drafts.end(), draft) == drafts.end()) drafts.push_back(draft);
  return drafts;
}

}  // namespace

LlamaEngine::LlamaEngine(const ModelOptions& options) : options_(options), files_(files_of(options)) {}

std::string LlamaEngine::default_pipeline() const {
  if (options_.drafts.empty()) return specula::kDefaultCopyingPipeline;
  return pipeline_with(named_drafts(options_.drafts).front().name);
}

void LlamaEngine::check(std::span<const specula::PipelineFactory> factories) const {
  constexpr std::int32_t kMaxNodes = 257;  // below a root, each draft token may need a sequence of its own
  for (const auto& factory : factories)
    if (std::max(factory.max_nodes, factory.draft_nodes) > kMaxNodes)
      throw UsageError("a pipeline of " + std::to_string(factory.max_nodes - 1) +
                       " draft tokens: llama.cpp has sequences for trees of 256");
  for (const std::string& draft : drafts_of(factories)) files_.draft(draft);
}

void LlamaEngine::open(std::span<const specula::PipelineFactory>) {
  if (options_.same_bits)
    setenv("GGML_CPU_TILED_MM", "0", 0);  // K-quants from 8 rows on, which ggml asks once
  if (!options_.verbose) llama_log_set(log_problems, nullptr);
  ggml_backend_load_all();  // where backends are libraries of their own
  if (!options_.rpc_delays.empty())
    for (std::string& server : files_.rpc) {
      try {
        specula::llama_cpp::expect_rpc_server(server);  // else its proxy would be named
      } catch (const std::invalid_argument& error) {
        throw UsageError(error.what());
      }
      server = proxies_.emplace_back(server).endpoint();
    }
  models_.emplace(files_);
  tokenizer_.emplace(models_->target_file());
}

std::int32_t LlamaEngine::trained_for() const {
  return llama_model_n_ctx_train(models_->target_file().get());
}

std::size_t LlamaEngine::longest_prompt(std::int32_t max_new_tokens) const {
  if (trained_for() <= 0) return std::numeric_limits<std::size_t>::max();
  // libllama rounds the room for nodes up, and warns of more than the model was trained for.
  return static_cast<std::size_t>(std::max({1, trained_for() / 2, trained_for() - max_new_tokens - 512}));
}

GgufThreads LlamaEngine::threads() const {
  const std::int32_t target = thread_count(options_.threads);
  return {target, options_.draft_threads ? options_.draft_threads : target};
}

void LlamaEngine::prepare(const EngineRoom& room) {
  check_context(room.before, room.max_new_tokens, trained_for(), the_target(), options_.beyond_context);
  std::size_t longest = 0;
  for (const auto& text : room.before) longest = std::max(longest, text.size());
  models_->prepare(drafts_of(room.factories), specula::room_for(room.factories, longest, room.max_new_tokens),
                   threads(), room.texts);
}

std::unique_ptr<TextBatch> LlamaEngine::batch(const std::string& pipeline,
                                              const specula::SamplingParams& params, std::int32_t texts) {
  std::vector<LlamaCppBatch*> drafts;
  for (const std::string& name : batched_factory(pipeline).drafts) drafts.push_back(&models_->batch(name));
  return make_text_batch(
      pipeline, params, texts,
      [this](std::int32_t slot) -> specula::PipelineModels& { return processed(models_->text(slot), slot); },
      models_->batch(""), drafts);
}

MakeTextRule LlamaEngine::grammar(const std::string& text, bool) const {
  struct Rule final : TextRule {
    explicit Rule(specula::llama_cpp::Grammar g) : grammar(std::move(g)) {}
    void begin(std::size_t prompt_tokens) override { grammar.begin(prompt_tokens); }
    void operator()(specula::Tokens path, std::span<float> row) override { grammar(path, row); }
    specula::llama_cpp::Grammar grammar;
  };
  const llama_vocab* const vocab = llama_model_get_vocab(models_->target_file().get());
  const auto make = [=] { return std::make_shared<Rule>(specula::llama_cpp::Grammar(vocab, text)); };
  try {
    make();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return make;
}

std::vector<NamedModel> LlamaEngine::measured(std::span<const std::string> drafts, specula::Tokens) {
  std::vector<NamedModel> all{{.name = "llama.cpp", .model = &models_->target()}};
  for (const std::string& name : drafts)
    all.push_back({.name = name, .model = &models_->draft(name), .drafts = true});
  return all;
}

void LlamaEngine::set_delay(double milliseconds) {
  for (DelayingProxy& proxy : proxies_)
    proxy.set_delay(std::chrono::microseconds(std::llround(1e3 * milliseconds)));
}

void LlamaEngine::add_settings(nlohmann::ordered_json& out) const {
  nlohmann::ordered_json drafts = nlohmann::ordered_json::object();
  for (const auto& [name, file] : files_.drafts) drafts[name] = leaf(file);
  out["engine"] = std::string("llama.cpp ") + llama_version();
  out["built_with"] = llama_print_system_info();
  out["gpu_layers"] = options_.gpu_layers;
  out["same_bits"] = options_.same_bits;
  out["rpc_servers"] = options_.rpc.size();
  out["draft_rpc_servers"] = options_.draft_rpc.size();
  out["bigram"] = leaf(options_.bigram);
  out["threads"] = threads().target;
  out["draft_threads"] = threads().draft;
  out["target"] = leaf(options_.target);
  out["drafts"] = drafts;
}

}  // namespace specula_tools
