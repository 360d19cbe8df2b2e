// SPDX-License-Identifier: MIT
#include <specula/llama_cpp/model.hpp>
#include <specula/specula.hpp>

static_assert(specula::LanguageModel<specula::llama_cpp::Model>);

// libllama is linked: a file that is not there does not load.
int main() {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  try {
    specula::llama_cpp::load("not there.gguf");
  } catch (const std::runtime_error&) {
    return 0;
  }
  return 1;
}
