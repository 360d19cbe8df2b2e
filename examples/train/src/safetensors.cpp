#include "safetensors.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <specula/eigen/safetensors.hpp>
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

void load_safetensors(const std::filesystem::path& file, torch::nn::Module& model, Surplus surplus) {
  auto weights = specula::eigen::Safetensors::open(file);
  const auto parameters = model.named_parameters();
  for (const auto& tensor : weights.tensors())
    if (surplus == Surplus::refused && !parameters.contains(tensor.name))
      weights.fail(tensor.name, "is not a parameter of the model");

  torch::NoGradGuard no_grad;
  std::vector<float> values;
  for (const auto& parameter : parameters) {
    const auto* tensor = weights.find(parameter.key());
    auto value = parameter.value();
    if (!tensor) weights.fail(parameter.key(), "is missing");
    if (tensor->dtype == specula::eigen::Dtype::other)
      weights.fail(tensor->name, tensor->dtype_name + " is not supported");
    if (value.sizes() != tensor->shape)
      weights.fail(tensor->name, "shape " + specula::eigen::detail::shape_text(tensor->shape) +
                                     ", the model's is " +
                                     specula::eigen::detail::shape_text(value.sizes().vec()));
    values.resize(static_cast<std::size_t>(value.numel()));
    specula::eigen::decode(tensor->dtype, weights.read(*tensor).data(), values);
    value.copy_(torch::from_blob(values.data(), value.sizes()));
  }
}

}  // namespace specula_train
