#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: beside.sh ROOT
#
# Our engine beside the best of the others, of made-up records (scripts/beside.py): ties, engines that are absent, kinds without
# records.
set -euo pipefail
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
PYTHONDONTWRITEBYTECODE=1 python3 - "$1/scripts" <<'END'
import sys
import unittest

sys.path.insert(0, sys.argv.pop())
import beside

KINDS, PIPELINE = ["chat", "code"], "chain:4@plain"


def row(engine, weights, mode, **speeds):
    """Two prompts of each kind, of which the second is twice as long."""
    return {"engine": engine, "weights": weights, "mode": mode, "texts": {kind: [[10, 10 / speed], [20, 20 / speed]] for kind, speed in speeds.items()}}


OURS = [row("specula", "q4_1", "plain", chat=100, code=100), row("specula", "q4_1", PIPELINE, chat=150, code=200),
        row("specula", "bf16", PIPELINE, chat=900, code=900)]
THEIRS = [row("llama.cpp", "q4_0", "plain", chat=60, code=60), row("llama.cpp", "q4_0", "llama-lookup", chat=50, code=80),
          row("llama.cpp", "q8_0", "plain", chat=60, code=40), row("specula in llama.cpp", "q4_0", "plain", chat=999, code=999),
          row("OpenVINO GenAI", "q4_1", "plain", chat=75, code=30)]


class Beside(unittest.TestCase):
    def test_each_engine_at_its_best_for_the_kind(self):
        of = beside.beside(OURS + THEIRS, KINDS, PIPELINE)
        chat, code = of["kinds"]["chat"], of["kinds"]["code"]
        self.assertAlmostEqual(chat["plain"], 100)
        self.assertAlmostEqual(chat["best"], 150)  # at 4 bits, whatever others of ours do
        self.assertEqual({name: (x["weights"], x["mode"]) for name, x in code["others"].items()},
                         {"llama.cpp": ("q4_0", "llama-lookup"), "OpenVINO GenAI": ("q4_1", "plain")})
        self.assertAlmostEqual(chat["ratio"], 150 / 75)  # OpenVINO's; specula inside llama.cpp does not count
        self.assertAlmostEqual(code["ratio"], 200 / 80)
        self.assertAlmostEqual(of["means"]["gain"], (1.5 + 2) / 2)
        self.assertAlmostEqual(of["means"]["ratio"], (2 + 2.5) / 2)
        self.assertAlmostEqual(of["means"]["ratio_of_means"], 175 / 77.5)

    def test_of_equals_the_first(self):
        found, speed = beside.fastest([x for x in THEIRS if x["engine"] == "llama.cpp"], "chat")
        self.assertEqual((found["weights"], found["mode"]), ("q4_0", "plain"))
        self.assertAlmostEqual(speed, 60)

    def test_speeds_weigh_prompts_by_their_tokens(self):
        self.assertAlmostEqual(beside.speed({"texts": {"chat": [[10, 1], [90, 1]]}}, "chat"), 50)

    def test_an_engine_that_is_absent(self):
        of = beside.beside(OURS, KINDS, PIPELINE)
        self.assertEqual(of["kinds"]["chat"]["others"], {})
        self.assertIsNone(of["kinds"]["chat"]["ratio"])
        self.assertIsNone(of["means"]["ratio_of_means"])
        self.assertAlmostEqual(of["means"]["gain"], 1.75)
        of = beside.beside(THEIRS, KINDS, PIPELINE)
        self.assertIsNone(of["kinds"]["code"]["best"])
        self.assertIsNone(of["kinds"]["code"]["ratio"])
        self.assertIsNone(of["means"]["best"])

    def test_a_kind_without_records(self):
        of = beside.beside([*OURS, row("OpenVINO GenAI", "q4_1", "plain", chat=75)], KINDS, PIPELINE)
        self.assertEqual(of["kinds"]["code"]["others"], {})
        self.assertIsNone(of["kinds"]["code"]["ratio"])
        self.assertAlmostEqual(of["kinds"]["chat"]["ratio"], 2)
        self.assertIsNone(of["means"]["ratio"])  # of one kind it would be no mean over them
        self.assertIsNone(beside.fastest([row("a", "q4_0", "plain")], "chat"))

    def test_the_type_at_which_an_engine_is_fastest(self):
        self.assertEqual(beside.best_weights(THEIRS, "llama.cpp", KINDS), "q4_0")
        self.assertIsNone(beside.best_weights(THEIRS, "another", KINDS))
        self.assertEqual(beside.best_weights([row("a", "q8_0", "plain", chat=10), row("a", "q4_0", "plain", code=10)], "a", KINDS), "q8_0")

    def test_rows_of_cells(self):
        def cell(n):
            return {"plain": {"texts": {"chat": [8, n]}, "same": [1, 1]}, PIPELINE: {"texts": {"chat": [8, n], "code": [8, n]}, "same": [1, 2]}}
        ours, theirs = ("specula", "q4_1"), ("llama.cpp", "q4_0")
        rows = beside.rows_of([{ours: cell(1), theirs: cell(4)}, {ours: cell(2), theirs: cell(3)}], threads=1)
        self.assertEqual([(x["engine"], x["mode"], x["threads"]) for x in rows],
                         [("specula", "plain", 1), ("specula", PIPELINE, 1), ("llama.cpp", "plain", 1), ("llama.cpp", PIPELINE, 1)])
        self.assertEqual(rows[1]["texts"], {"chat": [[8, 1], [8, 2]], "code": [[8, 1], [8, 2]]})
        self.assertEqual((rows[1]["same"], rows[2]["same"]), ([2, 4], [2, 2]))


unittest.main()
END
