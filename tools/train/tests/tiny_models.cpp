// SPDX-License-Identifier: MIT
#include "tiny_models.hpp"

#include <nlohmann/json.hpp>
#include <specula/files/safetensors.hpp>
#include <string>

#include "gradients.hpp"

namespace specula_train_test {

void shard(const std::filesystem::path& directory, std::size_t count) {
  struct Shard {
    nlohmann::json header;
    std::string data;
  };
  std::vector<Shard> shards(count);
  nlohmann::json index;
  {
    auto file = specula::files::Safetensors::open(directory / "model.safetensors");
    std::size_t turn = 0;
    for (const auto& tensor : file.tensors()) {
      const auto at = turn++ % count;
      const auto bytes = file.read(tensor);
      std::vector<float> values(bytes.size() / 2);
      specula::files::decode(tensor.dtype, bytes.data(), values);
      const auto dtype = at == 0 ? torch::kFloat32 : at == 1 ? torch::kFloat16 : torch::kBFloat16;
      const auto stored = torch::tensor(values).to(dtype);
      auto& to = shards[at];
      const auto begin = to.data.size();
      to.data.append(static_cast<const char*>(stored.data_ptr()), static_cast<std::size_t>(stored.nbytes()));
      to.header[tensor.name] = {{"dtype", at == 0   ? "F32"
                                          : at == 1 ? "F16"
                                                    : "BF16"},
                                {"shape", tensor.shape},
                                {"data_offsets", {begin, to.data.size()}}};
      index["weight_map"][tensor.name] = "shard-" + std::to_string(at) + ".safetensors";
    }
  }
  std::filesystem::remove(directory / "model.safetensors");
  for (std::size_t at = 0; at < count; ++at) {
    const auto header = shards[at].header.dump();
    const std::uint64_t size = header.size();
    std::ofstream out(directory / ("shard-" + std::to_string(at) + ".safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out << header << shards[at].data;
  }
  std::ofstream(directory / "model.safetensors.index.json") << index;
}

void check_parts(const std::function<torch::Tensor(const torch::Tensor&)>& loss, const torch::Tensor& rows,
                 const torch::nn::Module& model) {
  const auto whole = loss(rows);
  const auto expected = torch::autograd::grad({whole}, model.parameters());
  CHECK(st::compute_gradients(loss, rows, model.parameters()) ==
        doctest::Approx(whole.item<double>()).epsilon(1e-4));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(torch::allclose(model.parameters()[i].grad(), expected[i], 1e-3, 1e-5));
  }
}

void check_resume(const std::function<Trainee()>& make) {
  const Folder folder("specula_train_resume_test");
  st::TokenizedStyle style{.name = "digits", .train = {}, .heldout = {}, .given = {}};
  for (st::Token first = 3; first < 40; ++first) {
    style.train.push_back({1, first, st::Token(first + 1), st::Token(first + 2), st::Token(first + 3), 2});
  }
  const std::vector<st::TokenizedStyle> styles{style};
  st::LoopOptions options;
  options.budget.steps = 4;
  options.batch = 4;
  options.context = 12;
  options.checkpoint_minutes = 0;  // after every step
  options.resume = true;
  const auto train = [&](const Trainee& trainee, const char* name,
                         const std::function<void(std::int64_t)>& saved) {
    options.checkpoint_file = folder.path / name;
    st::BatchLoader loader(styles, 1);
    st::Optimizer optimizer(*trainee.model, {});
    return st::train(*trainee.model, loader, optimizer, torch::kCPU, options,
                     {.loss = trainee.loss,
                      .evaluate = [] { return st::Losses{}; },
                      .save = [&](const st::Progress& progress) { saved(progress.steps); }});
  };
  const auto through = make(), resumed = make();
  const auto before = through.model->parameters()[0].clone();
  train(through, "whole.pt", [&](std::int64_t steps) {
    if (steps == 2) std::filesystem::copy_file(folder.path / "whole.pt", folder.path / "half.pt");
  });
  CHECK(train(resumed, "half.pt", [](std::int64_t) {}).steps == 4);
  CHECK_FALSE(torch::equal(through.model->parameters()[0], before));
  for (std::size_t i = 0; i < through.model->parameters().size(); ++i) {
    CHECK(torch::equal(through.model->parameters()[i], resumed.model->parameters()[i]));
  }
}

}  // namespace specula_train_test
