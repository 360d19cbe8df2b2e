// SPDX-License-Identifier: MIT
#include "known_templates.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace specula_tools {
namespace {

using Turns = std::span<const ChatTurn>;

using Setting = TemplateSetting;

std::string_view without_front(std::string_view text, std::string_view blank) {
  return text.substr(std::min(text.find_first_not_of(blank), text.size()));
}

std::string_view without_back(std::string_view text, std::string_view blank) {
  return text.substr(0, text.find_last_not_of(blank) + 1);
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\v\f\r";
  return without_back(without_front(text, kBlank), kBlank);
}

bool begins_with_system(Turns turns) { return !turns.empty() && turns.front().role == "system"; }

void put(std::string& out, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) out += part;
}

// ---- ChatML

void put_chatml(std::string& out, std::string_view role, std::string_view content) {
  put(out, {"<|im_start|>", role, "\n", content, "<|im_end|>\n"});
}

/// `system`: what is said where the chat has no system message; null: nothing.
std::string chatml(Turns turns, const char* system) {
  std::string out;
  if (system && !begins_with_system(turns)) put_chatml(out, "system", system);
  for (const ChatTurn& turn : turns) put_chatml(out, turn.role, turn.content);
  return out += "<|im_start|>assistant\n";
}

std::string plain_chatml(Turns turns, const Setting&) { return chatml(turns, nullptr); }
std::string smollm2(Turns turns, const Setting&) {
  return chatml(turns, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}
std::string qwen1_5(Turns turns, const Setting&) { return chatml(turns, "You are a helpful assistant"); }
std::string qwen2(Turns turns, const Setting&) { return chatml(turns, "You are a helpful assistant."); }
std::string qwen2_5(Turns turns, const Setting&) {
  return chatml(turns, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
}

/// Answers to earlier questions lose what the model thought before them.
std::string qwen3(Turns turns, const Setting&) {
  std::size_t last_query = turns.size() - 1;
  for (std::size_t i = turns.size(); i-- > 0;)
    if (turns[i].role == "user" && !(turns[i].content.starts_with("<tool_response>") &&
                                     turns[i].content.ends_with("</tool_response>"))) {
      last_query = i;
      break;
    }
  std::string out;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto& [role, whole] = turns[i];
    if (role != "assistant") {
      put_chatml(out, role, whole);
      continue;
    }
    constexpr std::string_view kEnd = "</think>", kBegin = "<think>";
    std::string_view content = whole, thought;
    if (const auto end = content.rfind(kEnd); end != content.npos) {
      thought = without_back(content.substr(0, content.find(kEnd)), "\n");
      if (const auto begin = thought.rfind(kBegin); begin != thought.npos)
        thought = thought.substr(begin + kBegin.size());
      thought = without_front(thought, "\n");
      content = without_front(content.substr(end + kEnd.size()), "\n");
    }
    put(out, {"<|im_start|>assistant\n"});
    if (i > last_query && (i + 1 == turns.size() || !thought.empty()))
      put(out, {"<think>\n", without_back(thought, "\n"), "\n</think>\n\n", without_front(content, "\n")});
    else
      out += content;
    out += "<|im_end|>\n";
  }
  return out += "<|im_start|>assistant\n";
}

// ---- Llama 3

constexpr std::string_view kHeader = "<|start_header_id|>", kHeaderEnd = "<|end_header_id|>\n\n",
                           kEot = "<|eot_id|>";

std::string headed(std::string out, Turns turns) {
  for (const ChatTurn& turn : turns) put(out, {kHeader, turn.role, kHeaderEnd, trim(turn.content), kEot});
  put(out, {kHeader, "assistant", kHeaderEnd});
  return out;
}

std::string llama3(Turns turns, const Setting& setting) {
  return headed(std::string(turns.empty() ? "" : setting.begin), turns);
}

std::string llama3_dated(Turns turns, const Setting& setting, std::string_view date) {
  std::string out(setting.begin);
  put(out,
      {kHeader, "system", kHeaderEnd, "Cutting Knowledge Date: December 2023\nToday Date: ", date, "\n\n"});
  if (begins_with_system(turns)) {
    out += trim(turns.front().content);
    turns = turns.subspan(1);
  }
  return headed(out.append(kEot), turns);
}

std::string llama3_1(Turns turns, const Setting& setting) {
  return llama3_dated(turns, setting, "26 Jul 2024");
}

std::string llama3_2(Turns turns, const Setting& setting) {
  std::array<char, 32> date{};
  std::tm local{};
  localtime_r(&setting.now, &local);
  return llama3_dated(turns, setting,
                      {date.data(), std::strftime(date.data(), date.size(), "%d %b %Y", &local)});
}

// ---- Mistral

/// How the versions of Mistral's format differ.
struct Mistral {
  std::string_view before, after;                  // around a question
  std::string_view answer, end;                    // around an answer, the latter after eos_token
  bool trims = false;                              // answers
  enum { refused, first, last } system = refused;  // the question that the system message is put in front of
};

std::string mistral(Turns turns, const Setting& setting, const Mistral& form) {
  std::string_view system;
  const bool has_system = form.system != Mistral::refused && begins_with_system(turns);
  if (has_system) {
    system = turns.front().content;
    turns = turns.subspan(1);
  }
  std::string out(setting.begin);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto& [role, content] = turns[i];
    if ((role == "user") != (i % 2 == 0))
      throw std::runtime_error(
          "conversation roles must alternate user/assistant/user/assistant/..." +
          std::string(form.system == Mistral::refused ? ", without a system message" : ""));
    if (role != "user") {
      put(out, {form.answer, form.trims ? trim(content) : content, setting.end, form.end});
      continue;
    }
    out += form.before;
    if (has_system && i == (form.system == Mistral::first ? 0 : turns.size() - 1)) put(out, {system, "\n\n"});
    put(out, {content, form.after});
  }
  return out;
}

