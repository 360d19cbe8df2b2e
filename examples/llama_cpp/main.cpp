// SPDX-License-Identifier: MIT
// specula-llama: runs pipelines on models in GGUF files, inside llama.cpp.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <specula/cpu/decoder.hpp>
#include <specula/llama_cpp/rpc.hpp>

#include "asked_prompt.hpp"
#include "bootstrap.hpp"
#include "braces.hpp"
#include "chat.hpp"
#include "chat_options.hpp"
#include "comparison.hpp"
#include "context.hpp"
#include "conversation.hpp"
#include "ctrl_c.hpp"
#include "delaying_proxy.hpp"
#include "draft_note.hpp"
#include "figures.hpp"
#include "json_file.hpp"
#include "llama_models.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "passes.hpp"
#include "progress_bar.hpp"
#include "prompts.hpp"
#include "report.hpp"
#include "text_stream.hpp"
#include "text_table.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

namespace {

using namespace specula_examples;

struct Options {
  DecodingOptions decoding;
  ArithmeticOptions arithmetic;  // of --beside
  ChatOptions chat;
  std::string model, bigram, pipeline, compare, prompt, style = "auto", json, beside;
  std::vector<std::string> drafts, prompt_files, stops, rpc, draft_rpc;
  std::vector<double> rpc_delays;
  std::size_t limit = 0;
  std::int32_t repeat = 1, passes = 0, draft_threads = 0, gpu_layers = -1;
  bool special = false, verbose = false, same_bits = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("-m,--model", options.model, "The target, a GGUF file")->required();
  app.add_option("--draft", options.drafts,
                 "[NAME=]FILE: a draft and its name in pipelines, by default `small`. May be "
                 "given several times");
  app.add_option("--bigram", options.bigram, "Table of specula-bigram, for max-gram");
  auto* pipeline =
      app.add_option("--pipeline", options.pipeline,
                     std::string("See below (default: cost-aware:chain with the first draft, else ") +
                         specula::kDefaultCopyingPipeline + ")");
  app.add_option(
         "--compare", options.compare,
         "Compare these pipelines instead, names separated by blanks; autoregressive is always among them")
      ->excludes(pipeline);
  auto* passes =
      app.add_option(
             "--passes", options.passes,
             "Measure instead the time of a pass of the target over 1, 2, ..., N nodes after the "
             "first prompt, what drafts can gain by it, and whether rows differ from those of one node")
          ->check(CLI::Range(1, 256))
          ->excludes(pipeline)
          ->excludes("--compare");
  app.add_option("--beside", options.beside,
                 "With --passes: the same model, a Hugging Face directory or the GGUF file itself; the same "
                 "passes of "
                 "specula's own decoder, in turn with the target's. Where matrices are bfloat16 and the "
                 "machine multiplies "
                 "it, with inputs of float and of bfloat16")
      ->needs(passes);
  add_arithmetic_options(app, options.arithmetic);
  auto* prompt = app.add_option("--prompt", options.prompt, "The prompt (default: the standard input)");
  app.add_option("--prompts", options.prompt_files, "File of prompts (may be given several times)")
      ->excludes(prompt);
  add_limit_option(app, options.limit, "Largest number of prompts per file; 0: all");
  app.add_option("--style", options.style, "How prompts of files are put: auto, question, code or raw")
      ->capture_default_str();
  add_chat_options(app, options.chat);
  app.add_flag("--special", options.special,
               "Put the prompt raw, but encode names of control tokens, such as <|im_start|>, as these "
               "tokens; a prompt that begins with the "
               "beginning token gets no second one")
      ->excludes("--chat")
      ->excludes("--system");
  app.add_option(
         "--repeat", options.repeat,
         "With --compare: runs of each prompt; with --passes: turns of each model; the times are their "
         "medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_stop_option(app, options.stops);
  app.add_option("--json", options.json, "With --compare or --passes: write the figures to this file");
  add_decoding_options(app, options.decoding);
  app.add_option("--draft-threads", options.draft_threads,
                 "Threads of the drafts; 0: as many as the target's")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--gpu-layers", options.gpu_layers, "Layers on a device, if llama.cpp has one; -1: all")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str();
  app.add_flag(
      "--same-bits", options.same_bits,
      "Rows of the target with the same bits whatever a pass runs, on CPUs: with one seed, chosen "
      "drafts then give the text of plain decoding with this option, which costs time in long contexts");
  auto* rpc = app.add_option("--rpc", options.rpc,
                             "HOST:PORT,...: run the target's layers on these servers (ggml-rpc-server); the "
                             "drafts stay here. A server that is lost ends the program")
                  ->delimiter(',');
  app.add_option("--draft-rpc", options.draft_rpc, "The same for the drafts")->delimiter(',');
  app.add_option(
         "--rpc-delays", options.rpc_delays,
         "MS,...: with --compare and --rpc, compare at each of these delays of one way to the servers, "
         "made by a proxy in this program")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 10000.0))
      ->needs(rpc)
      ->needs("--compare");
  app.add_flag("--verbose", options.verbose,
               "Show all log messages of llama.cpp, not only warnings and errors");
  app.footer("Pipelines:\n" + specula::pipeline_help() +
             "\nDrafts conditioned on the target, layer skipping and early exits need models that no GGUF "
             "file holds.");
}

