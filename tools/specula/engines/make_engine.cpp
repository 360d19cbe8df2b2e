// SPDX-License-Identifier: MIT
#include <exception>
#include <iostream>

#include <specula/cpu/read_model_config.hpp>
#include <specula/files/gguf_files.hpp>

#include "cpu_engine.hpp"
#include "cuda_models.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "model_options.hpp"
#include "options.hpp"
#ifdef SPECULA_HAS_LLAMA_CPP
#include "llama_engine.hpp"
#endif

namespace specula_tools {
namespace {

#ifdef SPECULA_HAS_LLAMA_CPP
constexpr bool kHasLlamaCpp = true;
#else
constexpr bool kHasLlamaCpp = false;
#endif

/// What "auto" stands for.
std::string chosen_engine(const std::string& target) {
  if (!kHasLlamaCpp || target.empty() || !specula::files::is_gguf(target)) return "cpu";
  try {
    specula::cpu::read_model_config(target);
    return "cpu";
  } catch (const std::exception& error) {
    std::cerr << "note: --engine llama.cpp, since specula's own decoder does not read the target: "
              << error.what() << '\n';
    return "llama.cpp";
  }
}

}  // namespace

std::unique_ptr<Engine> make_engine(const CLI::App& app, ModelOptions& options, const std::string& also) {
  if (options.engine == "auto") options.engine = chosen_engine(options.target);
  check_engine_options(app, options.engine, also);
  const bool absent =
      (options.engine == "cuda" && !has_cuda()) || (options.engine == "llama.cpp" && !kHasLlamaCpp);
  if (absent && !only_parses())
    throw UsageError("--engine " + options.engine + ": this program was built without " +
                     (options.engine == "cuda" ? "CUDA; docs/cuda_model.md" : "libllama; docs/llama_cpp.md") +
                     " says how to build it");
#ifdef SPECULA_HAS_LLAMA_CPP
  if (options.engine == "llama.cpp") return std::make_unique<LlamaEngine>(options);
#endif
  return std::make_unique<CpuEngine>(options);
}

}  // namespace specula_tools
