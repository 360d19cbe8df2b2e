// SPDX-License-Identifier: MIT
// load(): files that libllama cannot load, and where the layers of a model are put.
#include <specula/llama_cpp/load.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "../files/safetensors_writer.hpp"
#include "tiny_gguf.hpp"

using namespace specula_test;
using specula::llama_cpp::load;

namespace {

const TinyVocabulary kWords = tiny_vocabulary({"one", "two", "three"});  // 7 tokens

}  // namespace

TEST_CASE("missing files, and files that are not GGUF: an error that names the file") {
  quiet();
  const TemporaryDirectory directory("llama_cpp_files");
  const auto refused = [](const std::filesystem::path& file) {
    const std::string message = file.string() + ": libllama cannot load this as a model (its log says why)";
    CHECK_THROWS_WITH_AS(load(file), message.c_str(), std::runtime_error);
  };
  refused(directory.path / "missing.gguf");
  refused(directory.path);
  const auto with_bytes = [&](const char* name, std::string_view bytes) {
    write_file(directory.path / name, bytes);
    refused(directory.path / name);
  };
  with_bytes("empty.gguf", "");
  with_bytes("text.gguf", "This is a text, and no model.");
  with_bytes("cut_off.gguf", std::string_view("GGUF\x03\0\0\0", 8));
  // A file with a vocabulary only is not a model.
  write_tiny_gguf(directory.path / "tiny.gguf", "llama", kWords);
  refused(directory.path / "tiny.gguf");
  write_tiny_gguf(directory.path / "unknown.gguf", "no such architecture", kWords);
  refused(directory.path / "unknown.gguf");
}

TEST_CASE("layers are on a GPU of this machine only if there is one, and they are put there") {
  bool there = false;
  for (const auto type : {GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU})
    there = there || ggml_backend_dev_by_type(type);
  using specula::llama_cpp::detail::uses_gpu;
  llama_model_params params = llama_model_default_params();
  CHECK(uses_gpu(params) == there);
  params.n_gpu_layers = 4;
  CHECK(uses_gpu(params) == there);
  ggml_backend_dev_t devices[] = {ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), nullptr};
  params.devices = devices;
  CHECK(!uses_gpu(params));
  params.devices = nullptr;
  params.n_gpu_layers = 0;
  CHECK(!uses_gpu(params));
}
