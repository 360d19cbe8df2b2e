// SPDX-License-Identifier: MIT
// specula: one program, whose commands are those of command.hpp.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "errors.hpp"
#include "manual.hpp"
#include "old_names.hpp"
#include "options.hpp"

namespace {

using namespace specula_tools;

/// The program's options, and all commands with theirs.
struct Program {
  CLI::App app{"Speculative decoding of language models.", "specula"};
  std::vector<Body> bodies;
  std::string manual;

  Program() {
    app.require_subcommand(0, 1);
    for (const Command& command : kCommands)
      bodies.push_back(command.add(*app.add_subcommand(command.name, command.summary)));
    app.add_option("--manual", manual, "Print the manual page (man) or the completion of a shell (bash)")
        ->check(CLI::IsMember({"man", "bash"}))
        ->group("");
    app.footer("specula COMMAND --help has the options of a command.");
  }

  int run(const std::vector<std::string>& words) {
    if (parse_command_line(app, words)) return 0;
    if (!manual.empty()) {
      std::cout << (manual == "man" ? manual_page(app) : bash_completion(app));
      return 0;
    }
    for (std::size_t c = 0; c < bodies.size(); ++c)
      if (app.get_subcommand(kCommands[c].name)->parsed()) return bodies[c]();
    throw UsageError("no command; there are " + command_names(app));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words = as_specula(std::vector<std::string>(argv, argv + argc));
  const auto is_first = [&](const Command& command) {
    return !words.empty() && words.front() == command.name;
  };
  const bool known = std::any_of(std::begin(kCommands), std::end(kCommands), is_first);
  const std::string name = known ? "specula " + words.front() : "specula";
  return run_program(name.c_str(), [&] { return Program().run(words); });
}
