// SPDX-License-Identifier: MIT
#include "llama_models.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <utility>

#include <specula/llama_cpp/rpc.hpp>
#include <specula/llama_cpp/text.hpp>
#include <specula/llama_cpp/vocabulary.hpp>
#include <specula/model/batched.hpp>

#include "bigram_file.hpp"
#include "errors.hpp"
#include "vocabulary.hpp"

namespace specula_tools {

GgufTokenizer::GgufTokenizer(std::shared_ptr<llama_model> model)
    : model_(std::move(model)), vocab_(llama_model_get_vocab(model_.get())) {
  if (llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_NONE)
    throw std::runtime_error("the target's file has no vocabulary");
}

std::vector<specula::Token> GgufTokenizer::ends() const { return specula::llama_cpp::end_tokens(vocab_); }

std::vector<specula::Token> GgufTokenizer::encode(std::string_view text, bool special) const {
  return specula::llama_cpp::tokenize(vocab_, text, special);
}

std::string GgufTokenizer::bytes(specula::Token token) const {
  return specula::llama_cpp::token_bytes(vocab_, token);
}

std::vector<std::string> GgufTokenizer::pieces() const {
  std::vector<std::string> out;
  for (specula::Token token = 0; token < llama_vocab_n_tokens(vocab_); ++token) {
    const bool padding = llama_vocab_get_attr(vocab_, token) & LLAMA_TOKEN_ATTR_UNUSED;
    out.emplace_back(padding ? "" : llama_vocab_get_text(vocab_, token));
  }
  return out;
}

ChatVocabulary GgufTokenizer::chat_vocabulary() const {
  ChatVocabulary out;
  out.encode = [vocab = vocab_](std::string_view text, bool controls) {
    std::vector<specula::Token> tokens(text.size() + 8);
    const auto encoded = [&] {
      return llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                            static_cast<std::int32_t>(tokens.size()), false, controls);
    };
    std::int32_t size = encoded();
    if (size < 0) {
      tokens.resize(static_cast<std::size_t>(-size));
      size = encoded();
    }
    tokens.resize(static_cast<std::size_t>(std::max(size, 0)));
    return tokens;
  };
  out.bytes = [this](specula::Token token) { return bytes(token); };
  for (specula::Token token = 0; token < llama_vocab_n_tokens(vocab_); ++token)
    if (llama_vocab_is_control(vocab_, token) || llama_vocab_is_eog(vocab_, token))
      out.controls.emplace_back(token, llama_vocab_get_text(vocab_, token));
  return out;
}

std::optional<ChatTemplateText> GgufTokenizer::chat_template() const {
  const char* const source = llama_model_chat_template(model_.get(), nullptr);
  if (!source) return {};
  const auto text = [&](llama_token token) {
    return token == LLAMA_TOKEN_NULL ? std::string() : std::string(llama_vocab_get_text(vocab_, token));
  };
  return ChatTemplateText{.source = source,
                          .begin = text(llama_vocab_bos(vocab_)),
                          .end = text(llama_vocab_eos(vocab_)),
                          .where = "the target's key 'tokenizer.chat_template'"};
}

const std::filesystem::path& GgufFiles::draft(const std::string& name) const {
  const auto found = drafts.find(name);
  if (found != drafts.end()) return found->second;
  std::string known;
  for (const auto& [draft, file] : drafts) known.append(known.empty() ? "; drafts are " : ", ").append(draft);
  throw UsageError("no draft '" + name + "': give --draft " + name + "=FILE" + known);
}

/// A model of many texts, and each of them.
struct GgufModels::Batch {
  Batch(const std::shared_ptr<llama_model>& weights, std::int32_t slots,
        const specula::llama_cpp::Options& options)
      : model(weights, slots, options) {
    for (std::int32_t slot = 0; slot < slots; ++slot) texts.emplace_back(each.emplace_back(model, slot));
  }
  LlamaCppBatch model;
  std::deque<specula::SlotOf<LlamaCppBatch>> each;
  std::deque<specula::AnyModel> texts;
};

/// One text's models.
class GgufModels::TextModels final : public specula::PipelineModels {
 public:
  TextModels(GgufModels& all, std::int32_t slot) : all_(all), slot_(static_cast<std::size_t>(slot)) {}
  specula::AnyModel& target() override { return all_.batch_of("").texts[slot_]; }
  specula::AnyModel& draft(const std::string& name) override { return all_.batch_of(name).texts[slot_]; }
  std::optional<specula::BigramTable> bigram() override { return all_.bigram(); }

 private:
  GgufModels& all_;
  std::size_t slot_;
};

GgufModels::~GgufModels() = default;

