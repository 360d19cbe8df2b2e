// SPDX-License-Identifier: MIT
#include "model_options.hpp"

#include <string_view>

#include "options.hpp"

namespace specula_tools {
namespace {

constexpr char kGroup[] = "With --engine ";  // then the engines' names, separated by " or "
constexpr char kCpu[] = "With --engine cpu", kOwn[] = "With --engine cpu or cuda",
               kCuda[] = "With --engine cuda", kLlamaCpp[] = "With --engine llama.cpp";

void add_llama_cpp_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--draft-threads", options.draft_threads,
                 "Threads of the drafts; 0: as many as the target's")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->group(kLlamaCpp);
  app.add_option("--gpu-layers", options.gpu_layers, "Layers on a device, if llama.cpp has one; -1: all")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str()
      ->group(kLlamaCpp);
  app.add_flag("--same-bits", options.same_bits,
               "Rows of the target with the same bits whatever a pass runs, on CPUs: with one seed, chosen "
               "drafts then give the text of plain decoding with this option, which costs time in long "
               "contexts")
      ->group(kLlamaCpp);
  app.add_option("--rpc", options.rpc,
                 "HOST:PORT,...: run the target's layers on these servers (ggml-rpc-server); the drafts "
                 "stay here. A server that is lost ends the program")
      ->delimiter(',')
      ->group(kLlamaCpp);
  app.add_option("--draft-rpc", options.draft_rpc, "The same for the drafts")
      ->delimiter(',')
      ->group(kLlamaCpp);
  app.add_option(
         "--rpc-limit", options.rpc_limit,
         "Seconds without an answer after which a server counts as lost; it needs them for the largest "
         "pass over a prompt")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(kLlamaCpp);
  app.add_flag("--verbose", options.verbose,
               "Show all log messages of llama.cpp, not only warnings and errors")
      ->group(kLlamaCpp);
}

}  // namespace

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("-m,--target,--model", options.target,
                 "The target: a Hugging Face folder, or a GGUF file (default: MODELS/target)");
  app.add_option(
         "--draft", options.drafts,
         "[NAME=]PATH: a draft, likewise, and its name in pipelines, by default `small`, of an EAGLE-3 "
         "head `eagle3` (may be given several times; default: MODELS/NAME). PATH,layers=states (or outputs, "
         "or "
         "numbers of states such as 2-8-13) and PATH,norm_output=true (or false) overrule how the file "
         "of such a head is read: docs/heads.md")
      ->allow_extra_args(false);
  app.add_option("--bigram", options.bigram,
                 "Table of `specula bigram`, for max-gram (default: MODELS/bigram/bigram.json, if it is of "
                 "the target's tokens; with llama.cpp none)");
  app.add_option("--models", options.models,
                 "Folder of models (default: $SPECULA_MODELS, else those that come with the sources)");
  app.add_option("--engine", options.engine,
                 "Where the models run: cpu (specula's own decoder), cuda (the same on a GPU, one text at a "
                 "time), llama.cpp (of GGUF files), or auto: cpu, and llama.cpp for a file that the other "
                 "does not read")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "llama.cpp"}))
      ->capture_default_str();
  add_decoding_options(app, options);
  app.add_flag("--cut-vocabulary", options.cut_vocabulary,
               "Where the models' vocabularies differ in size, say by padding, take the tokens that all of "
               "them have")
      ->group(kOwn);
  app.add_option(
         "--rounds", options.rounds,
         "Whose the rounds are: host (every pipeline; each pass waits for the host), or device: whole rounds "
         "in one graph (chain, cape and dynamic-tree by a model, and autoregressive); specula compare then "
         "runs both")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str()
      ->group(kCuda);
  add_arithmetic_options(app, options);
  for (const char* name : {"--inputs", "--weights", "--cache", "--isa"}) app.get_option(name)->group(kCpu);
  add_llama_cpp_options(app, options);
}

void check_engine_options(const CLI::App& app, const std::string& engine, const std::string& also) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (option->count() == 0 || !group.starts_with(kGroup)) continue;
    const std::string owners = group.substr(sizeof kGroup - 1);
    const auto owned_by = [&](const std::string& name) {
      return !name.empty() && (" " + owners + " ").find(" " + name + " ") != std::string::npos;
    };
    if (!owned_by(engine) && !owned_by(also))
      throw UsageError(option->get_name() + " is for --engine " + owners + ", and this run is with " +
                       engine);
  }
}

}  // namespace specula_tools
