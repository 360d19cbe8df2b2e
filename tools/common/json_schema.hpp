// SPDX-License-Identifier: MIT
// A JSON schema as a grammar of llama.cpp's.
#pragma once

#include <string>

namespace specula_tools {

/// In GBNF, by llama.cpp's own converter, which scripts/llama_cpp builds: what it knows of JSON schema is
/// known here. `source` names the file in messages. Throws std::runtime_error naming it for what is no JSON,
/// for a schema that the converter does not know, and where this program was built without it.
std::string grammar_of_schema(const std::string& schema, const std::string& source);

}  // namespace specula_tools
