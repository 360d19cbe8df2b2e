// SPDX-License-Identifier: MIT
// `specula-train draft`: from a target to a draft for it, in one command.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "commands.hpp"
#include "draft_plan.hpp"
#include "machine.hpp"
#include "states_cache.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;

fs::path folder_of_programs() {
  std::error_code error;
  const auto self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw std::runtime_error("/proc/self/exe: cannot be read, so specula-train-text is not found");
  return self.parent_path();
}

/// Where the program `specula` is: `given`, or where the build beside this program's has it; an empty path:
/// nowhere.
fs::path find_specula(const fs::path& given) {
  const auto own = folder_of_programs();
  for (const auto& file : {given, own / "../../bin/specula", own / "../release/bin/specula"})
    if (fs::is_regular_file(file)) return fs::weakly_canonical(file);
  return {};
}

Programs find_programs(const fs::path& given) {
  const auto own = folder_of_programs();
  const Programs programs{
      .train = own / "specula-train", .text = own / "specula-train-text", .specula = find_specula(given)};
  if (!fs::exists(programs.text))
    throw std::runtime_error(programs.text.string() + ": is not there; build it beside this program");
  if (!given.empty() && !fs::is_regular_file(given))
    throw std::invalid_argument("--specula " + given.string() + ": there is no such file");
  return programs;
}

void draft(const DraftRequest& request, const fs::path& given) {
  const auto programs = find_programs(given);
  const auto stages = plan_draft(request, programs);
  const auto needs = needs_of(request, read_config(request.target));
  std::printf("A %s draft for %s, in %s\n", request.method.c_str(), request.target.c_str(),
              request.output.c_str());
  for (const auto& stage : stages)
    if (stage.hours > 0) std::printf("  %-10s %5.2f hours\n", stage.name.c_str(), stage.hours);
  std::printf("  %-10s about %.1f GB of memory (%.1f free), %.1f GB of disk\n", "needs", needs.memory / 1e9,
              static_cast<double>(free_memory()) / 1e9, needs.disk / 1e9);
  if (programs.specula.empty())
    std::printf(
        "  neither 8 bits nor measured: the program specula was not found; --specula FILE names it\n");
  std::fflush(stdout);
  if (needs.memory > static_cast<double>(free_memory()))
    std::fprintf(stderr, "warning: that is more memory than is free\n");

  Stages done(request.output / "stages");
  for (const auto& stage : stages)
    if (!done.run(stage.name, stage.calls)) return;
  if (const auto figures = request.output / "figures.json"; fs::exists(figures)) {
    std::printf("\n%s", verdict(figures, request.method).c_str());
    std::printf("Run it with --target %s --models %s\n", request.target.c_str(),
                (request.output / "models").c_str());
  }
}

}  // namespace

void add_draft_command(CLI::App& app) {
  auto* command = app.add_subcommand("draft",
                                     "From a target to a draft for it: lets it write text, trains on that, "
                                     "and measures what it gives. The same command goes on "
                                     "where it was stopped");
  const auto request = std::make_shared<DraftRequest>();
  const auto specula = std::make_shared<fs::path>();
  command->add_option("--target", request->target, "The target's Hugging Face directory, or a GGUF file")
      ->required();
  command->add_option("--output", request->output, "Folder for all that is made")->required();
  command->add_option("--method", request->method, "hass, eagle, glide or plain")->capture_default_str();
  command->add_option("--hours", request->hours, "For all of it")->capture_default_str();
  command->add_option("--text", request->texts,
                      "NAME=FOLDER_OR_FILE, may be repeated: text that the target goes on with, besides "
                      "questions that it asks itself");
  command->add_option("--ask", request->asks,
                      "NAME=TEXT, may be repeated: a question with {} in the place of a piece of that text");
  command->add_option("--evaluation", request->evaluation,
                      "FILE.jsonl, may be repeated: prompts of an evaluation; texts that share 13 words in a "
                      "row with one are left out");
  command->add_option("--specula", *specula, "The program specula: build/release/bin/specula, say");
  command->add_option("training", request->training,
                      "After --: further options of the training, such as --batch 8");
  command->callback([request, specula] { draft(*request, *specula); });
}

}  // namespace specula_train
