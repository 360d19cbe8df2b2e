// SPDX-License-Identifier: MIT
// to_dot(): proposals and their results as Graphviz text.
#include <specula/proposal/proposal_builder.hpp>
#include <specula/study/dot.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "random.hpp"
#include "skip.hpp"

using namespace specula;

namespace {

ProposalBuilder small_tree() {
  ProposalBuilder tree(8, 4, 0);
  tree.reset(1, 10);
  tree.choose(0, 2, 0.75f);
  tree.choose(0, 3, 0.126f);
  tree.choose(1, 4, 1.0f);
  return tree;
}

std::string word(Token token) {
  const std::vector<std::string> words{"", "The", " cat", " \"dog\"", "<\\n>\n", "sat"};
  return words.at(static_cast<std::size_t>(token));
}

ProposalBuilder random_tree(specula_test::Random& random, std::int32_t nodes) {
  ProposalBuilder tree(256, 64, 0);
  tree.reset(random.below(256), 0);
  while (tree.size() < nodes)
    tree.choose(random.below(tree.size()), random.below(256), static_cast<float>(random.uniform()));
  return tree;
}

VerifyResult random_result(specula_test::Random& random, const TokenTree& tree) {
  VerifyResult result;
  for (NodeId n = random.below(tree.size()); n != kNoParent; n = tree.parent(n))
    result.accepted.insert(result.accepted.begin(), n);
  result.next_token = random.below(256);
  return result;
}

/// Parses the output of to_dot(), character by character. Returns the first error, or an empty text.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  std::string complaint() {
    if (!take("digraph proposal {\n")) return "no head";
    while (!take("}\n"))
      if (const auto wrong = statement(); !wrong.empty()) return wrong;
    return at_ == text_.size() ? "" : "text after the end";
  }
  std::set<std::string> nodes;
  std::map<std::string, std::string> parents;

 private:
  bool take(std::string_view word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string statement() {
    if (!take("  ")) return "no indentation";
    const std::string from = name();
    if (from.empty()) return "no name";
    const bool edge = take(" -> ");
    const std::string to = edge ? name() : "";
    if (take(" [")) {
      while (!take("]"))
        if (const auto wrong = attribute(); !wrong.empty()) return wrong;
    }
    if (!take(";\n")) return "no end of a statement";
    if (edge && (!nodes.count(from) || !nodes.count(to) || !parents.emplace(to, from).second))
      return "a wrong edge";
    if (!edge && from != "graph" && from != "node" && from != "edge" && !nodes.insert(from).second)
      return "a node twice";
    return "";
  }
  std::string attribute() {
    if (name().empty() || !take("=")) return "no attribute";
    if (take("<")) {
      for (int open = 1; open > 0; ++at_) {
        if (at_ == text_.size()) return "an open label";
        const auto byte = static_cast<unsigned char>(text_[at_]);
        if (byte < 0x20 || byte == 0x7F) return "a control byte in a label";
        if (byte == '&' && text_.compare(at_, 5, "&amp;") != 0 && text_.compare(at_, 4, "&lt;") != 0 &&
            text_.compare(at_, 4, "&gt;") != 0 && text_.compare(at_, 6, "&quot;") != 0)
          return "a bare ampersand";
        open += byte == '<' ? 1 : byte == '>' ? -1 : 0;
      }
    } else if (take("\"")) {
      at_ = text_.find('"', at_) + 1;
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']') ++at_;
    }
    take(", ");
    return "";
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

/// Runs `dot` on a text: its exit code, and the number of nodes and edges that it drew.
struct Drawn {
  int code = -1;
  std::size_t nodes = 0, edges = 0;
};

Drawn draw(const std::string& text) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("specula-test-dot-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "proposal.dot", plain = folder / "proposal.plain";
  std::ofstream(file, std::ios::binary) << text;
  Drawn drawn;
  drawn.code =
      std::system(("dot -Tplain '" + file.string() + "' >'" + plain.string() + "' 2>/dev/null").c_str());
  std::ifstream in(plain);
  for (std::string line; std::getline(in, line);) {
    drawn.nodes += line.rfind("node ", 0) == 0;
    drawn.edges += line.rfind("edge ", 0) == 0;
  }
  in.close();
  std::filesystem::remove_all(folder);
  return drawn;
}

}  // namespace

