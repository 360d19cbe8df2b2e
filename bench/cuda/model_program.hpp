// SPDX-License-Identifier: MIT
// A program that measures a model on a GPU and is host code alone: parts, each with its JSON.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace specula_bench {

/// Runs the parts, in objects of their names; 1 if one fails. PROGRAM model [--out FILE] [--seed N] [--part
/// NAME]
inline int run_parts(int argc, char** argv,
                     const std::vector<std::pair<std::string, std::function<void(Json&)>>>& parts) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // a time limit may end us at any time
  std::string out, only;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--out") out = argv[i + 1];
    if (std::string(argv[i]) == "--part") only = argv[i + 1];
  }
  int failed = 0;
  Json json;
  json.begin_object();
  for (const auto& [name, part] : parts) {
    if (!only.empty() && only != name) continue;
    std::printf("-- %s\n", name.c_str());
    Json before = json;
    try {
      part(json.key(name).begin_object());
      json.end();
    } catch (const std::exception& error) {
      json = std::move(before);
      json.key(name).begin_object().field("error", std::string(error.what())).end();
      std::printf("| %s | ERROR: %s |\n", name.c_str(), error.what());
      ++failed;
    }
    if (!out.empty() && !json.save(out)) ++failed;
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace specula_bench
