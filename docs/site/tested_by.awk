# SPDX-License-Identifier: MIT
# Reads `ninja -t deps` of builds, and says of each header of the library which tests include it: a line of the header, a tab,
# and the three nearest tests, which include the fewest headers of ours, with the number of the others.
function finish(  i) {
  if (test && !(test in size)) {
    size[test] = count
    for (i = 1; i <= count; i++) tests[headers[i]] = tests[headers[i]] " " test
  }
  test = ""
  count = 0
}
/: #deps / { finish() }
/^ .*\/tests\/.*\.cpp$/ { test = $1; sub(/^.*\/tests\//, "", test); sub(/\.cpp$/, "", test); if (test ~ /^(headers|support)\//) test = "" }
/^ .*\/include\/specula\// { header = $1; sub(/^.*\/include\//, "", header); headers[++count] = header }
END {
  finish()
  for (header in tests) {
    n = split(tests[header], of, " ")
    own = header
    sub(/^specula\//, "", own)
    sub(/\.[a-z]+$/, "", own)
    text = ""
    for (shown = others = 0; shown < 3; shown++) {
      nearest = 0
      for (i = 1; i <= n; i++)
        if (of[i] && of[i] != own && (!nearest || size[of[i]] < size[of[nearest]] || (size[of[i]] == size[of[nearest]] && of[i] < of[nearest]))) nearest = i
      if (!nearest) break
      text = text (shown ? ", " : "") of[nearest]
      of[nearest] = ""
    }
    for (i = 1; i <= n; i++) others += of[i] && of[i] != own
    print header "\t" text (others ? " and " others " more" : "")
  }
}
