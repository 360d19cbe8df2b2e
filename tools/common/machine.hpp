// SPDX-License-Identifier: MIT
// The machine that figures are from.
#pragma once

#include <fstream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

namespace specula_tools {

/// {"cpu": "AMD EPYC ...", "cores": 2}. The name is empty where /proc/cpuinfo has none.
inline nlohmann::ordered_json machine_json() {
  std::ifstream in("/proc/cpuinfo");
  std::string cpu;
  for (std::string line; cpu.empty() && std::getline(in, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      cpu = line.substr(colon + 2);
  return {{"cpu", cpu}, {"cores", std::thread::hardware_concurrency()}};
}

}  // namespace specula_tools
