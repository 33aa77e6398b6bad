"""Crops of Zarr arrays as defined by RECORDS.md, element by element.

Run as a program it prints the vectors of pipeline/zarr/testdata/vectors.json:

    python3 integration/reference/grids.py > pipeline/zarr/testdata/vectors.json

That needs NumPy, for the bits of fill values and for copies of crops.
"""

import fractions
import itertools
import json
import math
import random
import sys

import order


class Axis:
    """Where crops may be along a dimension: n elements in bricks of k, a region from a to b, crops
    of c elements that are step apart, and origins s apart."""

    def __init__(self, n, k, a, b, c, step, s, wrap):
        self.n, self.k, self.a, self.b, self.c, self.step, self.s, self.wrap = n, k, a, b, c, step, s, wrap
        self.e = (c - 1) * step + 1


def origins_along(axis, cover):
    if axis.wrap:
        return list(range(0, axis.n, axis.s))
    origins = [o for o in range(axis.a, axis.b - axis.e + 1) if (o - axis.a) % axis.s == 0]
    if cover and origins and origins[-1] + axis.e < axis.b:
        origins.append(axis.b - axis.e)
    return origins


def bisect(low, counts, weights):
    """Returns the positions of a box in bisection order; weights are strides in bricks."""
    if all(g == 1 for g in counts):
        return [tuple(low)]
    if 0 in counts:
        return []
    d = max((i for i, g in enumerate(counts) if g > 1), key=lambda i: (counts[i] * weights[i], -i))
    first = math.ceil(fractions.Fraction(counts[d], 2))
    a, b, at = list(counts), list(counts), list(low)
    a[d], b[d] = first, counts[d] - first
    at[d] += first
    return bisect(low, a, weights) + bisect(at, b, weights)


def positions(axes, cover):
    """Returns the position of each crop, by ordinal."""
    counts = [len(origins_along(axis, cover)) for axis in axes]
    return bisect([0] * len(axes), counts, [fractions.Fraction(axis.s, axis.k) for axis in axes])


def origin(axes, cover, position):
    return [origins_along(axis, cover)[i] for axis, i in zip(axes, position)]


def room(axis, origin):
    """Returns how many places jitter can choose from."""
    return min(axis.s, axis.n - origin if axis.wrap else axis.b - axis.e - origin + 1)


def moved(axes, origin, ordinal, seed, epoch, cube):
    """Returns the origin with jitter."""
    k = order.key("crop", seed, epoch, 0)
    x = int.from_bytes(order.record_id(cube.encode(), ordinal)[:8], "little")
    result = []
    for d, axis in enumerate(axes):
        result.append(origin[d] + (order.draw(k ^ x, ordinal * len(axes) + d) * room(axis, origin[d]) >> 64))
    return result


def elements(axes, origin):
    """Returns the places of a crop's elements, in C order."""
    along = [[(o + j * axis.step) % axis.n if axis.wrap else o + j * axis.step for j in range(axis.c)] for axis, o in zip(axes, origin)]
    return list(itertools.product(*along))


def by_bricks(axes, rows):
    """Returns the order of a list of origins: by brick, in bisection order, and then by row."""
    counts = [-(-axis.n // axis.k) for axis in axes]
    rank = {p: i for i, p in enumerate(bisect([0] * len(axes), counts, [fractions.Fraction(1)] * len(axes)))}
    return sorted(range(len(rows)), key=lambda i: (rank[tuple(o // axis.k for o, axis in zip(rows[i], axes))], i))


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
