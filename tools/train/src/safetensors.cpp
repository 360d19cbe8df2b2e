// SPDX-License-Identifier: MIT
#include "safetensors.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <specula/cpu/int8_groups.hpp>
#include <specula/cpu/tensor_files.hpp>
#include <specula/files/safetensors.hpp>
#include <stdexcept>
#include <vector>

#include "files.hpp"
#include "safetensors_writer.hpp"

namespace specula_train {

void write_safetensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                       const std::filesystem::path& file) {
  specula_tools::SafetensorsWriter out;
  for (const auto& item : tensors) {
    const bool integers = item.value().scalar_type() == torch::kInt32;
    const auto value =
        item.value().detach().cpu().to(integers ? torch::kInt32 : torch::kBFloat16).contiguous();
    out.add(item.key(), integers ? "I32" : "BF16", value.sizes().vec(),
            {static_cast<const char*>(value.data_ptr()), static_cast<std::size_t>(value.nbytes())});
  }
  specula_tools::write_file(file, out.bytes());
}

void load_weights(const std::filesystem::path& directory, torch::nn::Module& model, Surplus surplus,
                  const std::set<std::string>& may_lack) {
  specula::cpu::TensorFiles files(directory);
  const auto parameters = model.named_parameters();
  for (const auto& [name, file] : files.names()) {
    if (surplus == Surplus::ignored || parameters.contains(name) || name == "lm_head.weight" ||
        name == kDraftTokens || name.ends_with(".inv_freq") ||
        name.ends_with(specula::cpu::Int8Groups::kSuffix))
      continue;
    throw std::runtime_error(directory.string() + ": tensor '" + name + "' is not a parameter of the model");
  }

  const auto buffers = model.named_buffers();
  if (const auto* tokens = buffers.find(kDraftTokens); tokens && files.contains(kDraftTokens)) {
    const auto own = tokens->cpu();
    const std::span predicted(own.data_ptr<std::int32_t>(), static_cast<std::size_t>(own.numel()));
    if (!std::ranges::equal(files.integers(kDraftTokens, own.numel()), predicted))
      files.fail(kDraftTokens, "the draft predicts other tokens");
  }

  torch::NoGradGuard no_grad;
  std::vector<float> values;
  for (const auto& parameter : parameters) {
    const auto begins = [&](const std::string& name) { return parameter.key().starts_with(name); };
    if (!files.names().contains(parameter.key()) && std::any_of(may_lack.begin(), may_lack.end(), begins))
      continue;
    auto value = parameter.value();
    const auto shape = value.sizes().vec();
    const auto& tensor = files.weight(parameter.key(), shape);
    values.clear();
    files.rows(tensor, [&](std::int64_t, std::span<const float> row) {
      values.insert(values.end(), row.begin(), row.end());
    });
    value.copy_(torch::from_blob(values.data(), value.sizes()));
  }
}

}  // namespace specula_train
