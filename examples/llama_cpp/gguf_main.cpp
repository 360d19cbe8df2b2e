// specula-gguf: writes a Hugging Face directory as a GGUF file.
#include <llama.h>

#include <filesystem>
#include <iostream>

#include "gguf_writer.hpp"
#include "options.hpp"

namespace {

using namespace specula_examples;

int run(int argc, char** argv) {
  CLI::App app{
      "Writes a Llama model from a Hugging Face directory, such as those under examples/models, as a GGUF "
      "file.",
      "specula-gguf"};
  std::string directory, file, type = "auto";
  app.add_option("directory", directory,
                 "With config.json, model.safetensors, tokenizer.model and the files beside it")
      ->required();
  app.add_option("file", file, "The GGUF file to write")->required();
  app.add_option(
         "--type", type,
         "How matrices are stored: f32, f16, bf16; q8_0 or q4_0, which round to blocks of 32 numbers of 8 "
         "or 4 bits (q4_0 changes the model's text); or auto: Q8_0 where that is exact, else bf16")
      ->capture_default_str();
  if (parse_command_line(app, argc, argv)) return 0;
  const GgufType stored = parse_gguf_type(type);
  llama_log_set([](ggml_log_level, const char*, void*) {},
                nullptr);  // what it says of the file under construction
  for (const specula::Token token : write_gguf(directory, file, stored))
    std::cerr << "note: token " << token
              << " ends a text of this model, but a GGUF file has no place for more than three such tokens\n";
  std::cout << file << ": " << std::filesystem::file_size(file) << " bytes\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-gguf", [&] { return run(argc, argv); });
}
