// SPDX-License-Identifier: MIT
// specula convert: a Hugging Face folder as a GGUF file, and back.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "command.hpp"
#include "files.hpp"
#include "folder_writer.hpp"
#include "gguf_writer.hpp"
#include "options.hpp"

namespace specula_tools {
namespace {

struct ConvertOptions {
  std::string model, output, type = "auto";
};

void add_options(CLI::App& app, ConvertOptions& options) {
  app.add_option(
         "model", options.model,
         "A folder with config.json, model.safetensors, a tokenizer and the files beside it; or a GGUF file "
         "(of several parts the first)")
      ->required();
  app.add_option(
         "output", options.output,
         "The GGUF file to write; for a model that is one, a name without .gguf is that of a folder to write")
      ->required();
  app.add_option("--type", options.type,
                 "How matrices of a GGUF file are stored: f32, f16, bf16; q8_0, q5_1, q5_0, q4_1 or q4_0, "
                 "which round to blocks of 32 numbers of so many bits, as which they are kept in memory when "
                 "the model runs (4 bits change the model's text); or auto: Q8_0 where that is exact, else "
                 "bf16")
      ->capture_default_str();
  app.footer(
      "Writes a Llama, Mistral, Qwen2 or Qwen3 from a Hugging Face folder, such as those under "
      "examples/models, as a GGUF file; or a GGUF file as such a folder, or as one of another type.");
}

int convert(const CLI::App& app, const ConvertOptions& options) {
  const auto& [model, output, type] = options;
  const GgufType stored = parse_gguf_type(type);
  const bool to_folder =
      std::filesystem::is_regular_file(model) && std::filesystem::path(output).extension() != ".gguf";
  if (to_folder && app.count("--type") > 0)
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

Body add_convert(CLI::App& app) {
  const auto options = std::make_shared<ConvertOptions>();
  add_options(app, *options);
  return [&app, options] { return convert(app, *options); };
}

}  // namespace specula_tools
