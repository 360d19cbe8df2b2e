// SPDX-License-Identifier: MIT
// Help texts in lines of at most 100 bytes: where they are cut, and that no word is lost.
#include "wrapped.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

using specula_tools::wrapped;

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Without blanks.
std::string letters_of(const std::string& text) {
  std::string all;
  for (const std::string& word : words_of(text)) all += word;
  return all;
}

}  // namespace

TEST_CASE("what follows a cut begins below an option's description, or below its line") {
  CHECK(wrapped("  --option TEXT              a long description", 45) ==
        "  --option TEXT              a long\n                              description");
  CHECK(wrapped("    one two three\nfour", 10) == "    one\n    two\n    three\nfour");
  CHECK(wrapped("one two\n\nthree\n", 80) == "one two\n\nthree\n");
  CHECK(wrapped("", 10).empty());
}

TEST_CASE("a word that is too long stays whole, and blanks at the end go") {
  CHECK(wrapped("aaaaaaaaaaaa bb", 5) == "aaaaaaaaaaaa\nbb");
  CHECK(wrapped("  aaaaaaaaaaaa", 5) == "  aaaaaaaaaaaa");
  CHECK(wrapped("  chain[:LENGTH][@small]", 17) == "  chain[:LENGTH]\n  [@small]");
  CHECK(wrapped("aaaa bbbb   ", 9) == "aaaa bbbb\n");
}

TEST_CASE("every width keeps all but blanks, in its order") {
  const std::string text =
      "Usage: program [OPTIONS]\n\n  --models TEXT               Folder of models (default: those here)\n"
      "  chain[:LENGTH=4][:draw=sampled]\n      a chain, of the draft's likeliest tokens\n";
  for (std::size_t width = 1; width < 90; ++width) {
    CAPTURE(width);
    CHECK(letters_of(wrapped(text, width)) == letters_of(text));
    std::istringstream lines(wrapped(text, width));
    for (std::string line; std::getline(lines, line);)
      CHECK((line.size() <= width || words_of(line).size() == 1 || width <= 45));
  }
}
