# SPDX-License-Identifier: MIT
# Doxygen's input filter (docs/site/Doxyfile): what the headers need not say for Doxygen's sake. Keeps the line numbers.
# - The comment on the first lines of a header, after that of the licence, is that file's documentation.
# - Symbols of a namespace `detail` are hidden; a header that has public members there says @endcond and @cond.
# - A concept's definition with its comments, which Doxygen drops, is part of its documentation.
# - Indented lines after an empty one are code or a formula: Markdown wants them further in.
# - A header that is documented says which tests include it (SPECULA_TESTED_BY: what tested_by.awk wrote) in place of #pragma
#   once, and is listed if no test has its name.
# - A docblock that begins with its line of code has its first sentence, as lists have, and that on top of its page.
# - Shapes, rules and drafters say **Draws.**, **Cost.**, **Throws.**, **Source.**, in this order: each begins a paragraph.
FNR == 1 { first = 1 + /SPDX-License-Identifier/ }
FNR == first && /^\/\/ / { file = FILENAME; sub(/^.*\/include\//, "", file); sub(/^\/\//, "/// @file " file " @brief"); head = 1; print; next }
head && /^\/\// { sub(/^\/\//, "///") }
/^[^\/]/ { head = 0 }

BEGIN { while ((getline row < ENVIRON["SPECULA_TESTED_BY"]) > 0) { split(row, cells, "\t"); tests[cells[1]] = cells[2] } }
/^#pragma once$/ && file {
  own = FILENAME
  sub(/include\/specula\//, "tests/", own)
  sub(/\.[a-z]+$/, ".cpp", own)
  if ((getline row < own) >= 0) $0 = "/// <p>**Tested by** " substr(own, match(own, /tests\/[^.]*\.cpp$/)) (tests[file] ? ", and included by " tests[file] : "") "."
  else $0 = "/// @xrefitem untested \"No test of its own name\" \"Headers without a test of their own name\" " (tests[file] ? "Included by " tests[file] : "No test that is built here includes it") "."
  close(own)
}

/^namespace .*detail.* \{$/ { hidden = 1; $0 = $0 "  /** @cond */" }
/^\}  \/\/ namespace .*detail/ { hidden = 0; sub(/^\}/, "/** @endcond */ }") }

/^template </ { template = $0; documented = above ~ /^\/\/\// }
!hidden && !documented && /^concept / {  # of which Doxygen does not complain
  print FILENAME ":" FNR ": error: Concept " $2 " is not documented." >"/dev/stderr"
}
!hidden && documented && /^concept / { concept = $2; documents = documents "/// @concept specula::" concept "\n/// @code{.cpp}\n/// " template "\n" }
concept { documents = documents "/// " $0 "\n" }
concept {
  text = $0
  sub(/ *\/\/.*/, "", text)
  depth += gsub(/[({]/, "&", text) - gsub(/[)}]/, "&", text)
  if (depth == 0 && text ~ /;$/) { concept = ""; documents = documents "/// @endcode\n\n" }
}

/^\/\/\/ / {  # the bold heads of this docblock
  if (above !~ /^\/\/\//) heads = ""
  for (rest = $0; match(rest, /\*\*[A-Z][a-z]+\.\*\*/); rest = substr(rest, RSTART + RLENGTH)) heads = heads substr(rest, RSTART, RLENGTH)
  gsub(/\*\*(Draws|Cost|Throws|Source|Range|Error|Bits)\.\*\*/, "<p>&")
}
function expect_heads(of) {
  if (!hidden && FILENAME ~ /\/(shape|accept|draft)\/([a-z_]+|rules\/[a-z_]+)\.hpp$/ && heads_of != "**Draws.****Cost.****Throws.****Source.**") {
    print FILENAME ":" FNR ": error: " of " has the heads \"" heads_of "\", not **Draws.** **Cost.** **Throws.** **Source.**" >"/dev/stderr"
  }
}
/^(class|struct) [A-Za-z]+( |$)/ { type = $2; heads_of = heads }
/^ +static constexpr ProposalKind kind =|lossless_for\(ProposalKind[ )]|^  void sync\(Tokens|^class .* : public [A-Za-z:]*Drafter</ { if (type) expect_heads(type); type = "" }
/^SPECULA_HD void [a-z_]+\(Verifier& verifier(\)|, double)/ { heads_of = heads; expect_heads($3) }

# The first sentence after the code that a docblock begins with, which has line `first` of this file.
function sentence(first,  line, text, row) {
  while ((getline row < FILENAME) > 0)
    if (++line > first && row !~ /^\/\/\/(   |$)/) {
      sub(/^\/\/\/ /, "", row)
      text = text " " row
      if (match(text, /\.( |$)/)) { text = substr(text, 1, RSTART); break }
    }
  close(FILENAME)
  return text
}
/^\/\/\/   +[^ ]/ && (above !~ /^\/\/\// || example) {
  if (!example) said = sentence(FNR)
  sub(/^\/\/\/   /, example ? "///  " : "/// @brief" said " @details @code{.cpp} ")
  example = 1
}
/^\/\/\/$/ && example { $0 = "/// @endcode"; example = 0 }
/^\/\/\/ / && said && !example {  # is not said twice
  own = substr($0, 4)
  if (index(own, said) == 1) { $0 = "///" substr(own, length(said) + 1); said = "" }
  else if (index(said, own) == 1) { $0 = "///"; said = substr(said, length(own) + 1) }
}

/^ *\/\/\/   +[^ ]/ && block { sub(/\/\/\/ /, "///      "); indented = 1 }
{ block = ($0 ~ /^ *\/\/\/$/) || indented; indented = 0 }

{ above = $0; print }
END { printf "%s", documents }
