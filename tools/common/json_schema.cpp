// SPDX-License-Identifier: MIT
#include "json_schema.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <vector>

#ifdef SPECULA_HAS_JSON_SCHEMA

#include <json-schema-to-grammar.h>

// What the converter takes of llama.cpp's common.cpp, of which nothing else is needed.
std::string string_join(const std::vector<std::string>& parts, const std::string& between);
std::vector<std::string> string_split(const std::string& text, const std::string& between);
std::string string_repeat(const std::string& text, std::size_t times);

std::string string_join(const std::vector<std::string>& parts, const std::string& between) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? between : "") + parts[i];
  return out;
}

std::vector<std::string> string_split(const std::string& text, const std::string& between) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(between, begin)) != text.npos; begin = at + between.size())
    out.push_back(text.substr(begin, at - begin));
  out.push_back(text.substr(begin));
  return out;
}

std::string string_repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string specula_tools::grammar_of_schema(const std::string& schema, const std::string& source) {
  try {
    return json_schema_to_grammar(common_json::parse(schema));
  } catch (const std::exception& error) {
    std::string why = error.what();
    std::replace(why.begin(), why.end(), '\n', ' ');
    throw std::runtime_error(source + ": " + why);
  }
}

#else

std::string specula_tools::grammar_of_schema(const std::string&, const std::string& source) {
  throw std::runtime_error(
      source +
      ": this program was built without llama.cpp's converter of JSON schemas: build it with "
      "-DLLAMA_DIR=$(scripts/llama_cpp)");
}

#endif