TEST_CASE("a proposal with its result") {
  const ProposalBuilder tree = small_tree();
  VerifyResult result;
  result.accepted = {0, 1};
  result.next_token = 5;
  CHECK(to_dot(tree, result, word) == to_dot(tree, &result, word));
  CHECK(to_dot(tree, result, word) ==
        R"(digraph proposal {
  graph [rankdir=LR, ordering=out, nodesep=0.06, ranksep=0.22];
  node [shape=box, style=rounded, fontname=monospace, fontsize=10, margin="0.06,0.03", width=0, height=0, color="#c4c4c4", fontcolor="#767676", penwidth=0.6];
  edge [arrowsize=0.4, color="#c4c4c4", fontcolor="#767676", penwidth=0.6];
  n0 [label=<The <font point-size="7">root</font>>, color="#1a7f37", fontcolor="#0b3d1a", fillcolor="#d7f3dd", style="rounded,filled", penwidth=1.4];
  n1 [label=<␣cat <font point-size="7">0.75</font>>, color="#1a7f37", fontcolor="#0b3d1a", fillcolor="#d7f3dd", style="rounded,filled", penwidth=1.4];
  n2 [label=<␣&quot;dog&quot; <font point-size="7">0.13</font>>];
  n3 [label=<&lt;\\\\n&gt;\\n <font point-size="7">1.00</font>>];
  next [label=<sat <font point-size="7">next</font>>, color="#1a7f37", fontcolor="#0b3d1a", style="rounded,dashed", penwidth=1.4];
  n0 -> n1 [color="#1a7f37", penwidth=1.4];
  n0 -> n2;
  n1 -> n3;
  n1 -> next [color="#1a7f37", penwidth=1.4];
}
)");
}

TEST_CASE("a proposal without a result has neither accepted path nor next token") {
  const ProposalBuilder tree = small_tree();
  const std::string text = to_dot(tree, word);
  CHECK(text == to_dot(tree, nullptr, word));
  CHECK(text.find("next") == std::string::npos);
  CHECK(text.find("#1a7f37") == std::string::npos);
  CHECK(text.find("n0 [label=<The <font point-size=\"7\">root</font>>, fillcolor") != std::string::npos);
  CHECK(text.find("n1 [label=<\u2423cat <font point-size=\"7\">0.75</font>>];") != std::string::npos);
  CHECK(text.find("  n1 -> n3;\n") != std::string::npos);
}

TEST_CASE("invalid UTF-8, and characters that labels must escape") {
  const auto label = [](const std::string& bytes) {
    ProposalBuilder tree(2, 1, 0);
    tree.reset(1, 0);
    const std::string text = to_dot(tree, [&](Token) { return bytes; });
    const std::string begin = "n0 [label=<";
    const std::size_t at = text.find(begin) + begin.size();
    return text.substr(at, text.find(" <font") - at);
  };
  CHECK(label("a b") == "a\u2423b");
  CHECK(label("\n\t\r") == R"(\\n\\t\\r)");
  CHECK(label(R"(\n)") == R"(\\\\n)");
  CHECK(label(R"(\N\G)") == R"(\\\\N\\\\G)");  // would be the names of node and graph
  CHECK(label("\"a\" <b> &amp;") == "&quot;a&quot;\u2423&lt;b&gt;\u2423&amp;amp;");
  CHECK(label(std::string("\0\x01\x1f\x7f", 4)) == R"(\\x00\\x01\\x1f\\x7f)");
  CHECK(label("\u00e9\u20ac\U0001F600\u00a0") == "\u00e9\u20ac\U0001F600\u00a0");
  CHECK(label("\xc2\x85") == R"(\\xc2\\x85)");  // a control character of two bytes
  CHECK(label("\xe2\x82") == R"(\\xe2\\x82)");  // cut off
  CHECK(label("\xe2\x82"
              "a") == R"(\\xe2\\x82a)");
  CHECK(label("\x80") == R"(\\x80)");                             // begins in the middle
  CHECK(label("\xc0\xaf") == R"(\\xc0\\xaf)");                    // overlong
  CHECK(label("\xe0\x9f\xbf") == R"(\\xe0\\x9f\\xbf)");           // overlong
  CHECK(label("\xf0\x8f\xbf\xbf") == R"(\\xf0\\x8f\\xbf\\xbf)");  // overlong
  CHECK(label("\xed\xa0\x80") == R"(\\xed\\xa0\\x80)");           // a surrogate
  CHECK(label("\xf4\x90\x80\x80") == R"(\\xf4\\x90\\x80\\x80)");
  CHECK(label("\xef\xbf\xbd\xef\xbf\xbe") ==
        "\ufffd"
        R"(\\xef\\xbf\\xbe)");
  CHECK(label("") == "#1");
}

