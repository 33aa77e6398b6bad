"""Crops of Zarr arrays as records, element by element.

Where crops are, and how elements are converted, is computed by the programs of the pages CROPS.md
and ELEMENTS.md; this module cuts them out of whole arrays.
"""

import glob
import hashlib
import json
import math
import os

import numpy

import elements
import formats
from stored import read


class Field:
    def __init__(self, name, path, array):
        self.name, self.path, self.array = name, path, array


class Crop:
    """A record. With jitter, its bytes differ between epochs, but not its place in an order."""

    key = members = None
    begin, entry = 0, True

    def __init__(self, cube, ordinal):
        self.cube, self.shard, self.ordinal, self.kind = cube, cube.path, ordinal, cube.kind
        self.size = cube.row_bytes

    def place(self, o):
        """Returns (row, origin in each field)."""
        return self.cube.place(self.ordinal, o)

    def data_in(self, o):
        return self.cube.record(self.place(o)[1])


def convert(field, options):
    """Converts a field's elements to float32, and notes how."""
    array = field.array
    scale, offset = (flag_of(options.get(name), field.name) for name in ("scale", "offset"))
    array.values, array.packing = elements.to_float32(array.values, array.attributes, scale, offset)


def flag_of(text, name):
    """Returns the value of --scale or --offset for a field; None if it has none."""
    if not text or "=" not in text:
        return float(text) if text else None
    given = dict(t.split("=") for t in text.split(",")).get(name)
    return None if given is None else float(given)


def kind(descr, shape):
    return formats.Kind(descr, descr, shape)


def numbers(text, dims):
    """Returns the value of a flag for each dimension; None if it has none."""
    if not text:
        return [None] * len(dims)
    parts = text.split(",")
    if "=" not in text:
        return [int(p) for p in parts]
    given = dict(p.split("=") for p in parts)
    return [int(given[d]) if d in given else None for d in dims]