void log_problems(ggml_log_level level, const char* text, void*) {
  static bool shown = false;  // a message may come in parts
  if (level != GGML_LOG_LEVEL_CONT) shown = level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
  if (std::string_view(text).find("default pooling_type") != std::string_view::npos)
    return;  // the adapter wants none
  if (shown) std::fputs(text, stderr);
}

/// The name of a --draft.
std::pair<std::string, std::string> named(const std::string& draft) {
  const auto equals = draft.find('=');
  if (equals == std::string::npos) return {specula::kDefaultDraft, draft};
  if (equals == 0 || equals + 1 == draft.size())
    throw UsageError("--draft " + draft + ": must be NAME=FILE, or a file");
  return {draft.substr(0, equals), draft.substr(equals + 1)};
}

GgufFiles files_of(const Options& options) {
  GgufFiles files{options.model, {}, options.bigram, options.gpu_layers, options.rpc, options.draft_rpc};
  files.same_bits = options.same_bits;
  for (const std::string& draft : options.drafts) {
    const auto [name, file] = named(draft);
    if (!files.drafts.emplace(name, file).second)
      throw UsageError("--draft " + draft + ": there are two of the name " + name);
  }
  return files;
}

/// None with --passes.
std::vector<std::string> pipeline_names(const Options& options) {
  if (options.passes > 0) return {};
  if (options.compare.empty()) {
    if (!options.json.empty()) throw UsageError("--json goes with --compare or --passes");
    if (!options.pipeline.empty()) return {options.pipeline};
    if (options.drafts.empty()) return {specula::kDefaultCopyingPipeline};
    return {"cost-aware:chain@" + named(options.drafts.front()).first};
  }
  if (!options.stops.empty()) throw UsageError("--stop does not go with --compare, which counts whole texts");
  auto names = expand_list(options.compare);
  std::erase(names, "autoregressive");
  names.insert(names.begin(), "autoregressive");
  return names;
}

std::vector<Prompt> read_prompts(const Options& options, bool given) {
  if (!options.prompt_files.empty())
    return split_prompts(options.prompt_files, {.limit = options.limit}).test;
  std::string text = given ? options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  check_prompt(text);
  return {{std::move(text), Style::raw}};
}

/// Decodes with one pipeline and prints the texts; counts what they took.
class Generator {
 public:
  Generator(specula::Pipeline& pipeline, const CompareSettings& settings,
            const std::vector<std::string>& stops, const GgufTokenizer& tokenizer)
      : pipeline_(&pipeline), settings_(&settings), stops_(&stops), tokenizer_(&tokenizer) {}

  /// The answer to the `number`th prompt, without the token that ended it.
  ChatAnswer answer(Tokens prompt, std::size_t number, bool keeps_prefix) {
    TextStream stream([&](Token token) { return tokenizer_->bytes(token); }, *stops_);
    std::string ready, text;
    const auto print = [&](const std::string& part) {
      std::cout << part;
      text += part;
      flush_output();
    };
    const CtrlC ctrl_c;
    Decoded run = decode(*pipeline_, prompt,
                         {.max_new_tokens = settings_->max_new_tokens,
                          .stop = settings_->stop,
                          .ends =
                              [&](Token token) {
                                ready += stream.put(token);
                                return stream.stopped();
                              },
                          .prefill = isatty(STDERR_FILENO) ? show_prefill : nullptr,
                          .interrupted = [&] { return ctrl_c.pressed(); },
                          .seed = settings_->seed,
                          .sequence = static_cast<std::uint32_t>(number),
                          .keeps_prefix = keeps_prefix,
                          .goes_on_plainly = true},
                         [&](Tokens, std::size_t) { print(std::exchange(ready, {})); });
    interrupted_ = run.interrupted;
    drafts_.add(run.draft_error);
    print(stream.flush());
    all_ += run.stats;
    emitted_ += run.tokens.size();
    if (run.ending == specula::FinishReason::stop_token) run.tokens.pop_back();
    return {std::move(run.tokens), std::move(text)};
  }

