# Doxygen's input filter (docs/Doxyfile): what the headers need not say for Doxygen's sake. Keeps the line numbers.
# - The comment on the first lines of a header is that file's documentation.
# - Symbols of a namespace `detail` are hidden; a header that has public members there says @endcond and @cond.
# - Names in parentheses, (verify)(tree, rng), are names.
FNR == 1 && /^\/\/ / { file = FILENAME; sub(/^.*\/include\//, "", file); sub(/^\/\//, "/// @file " file " @brief"); head = 1; print; next }
head && /^\/\// { sub(/^\/\//, "///") }
/^[^\/]/ { head = 0 }
/^namespace .*detail.* \{$/ { $0 = $0 "  /** @cond */" }
/^\}  \/\/ namespace .*detail/ { sub(/^\}/, "/** @endcond */ }") }
{ while (match($0, /\((check|require|verify)\)\(/)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + 1, RLENGTH - 3) substr($0, RSTART + RLENGTH - 1) }
{ print }
