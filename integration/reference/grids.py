"""Prints the vectors of pipeline/zarr/testdata/vectors.json:

    python3 integration/reference/grids.py > pipeline/zarr/testdata/vectors.json

Places of crops are computed by the program of the page CROPS.md (formats.py). It needs NumPy, for
the bits of fill values.
"""

import json
import random
import sys

from formats import Axis, by_bricks, moved, origin, positions


def make_grids(dice):
    for _ in range(60):
        axes = []
        for _ in range(dice.randint(0, 4)):
            n = dice.randint(1, 24)
            wrap = dice.random() < 0.25
            a = 0 if wrap else dice.randint(0, n // 3)
            b = n if wrap else dice.randint(a, n)
            step = dice.randint(1, 3)
            c = dice.randint(1, max(1, ((n if wrap else b - a) - 1) // step + 1))
            axes.append(Axis(n, dice.randint(1, n + 3), a, b, c, step, dice.randint(1, n), wrap))
        cover = dice.random() < 0.4
        where = positions(axes, cover)
        seed, epoch = dice.randrange(1 << 64), dice.randrange(5)
        if len(where) > 300:
            continue
        origins = [origin(axes, cover, p) for p in where]
        rows = [[dice.randrange(axis.n) for axis in axes] for _ in range(12)]
        yield {
            "axes": [[axis.n, axis.k, axis.a, axis.b, axis.c, axis.step, axis.s, int(axis.wrap)] for axis in axes],
            "cover": cover, "seed": str(seed), "epoch": epoch, "cube": "sat.zarr",
            "positions": where, "origins": origins,
            "moved": [moved(axes, o, i, seed, epoch, "sat.zarr") for i, o in enumerate(origins)],
            "rows": rows, "by_bricks": by_bricks(axes, rows),
        }


def make_fills():
    import numpy

    texts = ["0", "-0.0", "1", "-1.5", "0.1", "1e-7", "6e-8", "2.9e-8", "3e-8", "65504", "65519", "1e-45", "7e-46", "5e-324", "0.30000000000000004",
             "2049", "2051", "1.00048828125", "1.0009765625", "0.000061005353927612305", "0.00006103515625", "1.0000001192092896", "1.000000059604644776"]
    types = {"float16": "<u2", "float32": "<u4", "float64": "<u8"}
    for name, bits in types.items():
        for text in texts + ["NaN", "Infinity", "-Infinity"]:
            if name == "float16" and abs(float(text.replace("Infinity", "inf"))) >= 65520 and "I" not in text:
                continue
            one = numpy.array([float(text.replace("Infinity", "inf"))], dtype=name)
            if name == "float32" and text[0] not in "NI-":
                one = numpy.array([numpy.float32(text)])
            yield [name, json.dumps(text) if text[-1] in "Ny" else text, one.astype(one.dtype.newbyteorder("<")).tobytes().hex()]


def main():
    v = {"about": "made by integration/reference/grids.py", "grids": list(make_grids(random.Random(7))), "fills": list(make_fills())}
    json.dump(v, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
