#include "safetensors.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <specula/eigen/int8_groups.hpp>
#include <specula/eigen/safetensors.hpp>
#include <specula/eigen/tensor_files.hpp>
#include <stdexcept>
#include <vector>

#include "whole_file.hpp"

namespace specula_train {

void write_safetensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                       const std::filesystem::path& file) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& item : tensors) {
    const auto value = item.value().detach().cpu().to(torch::kBFloat16).contiguous();
    const auto begin = data.size();
    data.append(static_cast<const char*>(value.data_ptr()), static_cast<std::size_t>(value.nbytes()));
    header[item.key()] = {
        {"dtype", "BF16"}, {"shape", value.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  }
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned

  std::string bytes;
  for (std::uint64_t size = text.size(), i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(size >> (8 * i) & 0xff));  // little endian
  }
  write_whole(file, bytes + text + data);
}

void load_weights(const std::filesystem::path& directory, torch::nn::Module& model, Surplus surplus) {
  specula::eigen::TensorFiles files(directory);
  const auto parameters = model.named_parameters();
  for (const auto& [name, file] : files.names()) {
    if (surplus == Surplus::ignored || parameters.contains(name) || name == "lm_head.weight" ||
        name.ends_with(".inv_freq") || name.ends_with(specula::eigen::Int8Groups::kSuffix))
      continue;
    throw std::runtime_error(directory.string() + ": tensor '" + name + "' is not a parameter of the model" +
                             (name.ends_with(".bias") ? "; biases are not supported" : ""));
  }

  torch::NoGradGuard no_grad;
  std::vector<float> values;
  for (const auto& parameter : parameters) {
    auto value = parameter.value();
    const auto shape = value.sizes().vec();
    const auto& tensor = (files.require)(parameter.key(), shape);
    values.clear();
    files.rows(tensor, [&](std::int64_t, std::span<const float> row) {
      values.insert(values.end(), row.begin(), row.end());
    });
    value.copy_(torch::from_blob(values.data(), value.sizes()));
  }
}

}  // namespace specula_train
