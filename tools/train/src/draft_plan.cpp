// SPDX-License-Identifier: MIT
#include "draft_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <specula/files/json_fields.hpp>
#include <stdexcept>

#include "files.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

constexpr double kTextShare = 0.35, kMeasureShare = 0.1;
constexpr const char* kMaxGram = "cost-aware:chain:10@max-gram";

std::string minutes(double hours) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", 60 * hours);
  return text;
}

template <class... Rest>
std::vector<std::string> words(std::vector<std::string> first, const Rest&... rest) {
  (first.insert(first.end(), rest.begin(), rest.end()), ...);
  return first;
}

bool is_head(const std::string& method) { return method == "hass" || method == "eagle"; }

using Words = std::vector<std::string>;

/// A plan so far, with the folders that its stages read and write.
struct Plan {
  const DraftRequest& request;
  const Programs& programs;
  fs::path out, target;
  std::string prompts, text;
  std::vector<Stage> stages = {};

  Plan(const DraftRequest& of, const Programs& by)
      : request(of),
        programs(by),
        out(of.output),
        target(of.target),
        prompts((out / "prompts").string()),
        text((out / "text").string()) {}

  /// The target as a folder.
  void add_folder() {
    if (!fs::is_regular_file(target)) return;
    if (programs.specula.empty())
      throw std::invalid_argument(
          target.string() +
          ": a GGUF file, of which the program specula makes a folder; it was not found: "
          "--specula FILE names it");
    target = out / "target";
    stages.push_back({.name = "folder",
                      .calls = {{programs.specula, {"convert", request.target.string(), target.string()}}}});
  }

  /// What the target is asked.
  void add_prompts() {
    const auto corpus = (out / "corpus").string();
    Stage asked{.name = "prompts", .calls = {}};
    Words make{"prompts", "--target", target.string(), "--output", prompts};
    if (!request.texts.empty()) {
      Words read{"corpus", "--output", corpus};
      for (const auto& style : request.texts) read = words(read, Words{"--style", style});
      asked.calls.push_back({programs.text, read});
      make = words(make, Words{"--data", corpus});
      for (const auto& ask : request.asks) make = words(make, Words{"--ask", ask});
    }
    asked.calls.push_back({programs.text, make});
    stages.push_back(std::move(asked));
  }

  /// The text that the target writes, without prompts of an evaluation. Returns the file of held-out
  /// questions.
  std::string add_text(double hours) {
    const auto drawn = (out / "drawn").string(), questions = (out / "heldout.jsonl").string();
    stages.push_back({.name = "text",
                      .hours = hours,
                      .calls = {{programs.train,
                                 {"sample", "--target", target.string(), "--prompts", prompts, "--output",
                                  drawn, "--minutes", minutes(hours), "--resume"}}}});
    Words leave_out{"unlike", "--data", drawn, "--output", text};
    for (const auto& file : request.evaluation)
      leave_out = words(leave_out, Words{"--prompts", file.string()});
    stages.push_back(
        {.name = "check",
         .calls = {{programs.text, leave_out},
                   {programs.text, {"heldout", "--data", text, "--frame", prompts, "--output", questions}}}});
    return questions;
  }

  /// A training. Returns the draft's folder.
  fs::path add_training(const std::string& name, double hours, const Words& command) {
    stages.push_back({.name = name,
                      .hours = hours,
                      .calls = {{programs.train,
                                 words(command,
                                       Words{"--target", target.string(), "--data", text, "--output",
                                             (out / name).string(), "--minutes", minutes(hours), "--resume"},
                                       request.training)}}});
    return out / name / "export";
  }

  /// The trainings of a method.
  fs::path add_trainings(double hours) {
    const auto& method = request.method;
    if (method == "glide")
      return add_training("glide", hours, {"glide", "--name", "glide", "--loss", "target"});
    if (method == "plain")
      return add_training("plain", hours, {"model", "--name", "plain", "--loss", "target"});
    const bool aligned = method == "hass";
    const fs::path eagle = add_training("eagle", hours * (aligned ? 0.4 : 1),
                                        {"head", "--name", "eagle", "--alignment", "1", "--top-k-weight", "0",
                                         "--cross-entropy-weight", "0.1"});
    return aligned ? add_training("hass", hours * 0.6, {"head", "--name", "hass", "--init", eagle.string()})
                   : eagle;
  }

  /// The draft in 8 bits, and what it gains, by the programs that there are.
  void add_figures(const fs::path& draft, const std::string& questions) {
    if (programs.specula.empty()) return;
    const fs::path models = out / "models";
    stages.push_back(
        {.name = "8 bits",
         .calls = {{programs.specula, {"quantize", draft.string(), (models / request.method).string()}}}});
    std::string names;
    for (const auto& name : pipelines_of(request.method)) names += (names.empty() ? "" : " ") + name;
    stages.push_back({.name = "measure",
                      .hours = request.hours * kMeasureShare,
                      .calls = {{programs.specula,
                                 {"compare", "--target", target.string(), "--models", models.string(),
                                  "--prompts", questions, "--limit", "8", "--max-new-tokens", "96",
                                  "--pipelines", names, "--json", (out / "figures.json").string()}}}});
  }
};

}  // namespace