class Cube:
    def __init__(self, path, number, fields, options):
        self.path, self.fields, self.o = path, fields, options
        if options.get("as") == "float32":
            for f in fields:
                convert(f, options)
        self.axes = [self.axes_of(f) for f in fields]
        self.rows, self.row_numbers = None, None
        first = fields[0].array
        self.list_sum = ""
        if options.get("crops"):
            self.take_list(options["crops"], number)
            self.total = len(self.rows)
        else:
            self.positions = formats.positions(self.axes[0], options.get("edge") == "cover")
            counts = [len(formats.origins_along(a, options.get("edge") == "cover")) for a in self.axes[0]]
            self.counts, self.total = counts, len(self.positions)
        self.places = {}
        for selection in options.get("select") or []:
            dim, what = selection.split("=")
            if ":" not in what:
                self.places[dim] = [int(x) for x in what.split(",")]
        self.kind = self.layout()
        sample = self.record(self.origins([a.a for a in self.axes[0]]) if self.rows is None else self.rows[0])
        self.row_bytes = len(sample)
        assert first.dims is not None

    def axes_of(self, field):
        dims, o, list_of = field.array.dims, self.o, []
        crop, stride, step = (numbers(o.get(n), dims) for n in ("crop", "stride", "step"))
        regions = dict(s.split("=") for s in o.get("select") or [])
        for d, name in enumerate(dims):
            n = field.array.values.shape[d]
            what, a, b, single = regions.get(name), 0, n, False
            if what and ":" in what:
                low, high = what.split(":")
                a, b = int(low or 0), int(high or n)
            elif what:
                a, single = int(what.split(",")[0]), True
                b = a + 1
            k = step[d] or 1
            c = 1 if single else crop[d] or (b - a - 1) // k + 1
            s = stride[d] or (c - 1) * k + 1
            list_of.append(formats.Axis(n, field.array.brick[d], a, b, c, k, s, name != "" and name in ",".join(o.get("wrap") or []).split(",")))
        return list_of

    def take_list(self, file, number):
        table = numpy.load(file)
        with open(file, "rb") as f:
            self.list_sum = hashlib.sha256(f.read()).hexdigest()
        chosen = []
        for i, row in enumerate(table):
            if table.dtype.names:
                if int(row["cube"] if "cube" in table.dtype.names else 0) == number:
                    chosen.append((i, [[int(x) for x in numpy.atleast_1d(row[f.name])] for f in self.fields]))
                continue
            row = [int(x) for x in row]
            if len(row) > len(self.axes[0]):
                cube, row = row[0], row[1:]
                if cube != number:
                    continue
            chosen.append((i, self.origins(row)))
        by = formats.by_bricks(self.axes[0], [origins[0] for _, origins in chosen])
        self.rows = [chosen[i][1] for i in by]
        self.row_numbers = [chosen[i][0] for i in by]

    def origins(self, first):
        """Returns the origin in each field, given that in the first one."""
        at = dict(zip(self.fields[0].array.dims, first))
        result = [list(first)]
        for field, axes in zip(self.fields[1:], self.axes[1:]):
            if any(field.array.dims):
                result.append([at.get(d, axis.a) for d, axis in zip(field.array.dims, axes)])
            else:
                result.append(list(first))
        return result

    def place(self, ordinal, o):
        if self.rows is not None:
            row, origins = self.row_numbers[ordinal], self.rows[ordinal]
        else:
            position = self.positions[ordinal]
            row = 0
            for i, n in zip(position, self.counts):
                row = row * n + i
            origins = self.origins(formats.origin(self.axes[0], self.o.get("edge") == "cover", position))
        if self.o.get("jitter"):
            origins = self.origins(formats.moved(self.axes[0], origins[0], ordinal, o["seed"], o["epoch"], self.path))
        return row, origins

    def crop(self, field, axes, origin):
        values = field.array.values
        for d, (axis, start) in enumerate(zip(axes, origin)):
            single = self.places.get(field.array.dims[d])
            values = values.take(single or [(start + j * axis.step) % axis.n for j in range(axis.c)], axis=d)
        return values

    def record(self, origins):
        parts = []
        for field, axes, origin in zip(self.fields, self.axes, origins):
            values = self.crop(field, axes, origin)
            data = numpy.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
            if len(self.fields) > 1 and not self.o.get("stack"):
                data += bytes(-len(data) % 64)
            parts.append(data)
        return b"".join(parts)

    def kept(self):
        """Returns for each record whether it is in the orders: with missing=skip, none that could
        need a brick that is not stored, wherever jitter moves it."""
        if self.o.get("missing") != "skip":
            return [True] * self.total
        return [not self.lacks(ordinal) for ordinal in range(self.total)]

    def lacks(self, ordinal):
        if self.rows is not None:
            origins = self.rows[ordinal]
        else:
            origins = self.origins(formats.origin(self.axes[0], self.o.get("edge") == "cover", self.positions[ordinal]))
        rooms = self.origins([formats.room(axis, o) if self.o.get("jitter") else 1 for axis, o in zip(self.axes[0], origins[0])])
        first = self.fields[0].array.dims
        for field, axes, origin, room in zip(self.fields, self.axes, origins, rooms):
            absent = field.array.absent
            for d, (axis, start) in enumerate(zip(axes, origin)):
                shared = field.array.dims[d] in first if any(first) else True
                moves = room[d] if shared else 1
                single = self.places.get(field.array.dims[d])
                all_of = {(start + m + j * axis.step) % axis.n for j in range(axis.c) for m in range(moves)}
                absent = absent.take(single or sorted(all_of), axis=d)
            if absent.any():
                return True
        return False

    def kept_sum(self):
        kept = self.kept()
        if all(kept):
            return ""
        return hashlib.sha256(numpy.packbits(kept, bitorder="little").tobytes()).hexdigest()

    def shape(self, k):
        return tuple(len(self.places.get(d) or []) or axis.c for d, axis in zip(self.fields[k].array.dims, self.axes[k]))

    def descr(self, k):
        dtype = self.fields[k].array.values.dtype.newbyteorder("<")
        return repr(dtype.descr if dtype.names else dtype.str)

    def layout(self):
        shapes = [self.shape(k) for k in range(len(self.fields))]
        if len(self.fields) == 1:
            return kind(self.descr(0), shapes[0])
        if self.o.get("stack"):
            return kind(self.descr(0), (len(self.fields),) + shapes[0])
        texts = []
        for k, field in enumerate(self.fields):
            shape = ", " + repr(shapes[k]) if shapes[k] else ""
            texts.append("(%r, %s%s)" % (field.name, self.descr(k), shape))
            size = field.array.values.dtype.itemsize * math.prod(shapes[k])
            if size % 64:
                texts.append("('', '|V%d')" % (-size % 64))
        return kind("[" + ", ".join(texts) + "]", ())

    def words(self):
        """Returns the canonical JSON of the fingerprint."""
        first = self.axes[0]
        fields, unpacked = [], []
        for k, f in enumerate(self.fields):
            fill = f.array.fill.astype(f.array.fill.dtype.newbyteorder("<")).tobytes().hex()
            places = [self.places.get(d) for d in f.array.dims]
            for d, axis in enumerate(self.axes[k]):
                if k > 0 and places[d] is None and axis.a > 0 and f.array.dims[d] not in self.fields[0].array.dims:
                    places[d] = [axis.a + j * axis.step for j in range(axis.c)]
            if f.array.packing:
                unpacked.append([f.array.packing[0], fill] + f.array.packing[1:])
                fill = ""
            fields.append([f.name, f.path, self.descr(k), list(self.shape(k)), [a.step for a in self.axes[k]], places, fill])
        return {
            **({"as": unpacked} if unpacked else {}),
            "arrays": fields, "dims": self.fields[0].array.dims, "a": [x.a for x in first], "b": [x.b for x in first], "s": [x.s for x in first],
            "wrap": [x.wrap for x in first], "edge": self.o.get("edge") or "drop", "jitter": bool(self.o.get("jitter")), "stack": bool(self.o.get("stack")),
            "brick": self.fields[0].array.brick, "list": self.list_sum, "missing": self.o.get("missing") or "fill", "kept": self.kept_sum(),
        }