  /// Whether Ctrl-C ended the last answer.
  bool interrupted() const { return interrupted_; }
  /// Of the answer that failed, which counts as a text.
  void add_failed() { drafts_.add(pipeline_->draft_error()); }
  /// A line of what all answers took, and one of failed drafts.
  std::string figures(std::int32_t threads) const {
    const auto rate = [](double count, double seconds) { return fixed(count / std::max(1e-9, seconds), 1); };
    const auto count = static_cast<double>(emitted_);
    return std::to_string(emitted_) + " tokens, " + rate(count, all_.round_seconds) + " tokens/s (" +
           rate(count, all_.round_seconds + all_.prefill_seconds) + " with the prompts), " +
           fixed(count / static_cast<double>(std::max<std::int64_t>(1, all_.rounds)), 2) +
           " a call of the target, " + std::to_string(threads) + (threads == 1 ? " thread\n" : " threads\n") +
           drafts_.line();
  }

 private:
  specula::Pipeline* pipeline_;
  const CompareSettings* settings_;
  const std::vector<std::string>* stops_;
  const GgufTokenizer* tokenizer_;
  specula::Stats all_;
  std::size_t emitted_ = 0;
  DraftNote drafts_;
  bool interrupted_ = false;
};

/// The answers to all prompts and their further turns. One that fails ends its prompt's turns alone. Returns
/// the exit status: 1 if one has failed, 130 if Ctrl-C ended one, which is the last.
int generate(Generator& generator, std::span<AskedPrompt> prompts) {
  const std::vector<std::size_t> numbers = first_numbers(prompts);
  int status = 0;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    std::size_t turn = 0;
    bool answered = false;
    try {
      for (bool more = true; more; ++turn) {
        std::cout << prompts[p].shown();
        answered = false;
        const ChatAnswer answer = generator.answer(prompts[p].tokens, numbers[p] + turn, turn > 0);
        answered = true;
        if (generator.interrupted()) {
          std::cout << '\n' << std::flush;
          return 128 + SIGINT;
        }
        more = prompts[p].next(answer.tokens, answer.text);
        std::cout << (more ? "\n\n" : "");
      }
    } catch (const std::exception& error) {
      if (!std::cout) throw;  // so would all others
      if (!answered) generator.add_failed();
      std::cerr << "specula-llama: " << failure_text(p, turn + (answered ? 1 : 0), error.what()) << '\n';
      status = 1;
    }
    std::cout << (p + 1 < prompts.size() ? "\n\n" : "\n") << std::flush;
  }
  return status;
}

/// A conversation on the terminal, of at most `room` tokens up to an answer.
void talk(Generator& generator, Chat chat, std::size_t room) {
  std::size_t turn = 0;
  converse(chat, std::cin, std::cerr, [&](const std::vector<Token>& tokens) -> std::optional<ChatAnswer> {
    if (tokens.size() > room) return {};
    const bool first = turn == 0;
    ChatAnswer answer = generator.answer(tokens, turn++, !first);
    std::cout << '\n' << std::flush;
    return answer;
  });
}

std::string leaf(const std::string& file) { return std::filesystem::path(file).filename().string(); }

