// SPDX-License-Identifier: MIT
// Files of prompts: formats, categories, development prompts.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "errors.hpp"
#include "prompts.hpp"
#include "skip.hpp"

using namespace specula_tools;

namespace {

std::string joined(const std::vector<Prompt>& prompts) {
  std::string text;
  for (const Prompt& prompt : prompts) text.append(text.empty() ? "" : " ").append(prompt.text);
  return text;
}

/// A file of prompts in a temporary folder.
struct PromptFile {
  std::filesystem::path folder, file;
  PromptFile(const std::string& name, const std::string& text)
      : folder(std::filesystem::temp_directory_path() / ("specula_prompts_" + name)),
        file(folder / (name + ".jsonl")) {
    std::filesystem::create_directories(folder);
    std::ofstream(file) << text;
  }
  ~PromptFile() { std::filesystem::remove_all(folder); }
};

/// Prompts a0, b0, a1, b1, ... of the categories a and b.
std::string two_categories(int each) {
  std::string text;
  for (int i = 0; i < each; ++i)
    for (const char* name : {"a", "b"})
      text.append("{\"category\": \"")
          .append(name)
          .append("\", \"turns\": [\"")
          .append(name)
          .append(std::to_string(i))
          .append("\", \"second\"]}\n");
  return text;
}

}  // namespace

TEST_CASE("categories: the field, else folder and name of the file") {
  const auto prompts = parse_prompts(
      "{\"question\": \"x\", \"category\": \"math\"}\n{\"prompt\": \"y\"}\n{\"turns\": [\"z\"], "
      "\"category\": \"\"}\n",
      "data/gsm8k/test.jsonl");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].category == "math");
  CHECK(prompts[1].category == "gsm8k/test");
  CHECK(prompts[2].category == "gsm8k/test");
  CHECK(parse_prompts("one\n", "words.txt")[0].category == "words");
  CHECK_THROWS_AS(parse_prompts("{\"prompt\": \"a\", \"category\": 3}", "p.jsonl"), std::runtime_error);
}

TEST_CASE("development prompts are never reported on") {
  const PromptFile file("split", two_categories(4));
  const std::vector<std::string> files{file.file.string()};
  const auto all = split_prompts(files, {});
  CHECK(all.dev.empty());
  CHECK(joined(all.test) == "a0 b0 a1 b1 a2 b2 a3 b3");
  const auto some = split_prompts(files, {.skip = 1, .dev = 3, .limit = 2});
  CHECK(joined(some.dev) == "b0 a1 b1");
  CHECK(joined(some.test) == "a2 b2");
  const auto each = split_prompts(files, {.skip = 1, .dev = 1, .limit = 1, .by_category = true});
  CHECK(joined(each.dev) == "a1 b1");
  CHECK(joined(each.test) == "a2 b2");
  CHECK(joined(split_prompts(files, {.limit = 3, .by_category = true}).test) == "a0 a1 a2 b0 b1 b2");
  CHECK(joined(split_prompts(files, {.skip = 1, .limit = 2, .categories = {"b"}}).test) == "b1 b2");
  CHECK_THROWS_WITH_AS(split_prompts(files, {.categories = {"b", "c"}}), "no prompt is of the category 'c'",
                       UsageError);
}

TEST_CASE("a development prompt that is also in another file is not reported on") {
  const PromptFile one("one", two_categories(2)), two("two", two_categories(3));
  const auto split = split_prompts({one.file.string(), two.file.string()}, {.dev = 3, .limit = 2});
  CHECK(joined(split.dev) == "a0 b0 a1 a0 b0 a1");
  CHECK(joined(split.test) == "b1 b1 a2");
}

TEST_CASE("an error names the file and the category of a split without prompts to report on") {
  const PromptFile file("few", two_categories(2));
  const std::string name = file.file.string();
  CHECK_THROWS_WITH_AS(split_prompts({name}, {.skip = 1, .dev = 3}),
                       (name + ": of 4 prompts, --skip 1 and --dev 3 leave no prompt to report on").c_str(),
                       UsageError);
  CHECK_THROWS_WITH_AS(
      split_prompts({name}, {.dev = 2, .by_category = true}),
      (name + ", category a: of 2 prompts, --skip 0 and --dev 2 leave no prompt to report on").c_str(),
      UsageError);
}

TEST_CASE("MT-bench and Spec-Bench as they are published") {
  const std::filesystem::path data = std::filesystem::path(SPECULA_SHARED_DIR) / "data";
  if (!std::filesystem::exists(data)) return specula_test::skip("no data sets");
  const auto count = [&](const char* folder, const char* category) {
    const auto prompts = load_prompts(data / folder / "question.jsonl");
    return std::count_if(prompts.begin(), prompts.end(), [&](const Prompt& p) {
      return p.category == category && p.kind == Style::question;
    });
  };
  CHECK(count("mt_bench", "writing") == 10);
  CHECK(count("spec_bench", "translation") == 80);
  CHECK(count("spec_bench", "math_reasoning") == 80);
  CHECK(load_prompts(data / "mt_bench" / "question.jsonl")[0].text.starts_with(
      "Compose an engaging travel blog"));
  CHECK(load_prompts(data / "humaneval" / "HumanEval.jsonl")[0].category == "humaneval/HumanEval");
}

