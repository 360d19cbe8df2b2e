// SPDX-License-Identifier: MIT
// specula-train: trains the models of the pack on the tokens that specula-train-text wrote.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "machine.hpp"
#include "training_loop.hpp"

int main(int argc, char** argv) {
  specula_train::prepare_process(argv);
  CLI::App app{"Trains small language models for speculative decoding"};
  app.require_subcommand(1);
  specula_train::add_draft_command(app);
  specula_train::add_model_commands(app);
  specula_train::add_glide_command(app);
  specula_train::add_head_command(app);
  specula_train::add_sample_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "specula-train: %s\n", error.what());
    return 1;
  }
  return specula_train::stop_was_requested() ? 130 : 0;  // a script must not take it for finished
}