nlohmann::ordered_json settings_json(const Options& options, std::size_t prompts, GgufThreads threads) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array(), drafts = nlohmann::ordered_json::object();
  for (const auto& file : options.prompt_files) files.push_back(leaf(file));
  for (const auto& [name, file] : files_of(options).drafts) drafts[name] = leaf(file.string());
  nlohmann::ordered_json out{
      {"engine", std::string("llama.cpp ") + llama_version()},
      {"built_with", llama_print_system_info()},
      {"gpu_layers", options.gpu_layers},
      {"same_bits", options.same_bits},
      {"rpc_servers", options.rpc.size()},
      {"draft_rpc_servers", options.draft_rpc.size()},
      {"bigram", leaf(options.bigram)},
      {"prompt_files", files},
      {"prompts", prompts},
      {"style", options.style},
  };
  if (!options.chat.system.empty()) out["system"] = options.chat.system;
  add_decoding_json(out, options.decoding);
  out["threads"] = threads.target;
  out["draft_threads"] = threads.draft;
  out["repeat"] = options.repeat;
  out["target"] = leaf(options.model);
  out["drafts"] = drafts;
  return out;
}

/// Plain decoding by each draft of the pipelines, which measures c.
std::vector<std::string> plain_names(const std::vector<std::string>& names,
                                     const std::vector<std::string>& drafts) {
  std::vector<std::string> plain;
  for (const auto& draft : drafts)
    if (std::find(names.begin(), names.end(), "autoregressive@" + draft) == names.end())
      plain.push_back("autoregressive@" + draft);
  return plain;
}

/// Pipelines of the same names, over the same models, at one delay of the servers; without --rpc-delays
/// there is one, whose delay is not set.
struct AtDelay {
  double milliseconds = 0;  // one way
  std::vector<std::unique_ptr<specula::Pipeline>> pipelines = {};
};