GgufModels::GgufModels(GgufFiles files)
    : files_(std::move(files)), target_file_(load(files_.target, files_.rpc)) {
  vocab_size_ = llama_vocab_n_tokens(llama_model_get_vocab(target_file_.get()));
}

std::shared_ptr<llama_model> GgufModels::load(const std::filesystem::path& file,
                                              const std::vector<std::string>& servers) const {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = files_.gpu_layers;
  params.use_extra_bufts = !files_.same_bits || file != files_.target;
  std::vector<ggml_backend_dev_t> devices;
  if (!servers.empty()) {
    try {
      devices = specula::llama_cpp::rpc_devices(servers);
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
    params.devices = devices.data();
  }
  auto model = specula::llama_cpp::load(file, params);
  if (!servers.empty()) specula::llama_cpp::limit_rpc_waits(servers, std::chrono::seconds(files_.rpc_limit));
  return model;
}

void GgufModels::prepare(const std::vector<std::string>& drafts, specula::PipelineRoom room,
                         GgufThreads threads, std::int32_t texts) {
  room_ = room;
  most_texts_ = texts;
  threads_ = threads;
  for (const auto& name : drafts) {
    auto& file = draft_files_[name];
    if (file) continue;
    file = load(files_.draft(name), files_.draft_rpc);
    try {
      vocab_size_ = std::min(vocab_size_, specula::llama_cpp::shared_vocabulary(*target_file_, *file));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(files_.draft(name).string() + ": " + error.what());
    }
  }
}

namespace {

UsageError no_exits(const std::string& name) {
  return UsageError("'" + name + "': models inside llama.cpp have no exits");
}

}  // namespace

specula::AnyModel& GgufModels::target() { return context(""); }

specula::AnyModel& GgufModels::draft(const std::string& name) { return context(name); }

specula::AnyDrafter GgufModels::early_exit(const std::string& name, const std::vector<float>&,
                                           specula::ExitBy) {
  throw no_exits(name);
}

std::optional<specula::BigramTable> GgufModels::bigram() {
  if (files_.bigram.empty()) return std::nullopt;
  auto [table, vocabulary] = load_bigram(files_.bigram);
  if (table.vocab_size() != vocab_size_)
    throw std::runtime_error(files_.bigram.string() + ": a table of " + std::to_string(table.vocab_size()) +
                             " tokens, the models have " + std::to_string(vocab_size_) +
                             "; bigram=text and bigram=none read no table");
  if (!may_be_of(vocabulary, GgufTokenizer(target_file_).pieces()))
    throw std::runtime_error(
        files_.bigram.string() +
        ": a table of other tokens than the models'; bigram=text and bigram=none read no table");
  return std::move(table);
}

const std::shared_ptr<llama_model>& GgufModels::weights_of(const std::string& name) const {
  if (name.empty()) return target_file_;
  const auto file = draft_files_.find(name);
  if (file == draft_files_.end()) throw no_exits(name);  // all others are loaded already
  return file->second;
}

specula::llama_cpp::Options GgufModels::options_of(const std::string& name) const {
  return {.capacity = room_.capacity,
          .max_nodes = room_.max_nodes,
          .max_leaves = std::min(room_.max_nodes, std::int32_t{256}),
          .threads = name.empty() ? threads_.target : threads_.draft,
          .vocab_size = vocab_size_,
          .same_bits = files_.same_bits && name.empty()};
}

specula::AnyModel& GgufModels::context(const std::string& name) {
  auto& model = contexts_[name];
  if (!model) {
    model = std::make_unique<specula::HeldModel<LlamaCppModel>>(weights_of(name), options_of(name));
    constexpr std::int32_t kWarm = 16;
    if (!(name.empty() ? files_.rpc : files_.draft_rpc).empty())
      specula::llama_cpp::warm_up(model->any, std::min(kWarm, room_.max_nodes));
  }
  return model->any;
}

GgufModels::Batch& GgufModels::batch_of(const std::string& name) {
  auto& batch = batches_[name];
  if (!batch) {
    specula::llama_cpp::Options options = options_of(name);
    options.max_leaves = specula::llama_cpp::Options().max_leaves;  // the nodes of a text are a chain
    batch = std::make_unique<Batch>(weights_of(name), most_texts_, options);
  }
  return *batch;
}

LlamaCppBatch& GgufModels::batch(const std::string& name) { return batch_of(name).model; }

specula::PipelineModels& GgufModels::text(std::int32_t slot) {
  for (auto next = static_cast<std::int32_t>(texts_.size()); next <= slot; ++next)
    texts_.push_back(std::make_unique<TextModels>(*this, next));
  return *texts_[static_cast<std::size_t>(slot)];
}

}  // namespace specula_tools
