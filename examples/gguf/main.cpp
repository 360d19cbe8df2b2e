// SPDX-License-Identifier: MIT
// specula-gguf: converts a Hugging Face folder to a GGUF file, and back.
#include <filesystem>
#include <iostream>

#include "files.hpp"
#include "folder_writer.hpp"
#include "gguf_writer.hpp"
#include "options.hpp"

namespace {

using namespace specula_examples;

int run(int argc, char** argv) {
  CLI::App app{
      "Writes a Llama, Mistral, Qwen2 or Qwen3 from a Hugging Face folder, such as those under "
      "examples/models, as a "
      "GGUF file; or a GGUF file as such a folder, or as one of another type.",
      "specula-gguf"};
  std::string model, output, type = "auto";
  app.add_option(
         "model", model,
         "A folder with config.json, model.safetensors, a tokenizer and the files beside it; or a GGUF file "
         "(of several parts the first)")
      ->required();
  app.add_option(
         "output", output,
         "The GGUF file to write; for a model that is one, a name without .gguf is that of a folder to write")
      ->required();
  const CLI::Option* const given = app.add_option("--type", type,
                                                  "How matrices of a GGUF file are stored: f32, f16, bf16; "
                                                  "q8_0, q5_1, q5_0, q4_1 or q4_0, which round to "
                                                  "blocks of 32 numbers of so many bits, as which they are "
                                                  "kept in memory when the model runs (4 bits change the "
                                                  "model's text); or auto: Q8_0 where that is exact, "
                                                  "else bf16")
                                       ->capture_default_str();
  if (parse_command_line(app, argc, argv)) return 0;
  const GgufType stored = parse_gguf_type(type);
  const bool to_folder =
      std::filesystem::is_regular_file(model) && std::filesystem::path(output).extension() != ".gguf";
  if (to_folder && given->count() > 0)
    throw UsageError(
        "--type is of GGUF files; tensors of a folder keep their type, those in blocks become bfloat16");
  if (!std::filesystem::exists(model)) throw UsageError(model + ": there is no such file or folder");
  if (only_parses()) return 0;
  if (to_folder) {
    write_folder(model, output);
    std::cout << output << ": a folder, model.safetensors has "
              << std::filesystem::file_size(std::filesystem::path(output) / "model.safetensors")
              << " bytes\n";
    return 0;
  }
  check_distinct("output", output, "model", model);
  for (const specula::Token token : write_gguf(model, output, stored))
    std::cerr << "note: token " << token
              << " ends a text of this model, but a GGUF file has no place for more than three such tokens\n";
  std::cout << output << ": " << std::filesystem::file_size(output) << " bytes\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-gguf", [&] { return run(argc, argv); });
}