def is_node(path):
    return any(os.path.exists(os.path.join(path, n)) for n in ("zarr.json", ".zgroup", ".zarray"))


def find(dataset):
    """Returns (path as a shard, directory) of each hierarchy."""
    if "*" in dataset:
        return [(os.path.basename(f), f) for f in sorted(glob.glob(dataset), key=os.fsencode)]
    if is_node(dataset) or os.path.isfile(dataset):
        return [(os.path.basename(os.path.abspath(dataset)), dataset)]
    found = []
    for directory, names, _ in formats.walk(dataset):
        for name in list(names):
            full = os.path.join(directory, name)
            if is_node(full):
                found.append((os.path.relpath(full, dataset), full))
                names.remove(name)
    return sorted(found, key=lambda x: os.fsencode(x[0]))


def load(dataset, options):
    cubes = []
    for number, (path, directory) in enumerate(find(dataset)):
        fields = []
        for text in [t for a in options.get("array") or [""] for t in a.split(",")]:
            name, _, at = text.rpartition("=")
            at = at.strip("/")
            fields.append(Field(name or at.split("/")[-1], at, read(os.path.join(directory, at))))
        cubes.append(Cube(path, number, fields, options))
    return cubes


def words(cubes):
    """Returns the format in a fingerprint of several cubes: ends that differ are -1."""
    w = cubes[0].words()
    kept = [c.kept_sum() for c in cubes]
    if len(cubes) > 1 and any(kept):
        w["kept"] = hashlib.sha256("".join(k + "\n" for k in kept).encode()).hexdigest()
    for c in cubes[1:]:
        w["b"] = [x if x == y else -1 for x, y in zip(w["b"], c.words()["b"])]
    ways = list(dict.fromkeys(compact(c.words()["as"]) for c in cubes if "as" in w))
    if len(ways) > 1:
        w["as"] = hashlib.sha256("".join(x + "\n" for x in ways).encode()).hexdigest()
    return "zarr " + compact(w)


def compact(x):
    return json.dumps(x, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def table(mine, o):
    """Returns the file that lists the crops of a stream: cube, row, origin."""
    cubes = sorted(((r.shard, r.cube) for r in o["cubes"]), key=lambda x: os.fsencode(x[0]))
    numbers_of = {path: i for i, (path, _) in enumerate(cubes)}
    rows = []
    for r in mine:
        row, origins = r.place(o)
        rows.append([numbers_of[r.shard], row] + origins[0])
    dims = len(cubes[0][1].axes[0])
    values = numpy.array(rows, "<i8").reshape(len(rows), 2 + dims)
    return formats.npy_header(kind("'<i8'", (2 + dims,)), len(rows)) + values.tobytes()
