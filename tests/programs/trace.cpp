// SPDX-License-Identifier: MIT
// labels: long
// specula run --trace: pictures of each round's proposal, and the page that steps through them.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <specula/study/dot.hpp>

#include <specula/pipeline.hpp>
#include "decode.hpp"
#include "skip.hpp"
#include "toy_model.hpp"
#include "trace.hpp"

using namespace specula_tools;
using specula_test::ToyModel;
namespace fs = std::filesystem;

namespace {

class Toys final : public specula::PipelineModels {
 public:
  specula::AnyModel& target() override { return target_.any; }
  specula::AnyModel& draft(const std::string& name) override {
    return drafts_.try_emplace(name, 12, 9u, 1.0f, 256).first->second.any;
  }

 private:
  specula::HeldModel<ToyModel> target_{12, 7u, 2.0f, 256};
  std::map<std::string, specula::HeldModel<ToyModel>> drafts_;
};

/// A temporary folder whose name a shell would misread.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "specula 'trace' $x XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Scratch() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// $PATH, until the end of the block.
class SearchPath {
 public:
  explicit SearchPath(const fs::path& folder) {
    const char* now = std::getenv("PATH");
    before_ = now ? now : "";
    setenv("PATH", folder.c_str(), 1);
  }
  ~SearchPath() { setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

std::string word(Token token) { return std::string(" t").append(std::to_string(token)); }

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The files of a folder, except the page.
std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const auto name = entry.path().filename().string(); name != "trace.html") found.push_back(name);
  std::sort(found.begin(), found.end());
  return found;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Decodes each of `prompts` prompts with `trace` watching. Returns the expected content of each file.
std::map<std::string, std::string> decode_traced(Trace& trace, std::size_t prompts, Toys&& toys = {}) {
  const auto pipeline = specula::prepare_pipeline("dynamic-tree:3:2:9").build(toys, {.temperature = 0.0f});
  std::map<std::string, std::string> expected;
  for (std::size_t p = 0; p < prompts; ++p) {
    int round = 0;
    decode(*pipeline, std::vector<Token>{1, 5, static_cast<Token>(2 + p)}, {.max_new_tokens = 12},
           [&](Tokens fresh, std::size_t) {
             trace.add(*pipeline, p, fresh.size());
             char name[64];
             if (prompts > 1)
               std::snprintf(name, sizeof name, "prompt-%02zu-round-%04d.dot", p + 1, ++round);
             else
               std::snprintf(name, sizeof name, "round-%04d.dot", ++round);
             expected[name] = specula::to_dot(pipeline->proposal(), &pipeline->result(), word);
           });
  }
  return expected;
}

/// The JSON inside the page of a folder.
nlohmann::json data_of(const fs::path& folder) {
  const std::string page = contents(folder / "trace.html");
  const std::string_view open = "<script id=\"data\" type=\"application/json\">";
  const std::size_t begin = page.find(open);
  REQUIRE(begin != std::string::npos);
  const std::size_t end = page.find("</script>", begin);
  REQUIRE(end != std::string::npos);
  return nlohmann::json::parse(page.substr(begin + open.size(), end - begin - open.size()));
}

/// The toy target's probability of a token after a text, at temperature 1.
double toy_probability(const std::vector<Token>& text, Token token) {
  ToyModel toy(12, 7u, 2.0f, 256);
  toy.append(Tokens(text).first(text.size() - 1));
  const specula::NodeId none = specula::kNoParent;
  const auto row = toy.extend({&text.back(), 1}, {&none, 1}).row(0);
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  return std::exp(static_cast<double>(row[static_cast<std::size_t>(token)])) / sum;
}

void draw_without_dot(Trace& trace) {
  const SearchPath path("/nonexistent");
  trace.draw("a pipeline");
}

/// A `dot` that notes its arguments in `log` and ends with `code`.
void install_fake_dot(const fs::path& folder, const fs::path& log, int code) {
  fs::create_directories(folder);
  std::ofstream(folder / "dot") << "#!/bin/sh\nprintf '%s\\n' \"$@\" >>\"$SPECULA_TEST_LOG\"\nexit " << code
                                << '\n';
  fs::permissions(folder / "dot", fs::perms::owner_all);
  setenv("SPECULA_TEST_LOG", log.c_str(), 1);
}

}  // namespace

TEST_CASE("one file per round, with its proposal and result") {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "not" / "there yet";
  Trace trace(folder, 1, word);
  CHECK(fs::is_directory(folder));
  const auto expected = decode_traced(trace, 1);
  REQUIRE(expected.size() >= 2);
  CHECK(expected.begin()->first == "round-0001.dot");
  draw_without_dot(trace);
  CHECK(names(folder).size() == expected.size());
  for (const auto& file : expected) {
    CAPTURE(file.first);
    CHECK(contents(folder / file.first) == file.second);
  }
  CHECK(has(expected.begin()->second, "\u2423t4 "));  // the root, by its text
  CHECK(has(expected.begin()->second, "next [label="));
}

TEST_CASE("files of several prompts have different names, and rounds are counted per prompt") {
  const Scratch scratch;
  Trace trace(scratch.path(), 3, word);
  const auto expected = decode_traced(trace, 3);
  for (const char* name :
       {"prompt-01-round-0001.dot", "prompt-02-round-0001.dot", "prompt-03-round-0001.dot"})
    CHECK(expected.count(name) == 1);
  draw_without_dot(trace);
  CHECK(names(scratch.path()).size() == expected.size());
  for (const auto& file : expected) {
    CAPTURE(file.first);
    CHECK(contents(scratch.path() / file.first) == file.second);
  }
}

TEST_CASE("rounds of an older run are replaced when the new run has ended") {
  const Scratch scratch;
  const std::vector<std::string> old{"prompt-07-round-0003.svg", "round-0001.dot", "round-9999.dot"};
  const auto put = [&](const std::string& name) { std::ofstream(scratch.path() / name) << "old"; };
  for (const std::string& name : old) put(name);
  put("notes-round-0001.dot");  // another program's file
  const auto listed = [&](std::vector<std::string> expected) {
    expected.push_back("notes-round-0001.dot");
    std::sort(expected.begin(), expected.end());
    CHECK(names(scratch.path()) == expected);
  };
  {
    Trace broken(scratch.path(), 1, word);
    decode_traced(broken, 1);
    for (const std::string& name : old) CHECK(contents(scratch.path() / name) == "old");
  }
  listed(old);
  Trace trace(scratch.path(), 1, word);
  std::vector<std::string> fresh;
  for (const auto& file : decode_traced(trace, 1)) fresh.push_back(file.first);
  draw_without_dot(trace);
  listed(fresh);
  CHECK(contents(scratch.path() / "round-0001.dot") != "old");
}

TEST_CASE("an error names a folder that cannot be created") {
  const Scratch scratch;
  const fs::path file = scratch.path() / "file";
  std::ofstream(file) << "x";
  for (const fs::path& folder : {file, file / "below"}) {
    std::string complaint;
    try {
      Trace(folder, 1, word);
    } catch (const std::runtime_error& error) {
      complaint = error.what();
    }
    CHECK(has(complaint, folder.string() + ": cannot be created"));
  }
}

TEST_CASE("without Graphviz only .dot files are written, with a message") {
  const Scratch scratch, empty;
  Trace trace(scratch.path(), 1, word);
  const auto expected = decode_traced(trace, 1);
  const SearchPath path(empty.path());
  const std::string told = trace.draw("a pipeline");
  CHECK(has(told, std::to_string(expected.size()) + " rounds"));
  CHECK(has(told, "`dot` is not on the PATH"));
  CHECK(names(scratch.path()).size() == expected.size());
}

TEST_CASE("dot runs for each file, without a shell") {
  const Scratch scratch, tools;
  Trace trace(scratch.path(), 1, word);
  const auto expected = decode_traced(trace, 1);
  install_fake_dot(tools.path() / "bin", tools.path() / "log", 0);
  const SearchPath path(tools.path() / "bin");
  CHECK_FALSE(has(trace.draw("a pipeline"), "not on the PATH"));
  const std::string log = contents(tools.path() / "log");
  for (const auto& file : expected) {
    CAPTURE(file.first);
    const std::string dot_file = (scratch.path() / file.first).string();
    CHECK(has(log, dot_file + "\n"));
    CHECK(has(log, dot_file.substr(0, dot_file.size() - 4) + ".svg\n"));
  }
}

TEST_CASE("a failure of dot is reported") {
  const Scratch scratch, tools;
  Trace trace(scratch.path(), 1, word);
  decode_traced(trace, 1);
  install_fake_dot(tools.path() / "bin", tools.path() / "log", 3);
  const SearchPath path(tools.path() / "bin");
  CHECK(has(trace.draw("a pipeline"), "failed to draw"));
}

TEST_CASE("an .svg beside each .dot") {
  if (std::system("dot -V >/dev/null 2>&1") != 0)
    return specula_test::skip("dot (Graphviz) is not installed");
  const Scratch scratch;
  Trace trace(scratch.path(), 2, word);
  const auto expected = decode_traced(trace, 2);
  CHECK(has(trace.draw("a pipeline"), ".svg"));
  CHECK(names(scratch.path()).size() == 2 * expected.size());
  for (const auto& file : expected) {
    const std::string svg = contents((scratch.path() / file.first).replace_extension(".svg"));
    CAPTURE(file.first);
    CHECK(has(svg, "<svg"));
    CHECK(has(svg, "</svg>"));
    CHECK(has(svg, "next"));
  }
}

TEST_CASE("the page has every round, with probabilities of draft and target") {
  const Scratch scratch;
  const SearchPath path("/nonexistent");
  Trace trace(scratch.path(), 2, word);
  const auto files = decode_traced(trace, 2);
  Toys toys;
  const std::string told = trace.draw("dynamic-tree:3:2:9", &toys.target());
  CHECK(has(told, "trace.html"));
  const auto data = data_of(scratch.path());
  CHECK(data["pipeline"] == "dynamic-tree:3:2:9");
  CHECK(data["bytes"]["4"] == " t4");
  REQUIRE(data["texts"].size() == 2);
  std::size_t rounds = 0, inner = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    std::vector<Token> text = data["texts"][p]["prompt"];
    CHECK(text == std::vector<Token>{1, 5, static_cast<Token>(2 + p)});
    for (const auto& round : data["texts"][p]["rounds"]) {
      ++rounds;
      const std::vector<Token> tokens = round["tokens"];
      const std::vector<int> parents = round["parents"], accepted = round["accepted"];
      CHECK(tokens[0] == text.back());
      REQUIRE(parents.size() == tokens.size());
      REQUIRE(round["draft"].size() == tokens.size());
      REQUIRE(round["target"].size() == tokens.size());
      std::vector<std::vector<Token>> paths{text};  // the text up to each node
      for (std::size_t n = 1; n < tokens.size(); ++n) {
        const auto& before = paths[static_cast<std::size_t>(parents[n])];
        inner += parents[n] > 0;
        CHECK(round["target"][n].get<double>() ==
              doctest::Approx(toy_probability(before, tokens[n])).epsilon(1e-3).scale(1e-1));
        CHECK(round["draft"][n].get<double>() > 0);
        paths.push_back(before);
        paths.back().push_back(tokens[n]);
      }
      const Token next = round["next"];
      const auto& end = paths[static_cast<std::size_t>(accepted.back())];
      CHECK(round["next_target"].get<double>() ==
            doctest::Approx(toy_probability(end, next)).epsilon(1e-3).scale(1e-1));
      CHECK(round["emitted"].get<std::size_t>() <= accepted.size());
      text = end;
      text.push_back(next);
    }
    std::size_t emitted = 0;
    for (const auto& round : data["texts"][p]["rounds"]) emitted += round["emitted"].get<std::size_t>();
    CHECK(emitted == 12);
  }
  CHECK(rounds == files.size());
  CHECK(inner > 0);
}

