// SPDX-License-Identifier: MIT
#include "manual.hpp"

#include <string_view>

#include "options.hpp"

namespace specula_tools {
namespace {

/// Text of a manual page: no character of it is a command.
std::string escaped(std::string_view text) {
  std::string out;
  bool begins = true;  // a line
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

/// "-m, --target VALUE"
std::string heading(const CLI::Option& option) {
  std::string names = option.get_name(true, true);
  for (auto at = names.find(','); at != std::string::npos; at = names.find(',', at + 2))
    names.replace(at, 1, ", ");
  if (option.get_expected_max() > 0 && !option.get_lnames().empty()) names += " VALUE";
  return names;
}

void add_options_of(const CLI::App& app, std::string& page) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    page += ".TP\n.B " + escaped(heading(*option)) + "\n" + escaped(option->get_description());
    if (const std::string given = option->get_default_str(); !given.empty())
      page += escaped(" (default: " + given + ")");
    if (const std::string& group = option->get_group(); group.starts_with("With "))
      page += escaped(". " + group);
    page += "\n";
  }
}

std::string long_names(const CLI::App& app) {
  std::string names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (!option->get_group().empty()) names.append(names.empty() ? "" : " ").append("--").append(name);
  return names;
}

}  // namespace

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({}))
    names.append(names.empty() ? "" : ", ").append(command->get_name());
  return names;
}

std::string manual_page(const CLI::App& app) {
  std::string page = ".TH SPECULA 1 \"\" \"specula " + version_text() + "\"\n.SH NAME\nspecula \\- " +
                     escaped(app.get_description()) + "\n.SH SYNOPSIS\n.B specula\n.I command\n[options]\n" +
                     ".SH OPTIONS\n";
  add_options_of(app, page);
  for (const CLI::App* command : app.get_subcommands({})) {
    page +=
        ".SH \"SPECULA " + escaped(command->get_name()) + "\"\n" + escaped(command->get_description()) + "\n";
    add_options_of(*command, page);
    if (const std::string footer = command->get_footer(); !footer.empty())
      page += ".PP\n.nf\n" + escaped(footer) + "\n.fi\n";
  }
  return page;
}

std::string bash_completion(const CLI::App& app) {
  std::string names = command_names(app), cases;
  std::erase(names, ',');
  for (const CLI::App* command : app.get_subcommands({}))
    cases += "    " + command->get_name() + ") words='" + long_names(*command) + "' ;;\n";
  return "# Completion of specula's commands and options for bash.\n_specula() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} words=\n  case ${COMP_WORDS[1]} in\n" +
         cases + "  esac\n  [ \"$COMP_CWORD\" -gt 1 ] || words='" + names + " " + long_names(app) +
         "'\n  case $word in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
         "    *) [ \"$COMP_CWORD\" -gt 1 ] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
         "  esac\n}\ncomplete -o default -F _specula specula\n";
}

}  // namespace specula_tools
