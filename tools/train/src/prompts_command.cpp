// SPDX-License-Identifier: MIT
// `specula-train-text prompts`: what a target is to go on with; `unlike`: its texts without those that share
// something with an evaluation's prompts.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <specula/base/read_number.hpp>
#include <specula/files/json_fields.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chat.hpp"
#include "chat_frame.hpp"
#include "chat_template.hpp"
#include "corpus.hpp"
#include "files.hpp"
#include "prompts.hpp"
#include "text_commands.hpp"
#include "train_tokenizer.hpp"
#include "unlike.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;
using specula_tools::Chat;
using specula_tools::ChatTemplate;
using specula_tools::ChatTurn;
using specula_tools::ChatVocabulary;

/// The chat template of a model with its tokenizer.
struct Chats {
  const Tokenizer& tokenizer;
  ChatTemplate how;
  ChatVocabulary vocabulary;
  std::string system;

  Document ask(const std::string& question) const { return Chat(how, vocabulary, system).ask(question); }

  /// What the template puts around turns, found by turns of words that no template has.
  ChatFrame frame() const {
    const std::string first = "QUESTIONONE", answer = "ANSWERONE", second = "QUESTIONTWO";
    std::vector<ChatTurn> turns;
    if (!system.empty()) turns.push_back({"system", system});
    for (const auto& [role, content] : {std::pair{"user", first}, {"assistant", answer}, {"user", second}})
      turns.push_back({role, content});
    const auto whole = how.render(turns, 0);
    turns.resize(turns.size() - 2);
    const auto asked = how.render(turns, 0);
    const auto split = [&](const std::string& text, const std::string& from, const std::string& to) {
      const auto begin = from.empty() ? 0 : text.find(from) + from.size(),
                 end = to.empty() ? text.size() : text.find(to);
      if (begin > text.size() || end > text.size() || begin > end)
        throw std::runtime_error(
            "the chat template changes its turns: the model cannot ask itself; give --raw");
      return tokenizer.encode_chat(text.substr(begin, end - begin));
    };
    // The model writes what ends its part itself.
    const auto without_end = [&](Document tokens) {
      const auto& ends = tokenizer.ends();
      const auto end = std::find_if(tokens.begin(), tokens.end(),
                                    [&](Token t) { return std::ranges::count(ends, t) > 0; });
      if (end != tokens.end()) tokens.erase(tokens.begin(), end + 1);
      return tokens;
    };
    return {.ends = tokenizer.ends(),
            .before_question = split(asked, "", first),
            .before_answer = without_end(split(asked, first, "")),
            .before_next_question = without_end(split(whole, answer, second))};
  }
};

std::size_t read_count(const char* option, const std::string& text) {
  std::size_t count = 0;
  if (!specula::detail::read_number(text, count))
    throw std::invalid_argument(std::string(option) + " " + text +
                                ": expected a number of tokens, or NAME=N");
  return count;
}

struct PromptsCommand {
  fs::path data, target, output;
  std::vector<std::string> asks, longest;
  std::string system;
  PromptSizes sizes{.shortest = 32, .longest = 256, .continuation = 1, .whole = false};
  std::size_t limit = 0;
  bool raw = false;

  void add_to(CLI::App& app, const std::shared_ptr<PromptsCommand>& self) {
    auto* command = app.add_subcommand(
        "prompts", "Make prompts of a corpus for a target to go on with (`specula-train sample`)");
    command->add_option("--target", target, "The target's folder: its tokenizer and chat template")
        ->required();
    command->add_option("--data", data,
                        "Folder written by `corpus`; without, the target can only ask itself");
    command->add_option("--output", output, "Folder to write: prompts as tokens, and chat.json")->required();
    command->add_option("--ask", asks,
                        "NAME=TEXT, may be repeated: the prompts of this style are questions in the model's "
                        "chat template, TEXT "
                        "with a piece of the style's text, or its question, in the place of {}; several take "
                        "turns. Other styles "
                        "are prompts as they are");
    command->add_option("--system", system, "The system message of each chat");
    command->add_flag("--raw", raw, "Without the model's chat template");
    command->add_option("--shortest-prompt", sizes.shortest, "Smallest number of tokens of a piece of text")
        ->capture_default_str();
    command->add_option(
        "--longest-prompt", longest,
        "Largest number of tokens of a piece of text (256); NAME=N, may be repeated: of this style's");
    command->add_option("--limit", limit, "Largest number of prompts of a style; 0: all");
    command->callback([self] { self->run(); });
  }