/// What the outcomes of a delay came to: figures, and for each pipeline the speedup of each prompt, in their
/// order, since a pipeline may learn.
nlohmann::ordered_json delay_json(double milliseconds, std::span<const Figures> all,
                                  std::span<const Outcome> outcomes) {
  nlohmann::ordered_json out = to_json(all, {{"one_way_milliseconds", milliseconds}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& speedups = out["pipelines"][i]["speedup_by_prompt"] = nlohmann::ordered_json::array();
    for (std::size_t p = 0; p < outcomes[i].prompts.size(); ++p) {
      const auto rate = [&](const PromptResult& result) {
        return static_cast<double>(result.first.tokens.size()) / std::max(1e-9, result.decode_seconds);
      };
      speedups.push_back(rate(outcomes[i].prompts[p]) / rate(outcomes.front().prompts[p]));
    }
  }
  return out;
}

/// Where the folder is the target; messages list its neighbours.
ModelFolders pack_of(const std::string& folder) {
  const auto path = std::filesystem::weakly_canonical(folder);
  return {.root = path.parent_path(), .target = path, .draft = {}};
}

/// --passes: a table, and the JSON.
void measure_passes(GgufModels& models, Tokens prompt, const Options& options, std::int32_t threads) {
  const std::int32_t capacity = static_cast<std::int32_t>(prompt.size()) + options.passes;
  models.prepare({}, {.capacity = capacity, .max_nodes = options.passes}, {threads, threads});
  std::vector<NamedModel> measured{{.name = "llama.cpp", .model = &models.target()}};
  std::vector<std::unique_ptr<ModelPack>> packs;
  const auto add_own = [&](const std::string& name, specula::cpu::Inputs inputs) {
    ModelSizes sizes{.capacity = capacity, .max_nodes = options.passes, .threads = threads};
    set_arithmetic(sizes, options.arithmetic);
    sizes.inputs = inputs;
    packs.push_back(std::make_unique<ModelPack>(pack_of(options.beside), sizes));
    auto& own = packs.back()->target_model();
    measured.push_back({.name = name, .model = &packs.back()->target(), .products = [&own](std::int32_t n) {
                          return own.product_seconds(n, own.exits() - 1);
                        }});
  };
  if (!options.beside.empty()) {
    using specula::cpu::Inputs;
    const Inputs inputs = inputs_of(options.arithmetic.inputs, isa_of(options.arithmetic.isa));
    add_own("specula", inputs);
    specula::AnyModel& own = packs.front()->target();
    if (own.vocab_size() != models.target().vocab_size())
      throw UsageError("--beside " + options.beside + ": a model of " + std::to_string(own.vocab_size()) +
                       " tokens, the target has " + std::to_string(models.target().vocab_size()));
    const auto difference =
        vocabulary_difference(GgufTokenizer(models.target_file()).pieces(), "the target",
                              Tokenizer(pack_of(options.beside).target).pieces(), options.beside);
    if (difference)
      throw UsageError("--beside " + options.beside + ": not the target's vocabulary: " + *difference);
    const auto& kept = packs.front()->target_model().weights()->kept;
    const bool rounds =
        isa_of(options.arithmetic.isa) == specula::Isa::avx512 && specula::cpu::has_bf16_products();
    if (rounds && std::any_of(kept.begin(), kept.end(),
                              [](const auto& some) { return some.as == specula::cpu::WeightType::bf16; })) {
      if (inputs == Inputs::bf16)
        add_own("float inputs", Inputs::full);
      else
        add_own("bf16 inputs", Inputs::bf16);
    }
  }
  const auto all = passes_in_turn(measured, prompt, options.passes, options.repeat);
  std::cout << passes_table(all);
  flush_output();
  if (options.json.empty()) return;
  nlohmann::ordered_json out{{"passes", passes_json(all)},
                             {"engine", std::string("llama.cpp ") + llama_version()},
                             {"built_with", llama_print_system_info()},
                             {"same_bits", options.same_bits},
                             {"target", leaf(options.model)}};
  if (!options.beside.empty()) {
    out["beside"] = pack_of(options.beside).target.filename().string();
    add_arithmetic_json(out, options.arithmetic);
  }
  out["prompt_tokens"] = prompt.size();
  out["threads"] = threads;
  out["turns"] = options.repeat;
  write_json(options.json, out);
}

int run(int argc, char** argv) {
  CLI::App app{"Speculative decoding of GGUF models inside llama.cpp.", "specula-llama"};
  Options options;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  check_options(options.decoding);
  check_stops(options.stops);
  if (options.same_bits)
    setenv("GGML_CPU_TILED_MM", "0", 0);  // K-quants from 8 rows on, which ggml asks once
  if (!options.verbose) llama_log_set(log_problems, nullptr);
  ggml_backend_load_all();  // where backends are libraries of their own
  const bool compares = !options.compare.empty();
  const bool measures = compares || options.passes > 0;
  if (app.count("--threads") == 0) {
    if (!measures) options.decoding.threads = 0;
    if (!only_parses()) std::cerr << threads_line(options.decoding.threads);
  }

  auto names = pipeline_names(options);
  std::vector<std::string> drafts;
  std::vector<specula::PipelineFactory> factories;
  GgufFiles files = files_of(options);
  for (const auto& name : names) {
    factories.push_back(specula::prepare_pipeline(name));
    constexpr std::int32_t kMaxNodes = 257;  // below a root, each draft token may need a sequence of its own
    if (std::max(factories.back().max_nodes, factories.back().draft_nodes) > kMaxNodes)
      throw UsageError("pipeline '" + name + "': llama.cpp has sequences for trees of 256 draft tokens");
    for (const auto& draft : factories.back().drafts) {
      files.draft(draft);  // reports errors before the run
      if (std::find(drafts.begin(), drafts.end(), draft) == drafts.end()) drafts.push_back(draft);
    }
  }
  if (only_parses()) return 0;
  const std::size_t shown = names.size();
  if (compares)
    for (const auto& name : plain_names(names, drafts)) {
      names.push_back(name);
      factories.push_back(specula::prepare_pipeline(name));
    }
  if (!options.json.empty()) {
    for (const auto& file : options.prompt_files) check_distinct("--json", options.json, "--prompts", file);
    check_writable(options.json);
  }

  if (!options.beside.empty()) pack_of(options.beside).check();
  std::deque<DelayingProxy> proxies;
  if (!options.rpc_delays.empty())
    for (std::string& server : files.rpc) {
      specula::llama_cpp::expect_rpc_server(server);  // else its proxy would be named
      server = proxies.emplace_back(server).endpoint();
    }
  GgufModels models(files);
  const GgufTokenizer tokenizer(models.target_file());
  const bool given = app.count("--prompt") > 0;
  std::optional<ChatSetting> chats;
  if (!options.special)
    if (auto how = chosen_template(options.chat, options.style, tokenizer.chat_template(),
                                   "the target " + options.model))
      chats = ChatSetting{std::move(*how), tokenizer.chat_vocabulary(), options.chat.system};
  const Style style = parse_style(options.style);
  if (chats) options.style = "chat";  // in the JSON
  const bool generates = !measures;
  const bool talks = chats && generates && !given && options.prompt_files.empty() && isatty(STDIN_FILENO);
  const std::int32_t trained_for = llama_model_n_ctx_train(models.target_file().get());
  const std::int32_t behind = options.passes > 0 ? options.passes : options.decoding.max_new_tokens;
  std::vector<AskedPrompt> asked;
  if (!talks)
    for (Prompt& prompt : read_prompts(options, given))
      asked.push_back(asked_prompt(
          std::move(prompt), chats ? &*chats : nullptr, options.prompt_files.empty() ? Style::raw : style,
          [&](const std::string& text) { return tokenizer.encode(text, options.special); }, behind,
          generates));
  std::vector<std::vector<Token>> prompts, sized;  // the latter as long as what may precede an answer
  for (AskedPrompt& prompt : asked) {
    sized.emplace_back(prompt.longest);
    prompts.push_back(prompt.tokens);
  }
  if (talks) {  // libllama rounds the room for nodes up, and warns of more than the model was trained for
    const std::int32_t most = std::max({1, trained_for / 2, trained_for - behind - 512});
    sized.emplace_back(trained_for > 0 ? std::min(kTalkTokens, static_cast<std::size_t>(most)) : kTalkTokens);
  }
  std::size_t longest = 0;
  for (const auto& prompt : sized) longest = std::max(longest, prompt.size());
  check_context(sized, behind, trained_for, "the target " + options.model, options.decoding.beyond_context);
  const std::int32_t threads = thread_count(options.decoding.threads);
  if (options.passes > 0) {
    measure_passes(models, prompts.front(), options, threads);
    return 0;
  }
  const GgufThreads used{threads, options.draft_threads ? options.draft_threads : threads};
  const specula::PipelineRoom room = specula::room_for(factories, longest, options.decoding.max_new_tokens);
  models.prepare(drafts, room, used);

  const CompareSettings settings{options.decoding.max_new_tokens, tokenizer.ends(), options.decoding.seed,
                                 options.repeat};
  std::vector<AtDelay> delays(std::max<std::size_t>(1, options.rpc_delays.size()));
  for (std::size_t d = 0; d < delays.size(); ++d) {
    if (!options.rpc_delays.empty()) delays[d].milliseconds = options.rpc_delays[d];
    for (const auto& factory : factories)
      delays[d].pipelines.push_back(factory.build(models, options.decoding.sampling));
  }
  if (!compares) {
    Generator generator(*delays.front().pipelines.front(), settings, options.stops, tokenizer);
    if (talks) talk(generator, chats->start(), longest);
    const int status = talks ? 0 : generate(generator, asked);
    std::cerr << generator.figures(threads);
    return status;
  }
  std::vector<Contender> contenders;
  for (const AtDelay& delay : delays)
    for (std::size_t i = 0; i < names.size(); ++i)
      contenders.push_back({names[i], delay.pipelines[i].get(), factories[i].lossy, [&proxies, &delay] {
                              for (DelayingProxy& proxy : proxies)
                                proxy.set_delay(
                                    std::chrono::microseconds(std::llround(1e3 * delay.milliseconds)));
                            }});
  const auto outcomes = compare(contenders, prompts, settings, ProgressBar());
  std::optional<Bootstrap> bootstrap;
  if (prompts.size() > 1) bootstrap.emplace(prompts.size());
  std::vector<std::vector<Figures>> all;
  auto by_delay = nlohmann::ordered_json::array();
  for (std::size_t d = 0; d < delays.size(); ++d) {
    const auto own = std::span(outcomes).subspan(d * names.size(), names.size());
    const CostCoefficients costs = cost_coefficients(own);
    all.emplace_back();
    for (const auto& outcome : own.first(shown))
      all.back().push_back(figures(outcome, own.front(), costs, {}, bootstrap ? &*bootstrap : nullptr));
    if (!proxies.empty())
      std::cout << (d > 0 ? "\n" : "") << fixed(delays[d].milliseconds, 1) << " ms one way\n";
    std::cout << to_table(all.back());
    by_delay.push_back(delay_json(delays[d].milliseconds, all.back(), own));
  }
  flush_output();
  if (!options.json.empty()) {
    const auto about = settings_json(options, prompts.size(), used);
    if (proxies.empty()) {
      write_json(options.json, to_json(all.front(), about));
    } else {
      nlohmann::ordered_json out{{"delays", by_delay}};
      out.update(about);
      write_json(options.json, out);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-llama", [&] { return run(argc, argv); });
}
