// SPDX-License-Identifier: MIT
// specula quantize: a model with 8-bit weights.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <specula/cpu/int8_groups.hpp>
#include <specula/cpu/read_model_config.hpp>
#include <specula/cpu/tensor_files.hpp>

#include "command.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "heldout_loss.hpp"
#include "options.hpp"
#include "safetensors_writer.hpp"
#include "text_table.hpp"

namespace specula_tools {
namespace {

using specula::cpu::Int8Groups;
namespace fs = std::filesystem;

struct QuantizeOptions {
  std::string model, output, tokens;
  std::size_t rows = 48, length = 256;
  bool expand = false;
};

struct Rounding {
  double squares = 0, errors = 0;  // sums over the weights of matrices
  double relative() const { return squares > 0 ? std::sqrt(errors / squares) : 0; }
};

/// A matrix as integers and exponents.
void add_matrix(specula::cpu::TensorFiles& files, const specula::files::TensorInfo& tensor,
                SafetensorsWriter& out, Rounding& rounding) {
  const auto cols = static_cast<std::size_t>(tensor.shape[1]);
  std::vector<std::int8_t> numbers(cols), exponents(Int8Groups::count(cols));
  std::vector<float> back(cols);
  std::string values, scales;
  files.rows(tensor, [&](std::int64_t r, std::span<const float> row) {
    try {
      specula::cpu::round_to_groups(row, numbers, exponents);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error("tensor '" + tensor.name + "': row " + std::to_string(r) + ", " +
                               error.what());
    }
    values.append(reinterpret_cast<const char*>(numbers.data()), numbers.size());
    scales.append(reinterpret_cast<const char*>(exponents.data()), exponents.size());
    std::copy(numbers.begin(), numbers.end(), back.begin());
    specula::cpu::scale_groups(back, exponents);
    for (std::size_t c = 0; c < cols; ++c) {
      const double weight = row[c], off = weight - back[c];
      rounding.squares += weight * weight;
      rounding.errors += off * off;
    }
  });
  out.add(tensor.name, "I8", tensor.shape, values);
  out.add(tensor.name + Int8Groups::kSuffix, "I8",
          {tensor.shape[0], static_cast<std::int64_t>(exponents.size())}, scales);
}

/// As bfloat16, rounded to nearest even.
void add_bfloat16(specula::cpu::TensorFiles& files, const specula::files::TensorInfo& tensor,
                  SafetensorsWriter& out) {
  std::string values;
  files.rows(tensor, [&](std::int64_t, std::span<const float> row) {
    for (const float weight : row) {
      const auto bits = std::bit_cast<std::uint32_t>(weight);
      const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      values.push_back(static_cast<char>(rounded & 0xff));
      values.push_back(static_cast<char>(rounded >> 8 & 0xff));
    }
  });
  out.add(tensor.name, "BF16", tensor.shape, values);
}

/// Token ids as they are.
void add_integers(specula::cpu::TensorFiles& files, const specula::files::TensorInfo& tensor,
                  SafetensorsWriter& out) {
  const auto ids = files.integers(tensor.name, tensor.shape.empty() ? 0 : tensor.shape[0]);
  const auto bytes = std::as_bytes(std::span(ids));
  out.add(tensor.name, "I32", tensor.shape, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Matrices at 8 bits unless `expand`; the other tensors, which are small, as bfloat16, and the ids of a
/// draft vocabulary as they are.
Rounding write_weights(const fs::path& model, const fs::path& file, bool expand) {
  specula::cpu::TensorFiles files(model);
  SafetensorsWriter out;
  Rounding rounding;
  for (const auto& [name, _] : files.names()) {
    if (name.ends_with(Int8Groups::kSuffix) &&
        files.contains(name.substr(0, name.size() - std::string_view(Int8Groups::kSuffix).size())))
      continue;
    const auto& found = files.find(name);
    if (name == "draft_tokens") {
      add_integers(files, found, out);
      continue;
    }
    const auto& tensor = files.weight(name, found.shape);  // of a supported type
    if (tensor.shape.size() == 2 && !expand)
      add_matrix(files, tensor, out, rounding);
    else
      add_bfloat16(files, tensor, out);
  }
  write_file(file, out.bytes());
  return rounding;
}

/// The section of the model card.
std::string card_section(const Rounding& rounding, const std::map<std::string, double>& before,
                         const std::map<std::string, double>& after) {
  std::string text =
      "\n## Weights at 8 bits\n\nMatrices are stored as whole numbers from -127 to 127 in groups of 32 with "
      "a power of "
      "two each, which\nbfloat16 holds exactly: the rounded weights are the model. In memory they stay at 8 "
      "bits. Their "
      "rounding error is " +
      fixed(100 * rounding.relative(), 2) + "%\n(root mean square, of the weights' own).\n";
  if (before.empty()) return text;
  text += "\n| style | held-out loss before | at 8 bits (nats a token) |\n|---|---|---|\n";
  for (const auto& [style, loss] : before)
    text += "| " + style + " | " + fixed(loss, 4) + " | " + fixed(after.at(style), 4) + " |\n";
  return text;
}

void add_options(CLI::App& app, QuantizeOptions& options) {
  app.add_option("model", options.model, "Hugging Face folder of the Llama family")->required();
  app.add_option("output", options.output,
                 "Folder to write: model.safetensors, and copies of all other files")
      ->required();
  app.add_option("--tokens", options.tokens,
                 "Folder of tokens written by specula-train-text: measures the held-out loss, "
                 "before and after. Of models that need no target");
  app.add_option("--rows", options.rows, "Rows of each style to measure it on")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--length", options.length, "Tokens of a row")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_flag("--expand", options.expand,
               "The reverse: matrices as bfloat16, for programs that do not support 8-bit groups");
  app.footer(
      "Stores matrices as integers in groups of 32, each with a power of two. They are kept so in memory "
      "when the model runs.");
}

void check(const QuantizeOptions& options) {
  if (options.expand && !options.tokens.empty())
    throw UsageError("--tokens does not go with --expand, which is for weights that are at 8 bits already");
  if (!fs::is_directory(options.model)) throw UsageError(options.model + " is not a folder");
  if (!options.tokens.empty() && specula::cpu::read_model_config(options.model).is_draft())
    throw UsageError("--tokens measures a model by itself, and " + options.model +
                     " is a draft that needs its target: what it loses, specula compare shows");
}

/// Of the model that was written and the one it was made of.
void describe(const QuantizeOptions& options, const Rounding& rounding) {
  std::map<std::string, double> before, after;
  if (!options.tokens.empty()) {
    before = heldout_loss(options.model, options.tokens, options.rows, options.length);
    after = heldout_loss(options.output, options.tokens, options.rows, options.length);
  }
  const std::string section = card_section(rounding, before, after);
  if (const fs::path card = fs::path(options.output) / "MODEL_CARD.md"; fs::exists(card)) {
    std::string text = read_file(card);
    if (const auto at = text.find("\n## Weights at 8 bits"); at != text.npos) text.resize(at);
    write_file(card, text + section);
  }
  std::cout << section;
}

int quantize(const QuantizeOptions& options) {
  check(options);
  if (only_parses()) return 0;
  fs::create_directories(options.output);
  if (fs::equivalent(options.model, options.output))
    throw UsageError("the folder to write is the model's own: " + options.output);
  const fs::path weights = fs::path(options.output) / "model.safetensors";
  const Rounding rounding = write_weights(options.model, weights, options.expand);
  for (const auto& entry : fs::directory_iterator(options.model))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with("model.safetensors"))
      fs::copy_file(entry.path(), fs::path(options.output) / entry.path().filename(),
                    fs::copy_options::overwrite_existing);
  std::cout << weights.string() << ": " << fs::file_size(weights) << " bytes\n";
  if (!options.expand) describe(options, rounding);
  return 0;
}

}  // namespace

Body add_quantize(CLI::App& app) {
  const auto options = std::make_shared<QuantizeOptions>();
  add_options(app, *options);
  return [options] { return quantize(*options); };
}

}  // namespace specula_tools