std::vector<Stage> plan_draft(const DraftRequest& request, const Programs& programs) {
  const auto& method = request.method;
  if (!is_head(method) && method != "glide" && method != "plain")
    throw std::invalid_argument("--method " + method + ": expected hass, eagle, glide or plain");
  if (!(request.hours > 0)) throw std::invalid_argument("--hours: expected a time above 0");
  const double left = request.hours * (1 - (programs.specula.empty() ? 0 : kMeasureShare));
  const double text_hours = left * kTextShare;
  Plan plan(request, programs);
  plan.add_folder();
  plan.add_prompts();
  const std::string questions = plan.add_text(text_hours);
  const fs::path draft = plan.add_trainings(left - text_hours);
  plan.add_figures(draft, questions);
  return std::move(plan.stages);
}

Needs needs_of(const DraftRequest& request, const DecoderConfig& target) {
  const auto parameters = static_cast<double>(
      target.vocab_size * target.hidden * (target.tied_head ? 1 : 2) +
      target.layers * (target.hidden * target.head_dim() * 2 * (target.heads + target.kv_heads) +
                       3 * target.hidden * target.intermediate));
  // 128 texts of 1,024 tokens, in 16 bits; and about 1,000 tokens a second, of which states are kept.
  const double cache =
      2.0 * 128 * 1024 * 2 * static_cast<double>(target.layers * target.kv_heads * target.head_dim());
  const double tokens = 3600 * request.hours * kTextShare * 1000;
  const double states = is_head(request.method) ? tokens * 2 * static_cast<double>(target.hidden) : 0;
  return {.disk = tokens * 8 + 1e8, .memory = 4 * parameters + std::max(cache, 2e9 + states)};
}

std::vector<std::string> pipelines_of(const std::string& method) {
  const std::string chain = "chain:2@" + method, longer = "chain:4@" + method,
                    paying = "cost-aware:chain:8@" + method;
  return {kMaxGram, chain, longer, paying, paying + ",max-gram"};
}

std::string verdict(const fs::path& file, const std::string& method) {
  const auto json = specula::files::parse_json(specula_tools::read_file(file), file.string());
  const specula::files::JsonFields all(json, file.string());
  char line[320];
  std::string out, best, best_draft;
  double plain = 0, most = 1, most_draft = 0, cost = 0;
  std::snprintf(line, sizeof line, "%-36s %6s %9s %8s  %s\n", "pipeline", "MAT", "speedup", "T(n)",
                "acceptance by depth");
  out += line;
  for (const auto& entry : all.array("pipelines", "pipelines")) {
    const specula::files::JsonFields row(entry, file.string());
    const auto name = row.text("name");
    const double speedup = row.number("speedup"), pass = row.number("target_milliseconds_per_call");
    if (plain == 0) plain = pass;  // the first is plain decoding
    std::string depths;
    for (const auto& depth : row.array("acceptance_by_depth", "numbers or null"))
      if (depth.is_number() && depths.size() < 40) {
        char number[16];
        std::snprintf(number, sizeof number, "%.2f ", depth.get<double>());
        depths += number;
      }
    const bool drafts = name.find(method) != name.npos;
    for (const auto& draft : row.array("drafts", "drafts"))
      if (const specula::files::JsonFields fields(draft, file.string());
          name.starts_with("chain:") && fields.text("model") == method)
        cost = fields.number("cost_coefficient");
    std::snprintf(line, sizeof line, "%-36s %6.2f %8.2fx %8.2f  %s\n", name.c_str(), row.number("mat"),
                  speedup, plain > 0 ? pass / plain : 0, depths.c_str());
    out += line;
    if (speedup > most) most = speedup, best = name;
    if (drafts && speedup > most_draft) most_draft = speedup, best_draft = name;
  }
  std::snprintf(line, sizeof line, "a step of the draft costs %.3f passes of the target (c)\n", cost);
  out += line;
  if (best.find(method) == best.npos) {
    std::snprintf(
        line, sizeof line,
        "The draft does not pay here: at its best, %s, the text is written %.2f times as fast as without; "
        "%s\n",
        best_draft.c_str(), most_draft,
        best.empty() ? "nothing else pays either." : (best + " needs no training and is faster.").c_str());
    return out + line;
  }
  std::snprintf(line, sizeof line, "Use --pipeline %s: %.2f times as fast as plain decoding.\n", best.c_str(),
                most);
  return out + line;
}

}  // namespace specula_train