std::string mistral_0_1(Turns turns, const Setting& setting) {
  return mistral(turns, setting, {.before = "[INST] ", .after = " [/INST]", .answer = "", .end = " "});
}
std::string mistral_0_2(Turns turns, const Setting& setting) {
  return mistral(turns, setting, {.before = "[INST] ", .after = " [/INST]", .answer = "", .end = ""});
}
std::string mistral_v1(Turns turns, const Setting& setting) {
  return mistral(
      turns, setting,
      {.before = " [INST] ", .after = " [/INST]", .answer = " ", .end = "", .system = Mistral::first});
}
std::string mistral_v3(Turns turns, const Setting& setting) {
  return mistral(turns, setting,
                 {.before = "[INST] ",
                  .after = "[/INST]",
                  .answer = " ",
                  .end = "",
                  .trims = true,
                  .system = Mistral::last});
}
std::string mistral_nemo(Turns turns, const Setting& setting) {
  return mistral(turns, setting,
                 {.before = "[INST]", .after = "[/INST]", .answer = "", .end = "", .system = Mistral::last});
}

std::string mistral_v7(Turns turns, const Setting& setting) {
  std::string out(setting.begin);
  for (const auto& [role, content] : turns)
    if (role == "user")
      put(out, {"[INST] ", content, "[/INST]"});
    else if (role == "system")
      put(out, {"[SYSTEM_PROMPT] ", content, "[/SYSTEM_PROMPT]"});
    else
      put(out, {" ", content, setting.end});
  return out;
}

struct Known {
  std::string_view fingerprint;
  KnownTemplate render;
};

// Some texts are there twice: with \n in their strings, and with line breaks in place of these.
constexpr Known kKnown[] = {
    {"a41d6bae9b9141bc-199", plain_chatml},  {"88bf4138d5c826f0-196", plain_chatml},
    {"17fde6ecda9c7c01-294", plain_chatml},  {"773d13e188afc917-291", plain_chatml},
    {"09b5156a5cf6abfc-373", smollm2},       {"45ec583d4d25bc3a-368", smollm2},
    {"af82eb57e8662e59-332", qwen1_5},       {"c867da37c989d41f-327", qwen1_5},
    {"75e88977b2787cd7-333", qwen2},         {"8a87094e0e1e24c5-328", qwen2},
    {"e642ce246d7f2e3d-2506", qwen2_5},      {"2bfdb7aa9754484e-4116", qwen3},
    {"74891e390e614ae2-348", llama3},        {"32844fd43eab01d2-393", llama3},
    {"0e60067a5537498e-389", llama3},        {"60b6f54caafc7e66-352", llama3},
    {"cc0368e1ffb6b958-4613", llama3_1},     {"368f4c34b8554414-3826", llama3_2},
    {"c730acc029ce6ee0-477", mistral_0_1},   {"8c734b90b4f8d84d-470", mistral_0_2},
    {"46eac0bf5c765c47-1057", mistral_v1},   {"2487e6e79d6345cf-3958", mistral_v3},
    {"20783e9d94168233-3944", mistral_nemo}, {"e4a9cc594604808a-423", mistral_v7},
};

}  // namespace

std::string template_fingerprint(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i)
    if (source[i] != '\r')
      text += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      text += '\n';
  if (text.ends_with('\n')) text.pop_back();
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) out[i] = "0123456789abcdef"[hash & 15];
  return out + "-" + std::to_string(text.size());
}

KnownTemplate find_known_template(std::string_view fingerprint) {
  const auto found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [&](const Known& known) { return known.fingerprint == fingerprint; });
  return found == std::end(kKnown) ? nullptr : found->render;
}

}  // namespace specula_tools
