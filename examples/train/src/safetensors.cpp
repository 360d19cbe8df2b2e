#include "safetensors.hpp"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
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

void load_safetensors(const std::filesystem::path& file, torch::nn::Module& model) {
  const auto fail = [&](const std::string& what) { throw std::runtime_error(file.string() + ": " + what); };
  std::ifstream in(file, std::ios::binary);
  if (!in) fail("cannot be opened for reading");
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::uint64_t size = 0;  // of the header; little endian
  if (bytes.size() < 8) fail("no safetensors file: shorter than 8 bytes");
  for (std::size_t i = 0; i < 8; ++i) size |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (size > bytes.size() - 8) fail("no safetensors file: its header ends beyond the file");
  const std::string_view data = std::string_view(bytes).substr(8 + static_cast<std::size_t>(size));

  torch::NoGradGuard no_grad;
  try {
    const auto header = nlohmann::json::parse(bytes.substr(8, static_cast<std::size_t>(size)));
    auto parameters = model.named_parameters();
    for (const auto& item : header.items()) {
      if (item.key() != "__metadata__" && !parameters.contains(item.key()))
        fail("tensor " + item.key() + " is not a parameter of the model");
    }
    for (auto& parameter : parameters) {
      const auto& name = parameter.key();
      if (!header.contains(name)) fail("tensor " + name + " is missing");
      const auto& entry = header.at(name);
      if (entry.at("dtype") != "BF16")
        fail("tensor " + name + ": expected BF16, found " + entry.at("dtype").dump());
      const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
      if (parameter.value().sizes() != shape) {
        fail("tensor " + name + " has shape " + entry.at("shape").dump() + ", the model's is " +
             nlohmann::json(parameter.value().sizes().vec()).dump());
      }
      const auto offsets = entry.at("data_offsets").get<std::vector<std::size_t>>();
      auto value = torch::empty(shape, torch::kBFloat16);
      if (offsets.size() != 2 || offsets[1] > data.size() || offsets[0] > offsets[1] ||
          offsets[1] - offsets[0] != static_cast<std::size_t>(value.nbytes())) {
        fail("tensor " + name + ": its data_offsets do not fit its shape or the file");
      }
      std::memcpy(value.data_ptr(), data.data() + offsets[0], static_cast<std::size_t>(value.nbytes()));
      parameter.value().copy_(value);
    }
  } catch (const nlohmann::json::exception& error) {
    fail(error.what());
  }
}

}  // namespace specula_train
