#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: rounds.py EXAMPLES LIBRARY ROUNDS

Reads what rounds.cpp writes, calls the library with the same arrays by the example round.py, and compares the bytes."""
import ctypes
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import round as example  # noqa: E402

library = ctypes.CDLL(sys.argv[2])
calls = {"verify": (library.specula_verify, example.ROUND), "draw": (library.specula_draw, example.DRAFT)}
made = {"verify": 0, "draw": 0}
differ = failed = 0
while line := sys.stdin.buffer.readline().split():
    name, returned = line[0].decode(), int(line[1])
    function, fields = calls[name]
    call = example.Call(function, fields)
    wanted = {}
    while line := sys.stdin.buffer.readline().split():
        field = line[0].decode()
        if not field.endswith(":"):
            call.set(**{field: int(line[1])})
            continue
        field, data, first = field[:-1], sys.stdin.buffer.read(int(line[1])), int(line[2])
        array = np.frombuffer(data, call.elements.get(field, np.dtype("u1"))).copy()
        if field.startswith("out_"):
            wanted[field] = data
            array.view("u1")[:] = 0x7B
        call.set(**{field: array[first:]})
    got = call()
    made[name] += 1
    failed += got != 0
    differ += got != returned or any(call.given[field].tobytes() != data for field, data in wanted.items())
print(f"{made['verify']} rounds and {made['draw']} draws, {failed} with sequences that fail: {differ} differ")
sys.exit(differ > 0 or failed == 0 or made["verify"] != int(sys.argv[3]) or made["draw"] < made["verify"] // 10)