TEST_CASE("without a target the page has the draft's probabilities only") {
  const Scratch scratch;
  Trace trace(scratch.path(), 1, word);
  decode_traced(trace, 1);
  draw_without_dot(trace);
  const auto round = data_of(scratch.path())["texts"][0]["rounds"][0];
  CHECK(round.contains("draft"));
  CHECK_FALSE(round.contains("target"));
}

TEST_CASE("no token can end the page's script or break its JSON") {
  const Scratch scratch;
  const auto odd = [](Token token) {
    const std::string texts[] = {
        "</script><b>",       "<!--", "\xff\xfe", "\x1b[31m",     "\n\r\t", "\xe2\x82",
        std::string("\0", 1), "\"\\", "&amp;",    "\xe2\x80\xa8", "",       "]]>"};
    return texts[static_cast<std::size_t>(token)];
  };
  Trace trace(scratch.path(), 1, odd);
  decode_traced(trace, 1);
  draw_without_dot(trace);
  const std::string page = contents(scratch.path() / "trace.html");
  CHECK_FALSE(has(page, "<b>"));
  CHECK(std::all_of(page.begin(), page.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); }));
  const auto data = data_of(scratch.path());
  std::size_t checked = 0;
  for (const auto& [token, text] : data["bytes"].items()) {
    std::string bytes;  // one character, U+0000 to U+00FF, for each byte
    const auto utf8 = text.get<std::string>();
    for (std::size_t i = 0; i < utf8.size(); ++i) {
      const auto lead = static_cast<unsigned char>(utf8[i]);
      bytes += lead < 0x80
                   ? utf8[i]
                   : static_cast<char>((lead & 3u) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3Fu));
    }
    CHECK(bytes == odd(std::stoi(token)));
    ++checked;
  }
  CHECK(checked >= 4);
}
