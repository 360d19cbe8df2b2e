// SPDX-License-Identifier: MIT
// Models in GGUF files for the programs' pipelines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <specula/llama_cpp/batched_model.hpp>
#include <specula/llama_cpp/model.hpp>

#include <specula/pipeline.hpp>

#include "chat.hpp"
#include "chat_template.hpp"

namespace specula_tools {

using LlamaCppModel = specula::llama_cpp::Model;
using LlamaCppBatch = specula::llama_cpp::BatchedModel;

/// Tokenizer from the vocabulary of a GGUF file.
class GgufTokenizer {
 public:
  /// Throws std::runtime_error if the file has no vocabulary.
  explicit GgufTokenizer(std::shared_ptr<llama_model> model);

  std::vector<specula::Token> ends() const;  // each ends a text, or an answer

  /// As specula::llama_cpp::tokenize().
  std::vector<specula::Token> encode(std::string_view text, bool special = false) const;
  /// As specula::llama_cpp::token_bytes().
  std::string bytes(specula::Token token) const;
  /// The tokens as the file spells them; empty where it is padding.
  std::vector<std::string> pieces() const;
  /// What a chat needs. It must not outlive this object.
  ChatVocabulary chat_vocabulary() const;
  /// The file's chat template; nothing if it has none.
  std::optional<ChatTemplateText> chat_template() const;

 private:
  std::shared_ptr<llama_model> model_;
  const llama_vocab* vocab_;
};

struct GgufFiles {
  std::filesystem::path target;
  std::map<std::string, std::filesystem::path> drafts;  // by the names that pipelines use
  std::filesystem::path bigram;                         // empty: none
  std::int32_t gpu_layers = -1;                         // of each model on a device, if there is one; -1: all
  std::vector<std::string> rpc, draft_rpc;  // servers of the target's and of the drafts' layers; none: here
  int rpc_limit = 0;                        // seconds that a server may let wait; 0: any
  bool same_bits = false;                   // the target's rows, see llama_cpp::Options

  /// Throws UsageError with the names of all drafts if there is none of this name.
  const std::filesystem::path& draft(const std::string& name) const;
};

struct GgufThreads {
  std::int32_t target = 1, draft = 1;
};

/// Loads a model when it is first used; all pipelines share it.
class GgufModels final : public specula::PipelineModels {
 public:
  /// Loads the target's file. Throws std::runtime_error on failure.
  explicit GgufModels(GgufFiles files);
  ~GgufModels() override;

  const std::shared_ptr<llama_model>& target_file() const { return target_file_; }
  /// Must be called before the first pipeline is built. Loads the files of `drafts`, the names used in
  /// pipelines. `texts`: most that batch() is for. Throws std::runtime_error if one does not have the
  /// target's vocabulary.
  void prepare(const std::vector<std::string>& drafts, specula::PipelineRoom room, GgufThreads threads,
               std::int32_t texts = 1);

  specula::AnyModel& target() override;
  specula::AnyModel& draft(const std::string& name) override;
  /// Always throws UsageError, without opening the draft: GGUF models have none.
  specula::AnyDrafter early_exit(const std::string& name, const std::vector<float>& thresholds,
                                 specula::ExitBy by) override;
  std::optional<specula::BigramTable> bigram() override;

  /// The same models for one of several texts, whose passes can be merged.
  specula::PipelineModels& text(std::int32_t slot);
  /// The models of all texts: that of a draft, or of no name the target's.
  LlamaCppBatch& batch(const std::string& name);

 private:
  struct Batch;
  class TextModels;
  Batch& batch_of(const std::string& name);
  specula::llama_cpp::Options options_of(const std::string& name) const;
  const std::shared_ptr<llama_model>& weights_of(const std::string& name) const;
  std::shared_ptr<llama_model> load(const std::filesystem::path& file,
                                    const std::vector<std::string>& servers) const;
  specula::AnyModel& context(const std::string& name);

  GgufFiles files_;
  std::shared_ptr<llama_model> target_file_;
  std::map<std::string, std::shared_ptr<llama_model>> draft_files_;
  std::map<std::string, std::unique_ptr<specula::HeldModel<LlamaCppModel>>>
      contexts_;                                           // the target's name is empty
  std::map<std::string, std::unique_ptr<Batch>> batches_;  // likewise
  std::vector<std::unique_ptr<TextModels>> texts_;
  specula::PipelineRoom room_;
  GgufThreads threads_;
  std::int32_t most_texts_ = 1;
  std::int32_t vocab_size_ = 0;  // that all of them share
};

}  // namespace specula_tools
