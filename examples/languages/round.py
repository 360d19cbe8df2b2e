#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rounds of an engine in Python by ctypes and numpy: python3 round.py libspecula_c.so"""
import ctypes
import sys

import numpy as np

KINDS = {"z": ctypes.c_size_t, "i": ctypes.c_int32, "l": ctypes.c_int64, "p": ctypes.c_void_p}
STATS = np.dtype([("log_z", "f8"), ("shift", "f4"), ("temperature", "f4"), ("min_logit", "f4"), ("point", "i4"), ("status", "i4"), ("", "i4")])
# The structs of specula.h: fields by kind; an array (p) with its elements, where there is but one type of them.
PARAMS = "sequence:p:u4 temperature:p:f4 top_k:p:i4 top_p:p:f4 min_p:p:f4"
ROUND = ("struct_size:z sequences:i nodes:i vocab:i width:i begin:p:i4 token:p:i4 position:p:i4 seed:p:u8 target:p target_rows:l out_token:p:i4 "
         "out_accepted:p:i4 out_count:p:i4 out_status:p:i4 rule:i target_type:i target_stride:l target_row:p:i4 parent:p:i4 " + PARAMS +
         " draft_form:i draft_type:i draft:p draft_rows:l draft_stride:l draft_row:p:i4 draft_scale:p:f8 draft_stats:p draft_token:p:i4 few:i "
         "reserved:i out_log_prob:p:f4")
DRAFT = ("struct_size:z rows:i draws:i vocab:i type:i logits:p position:p:i4 origin:p:i4 seed:p:u8 out_token:p:i4 out_status:p:i4 stride:l "
         "distinct:i reserved:i first:p:i4 " + PARAMS + " out_prob:p:f4 out_scale:p:f8 out_stats:p")


class Call:
    """A function of the library with its struct: make it once, write into the arrays, call it every round."""

    def __init__(self, function, fields, **values):
        fields = [field.split(":") for field in fields.split()]
        self.struct = type("Struct", (ctypes.Structure,), {"_fields_": [(name, KINDS[kind]) for name, kind, *_ in fields]})()
        self.struct.struct_size = ctypes.sizeof(self.struct)
        self.function, self.at, self.given = function, ctypes.byref(self.struct), {}
        self.elements = {name: np.dtype(element) for name, kind, element in (f for f in fields if len(f) == 3)}
        self.set(**values)

    def set(self, **values):
        for name, value in values.items():
            if value is self.given.get(name, self):
                continue
            address = value
            if isinstance(value, np.ndarray):
                if name in self.elements and (value.dtype != self.elements[name] or not value.flags.c_contiguous):
                    raise TypeError(f"{name} must be a contiguous array of {self.elements[name]}, not of {value.dtype}")
                address = value.ctypes.data  # takes a microsecond
            setattr(self.struct, name, address)
            self.given[name] = value  # which keeps an array alive

    def __call__(self):
        return self.function(self.at)


if __name__ == "__main__":
    library = ctypes.CDLL(sys.argv[1])
    library.specula_error.restype = ctypes.c_char_p
    B, K, V = 2, 3, 1000  # texts, draft tokens, vocabulary
    out = {"out_token": np.empty((B, K + 1), "i4"), "out_accepted": np.empty((B, K + 1), "i4"), "out_count": np.empty(B, "i4"), "out_status": np.empty(B, "i4")}
    target, draft = np.zeros((B * (K + 1), V), "f4"), np.zeros((B * K, V), "f4")  # rows of an engine's models
    verify = Call(library.specula_verify, ROUND, sequences=B, nodes=B * (K + 1), vocab=V, width=K + 1, begin=np.arange(B + 1, dtype="i4") * (K + 1),
                  token=np.arange(B * (K + 1), dtype="i4"), position=np.array([10, 25], "i4"), seed=np.array([1, 2], "u8"), target=target,
                  target_rows=len(target), draft_form=1, draft=draft, draft_rows=len(draft), **out)
    if verify() != 0:
        sys.exit(library.specula_error().decode())
    print(*(row[:n] for row, n in zip(out["out_token"].tolist(), out["out_count"])))