TEST_CASE("confidences have two digits") {
  const auto shown = [](float confidence) {
    ProposalBuilder tree(2, 2, 0);
    tree.reset(1, 0);
    tree.choose(0, 0, confidence);
    const std::string text = to_dot(tree, [](Token) { return std::string("x"); });
    const std::string begin = "n1 [label=<x <font point-size=\"7\">";
    const std::size_t at = text.find(begin) + begin.size();
    return text.substr(at, text.find("</font>", at) - at);
  };
  CHECK(shown(0.0f) == "0.00");
  CHECK(shown(0.004f) == "0.00");
  CHECK(shown(0.056f) == "0.06");
  CHECK(shown(0.999f) == "1.00");
  CHECK(shown(1.0f) == "1.00");
  CHECK(shown(7.0f) == "1.00");
  CHECK(shown(-1.0f) == "0.00");
  CHECK(shown(std::numeric_limits<float>::quiet_NaN()) == "0.00");
}

TEST_CASE("random trees with random bytes are well-formed, and every node has the right parent") {
  specula_test::Random random(11);
  const auto name = [](NodeId n) { return std::string("n").append(std::to_string(n)); };
  for (int round = 0; round < 200; ++round) {
    const ProposalBuilder tree = random_tree(random, 1 + random.below(60));
    const VerifyResult result = random_result(random, tree);
    std::vector<std::string> texts(256);
    for (auto& text : texts)
      for (std::int32_t length = random.below(5); length > 0; --length)
        text.push_back(static_cast<char>(random.below(256)));
    const auto text_of = [&](Token token) { return texts[static_cast<std::size_t>(token)]; };
    for (const VerifyResult* given : {&result, static_cast<const VerifyResult*>(nullptr)}) {
      const std::string text = to_dot(tree, given, text_of);
      Reader reader(text);
      REQUIRE(reader.complaint() == "");
      CHECK(reader.nodes.size() == static_cast<std::size_t>(tree.size()) + (given ? 1 : 0));
      for (NodeId n = 1; n < tree.size(); ++n) CHECK(reader.parents[name(n)] == name(tree.parent(n)));
      CHECK(reader.parents.size() == reader.nodes.size() - 1);
      if (given) CHECK(reader.parents["next"] == name(result.accepted.back()));
    }
  }
}

TEST_CASE("a result of another proposal is refused") {
  const ProposalBuilder tree = small_tree();
  const auto drawn = [&](std::vector<NodeId> path) {
    VerifyResult result;
    result.accepted = std::move(path);
    result.next_token = 5;
    return to_dot(tree, &result, word);
  };
  CHECK_NOTHROW(drawn({0}));
  CHECK_NOTHROW(drawn({0, 1, 3}));
  CHECK_THROWS_WITH_AS(drawn({0, 2, 3}),
                       "to_dot: the result is of another proposal; its node 3 does not follow node 2",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drawn({}), doctest::Contains("to_dot: the accepted path is empty, must hold the root"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drawn({1}), doctest::Contains("its node 1 does not follow node -1"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drawn({0, 4}), doctest::Contains("its node 4 does not follow node 0"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drawn({0, -1}), doctest::Contains("its node -1 does not follow node 0"),
                       std::invalid_argument);
}

TEST_CASE("dot accepts the output") {
  if (std::system("dot -V >/dev/null 2>&1") != 0)
    return specula_test::skip("dot (Graphviz) is not installed");
  specula_test::Random random(3);
  std::vector<std::string> texts(256);  // every byte alone and after a backslash
  for (std::size_t b = 0; b < 256; ++b) texts[b] = {'\\', static_cast<char>(b), ' ', static_cast<char>(b)};
  for (const std::int32_t nodes : {1, 60}) {
    const ProposalBuilder tree = random_tree(random, nodes);
    const VerifyResult result = random_result(random, tree);
    const Drawn drawn =
        draw(to_dot(tree, &result, [&](Token token) { return texts[static_cast<std::size_t>(token)]; }));
    CHECK(drawn.code == 0);
    CHECK(drawn.nodes == static_cast<std::size_t>(nodes) + 1);
    CHECK(drawn.edges == static_cast<std::size_t>(nodes));
  }
  // dot would have failed on malformed input.
  CHECK(draw("digraph {").code != 0);
  CHECK(draw("digraph { a [label=<>] }").code != 0);
}
