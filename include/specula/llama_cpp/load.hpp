// SPDX-License-Identifier: MIT
// Loads GGUF files into libllama, and knows where their layers lie.
#pragma once

#include <ggml-backend.h>
#include <llama.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "specula/files/lfs_pointer.hpp"

namespace specula::llama_cpp {

namespace detail {

inline std::string why_not_loaded(const std::filesystem::path& file) {
  char begin[64];
  std::ifstream stream(file, std::ios::binary);
  stream.read(begin, sizeof begin);
  if (is_lfs_pointer({begin, static_cast<std::size_t>(stream.gcount())})) return kLfsPointer;
  return "libllama cannot load this as a model (its log says why)";
}

/// Whether libllama puts layers of a model loaded with these parameters on a GPU of this machine.
inline bool uses_gpu(const llama_model_params& params) {
  if (params.n_gpu_layers == 0) return false;
  const auto is_gpu = [](ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    const ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
    return (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) &&
           std::string_view(ggml_backend_reg_name(registry)) != "RPC";  // a GPU whatever the server has
  };
  if (params.devices) {
    ggml_backend_dev_t* device = params.devices;
    while (*device && !is_gpu(*device)) ++device;
    return *device;
  }
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i)
    if (is_gpu(ggml_backend_dev_get(i))) return true;
  return false;
}

/// Frees a model, and knows how load() loaded it.
struct FreeModel {
  bool on_gpu;
  void operator()(llama_model* model) const {
    if (model) llama_model_free(model);
  }
};

}  // namespace detail

/// Reads a GGUF file. Throws std::runtime_error naming the file if libllama cannot; the reason is in
/// libllama's log (llama_log_set), or the message says that the file is a pointer of Git LFS. For
/// Options::same_bits, set params.use_extra_bufts to false: libllama then repacks no weights.
inline std::shared_ptr<llama_model> load(const std::filesystem::path& file,
                                         llama_model_params params = llama_model_default_params()) {
  std::shared_ptr<llama_model> model(llama_model_load_from_file(file.string().c_str(), params),
                                     detail::FreeModel{detail::uses_gpu(params)});
  if (!model) throw std::runtime_error(file.string() + ": " + detail::why_not_loaded(file));
  return model;
}

}  // namespace specula::llama_cpp
