#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "errors.hpp"
#include "prompts.hpp"

using namespace specula_examples;

TEST_CASE("JSON Lines: prompt, question, the first of turns") {
  const auto prompts = parse_prompts(
      "{\"prompt\": \"def f():\\n\", \"question\": \"no\"}\n\n{\"question\": \"How many?\"}\r\n{\"turns\": "
      "[\"One\", \"Two\"]}\n",
      "here");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].put(Style::automatic) == "def f():\n");
  CHECK(prompts[1].put(Style::automatic) == "Question: How many?\nAnswer:");
  CHECK(prompts[2].put(Style::automatic) == "Question: One\nAnswer:");
  CHECK(prompts[1].put(Style::raw) == "How many?");
  CHECK(prompts[0].put(Style::code) == "def f():\n");
}

TEST_CASE("JSON Lines that are wrong are named by file and line") {
  CHECK_THROWS_WITH_AS(parse_prompts("{\"prompt\": \"a\"}\n{\"text\": \"a\"}\n", "p.jsonl"),
                       "p.jsonl:2: has none of the fields prompt, question, turns", std::runtime_error);
  CHECK_THROWS_AS(parse_prompts("{\"prompt\": ", "p.jsonl"), std::runtime_error);
  CHECK_THROWS_AS(parse_prompts("{\"turns\": []}", "p.jsonl"), std::runtime_error);
  CHECK_THROWS_WITH_AS(parse_prompts(" \n\n", "p.txt"), "p.txt: holds no prompt", std::runtime_error);
  CHECK_THROWS_WITH_AS(load_prompts("/"), "/: is a folder, must be a file", std::runtime_error);
  CHECK_THROWS_WITH_AS(load_prompts("no/such/file"), "no/such/file: cannot be opened for reading",
                       std::runtime_error);
}

TEST_CASE("plain text: lines, paragraphs, or blocks between rules") {
  const auto texts = [](const char* text) {
    std::string joined;
    for (const auto& prompt : parse_prompts(text, "here"))
      joined.append("[").append(prompt.put(Style::automatic)).append("]");
    return joined;
  };
  CHECK(texts("one\ntwo\n") == "[one][two]");
  CHECK(texts("\none\ntwo\n\n") == "[one][two]");
  CHECK(texts("one\nmore\n\n\ntwo\n") == "[one\nmore][two]");
  CHECK(texts("one\n\nmore\n---\n---\ntwo") == "[one\n\nmore][two]");
  CHECK(texts("    indented\r\n") == "[    indented]");
}

TEST_CASE("the prompts that come with the sources") {
  const auto prompts = load_prompts(SPECULA_MODELS_DIR "/../prompts/default.jsonl");
  CHECK(prompts.size() == 40);
  CHECK(std::count_if(prompts.begin(), prompts.end(),
                      [](const Prompt& prompt) { return prompt.kind == Style::question; }) == 20);
}

TEST_CASE("styles by name") {
  CHECK(parse_style("auto") == Style::automatic);
  CHECK(Prompt{"def f():", Style::raw}.put(parse_style("code")) == "def f():\n");
  CHECK_THROWS_AS(parse_style("poem"), UsageError);
}

TEST_CASE("several files, so many prompts of each, as the model gets them") {
  const std::string file = SPECULA_MODELS_DIR "/../prompts/default.jsonl";
  const auto all = load_prompts(file);
  const auto some = put_prompts({file, file}, 3, Style::automatic);
  REQUIRE(some.size() == 6);
  for (std::size_t i = 0; i < some.size(); ++i) CHECK(some[i] == all[i % 3].put(Style::automatic));
  CHECK(put_prompts({file}, 0, Style::raw).size() == all.size());
  CHECK(put_prompts({file}, 0, Style::raw)[0] == all[0].text);
}
