// SPDX-License-Identifier: MIT
// Models of a pack on a device: one text at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <specula/cpu/decoder_weights.hpp>
#include <specula/cpu/read_model_config.hpp>
#include <specula/cuda/model/model.hpp>
#include <specula/pipeline.hpp>

#include "cuda_models.hpp"
#include "errors.hpp"
#include "ggml_expand.hpp"
#include "model_pack.hpp"
#include "round_pipeline.hpp"

namespace specula_tools {

/// As ModelPack: a model is loaded when it is first asked for. `Device` is that of
/// specula/cuda/model/device.hpp.
template <class Device>
class DevicePack final : public DeviceModels {
 public:
  /// `notes` gets a line for each model whose weights were rounded.
  DevicePack(std::unique_ptr<Device> device, ModelFolders folders, ModelSizes sizes, std::ostream& notes)
      : device_(std::move(device)), folders_(std::move(folders)), sizes_(std::move(sizes)), notes_(notes) {}

  specula::AnyModel& target() override { return load("target", folders_.target_folder()); }
  /// Throws UsageError for a draft that a device does not run.
  specula::AnyModel& draft(const std::string& name) override {
    return load("draft", folders_.draft_folder(name));
  }
  std::unique_ptr<specula::Pipeline> rounds(const std::string& pipeline,
                                            const specula::SamplingParams& params) override {
    return make_round_pipeline(pipeline, *device_, target_model().weights(),
                               [this](const std::string& name) {
                                 const auto folder = folders_.draft_folder(name);
                                 load("draft", folder);
                                 return models_.at({"draft", folder})->model.weights();
                               },
                               {.capacity = sizes_.capacity, .params = params});
  }
  std::optional<specula::BigramTable> bigram() override {
    return bigram_of(folders_, target().vocab_size(), sizes_.pieces);
  }

 private:
  using Held = specula::HeldModel<specula::cuda::Model<Device>>;
  using Weights = specula::cpu::DecoderWeights<float>;

  static Weights weights_of(const std::filesystem::path& folder, std::shared_ptr<const Weights> target) {
    return specula::cpu::load_decoder_weights<float>(folder, std::move(target), {{}, ggml_expand()});
  }
  specula::cuda::Model<Device>& target_model() {
    const auto folder = folders_.target_folder();
    load("target", folder);
    return models_.at({"target", folder})->model;
  }

  specula::AnyModel& load(const std::string& role, const std::filesystem::path& folder) {
    auto& model = models_[{role, folder}];
    if (!model) {
      const auto config = specula::cpu::read_model_config(folder);
      const auto refused = [&](const std::string& why) {
        return UsageError("--engine cuda: " + folder.string() + ": " + why);
      };
      try {
        specula::cuda::detail::device_head_size(config);
      } catch (const std::invalid_argument& error) {
        throw refused(error.what());
      }
      if (sizes_.vocab_size > 0 && sizes_.vocab_size != config.vocab_size)
        throw refused("has " + std::to_string(config.vocab_size) + " tokens, to be cut to " +
                      std::to_string(sizes_.vocab_size) + ", which the CPU does alone");
      // Features are kept by the target alone, for a head that may read them.
      const specula::cuda::ModelOptions options{
          .capacity = sizes_.capacity, .max_nodes = sizes_.max_nodes, .features = role == "target"};
      if (config.borrows_embedding()) {
        const auto target = std::make_shared<const Weights>(weights_of(folders_.target_folder(), nullptr));
        target_model();  // whose embedding and LM head it shares
        model = std::make_unique<Held>(*device_,
                                       specula::cuda::upload(*device_, weights_of(folder, target),
                                                             sizes_.capacity, &target_model().weights()),
                                       options);
      } else {
        model = std::make_unique<Held>(*device_, weights_of(folder, nullptr), options);
      }
      if (const double distance = model->model.weights().distance; distance > 0)
        notes_ << folder.filename().string() << ": rounded to bfloat16, relative error " << distance << '\n';
    }
    return model->any;
  }

  std::unique_ptr<Device> device_;  // outlives the models
  ModelFolders folders_;
  ModelSizes sizes_;
  std::ostream& notes_;
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<Held>> models_;
};

}  // namespace specula_tools