TEST_CASE("JSON Lines: prompt, question, the first of turns") {
  const auto prompts = parse_prompts(
      "{\"prompt\": \"def f():\\n\", \"question\": \"no\"}\n\n{\"question\": \"How many?\"}\r\n{\"turns\": "
      "[\"One\", \"Two\"]}\n",
      "here");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].put(Style::automatic) == "def f():\n");
  CHECK(prompts[1].put(Style::automatic) == "Question: How many?\nAnswer:");
  CHECK(prompts[2].put(Style::automatic) == "Question: One\nAnswer:");
  CHECK(prompts[2].later == std::vector<std::string>{"Two"});
  CHECK(prompts[1].later.empty());
  CHECK(prompts[1].put(Style::raw) == "How many?");
  CHECK(prompts[0].put(Style::code) == "def f():\n");
}

TEST_CASE("errors of JSON Lines name file and line") {
  CHECK_THROWS_WITH_AS(parse_prompts("{\"prompt\": \"a\"}\n{\"text\": \"a\"}\n", "p.jsonl"),
                       "p.jsonl:2: has none of the fields prompt, question, turns", std::runtime_error);
  CHECK_THROWS_AS(parse_prompts("{\"prompt\": ", "p.jsonl"), std::runtime_error);
  CHECK_THROWS_AS(parse_prompts("{\"turns\": []}", "p.jsonl"), std::runtime_error);
  CHECK_THROWS_WITH_AS(parse_prompts(" \n\n", "p.txt"), "p.txt: holds no prompt", std::runtime_error);
  CHECK_THROWS_WITH_AS(load_prompts("/"), "/: is a folder, must be a file", std::runtime_error);
  CHECK_THROWS_WITH_AS(load_prompts("no/such/file"), "no/such/file: cannot be opened for reading",
                       std::runtime_error);
}

TEST_CASE("JSON Lines: null counts as absent; messages name the field") {
  CHECK(
      parse_prompts("{\"prompt\": null, \"question\": \"How many?\", \"category\": null}", "data/p.jsonl")[0]
          .put(Style::automatic) == "Question: How many?\nAnswer:");
  const auto error = [](const char* line) -> std::string {
    try {
      parse_prompts(std::string("{\"prompt\": \"a\"}\n") + line, "p.jsonl");
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
    return "nothing";
  };
  CHECK(error("{\"prompt\": \"x\", \"category\": 3}") ==
        "p.jsonl:2: key 'category': expected a string, found 3");
  CHECK(error("{\"prompt\": [\"a\", \"b\"]}") ==
        "p.jsonl:2: key 'prompt': expected a string, found an array of 2");
  CHECK(error("{\"turns\": []}") ==
        "p.jsonl:2: key 'turns': expected strings, at least one, found an array of 0");
  CHECK(error("{\"turns\": [null]}") ==
        "p.jsonl:2: key 'turns': expected strings, at least one, found [null]");
  CHECK(error("{\"turns\": [\"a\", 7]}") ==
        "p.jsonl:2: key 'turns': expected strings, at least one, found an array of 2");
  CHECK(error("{\"prompt\": null}") == "p.jsonl:2: has none of the fields prompt, question, turns");
  CHECK(error("[1]") == "p.jsonl:2: expected a JSON object, found [1]");
  CHECK(error("{\"prompt\": ").starts_with("p.jsonl:2: offset 11: "));
}

TEST_CASE("a byte order mark is no part of a text; what is not read as meant is refused") {
  const std::string mark = "\xef\xbb\xbf";
  CHECK(joined(parse_prompts(mark + "{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n", "p.jsonl")) ==
        "one two");
  CHECK(joined(parse_prompts(mark + "one\ntwo\n", "p.txt")) == "one two");
  const auto error = [](const std::string& text) -> std::string {
    try {
      return "prompts: " + joined(parse_prompts(text, "p"));
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
  };
  for (const bool little : {true, false})
    for (const bool marked : {true, false}) {
      std::string wide = marked ? little ? "\xff\xfe" : "\xfe\xff" : "";
      for (const char c : std::string("{\"prompt\": \"one\"}\n"))
        little ? wide.append(1, c).append(1, '\0') : wide.append(1, '\0').append(1, c);
      CHECK(error(wide).starts_with("p: is in UTF-16"));
    }
  for (const char* array :
       {"[{\"prompt\": \"one\"},\n {\"prompt\": \"two\"}]\n", " [\n  {\n\"prompt\": \"one\"\n}]",
        "[\"one\", \"two\"]", "[[\"one\"]]", "[\"cut off", "[]", "[1, 2]"})
    CHECK(error(array).starts_with("p: is a JSON array, which is not read as plain text: write JSON Lines"));
  for (const char* lines : {"# prompts\n{\"prompt\": \"one\"}\n", "one\n  {\"prompt\": \"two\"},\n"})
    CHECK(error(lines).starts_with("p:2: is a JSON object, which is not read as plain text"));
  // Texts that only look a little like it.
  CHECK(error("[INST] one [/INST]\n[INST] two [/INST]\n") ==
        "prompts: [INST] one [/INST] [INST] two [/INST]");
  CHECK(error("int main()\n{\n  {}\n}\n---\n") == "prompts: int main()\n{\n  {}\n}");
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

TEST_CASE("several files, a limited number of prompts from each") {
  const std::string file = SPECULA_MODELS_DIR "/../prompts/default.jsonl";
  const auto all = load_prompts(file);
  const auto some = split_prompts({file, file}, {.limit = 3}).test;
  REQUIRE(some.size() == 6);
  for (std::size_t i = 0; i < some.size(); ++i)
    CHECK(some[i].put(Style::automatic) == all[i % 3].put(Style::automatic));
  CHECK(split_prompts({file}, {}).test.size() == all.size());
}