  void run() const {
    const Tokenizer tokenizer(target);
    for (const auto& note : tokenizer.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
    const std::optional<Chats> chats = find_chats(tokenizer);
    if (!chats && !asks.empty())
      throw std::invalid_argument(
          "--ask: " + (raw ? "does not go with --raw" : target.string() + " has no chat template"));
    if (!chats && data.empty()) throw std::invalid_argument("no chat template and no --data: nothing to ask");

    auto questions = questions_of_styles();
    auto usual = sizes;
    std::map<std::string, std::size_t> longest_of;
    for (const auto& option : longest) {
      const auto equals = option.find('=');
      const bool of_all = equals == option.npos;
      (of_all ? usual.longest : longest_of[option.substr(0, equals)]) =
          read_count("--longest-prompt", of_all ? option : option.substr(equals + 1));
    }
    auto corpus = no_documents(tokenizer);
    std::mt19937_64 random(1);
    for (const auto& style : data.empty() ? std::vector<Style>{} : read_corpus(data)) {
      const auto asked = questions.find(style.name);
      auto of_style = usual;
      of_style.whole = asked != questions.end();  // a question may hold all of a document
      if (const auto entry = longest_of.extract(style.name)) of_style.longest = entry.mapped();
      of_style.check();
      auto prompts =
          make(style, tokenizer, chats, asked == questions.end() ? std::vector<std::string>{} : asked->second,
               of_style, random);
      if (asked != questions.end()) questions.erase(asked);
      std::shuffle(prompts.begin(), prompts.end(), random);
      if (limit > 0 && prompts.size() > limit) prompts.resize(limit);
      std::printf("%s: %zu prompts, %zu tokens\n", style.name.c_str(), prompts.size(), count_tokens(prompts));
      if (prompts.empty())
        throw std::runtime_error("style '" + style.name + "': no document is long enough for a prompt of " +
                                 std::to_string(sizes.shortest) + " tokens" +
                                 (of_style.whole ? "" : ", half a document at most") +
                                 "; lower --shortest-prompt");
      corpus.styles.push_back(
          {.name = style.name, .train = std::move(prompts), .heldout = {}, .info = style.info});
    }
    if (!questions.empty())
      throw std::invalid_argument("--ask " + questions.begin()->first + ": no style of this name");
    if (!longest_of.empty())
      throw std::invalid_argument("--longest-prompt " + longest_of.begin()->first +
                                  ": no style of this name");
    write_tokens(corpus, output);
    specula_tools::copy_tokenizer(target, output);
    write_chat_frame(chats ? chats->frame() : ChatFrame{.ends = tokenizer.ends()}, output);
  }

  /// The target's chat template, unless there is none or --raw is given.
  std::optional<Chats> find_chats(const Tokenizer& tokenizer) const {
    auto found = raw ? std::nullopt : specula_tools::find_chat_template(target);
    if (!found) return std::nullopt;
    const auto piece = [&](Token token) {
      return token == specula::kNoToken ? std::string() : tokenizer.pieces()[static_cast<std::size_t>(token)];
    };
    found->begin = piece(tokenizer.begin());
    found->end = piece(tokenizer.end());
    return Chats{tokenizer, ChatTemplate(std::move(*found)), specula_tools::chat_vocabulary(tokenizer),
                 system};
  }

  /// The texts of --ask, by style.
  std::map<std::string, std::vector<std::string>> questions_of_styles() const {
    std::map<std::string, std::vector<std::string>> questions;
    for (const auto& ask : asks) {
      auto [name, text] = parse_assignment("--ask", ask);
      if (text.find("{}") == text.npos)
        throw std::invalid_argument("--ask " + ask + ": {} is missing, the place of the text");
      questions[name].push_back(std::move(text));
    }
    return questions;
  }

  std::vector<Document> make(const Style& style, const Tokenizer& tokenizer,
                             const std::optional<Chats>& chats, const std::vector<std::string>& questions,
                             const PromptSizes& of_style, std::mt19937_64& random) const {
    std::vector<Document> prompts;
    const auto ask = [&](const std::string& text) {
      auto question = questions[prompts.size() % questions.size()];
      question.replace(question.find("{}"), 2, text);
      prompts.push_back(chats->ask(question));
    };
    for (const auto& document : style.train) {
      if (const auto question = question_of(document)) {
        if (questions.empty()) {
          prompts.push_back(tokenizer.encode(*question));
        } else {
          constexpr std::size_t before = std::string_view("Question: ").size(),
                                after = std::string_view("\nAnswer:").size();
          ask(question->substr(before, question->size() - before - after));
        }
        continue;
      }
      const auto tokens = tokenizer.encode(document);
      const std::size_t begin = tokenizer.adds_begin() ? 1 : 0;
      std::vector<bool> starts;
      for (std::size_t i = begin; i < tokens.size(); ++i)
        starts.push_back(i == begin || tokenizer.bytes(tokens[i - 1]).find('\n') != std::string::npos);
      for (const auto piece : cut_prompts(starts, of_style, /*begins_anywhere=*/false, random)) {
        const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
        const Document cut(first + static_cast<std::ptrdiff_t>(piece.begin),
                           first + static_cast<std::ptrdiff_t>(piece.end));
        if (questions.empty()) {
          Document prompt(tokens.begin(), first);
          prompt.insert(prompt.end(), cut.begin(), cut.end());
          prompts.push_back(std::move(prompt));
        } else {
          ask(tokenizer.decode(cut));
        }
      }
    }
    return prompts;
  }
};

/// Calls f of every string in a JSON value.
void for_each_text(const specula::files::Json& json, const std::function<void(const std::string&)>& f) {
  if (json.is_string()) f(json.get_ref<const std::string&>());
  if (json.is_structured())
    for (const auto& item : json) for_each_text(item, f);
}

/// Without line breaks, and without half a character at the end.
std::string one_line(std::string text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

struct UnlikeCommand {
  fs::path data, output;
  std::vector<fs::path> prompts;
  std::size_t words = 13;

  void add_to(CLI::App& app, const std::shared_ptr<UnlikeCommand>& self) {
    auto* command = app.add_subcommand(
        "unlike",
        "Leave out texts that share a run of words with given ones, such as an evaluation's prompts");
    command->add_option("--data", data, "Folder of tokens, with the tokenizer")->required();
    command->add_option("--prompts", prompts, "FILE.jsonl, may be repeated: every string in its lines");
    command->add_option("--words", words, "Words of a run")
        ->check(CLI::Range(2, 1000))
        ->capture_default_str();
    command->add_option("--output", output, "Folder to write")->required();
    command->callback([self] { self->run(); });
  }

  void run() const {
    WordRuns runs(words);
    for (const auto& file : prompts) {
      std::istringstream lines(specula_tools::read_file(file));
      for (std::string line; std::getline(lines, line);)
        if (!line.empty())
          for_each_text(specula::files::parse_json(line, file.string()),
                        [&](const std::string& text) { runs.add(text); });
    }
    const Tokenizer tokenizer(data);
    auto corpus = read_tokens(data);
    for (auto& style : corpus.styles) {
      std::size_t dropped = 0;
      std::string example;
      const auto like = [&](const Document& document) {
        const auto text = tokenizer.decode(document);
        if (!runs.shares(text)) return false;
        ++dropped;
        if (example.empty()) example = text.substr(0, 200);
        return true;
      };
      std::vector<Document> kept;
      std::vector<std::int32_t> given;
      for (std::size_t i = 0; i < style.train.size(); ++i) {
        if (like(style.train[i])) continue;
        kept.push_back(std::move(style.train[i]));
        if (!style.given.empty()) given.push_back(style.given[i]);
      }
      const auto all = style.train.size() + style.heldout.size();
      style.train = std::move(kept);
      style.given = std::move(given);
      std::erase_if(style.heldout, like);
      std::printf("%s: %zu of %zu texts share %zu words in a row with a prompt and are left out%s\n",
                  style.name.c_str(), dropped, all, words,
                  example.empty() ? "" : (", such as\n    " + one_line(example)).c_str());
    }
    write_tokens(corpus, output);
    specula_tools::copy_tokenizer(data, output);
  }
};

struct HeldoutCommand {
  fs::path data, frame, output;
  std::size_t limit = 200;

  void add_to(CLI::App& app, const std::shared_ptr<HeldoutCommand>& self) {
    auto* command = app.add_subcommand(
        "heldout", "Write the questions of held-out texts as prompts, for specula compare");
    command->add_option("--data", data, "Folder of tokens, with the tokenizer")->required();
    command->add_option("--frame", frame, "Folder of their prompts, which has chat.json")->required();
    command->add_option("--limit", limit, "Largest number of prompts of a style")->capture_default_str();
    command->add_option("--output", output, "FILE.jsonl to write")->required();
    command->callback([self] { self->run(); });
  }

  /// The first question of a chat, or the first half of any other text.
  static nlohmann::ordered_json prompt_of(const Document& text, const ChatFrame& around,
                                          const Tokenizer& tokenizer) {
    const auto& before = around.before_question;
    if (before.empty() || text.size() <= before.size() ||
        !std::equal(before.begin(), before.end(), text.begin()))
      return {{"prompt", tokenizer.decode(specula::Tokens(text).first(text.size() / 2))}};
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(before.size());
    const auto end =
        std::find_if(begin, text.end(), [&](Token t) { return std::ranges::count(around.ends, t) > 0; });
    return {{"question", tokenizer.decode(Document(begin, end))}};
  }

  void run() const {
    const auto corpus = read_tokens(data);
    const auto around = read_chat_frame(frame, corpus.vocab_size);
    const Tokenizer tokenizer(data);
    std::string lines;
    // In turn, so that the first ones are of all styles.
    for (std::size_t i = 0; i < limit; ++i)
      for (const auto& style : corpus.styles) {
        if (i >= style.heldout.size()) continue;
        auto prompt = prompt_of(style.heldout[i], around, tokenizer);
        prompt["category"] = style.name;
        lines += prompt.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
      }
    specula_tools::write_file(output, lines);
  }
};

}  // namespace

void add_prompts_command(CLI::App& app) {
  const auto command = std::make_shared<PromptsCommand>();
  command->add_to(app, command);
}

void add_heldout_command(CLI::App& app) {
  const auto command = std::make_shared<HeldoutCommand>();
  command->add_to(app, command);
}

void add_unlike_command(CLI::App& app) {
  const auto command = std::make_shared<UnlikeCommand>();
  command->add_to(app, command);
}

}  // namespace specula_train
