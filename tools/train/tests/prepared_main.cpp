// SPDX-License-Identifier: MIT
// The tests of models begin as specula-train does.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "machine.hpp"

int main(int argc, char** argv) {
  specula_train::prepare_process(argv);
  return doctest::Context(argc, argv).run();
}
