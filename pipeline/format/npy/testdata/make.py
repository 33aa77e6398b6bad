#!/usr/bin/env python3
"""Writes the arrays of this directory, and rows.json: what NumPy says of each.

Run it with NumPy 1.24 or newer; what is here was written by 1.24.2.
"""

import json
import warnings

import numpy as np
from numpy.lib import format

warnings.simplefilter("ignore")
nested = np.dtype([("id", "<u4"), ("box", [("x", "<f4"), ("y", "<f4")], (2,)), ("tag", "S3")])
titled = np.dtype([(("a title", "a"), "<i2"), ("b", "<f8", (2, 3))])
aligned = np.dtype([("flag", "?"), ("value", "<f8"), ("small", "<i2")], align=True)
latin = np.dtype([("é", "<u1"), ("quote's", "<u2")])
greek = np.dtype([("α", "<u1")])

arrays = {
    "float32-v1": ("<f4", (5, 3), (1, 0)),
    "float32-v2": ("<f4", (5, 3), (2, 0)),
    "float32-v3": ("<f4", (5, 3), (3, 0)),
    "one-axis": ("<i8", (7,), (1, 0)),
    "four-axes": ("|u1", (4, 2, 1, 3), (1, 0)),
    "one-row": ("<f2", (1, 4), (1, 0)),
    "no-rows": ("<f4", (0, 3), (1, 0)),
    "big-endian": (">i2", (6, 2), (1, 0)),
    "big-endian-complex": (">c16", (3,), (1, 0)),
    "bool": ("|b1", (9,), (1, 0)),
    "long-double": ("<f16", (2, 2), (1, 0)),
    "unicode": ("<U5", (4,), (1, 0)),
    "bytes": ("|S7", (3, 2), (1, 0)),
    "void": ("|V6", (3,), (1, 0)),
    "datetime": ("<M8[ns]", (3, 2), (1, 0)),
    "timedelta": ("<m8[25s]", (3,), (1, 0)),
    "generic-time": ("<m8", (3,), (1, 0)),
    "nested": (nested, (4,), (1, 0)),
    "titled": (titled, (3, 2), (1, 0)),
    "aligned": (aligned, (5,), (1, 0)),
    "latin-v1": (latin, (3,), (1, 0)),
    "latin-v3": (latin, (3,), (3, 0)),
    "fortran": ("<f4", (5, 3), (1, 0)),
    "objects": ("|O", (3,), (1, 0)),
    "objects-in-fields": ([("a", "<i4"), ("b", "|O")], (2,), (1, 0)),
    "no-dimension": ("<f4", (), (1, 0)),
    "greek": (greek, (3,), (3, 0)),
    "empty-rows": ("<f4", (3, 0), (1, 0)),
}

said = {}
for name, (dtype, shape, version) in arrays.items():
    dtype = np.dtype(dtype)
    a = np.zeros(shape, dtype)
    if not dtype.hasobject and a.nbytes:
        a = np.frombuffer(bytes(i * 7 % 256 for i in range(a.nbytes)), dtype).reshape(shape)
    if name == "fortran":
        a = np.asfortranarray(a)
    with open(name + ".npy", "wb") as f:
        format.write_array(f, a, version)
    n = shape[0] if shape else 0
    said[name] = {"rows": n, "row_bytes": a.nbytes // n if n else 0, "descr": repr(format.dtype_to_descr(dtype))}
with open("rows.json", "w") as f:
    json.dump(said, f, indent=1, sort_keys=True)
    f.write("\n")
